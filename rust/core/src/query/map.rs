//! Maps: changing and building them.

use std::collections::BTreeSet;

use crate::bits::{PathBuffer, Side, bit, first_difference};
use crate::error::{ConflictCode, Error, InputCode, Result};
use crate::id::cid::{Cid, Kind, RootCid};
use crate::id::suite::{Digest, Suite};
use crate::interrupt::{Attempt, Failure, Interrupt};
use crate::key;
use crate::page::partial::{Loading, PartialTree, SUM_TOO_LARGE, Visiting};
use crate::query::arcs::{Arcs, twice};
use crate::query::build::{Builder, Built, Destination};
use crate::query::changes::{MapChangeRef, MapChanges};
use crate::tree::arena::{NodeId, State, Tail};
use crate::tree::descent::{BELOW_WHOLE_KEY, End, Landing, ToKey, descend};
use crate::tree::node::Summary;
use crate::tree::pruned;

pub use crate::query::scan::Listing;

/// The changes of a tree that were made so far. Unlike reads, changes are not repeated after an interrupt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Made {
    /// How many changes were made.
    pub(crate) count: usize,
    /// The top of the tree after them.
    pub(crate) top: NodeId,
}

impl Made {
    pub(crate) const NONE: Self = Self { count: 0, top: PartialTree::TOP };
}

/// Makes changes one after the other, on the tree as it changes (protocol section 4, map `apply`). Returns the new top,
/// with its digest. O(changes x depth).
pub(crate) fn apply(tree: &mut PartialTree, changes: &MapChanges, made: &mut Made) -> Attempt<NodeId> {
    if tree.may_lack_pages() && made.count == 0 {
        load_paths(tree, changes)?;
    }
    if made.count == 0 {
        // A change adds two nodes at most, besides those that it copies: memory that is not moved is not needed twice.
        tree.arena.nodes.reserve(2 * changes.len());
    }
    while let Some(change) = changes.get(made.count) {
        *made = Made { count: made.count + 1, top: make(tree, made.top, change)? };
    }
    tree.seal(made.top);
    Ok(made.top)
}

