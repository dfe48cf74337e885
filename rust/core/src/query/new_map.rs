//! New maps, built from their arcs.
//!
//! All arcs at once are divided into [parts](ArcParts), of which each is sorted and built by itself:
//!
//! ```text
//!              ●
//!          ╱       ╲
//!        ●           ●         joined at the end
//!      ╱   ╲       ╱   ╲
//!     ▲     ▲     ▲     ▲      parts: subtrees of some thousand arcs
//! ```

use crate::bits::first_difference;
use crate::error::{Error, InputCode, Result};
use crate::id::cid::{Cid, Kind, RootCid};
use crate::id::suite::{Digest, Suite};
use crate::interrupt::{Attempt, Failure};
use crate::key;
use crate::page::layout::{Built, Destination, Subtree};
use crate::query::arcs::{Arcs, twice};
use crate::query::build::Builder;
use crate::query::parts::ArcParts;
use crate::workers::{self, Workers};

/// A new map that is not in memory: its root, and its pages for a store.
#[derive(Debug)]
pub struct NewMap {
    /// The root.
    pub root: RootCid,
    /// The number of keys.
    pub count: u64,
    /// The digests and bytes of all pages that were not taken before.
    pub pages: Vec<(Digest, Vec<u8>)>,
}

/// Builds the pages of a map, in little more memory than its arcs and pages take. O(n log n).
///
/// # Errors
/// [`Error::Input`](crate::Error::Input) if two arcs have the same path.
pub fn build_pages(suite: Suite, arcs: Arcs, workers: &dyn Workers) -> Result<NewMap> {
    Ok(NewMap::of(suite, build(suite, arcs, Destination::Store, workers)?))
}

/// Builds the map of `arcs`. O(n log n).
pub(crate) fn build(suite: Suite, arcs: Arcs, destination: Destination, workers: &dyn Workers) -> Result<Built> {
    let parts = ArcParts::divide(arcs)?;
    let grow = |part: usize| -> Result<Growing> {
        let arcs = parts.sorted(part);
        let mut growing = Growing::new(suite, destination);
        growing.builder.reserve(arcs.len());
        let pushed = arcs.iter().try_for_each(|(key, target)| growing.push(key, target));
        // A path that occurs twice fails in the builder, too: it is searched for only to be named.
        pushed.map_err(|why| arcs.check_distinct().err().unwrap_or_else(|| why.in_build(ARCS)))?;
        Ok(growing)
    };
    if parts.len() <= 1 {
        return (0..parts.len()).map(grow).next().unwrap_or_else(|| Ok(Growing::new(suite, destination)))?.finish();
    }
    let built = workers::map(workers, parts.len(), |part| grow(part)?.into_part())?;
    let mut whole = Growing::new(suite, destination);
    for part in built {
        whole.adopt(part?).map_err(|why| why.in_build(ARCS))?;
    }
    whole.finish()
}

/// What errors of a build name as their place.
const ARCS: &str = "arcs";

impl NewMap {
    fn of(suite: Suite, built: Built) -> Self {
        let root = RootCid { kind: Kind::Map, suite, digest: built.sum.digest };
        Self { root, count: built.sum.count, pages: built.stored }
    }
}

/// A map whose arcs arrive in key order, of which only the incomplete pages are in memory.
struct Growing {
    builder: Builder,
    /// The bits of the inner nodes whose right subtree is incomplete, in increasing order.
    bits: Vec<u32>,
    /// The first key, in a part of a map.
    first: Vec<u8>,
}

