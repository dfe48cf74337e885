//! Lists: reading a range, changing and building them.

use crate::bits::Side;
use crate::error::ConflictCode;
use crate::id::cid::Cid;
use crate::id::suite::Digest;
use crate::interrupt::{Attempt, Failure, Interrupt};
use crate::page::partial::{MAX_MISSING_PAGES, PartialTree, Place, SUM_TOO_LARGE, Visiting};
use crate::query::changes::{ListChangeRef, ListChanges};
use crate::query::map::Made;
use crate::tree::arena::{Label, NodeId, State, Tail};
use crate::tree::descent::{End, Landing, ToIndex, descend};
use crate::tree::node::Summary;
use crate::tree::pruned;

const INVALID_SHAPE: Failure = Failure::Invalid("a list whose counts do not fit its shape");

/// The elements that a range of measure meets (protocol section 5, `list_range`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    /// The targets of the elements whose span of measure meets the range.
    pub segments: Vec<Cid>,
    /// Their measures.
    pub sizes: Vec<u64>,
    /// The start of the first of them; `None` if the range is empty.
    pub offset: Option<u64>,
    /// The number of elements in the whole list.
    pub length: u64,
    /// The sum of all measures.
    pub total_size: u64,
}

/// A range of measure, `start..end`, of a list with measure `total`.
struct Bounds {
    start: u64,
    end: u64,
}

impl Bounds {
    fn new(start: u64, end: Option<u64>, total: u64) -> Self {
        Self { start, end: end.unwrap_or(u64::MAX).min(total) }
    }

    /// Whether a subtree of this measure, starting at `from`, meets the range.
    fn meets(&self, from: u64, measure: u64) -> bool {
        from < self.end && from + measure > self.start && self.end > self.start
    }

    /// The children that meet the range, with their starts, the right one first.
    fn children<T>(&self, from: u64, children: [(T, u64); 2]) -> impl Iterator<Item = (T, u64)> {
        let [(left, l), (right, r)] = children;
        [(right, from + l, r), (left, from, l)].into_iter().filter(|c| self.meets(c.1, c.2)).map(|c| (c.0, c.1))
    }
}

/// Finds the elements that a range of measure meets (protocol section 4, `range`). O(log n + segments).
pub(crate) fn range(tree: &mut PartialTree, start: u64, end: Option<u64>, max_segments: usize) -> Attempt<Span> {
    tree.visit(PartialTree::TOP)?;
    let top = tree.sum(PartialTree::TOP);
    let bounds = Bounds::new(start, end, top.measure);
    let mut found = Span { length: top.count, total_size: top.measure, ..Span::default() };
    // Subtrees that meet the range and where they start, the next one last.
    let mut pending = Vec::new();
    if bounds.meets(0, top.measure) {
        pending.push((PartialTree::TOP, 0));
    }
    while let Some(&(id, from)) = pending.last() {
        if let Err(interrupt) = tree.visit(id) {
            return Err(look_ahead(tree, &bounds, &pending, interrupt));
        }
        pending.pop();
        match tree.state(id) {
            State::Inner { left, right, .. } => {
                let children = [left, right].map(|child| (child, tree.sum(child).measure));
                pending.extend(bounds.children(from, children));
            }
            State::Leaf { .. } => {
                if found.segments.len() == max_segments {
                    return Err(Failure::TooLarge("the range has more segments than one answer may have").into());
                }
                found.offset.get_or_insert(from);
                found.segments.push(Cid::trusted(tree.arena.target(id)));
                found.sizes.push(tree.sum(id).measure);
            }
            _ => return Err(INVALID_SHAPE.into()),
        }
    }
    Ok(found)
}

