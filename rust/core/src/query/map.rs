//! Changes of maps.

use std::collections::BTreeSet;

use crate::bits::{PathBuffer, Side, bit};
use crate::error::ConflictCode;
use crate::id::cid::Cid;
use crate::id::suite::Digest;
use crate::interrupt::{Attempt, Failure, Interrupt};
use crate::key;
use crate::page::partial::{Loading, MAX_MISSING_PAGES, PartialTree, SUM_TOO_LARGE, Visiting};
use crate::query::changes::{MapChangeRef, MapChanges};
use crate::tree::arena::{Label, NodeId, State, Tail};
use crate::tree::descent::{BELOW_WHOLE_KEY, Counts, End, Goal, Landing, ToKey, descend};
use crate::tree::node::Summary;
use crate::tree::pruned;

pub use crate::query::new_map::{MapBuilder, NewMap, build_pages};
pub use crate::query::scan::Listing;

/// The changes of a tree that were made so far. Unlike reads, changes are not repeated after an interrupt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Made {
    /// How many changes were made.
    pub(crate) count: usize,
    /// How many changes were compared with the tree before any change. Only a list is compared first.
    pub(crate) checked: usize,
    /// How many changes the tree was prepared for, and whether it is being prepared for more.
    prepared: usize,
    is_preparing: bool,
    /// The top of the tree after them.
    pub(crate) top: NodeId,
}

impl Made {
    pub(crate) const NONE: Self =
        Self { count: 0, checked: 0, prepared: 0, is_preparing: false, top: PartialTree::TOP };

    /// Before change number `next` is made: releases pages once the changes that the tree was prepared for are made, and
    /// loads the paths of the following ones on the tree before any change, one level of pages at a time. `goals` are those
    /// of all changes, which are sure to visit these nodes.
    pub(crate) fn prepare<G: Goal<NodeId, Counts>>(
        &mut self,
        tree: &mut PartialTree,
        next: usize,
        goals: impl Iterator<Item = G>,
    ) -> Attempt<()> {
        if next < self.prepared || !tree.may_lack_pages() {
            return Ok(());
        }
        if !std::mem::replace(&mut self.is_preparing, true) {
            tree.release_pages();
        }
        let (mut missing, mut end) = (BTreeSet::new(), next);
        for mut goal in goals.skip(next) {
            match descend(&mut Loading(tree), PartialTree::TOP, 0, &mut goal) {
                Err(Interrupt::Pages(pages)) => missing.extend(pages),
                other => {
                    other?;
                }
            }
            end += 1;
            if tree.holds_too_much() || missing.len() >= MAX_MISSING_PAGES {
                break;
            }
        }
        if !missing.is_empty() {
            return Err(Interrupt::Pages(missing));
        }
        (self.prepared, self.is_preparing) = (end, false);
        Ok(())
    }
}

/// Makes changes one after the other, on the tree as it changes (protocol section 4, map `apply`). Returns the new top,
/// with its digest. O(changes x depth).
pub(crate) fn apply(tree: &mut PartialTree, changes: &MapChanges, made: &mut Made) -> Attempt<NodeId> {
    if made.count == 0 {
        // A change adds two nodes at most, besides those that it copies: memory that is not moved is not needed twice.
        tree.arena.nodes.reserve(2 * changes.len());
    }
    while let Some(change) = changes.get(made.count) {
        made.prepare(tree, made.count, changes.keys().map(ToKey))?;
        made.top = make(tree, made.top, change)?;
        made.count += 1;
    }
    tree.seal(made.top);
    Ok(made.top)
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
            let sum = pruned::join(&tree.sum(left), &tree.sum(right), |_, _| Digest::ZERO).ok_or(SUM_TOO_LARGE)?;
            let label = Label::new(&key[..at.div_ceil(8) as usize], at, tail.offset);
            let inner = tree.push_fresh(sum, State::Inner { bit: at, label, left, right });
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
        State::Inner { bit, label, left, right } => {
            whole.put(floor, tree.arena.label(&label, floor, bit));
            let label = tree.arena.store_label(&whole.0[..bit.div_ceil(8) as usize], bit);
            State::Inner { bit, label, left, right }
        }
        other => other,
    };
    tree.arena.node_mut(id).state = state;
    Ok(())
}
