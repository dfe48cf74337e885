//! The descent from the top of a tree to one leaf (protocol section 3, *descending to a key*).
//!
//! It is written once and compiled for each form in which nodes are held: pages (`page::path`), partial trees
//! (`page::partial`), and the bytes of a proof as they are read (`proof::streamed`).

use crate::bits::{self, Divergence, Own, Side};
use crate::interrupt::{Attempt, Failure};
use crate::key::MAX_KEY;
use crate::tree::arena::{Arena, NodeId, State};

/// A node that a descent has visited.
pub(crate) struct Visited<'a, Id, Counts> {
    pub(crate) shape: Shape<'a, Id>,
    pub(crate) counts: Counts,
}

/// What a node says about the way down.
pub(crate) enum Shape<'a, Id> {
    /// The empty node.
    Empty,
    /// A leaf; `tail` holds its key from byte `floor / 8` on, and the whole key has `key_len` bytes.
    Leaf { tail: &'a [u8], key_len: usize },
    /// An inner node, and its own bits.
    Inner { bit: u32, label: Own<'a>, children: [Id; 2] },
}

/// The leaf counts of a node and of its left child, which lead to an index of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) here: u64,
    pub(crate) left: u64,
}

impl Arena {
    /// What a node says about the way down; None for a stub.
    #[inline(always)]
    pub(crate) fn shape(&self, id: NodeId, floor: u32) -> Option<Shape<'_, NodeId>> {
        Some(match &self.node(id).state {
            &State::Inner { bit, ref label, left, right } => {
                Shape::Inner { bit, label: self.own(label, floor, bit), children: [left, right] }
            }
            State::Leaf { tail, .. } => Shape::Leaf { tail: self.tail(*tail, floor), key_len: tail.key_len() },
            State::Empty => Shape::Empty,
            State::Stub { .. } | State::Remote { .. } | State::Released { .. } => return None,
        })
    }
}

/// One step of a descent, from a node to a child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step<Id> {
    pub(crate) from: Id,
    pub(crate) floor: u32,
    pub(crate) bit: u32,
    pub(crate) side: Side,
    pub(crate) sibling: Id,
}

/// Nodes that a descent can visit.
pub(crate) trait Nodes {
    /// Names a node.
    type Id: Copy;
    /// [`Counts`], or nothing if they are not known on the way down.
    type Counts: Copy;

    /// Loads a node and records that the query visits it.
    fn visit(&mut self, id: Self::Id, floor: u32) -> Attempt<Visited<'_, Self::Id, Self::Counts>>;

    /// Records that the descent continues below the node that it visited last.
    fn step(&mut self, step: Step<Self::Id>) -> Attempt<()>;
}

/// What a descent looks for.
pub(crate) trait Goal<Id, Counts> {
    /// Decides where to go from a visited node.
    fn choose(&mut self, node: &Visited<'_, Id, Counts>, floor: u32) -> Choice;
}

/// Where to go from a node.
pub(crate) enum Choice {
    Child(Side),
    Stop(End),
    /// No tree has such a node there.
    Invalid(&'static str),
}

/// How a descent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// At the leaf that was looked for.
    Found,
    /// At the empty node, or at the top of a list that is too short.
    Empty,
    /// At a node from which the key diverges at this bit.
    Diverges(u32),
}

/// The last node of a descent.
pub(crate) struct Landing<Id> {
    pub(crate) id: Id,
    pub(crate) floor: u32,
    pub(crate) end: End,
}

/// Descends from the node `id`, whose bits start at `floor`, to where `goal` ends. O(depth).
#[inline(always)]
pub(crate) fn descend<N: Nodes>(
    nodes: &mut N,
    mut id: N::Id,
    mut floor: u32,
    goal: &mut impl Goal<N::Id, N::Counts>,
) -> Attempt<Landing<N::Id>> {
    loop {
        let node = nodes.visit(id, floor)?;
        match goal.choose(&node, floor) {
            Choice::Child(side) => {
                let Shape::Inner { bit, children: [left, right], .. } = node.shape else {
                    return Err(Failure::Invalid("a leaf has no children").into());
                };
                let (child, sibling) = if side == Side::Left { (left, right) } else { (right, left) };
                nodes.step(Step { from: id, floor, bit, side, sibling })?;
                (id, floor) = (child, bit + 1);
            }
            Choice::Stop(end) => return Ok(Landing { id, floor, end }),
            Choice::Invalid(why) => return Err(Failure::Invalid(why).into()),
        }
    }
}

/// Looks for a key of a map: compares it with each node's bits and follows its own.
pub(crate) struct ToKey<'a>(pub(crate) &'a [u8]);

pub(crate) const BELOW_WHOLE_KEY: &str = "a node below a whole key";

impl<Id, Counts> Goal<Id, Counts> for ToKey<'_> {
    #[inline(always)]
    fn choose(&mut self, node: &Visited<'_, Id, Counts>, floor: u32) -> Choice {
        debug_assert!(self.0.len() <= MAX_KEY, "a key");
        let divergence = match node.shape {
            Shape::Inner { bit, label, .. } => match label.divergence(floor, bit, self.0) {
                Divergence::Never => return Choice::Child(Side::of(bits::bit(self.0, bit))),
                divergence => divergence,
            },
            Shape::Leaf { tail, key_len } => bits::leaf_divergence(tail, floor, key_len, self.0),
            Shape::Empty => return Choice::Stop(End::Empty),
        };
        match divergence {
            Divergence::At(bit) => Choice::Stop(End::Diverges(bit)),
            Divergence::Never => Choice::Stop(End::Found),
            Divergence::KeyEnds => Choice::Invalid(BELOW_WHOLE_KEY),
        }
    }
}

/// Looks for an element of a list, by counts; the index is relative to the node that comes next.
pub(crate) struct ToIndex(pub(crate) u64);

impl<Id> Goal<Id, Counts> for ToIndex {
    #[inline(always)]
    fn choose(&mut self, node: &Visited<'_, Id, Counts>, _: u32) -> Choice {
        let Counts { here, left } = node.counts;
        match node.shape {
            _ if self.0 >= here => Choice::Stop(End::Empty),
            Shape::Leaf { .. } => Choice::Stop(End::Found),
            Shape::Inner { .. } if self.0 < left => Choice::Child(Side::Left),
            Shape::Inner { .. } => {
                self.0 -= left;
                Choice::Child(Side::Right)
            }
            Shape::Empty => Choice::Invalid("a list whose counts do not fit its shape"),
        }
    }
}