/// Adds the other pages that the range is sure to need to those that are missing now.
fn look_ahead(
    tree: &PartialTree,
    bounds: &Bounds,
    pending: &[(NodeId, u64)],
    interrupt: Interrupt<Failure>,
) -> Interrupt<Failure> {
    let Interrupt::Pages(mut missing) = interrupt else {
        return interrupt;
    };
    let mut rest: Vec<(Place, u64)> = pending.iter().map(|&(id, from)| (Place::Here(id), from)).collect();
    while let Some((place, from)) = rest.pop() {
        if missing.len() >= MAX_MISSING_PAGES {
            break;
        }
        if let Some((_, children)) = tree.children_ahead(place, &mut missing) {
            let children = children.map(|place| {
                let measure = tree.sum_at(&place).measure;
                (place, measure)
            });
            rest.extend(bounds.children(from, children));
        }
    }
    Interrupt::Pages(missing)
}

impl ListChanges {
    /// Checks that appends leave no gap, that removals are a suffix, and that only one of the two occurs. Returns the number
    /// of elements of the old list that are kept.
    fn check_shape(&self, count: u64) -> Attempt<u64> {
        let refuse = |index: u64, why: &str| {
            let what = format!("index {index}: {why}");
            Err(Failure::Conflict { code: ConflictCode::InvalidChange, what }.into())
        };
        let (mut next, mut keep, mut removed) = (count, count, None);
        let mut removals = 0;
        for change in self.iter() {
            let index = change.index;
            removals += u64::from(change.after.is_none());
            if index >= count {
                if index != next {
                    return refuse(index, &format!("the append leaves a gap; the next index is {next}"));
                }
                if removed.is_some() {
                    return refuse(index, "appends and removals together");
                }
                next += 1;
            } else if change.after.is_none() {
                keep = keep.min(index);
                removed = Some(index);
            } else if removed.is_some() {
                return refuse(index, "a replacement after a removal; only the end of a list can be removed");
            }
        }
        match removed {
            Some(index) if removals != count - keep => refuse(index, "the removals are not the end of the list"),
            _ => Ok(keep),
        }
    }
}

/// Makes changes: replacements, then appends or one truncation (protocol section 4, list `apply`). Returns the new top,
/// with its digest. O(changes x log n).
pub(crate) fn apply(tree: &mut PartialTree, changes: &ListChanges, made: &mut Made) -> Attempt<NodeId> {
    while let Some(change) = changes.get(made.checked) {
        made.prepare(tree, made.checked, changes.iter().map(|change| ToIndex(change.index)))?;
        check(tree, &change)?;
        made.checked += 1;
    }
    if made.count == 0 {
        // As for a map.
        tree.arena.nodes.reserve(2 * changes.len());
    }
    let count = tree.sum(PartialTree::TOP).count;
    let keep = changes.check_shape(count)?;
    while let Some(change) = changes.get(made.count) {
        if let Some((target, size)) = change.after {
            let leaf = fresh_leaf(tree, target, size);
            made.top = match change.index < count {
                true => replace(tree, made.top, change.index, leaf)?,
                false => append(tree, made.top, leaf)?,
            };
        }
        made.count += 1;
    }
    let top = if keep < count { truncate(tree, made.top, keep)? } else { made.top };
    if let Some(fixed) = &changes.fixed {
        fixed.check(tree, top)?;
    }
    tree.seal(top);
    made.top = top;
    Ok(top)
}

/// Visits an element of the list before any change.
pub(crate) fn get(tree: &mut PartialTree, index: u64) -> Attempt<Option<NodeId>> {
    let landing = descend(&mut Visiting::<false>::new(tree), PartialTree::TOP, 0, &mut ToIndex(index))?;
    Ok((landing.end == End::Found).then_some(landing.id))
}