/// All arcs of a map with one prefix, which are a subtree of it.
struct Part {
    subtree: Subtree,
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Growing {
    fn new(suite: Suite, destination: Destination) -> Self {
        let builder = Builder::new(Kind::Map, suite, destination);
        Self { builder, bits: Vec::new(), first: Vec::new() }
    }

    /// The last key, if there is one.
    fn last(&self) -> Option<&[u8]> {
        Some(&self.builder.last[..]).filter(|last| !last.is_empty())
    }

    /// Adds the next arc. O(depth), and O(1) nodes per arc over all of them.
    #[inline]
    fn push(&mut self, key: &[u8], target: &[u8]) -> Attempt<()> {
        self.advance_to(key)?;
        self.builder.leaf(1, key, target)
    }

    /// Joins the subtrees that are complete before `key`.
    #[inline]
    fn advance_to(&mut self, key: &[u8]) -> Attempt<()> {
        let Some(last) = self.last() else {
            self.first = key.to_vec();
            return Ok(());
        };
        let bit = first_difference(last, key).ok_or(Failure::Invalid("a key occurs twice"))?;
        while let Some(&inner) = self.bits.last().filter(|&&inner| inner > bit) {
            self.builder.join(inner)?;
            self.bits.pop();
        }
        self.bits.push(bit);
        Ok(())
    }

    /// Adds the arcs of a part, as [`Growing::push`] would one by one. O(depth + nodes of a page).
    fn adopt(&mut self, Part { subtree, first, last }: Part) -> Attempt<()> {
        self.advance_to(&first)?;
        self.builder.last = last;
        self.builder.adopt(subtree)
    }

    fn join_all(&mut self) -> Result<()> {
        while let Some(bit) = self.bits.pop() {
            self.builder.join(bit).map_err(|why| why.in_build(ARCS))?;
        }
        Ok(())
    }

    fn into_part(mut self) -> Result<Part> {
        let last = self.last().unwrap_or_default().to_vec();
        self.join_all()?;
        let subtree = self.builder.into_subtree().map_err(|why| why.in_build(ARCS))?;
        Ok(Part { subtree, first: self.first, last })
    }

    fn finish(mut self) -> Result<Built> {
        self.join_all()?;
        self.builder.finish().map_err(|why| why.in_build(ARCS))
    }
}

/// Builds the pages of a map whose arcs arrive in key order, however many: memory holds the incomplete pages only, about
/// one for each inner node above the last key.
///
/// ```
/// use coregw_core::{Cid, Key, MapBuilder, Suite};
///
/// let target = Cid::from_text("bafkreiceznzqyqqeqcqeo62qlltiv5ii7oips3hq5rkmnliwsso5ij7rhi")?;
/// let mut builder = MapBuilder::new(Suite::Sha2_256);
/// for path in ["docs", "docs/readme", "x"] {
///     builder.push(Key::from_text(path)?.as_bytes(), target.as_bytes())?;
///     for (digest, page) in builder.take_pages() {
///         // here a store would write the page
///     }
/// }
/// let map = builder.finish()?;
/// assert_eq!(map.count, 3);
/// # Ok::<(), coregw_core::Error>(())
/// ```
pub struct MapBuilder {
    growing: Growing,
    suite: Suite,
}

impl MapBuilder {
    /// The bytes of memory that incomplete pages may take. Maps of realistic paths need less than a tenth of it; only
    /// paths of thousands of bytes that all continue each other need more.
    pub const MAX_HELD_BYTES: usize = 64 << 20;

    /// Creates the builder of a map without arcs.
    pub fn new(suite: Suite) -> Self {
        Self { growing: Growing::new(suite, Destination::Store), suite }
    }

    /// Adds the next arc: the key of a path, and the binary CID of its target. O(depth), O(1) nodes per arc over all arcs.
    ///
    /// # Errors
    /// [`Error::Input`] if the path occurs twice, or if the paths are so deep that incomplete pages would take more than
    /// [`MapBuilder::MAX_HELD_BYTES`] (code `too_large`). [`Error::Damaged`] if the key does not follow the last one, or if
    /// it is not a key or the target not a CID: they are not what was sorted.
    pub fn push(&mut self, key: &[u8], target: &[u8]) -> Result<()> {
        if let Some(last) = self.growing.last()
            && last >= key
        {
            return Err(match last == key {
                true => twice(key),
                false => Error::damaged("sorted arcs are not in key order"),
            });
        }
        if self.held_bytes() > Self::MAX_HELD_BYTES {
            let path = key::segments(key).join("/");
            let what = format!("arcs: too many long paths continue each other before {path:.200?}");
            return Err(Error::input(InputCode::TooLarge, what));
        }
        key::check(key).map_err(|why| Error::damaged(format!("sorted arcs: {why}")))?;
        Cid::check(target).map_err(|why| Error::damaged(format!("sorted arcs: the target of an arc: {why}")))?;
        self.growing.push(key, target).map_err(|interrupt| interrupt.in_build(ARCS))
    }

    /// The bytes of memory that incomplete pages take.
    pub fn held_bytes(&self) -> usize {
        self.growing.builder.held_bytes()
    }

    /// Takes the pages that are complete. A page comes after the pages below it.
    pub fn take_pages(&mut self) -> Vec<(Digest, Vec<u8>)> {
        self.growing.builder.take_stored()
    }

    /// Completes the map. O(depth).
    ///
    /// # Errors
    /// [`Error::Input`] if the tree cannot be built.
    pub fn finish(self) -> Result<NewMap> {
        Ok(NewMap::of(self.suite, self.growing.finish()?))
    }
}
