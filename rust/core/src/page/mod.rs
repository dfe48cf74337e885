//! Pages: the parts that a tree is stored in, and the cache of parsed ones.
//!
//! A page is storage, not protocol: a pruned tree written from `floor` 0 and stored under the digest of its top node.
//! Where trees are cut is decided in `cut`; cutting a tree in hand into pages is in `tree`.

#[doc(hidden)]
pub mod cut;
pub(crate) mod paging;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::error::{Error, Result};
use crate::id::cid::{Kind, RootCid};
use crate::id::suite::{Digest, Suite};
use crate::proof::pruned::{self, Form};
use crate::tree::arena::{Arena, Node, NodeId, State};
use crate::tree::node;

/// The longest stored page, in bytes: what may hang on its top, and the longest own label or leaf of the top.
pub const MAX_PAGE: usize = 8192 + crate::key::MAX_KEY + 256;

/// A parsed page, all its digests computed.
#[derive(Debug)]
pub struct Page {
    #[doc(hidden)]
    pub kind: Kind,
    #[doc(hidden)]
    pub suite: Suite,
    #[doc(hidden)]
    pub arena: Arena,
    /// The pages behind the stubs, by their number, where a whole tree is held in memory; else empty.
    pub(crate) next: Vec<Arc<Page>>,
}

impl Page {
    #[doc(hidden)]
    pub const TOP: NodeId = NodeId(0);

    /// Reads a stored page and checks that it is the one with this digest. O(bytes) hashing.
    ///
    /// # Errors
    /// [`Error::Damaged`], naming the page, if it is not.
    pub fn parse(bytes: &[u8], kind: Kind, suite: Suite, digest: &Digest) -> Result<Self> {
        if bytes.len() > MAX_PAGE {
            return Err(Error::damaged(format!(
                "page {digest} is {} bytes long; {MAX_PAGE} is the limit",
                bytes.len()
            )));
        }
        let mut arena = Arena::spare();
        pruned::decode(&mut arena, bytes, kind, suite, Form::Page)
            .map_err(|fault| Error::damaged(format!("page {digest}: {} (byte {})", fault.why, fault.at)))?;
        let arena = arena.exact(); // the cache keeps it
        // A stub has any digest that it likes.
        if matches!(arena.node(Self::TOP).state, State::Stub { .. }) {
            return Err(Error::damaged(format!("page {digest} is a stub, without the node itself")));
        }
        let page = Self { kind, suite, arena, next: Vec::new() };
        match page.digest() == *digest {
            true => Ok(page),
            false => Err(Error::damaged(format!("page {digest} has the digest {}", page.digest()))),
        }
    }

    /// Reads the pages that were asked for of the tree of `root`, and puts them in the cache.
    #[doc(hidden)]
    pub fn parse_all<B: AsRef<[u8]>>(
        cache: &PageCache,
        root: &RootCid,
        wanted: &[Digest],
        pages: &[Option<B>],
    ) -> Result<Vec<Arc<Self>>> {
        if pages.len() != wanted.len() {
            return Err(Error::request(format!("{} pages were asked for, not {}", wanted.len(), pages.len())));
        }
        let parse = |(bytes, digest): (&Option<B>, &Digest)| {
            let page = Self::of_store(root, digest, bytes.as_ref().map(AsRef::as_ref))?;
            cache.insert(Arc::clone(&page));
            Ok(page)
        };
        pages.iter().zip(wanted).map(parse).collect()
    }

    /// Reads what a store gave for a page of the tree of `root`; None if it does not have it.
    #[doc(hidden)]
    pub fn of_store(root: &RootCid, digest: &Digest, bytes: Option<&[u8]>) -> Result<Arc<Self>> {
        let bytes = bytes.ok_or_else(|| Error::damaged(format!("page {digest} of {root} is missing")))?;
        Ok(Arc::new(Self::parse(bytes, root.kind, root.suite, digest)?))
    }

    /// Checks that it can be a part of a tree of this kind and suite.
    #[inline]
    pub(crate) fn check_is_of(&self, kind: Kind, suite: Suite) -> Result<()> {
        if self.kind == kind && self.suite == suite {
            return Ok(());
        }
        Err(Error::damaged(format!("page {} is of another kind or suite than its tree", self.digest())))
    }