/// Loads the path of every change on the tree before all of them, one level of pages at a time. The changes are sure to
/// visit these nodes.
fn load_paths(tree: &mut PartialTree, changes: &MapChanges) -> Attempt<()> {
    let mut missing = BTreeSet::new();
    for key in changes.keys() {
        match descend(&mut Loading(tree), PartialTree::TOP, 0, &mut ToKey(key)) {
            Err(Interrupt::Pages(pages)) => missing.extend(pages),
            other => {
                other?;
            }
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(Interrupt::Pages(missing)) }
}

/// Makes one change, and returns the new top.
fn make(tree: &mut PartialTree, top: NodeId, change: MapChangeRef<'_>) -> Attempt<NodeId> {
    let MapChangeRef { key, before, after } = change;
    let mut path = Visiting::<true>::new(tree);
    let Landing { id, end, .. } = descend(&mut path, top, 0, &mut ToKey(key))?;
    let steps = path.steps;
    let found = (end == End::Found).then(|| tree.arena.target(id));
    if found != before {
        let show = |target: Option<&[u8]>| target.map_or_else(|| "nothing".to_owned(), |cid| Cid::trusted(cid).text());
        let path = key::segments(key).join("/");
        let what = format!("{path:?}: the current target is {}, not {}", show(found), show(before));
        return Err(Failure::Conflict { code: ConflictCode::BeforeMismatch, what }.into());
    }
    match (after, end) {
        (Some(after), End::Diverges(at)) => {
            let (leaf, tail) = fresh_leaf(tree, key, after);
            let (left, right) = if bit(key, at) { (id, leaf) } else { (leaf, id) };
            let sum = pruned::join(tree.sum(left), tree.sum(right), |_, _| Digest::ZERO).ok_or(SUM_TOO_LARGE)?;
            let inner = tree.push_fresh(sum, State::Inner { bit: at, label: tail.offset, start: 0, left, right });
            tree.graft(&steps, inner)
        }
        (Some(after), _) => {
            let (leaf, _) = fresh_leaf(tree, key, after);
            tree.graft(&steps, leaf)
        }
        (None, _) => remove(tree, key, &steps),
    }
}

/// Adds a leaf that stores its whole key, so that it can be anywhere on the key's path.
fn fresh_leaf(tree: &mut PartialTree, key: &[u8], target: &[u8]) -> (NodeId, Tail) {
    let tail = Tail { offset: tree.arena.store(key), start: 0, len: key.len() as u16 };
    let (target, target_len) = (tree.arena.store(target), target.len() as u8);
    let sum = Summary { count: 1, measure: 1, digest: Digest::ZERO };
    (tree.push_fresh(sum, State::Leaf { tail, target, target_len }), tail)
}

/// Removes the leaf that the steps lead to: its sibling takes the place of their parent.
fn remove(tree: &mut PartialTree, key: &[u8], steps: &[(NodeId, Side)]) -> Attempt<NodeId> {
    let Some((&(parent, side), above)) = steps.split_last() else {
        return Ok(tree.push_fresh(Summary { count: 0, measure: 0, digest: Digest::ZERO }, State::Empty));
    };
    let State::Inner { bit, left, right, .. } = tree.state(parent) else {
        return Err(Failure::Invalid(BELOW_WHOLE_KEY).into());
    };
    let sibling = if side == Side::Left { right } else { left };
    lengthen(tree, key, bit, sibling)?;
    tree.graft(above, sibling)
}

/// Gives a node that moves up the bits that its old parent held: those of `key` before `parent_bit`, and the other value
/// of that bit. A page's top stores all its bits already, and a stub has none.
fn lengthen(tree: &mut PartialTree, key: &[u8], parent_bit: u32, id: NodeId) -> Attempt<()> {
    if tree.on_same_page(id) {
        tree.load(id)?;
    }
    let floor = parent_bit + 1;
    let mut whole = PathBuffer(key[..=(parent_bit / 8) as usize].to_vec());
    whole.turn(parent_bit, Side::of(!bit(key, parent_bit)));
    let state = match tree.state(id) {
        State::Leaf { tail, target, target_len } => {
            whole.put(floor, tree.arena.tail(tail, floor));
            let offset = tree.arena.store(&whole.0[..tail.key_len()]);
            let tail = Tail { offset, start: 0, len: tail.key_len() as u16 };
            State::Leaf { tail, target, target_len }
        }
        State::Inner { bit, label, start, left, right } => {
            whole.put(floor, tree.arena.label(label, start, floor, bit));
            let label = tree.arena.store(&whole.0[..bit.div_ceil(8) as usize]);
            State::Inner { bit, label, start: 0, left, right }
        }
        other => other,
    };
    tree.arena.node_mut(id).state = state;
    Ok(())
}

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
pub fn build_pages(suite: Suite, mut arcs: Arcs) -> Result<NewMap> {
    arcs.sort()?;
    let built = build(suite, &arcs, Destination::Store).map_err(|interrupt| interrupt.in_build(ARCS))?;
    Ok(NewMap::of(suite, built))
}

/// Builds the map of `arcs`, which must be sorted and distinct. O(n) hashing.
pub(crate) fn build(suite: Suite, arcs: &Arcs, destination: Destination) -> Attempt<Built> {
    let mut growing = Growing::new(suite, destination);
    for (key, target) in arcs.iter() {
        growing.push(key, target)?;
    }
    growing.finish()
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
}

impl Growing {
    fn new(suite: Suite, destination: Destination) -> Self {
        Self { builder: Builder::new(Kind::Map, suite, destination), bits: Vec::new() }
    }

    /// Adds the next arc. O(depth), and O(1) nodes per arc over all of them.
    fn push(&mut self, key: &[u8], target: &[u8]) -> Attempt<()> {
        if let Some(last) = self.builder.last_key() {
            let bit = first_difference(last, key).ok_or(Failure::Invalid("a key occurs twice"))?;
            while let Some(&inner) = self.bits.last().filter(|&&inner| inner > bit) {
                self.builder.join(inner)?;
                self.bits.pop();
            }
            self.bits.push(bit);
        }
        self.builder.encoder.put(0, key);
        let digest = self.builder.encoder.map_leaf(key.len(), target);
        self.builder.leaf(Summary { count: 1, measure: 1, digest }, key, target);
        Ok(())
    }

    fn finish(mut self) -> Attempt<Built> {
        while let Some(bit) = self.bits.pop() {
            self.builder.join(bit)?;
        }
        self.builder.finish()
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
        let builder = &self.growing.builder;
        if let Some(last) = builder.last_key()
            && last >= key
        {
            return Err(match last == key {
                true => twice(key),
                false => Error::damaged("sorted arcs are not in key order"),
            });
        }
        if builder.held_bytes() > Self::MAX_HELD_BYTES {
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
        let built = self.growing.finish().map_err(|interrupt| interrupt.in_build(ARCS))?;
        Ok(NewMap::of(self.suite, built))
    }
}
