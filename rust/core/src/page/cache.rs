//! Cache of parsed pages, bounded in bytes and shared by threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::id::cid::RootCid;
use crate::id::suite::Digest;
use crate::page::format::Page;

/// Pages that are available without I/O. A query asks for all others with an interrupt.
pub trait PageSource: Send + Sync {
    /// The page with this digest, if it is available.
    fn page(&self, digest: &Digest) -> Option<Arc<Page>>;

    /// Notes that the page with this digest was found by a link from another one.
    fn touch(&self, _digest: &Digest) {}
}

/// Weighs pages by the memory that they take.
#[derive(Clone)]
struct ByMemory;

impl Weighter<Digest, Arc<Page>> for ByMemory {
    fn weight(&self, _: &Digest, page: &Arc<Page>) -> u64 {
        page.memory() as u64
    }
}

/// Of so many uses of pages by links, the cache learns of one, so that it keeps pages that are used often.
const TOUCHES_PER_LOOKUP: u64 = 16;

/// 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Whether the cache learns of the use with this number. Not of every sixteenth: if queries use four pages each, such uses
/// are always of the same level of a tree, and pages of the others would be evicted. The multiples of `SPREAD` are spread
/// evenly, also those of every fourth number.
fn is_noted(number: u64) -> bool {
    number.wrapping_mul(SPREAD) <= u64::MAX / TOUCHES_PER_LOOKUP
}

/// The maximum number of lists that are known to be fixed.
const MAX_FIXED_LISTS: usize = 1024;

/// The maximum number of roots of which it is known what they were made of.
const MAX_CHANGED_ROOTS: usize = 4096;
/// How many bases of a root are returned at most.
const MAX_BASES: usize = 16;

/// Cache of a store: parsed pages by digest, bounded in bytes, roots that the store holds, lists that are fixed, and which
/// trees were made of which.
///
/// What the store holds is known as of a generation, which ends when roots expire. What a read that began in an earlier one
/// has found is not known any more:
///
/// ```text
/// reader      generation() = 7 ── reads the record of a root ──────────── remember(root, 7)    is_held(root) = None
/// collection                              expires the root ── expire(): 8
/// ```
pub struct PageCache {
    pages: Cache<Digest, Arc<Page>, ByMemory>,
    held: Cache<RootCid, u64>,
    generation: AtomicU64,
    fixed: Cache<RootCid, u64>,
    bases: Cache<RootCid, RootCid>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl PageCache {
    /// Creates a cache of at most `max_bytes` of parsed pages and about `max_roots` roots.
    pub fn new(max_bytes: u64, max_roots: usize) -> Self {
        // A parsed page takes about 20 KB; the estimate sizes the initial tables only.
        let estimate = usize::try_from(max_bytes / 20_000).unwrap_or(usize::MAX).clamp(16, 1 << 16);
        Self {
            pages: Cache::with_weighter(estimate, max_bytes, ByMemory),
            held: Cache::new(max_roots),
            generation: AtomicU64::new(0),
            fixed: Cache::new(MAX_FIXED_LISTS),
            bases: Cache::new(MAX_CHANGED_ROOTS),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Inserts a page; others may be evicted.
    pub fn insert(&self, page: Arc<Page>) {
        self.pages.insert(page.digest(), page);
    }

    /// The current generation; read it before the store.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Ends the generation, since roots have expired: from now on, no root is known to be held.
    pub fn expire(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that the store holds a root, as a read or write has found that began in `generation`.
    pub fn remember(&self, root: RootCid, generation: u64) {
        self.held.insert(root, generation);
    }

    /// Returns `Some(true)` if the store is known to hold a root, and None if that is unknown.
    pub fn is_held(&self, root: &RootCid) -> Option<bool> {
        (self.held.get(root)? == self.generation()).then_some(true)
    }

    /// Records that all elements of a list have `size`, except that the last may be smaller.
    pub fn remember_fixed(&self, root: RootCid, size: u64) {
        self.fixed.insert(root, size);
    }

    /// The size of the elements of a list that is known to be fixed.
    pub fn fixed_size(&self, root: &RootCid) -> Option<u64> {
        self.fixed.get(root)
    }

    /// Records that a tree was made by changes of another one, with which it shares pages.
    pub fn remember_base(&self, root: RootCid, base: RootCid) {
        self.bases.insert(root, base);
    }

    /// What a tree is known to be made of: its base, the base of that, and so on, at most 16. O(1).
    pub fn bases(&self, root: &RootCid) -> Vec<RootCid> {
        std::iter::successors(self.bases.get(root), |base| self.bases.get(base)).take(MAX_BASES).collect()
    }

    /// The maximum size, in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.pages.capacity()
    }

    /// The size of the cached pages, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.pages.weight()
    }

    /// The number of cached pages.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The number of lookups that found their page.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// The number of lookups that did not find their page.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }
}

impl PageSource for PageCache {
    fn page(&self, digest: &Digest) -> Option<Arc<Page>> {
        let found = self.pages.get(digest);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    fn touch(&self, digest: &Digest) {
        if is_noted(self.hits.fetch_add(1, Ordering::Relaxed)) {
            self.pages.get(digest);
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/page_cache.rs"]
mod tests;