    /// The digest of the top node, under which the page is stored.
    pub fn digest(&self) -> Digest {
        self.arena.node(Self::TOP).sum.digest
    }

    /// The bytes to store.
    pub fn to_bytes(&self) -> Vec<u8> {
        pruned::encode(&self.arena, self.kind, Self::TOP, Form::Page, |id| &self.arena.node(id).sum)
    }

    /// The encoding of the top node (protocol section 3): the block that its root CID names.
    pub fn top_block(&self) -> Vec<u8> {
        let top = self.arena.node(Self::TOP);
        let sum = |id| &self.arena.node(id).sum;
        let target = self.arena.target(Self::TOP);
        match (self.kind, top.state) {
            (Kind::Map, State::Leaf { tail, .. }) => {
                node::bytes(&node::MapLeaf { key: self.arena.tail(tail, 0), target })
            }
            (Kind::Map, State::Inner { bit, label, start, left, right }) => {
                let path = self.arena.label(label, start, 0, bit);
                node::bytes(&node::MapInner { bit, path, children: [sum(left), sum(right)] })
            }
            (Kind::List, State::Leaf { .. }) => node::bytes(&node::ListLeaf { measure: top.sum.measure, target }),
            (Kind::List, State::Inner { left, right, .. }) => {
                node::bytes(&node::ListInner { children: [sum(left), sum(right)] })
            }
            (Kind::Map, _) => node::bytes(&node::Tag(0x00)),
            (Kind::List, _) => node::bytes(&node::Tag(0x10)),
        }
    }

    /// The digests of the pages that this one leads to.
    pub fn stubs(&self) -> impl Iterator<Item = Digest> + '_ {
        self.arena.nodes.iter().filter(|node| matches!(node.state, State::Stub { .. })).map(|node| node.sum.digest)
    }

    /// Bytes of memory that the page takes.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.arena.nodes.capacity() * size_of::<Node>() + self.arena.bytes.capacity()
    }
}

/// Where pages come from that are at hand at once. Pages that are not are asked for (`Progress::Pages`).
pub trait NodeSource: Send + Sync {
    /// The page whose top node has this digest, if it is at hand.
    fn page(&self, digest: &Digest) -> Option<Arc<Page>>;
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Digest, Arc<Page>> for Bytes {
    fn weight(&self, _: &Digest, page: &Arc<Page>) -> u64 {
        page.memory() as u64
    }
}

/// What is known of a store: parsed pages by digest, bounded in bytes, and roots that it holds. Shared by threads.
pub struct PageCache {
    pages: Cache<Digest, Arc<Page>, Bytes>,
    held: Cache<RootCid, ()>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl PageCache {
    /// A cache of at most `max_bytes` of parsed pages, and some `max_roots` roots.
    pub fn new(max_bytes: u64, max_roots: usize) -> Self {
        // A parsed page takes some 20 KiB; the estimate only sizes the first tables.
        let estimate = usize::try_from(max_bytes / 20_000).unwrap_or(usize::MAX).clamp(16, 1 << 16);
        Self {
            pages: Cache::with_weighter(estimate, max_bytes, Bytes),
            held: Cache::new(max_roots),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Puts a page in; an old one may go.
    pub fn insert(&self, page: Arc<Page>) {
        self.pages.insert(page.digest(), page);
    }

    /// Notes that the store holds a root: operations need not ask for it. A root that is held stays so.
    pub fn remember(&self, root: RootCid) {
        self.held.insert(root, ());
    }

    /// `Some(true)` if the store is known to hold a root. None if it has to be asked.
    pub fn is_held(&self, root: &RootCid) -> Option<bool> {
        self.held.get(root).map(|()| true)
    }

    /// The bound, in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.pages.capacity()
    }

    /// Bytes of the pages held.
    pub fn used_bytes(&self) -> u64 {
        self.pages.weight()
    }

    /// Number of pages held.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether no page is held.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Look-ups that found their page, since the start.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Look-ups that did not.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }
}

impl NodeSource for PageCache {
    fn page(&self, digest: &Digest) -> Option<Arc<Page>> {
        let found = self.pages.get(digest);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }
}
