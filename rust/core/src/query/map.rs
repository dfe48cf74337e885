//! Maps: changing and building them.

use std::collections::BTreeSet;

use crate::bits::{PathBuffer, Side, bit, first_difference};
use crate::error::{ConflictCode, Result};
use crate::id::cid::{Cid, Kind, RootCid};
use crate::id::suite::{Digest, Suite};
use crate::interrupt::{Attempt, Failure, Interrupt};
use crate::key;
use crate::page::partial::{Loading, PartialTree, SUM_TOO_LARGE, Visiting};
use crate::query::arcs::{ArcSpan, Arcs};
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
    /// The digests and bytes of all pages.
    pub pages: Vec<(Digest, Vec<u8>)>,
}

/// Builds the pages of a map, in little more memory than its arcs and pages take. O(n log n).
///
/// # Errors
/// [`Error::Input`](crate::Error::Input) if two arcs have the same path.
pub fn build_pages(suite: Suite, mut arcs: Arcs) -> Result<NewMap> {
    arcs.sort()?;
    let built = build(suite, arcs, Destination::Store).map_err(|interrupt| interrupt.in_build("arcs"))?;
    let root = RootCid { kind: Kind::Map, suite, digest: built.sum.digest };
    Ok(NewMap { root, count: built.sum.count, pages: built.stored })
}

/// Builds the map of `arcs`, which must be sorted and distinct. O(n) hashing.
pub(crate) fn build(suite: Suite, arcs: Arcs, destination: Destination) -> Attempt<Built> {
    let (pool, arcs) = arcs.into_parts();
    let mut builder = Builder::new(Kind::Map, suite, pool, destination);
    // The bits of the inner nodes whose right subtree is incomplete, in increasing order.
    let mut bits: Vec<u32> = Vec::new();
    let mut before: Option<ArcSpan> = None;
    for arc in arcs {
        if let Some(last) = before {
            let pool = &builder.tree.arena.bytes;
            let key = |span: ArcSpan| &pool[span.offset as usize..][..usize::from(span.key_len)];
            let bit = first_difference(key(last), key(arc)).ok_or(Failure::Invalid("a key occurs twice"))?;
            while bits.last().is_some_and(|&b| b > bit) {
                builder.join(bits.pop().unwrap_or_default(), last.offset)?;
            }
            bits.push(bit);
        }
        let ArcSpan { offset, key_len, target_len } = arc;
        let (key, target) = builder.tree.arena.bytes[offset as usize..].split_at(usize::from(key_len));
        builder.encoder.put(0, key);
        let digest = builder.encoder.map_leaf(key.len(), &target[..usize::from(target_len)]);
        let tail = Tail { offset, start: 0, len: key_len };
        let sum = Summary { count: 1, measure: 1, digest };
        builder.leaf(sum, State::Leaf { tail, target: offset + u32::from(key_len), target_len });
        before = Some(arc);
    }
    while let (Some(bit), Some(last)) = (bits.pop(), before) {
        builder.join(bit, last.offset)?;
    }
    builder.finish()
}