/// Compares a change with the element in the list.
fn check(tree: &mut PartialTree, change: &ListChangeRef<'_>) -> Attempt<()> {
    let found = get(tree, change.index)?;
    let is = found.map(|id| (tree.arena.target(id), tree.sum(id).measure));
    let refuse = |code, why: String| {
        let what = format!("index {}: {why}", change.index);
        Err(Failure::Conflict { code, what }.into())
    };
    let agrees = match (&change.before, &is) {
        (None, None) => true,
        (Some((target, size)), Some((there, measure))) => target == there && size.is_none_or(|size| size == *measure),
        _ => false,
    };
    if !agrees {
        let show = |element: Option<(&[u8], Option<u64>)>| match element {
            None => "nothing".to_owned(),
            Some((cid, None)) => Cid::trusted(cid).text(),
            Some((cid, Some(size))) => format!("{} of size {size}", Cid::trusted(cid)),
        };
        let there = show(is.map(|(cid, size)| (cid, Some(size))));
        return refuse(
            ConflictCode::BeforeMismatch,
            format!("the current target is {there}, not {}", show(change.before)),
        );
    }
    if is.is_some() && is == change.after {
        return refuse(ConflictCode::InvalidChange, "before and after are the same; nothing changes".into());
    }
    Ok(())
}

fn fresh_leaf(tree: &mut PartialTree, target: &[u8], measure: u64) -> NodeId {
    let (offset, target_len) = (tree.arena.store(target), target.len() as u8);
    let sum = Summary { count: 1, measure, digest: Digest::ZERO };
    tree.push_fresh(sum, State::Leaf { tail: Tail::NONE, target: offset, target_len })
}

fn replace(tree: &mut PartialTree, top: NodeId, index: u64, leaf: NodeId) -> Attempt<NodeId> {
    let mut path = Visiting::<true>::new(tree);
    let Landing { end: End::Found, .. } = descend(&mut path, top, 0, &mut ToIndex(index))? else {
        return Err(INVALID_SHAPE.into());
    };
    let steps = path.steps;
    tree.graft(&steps, leaf)
}

fn inner(tree: &mut PartialTree, left: NodeId, right: NodeId) -> Attempt<NodeId> {
    let sum = pruned::join(&tree.sum(left), &tree.sum(right), |_, _| Digest::ZERO).ok_or(SUM_TOO_LARGE)?;
    Ok(tree.push_fresh(sum, State::Inner { bit: 0, label: Label::NONE, left, right }))
}

/// Appends a leaf: it joins the first node of the right spine whose count is a power of two.
///
/// ```text
///        7                 8
///      ╱   ╲             ╱   ╲
///     4     3     ->    4     4
///          ╱ ╲               ╱ ╲
///         2   1             2   2      1 and the new leaf join
/// ```
fn append(tree: &mut PartialTree, top: NodeId, leaf: NodeId) -> Attempt<NodeId> {
    let mut steps = Vec::new();
    let mut at = top;
    loop {
        match tree.sum(at).count {
            0 => return Ok(leaf),
            n if n.is_power_of_two() => break,
            _ => {}
        }
        tree.visit(at)?;
        let State::Inner { right, .. } = tree.state(at) else {
            return Err(INVALID_SHAPE.into());
        };
        steps.push((at, Side::Right));
        at = right;
    }
    let joined = inner(tree, at, leaf)?;
    tree.graft(&steps, joined)
}

/// Truncates the list to its first `keep` elements, fewer than it has.
fn truncate(tree: &mut PartialTree, top: NodeId, keep: u64) -> Attempt<NodeId> {
    if keep == 0 {
        return Ok(tree.push_fresh(Summary { count: 0, measure: 0, digest: Digest::ZERO }, State::Empty));
    }
    let mut steps = Vec::new();
    let (mut at, mut keep) = (top, keep);
    while keep < tree.sum(at).count {
        tree.visit(at)?;
        let State::Inner { left, right, .. } = tree.state(at) else {
            return Err(INVALID_SHAPE.into());
        };
        let on_left = tree.sum(left).count;
        if keep > on_left {
            steps.push((at, Side::Right));
            keep -= on_left;
            at = right;
        } else {
            at = left;
        }
    }
    tree.graft(&steps, at)
}
