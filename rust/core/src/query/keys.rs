//! Lookups of several keys of a map at once (protocol section 4, `get(keys)`).
//!
//! The keys are sorted, so the union of their descents is one pass over the nodes in preorder, and each node splits the
//! range of keys that reach it:
//!
//! ```text
//!           ●  a b c d          The pass is written once, and compiled for both forms in which nodes are held: pages,
//!         ╱   ╲                 which give the proof (`page::union`), and the bytes of a proof as they are read
//!   a b  ●     ●  c d           (`proof::streamed_keys`).
//!       ╱ ╲   ╱ ╲
//!      ●   ● ▢   ●  c d
//! ```

use std::ops::Range;

use crate::bits::Side;
use crate::id::cid::Cid;
use crate::interrupt::{Attempt, Failure};
use crate::key_list::Keys;
use crate::tree::descent::{Choice, End, Goal, Shape, ToKey, Visited};

/// The initial capacity for inner nodes above the current one: enough for most maps.
const FORKS: usize = 64;

/// The maximum number of keys whose nodes are read ahead together: about as many reads as a processor has in flight.
pub(crate) const MAX_APPROACHED: usize = 16;

/// A node that the descents to some keys reach, or none.
#[derive(Debug, Clone)]
pub(crate) struct Branch<Id> {
    pub(crate) id: Id,
    pub(crate) floor: u32,
    /// Their places in key order.
    pub(crate) keys: Range<usize>,
}

/// Nodes that the descents to several keys visit, in preorder: a node, the left subtree, the right subtree.
pub(crate) trait Preorder {
    /// Names a node.
    type Id: Copy;

    /// Loads the node of a branch that has keys, and records that the query visits it. None: the branch is put off, and
    /// the query is not answered yet.
    fn visit(&mut self, branch: &Branch<Self::Id>) -> Attempt<Option<Shape<'_, Self::Id>>>;

    /// Announces the branch with at most [`MAX_APPROACHED`] keys that is visited next. Changes no answer and no proof.
    #[inline(always)]
    fn approach(&mut self, _keys: &Keys, _branch: &Branch<Self::Id>) {}

    /// Visits all nodes of a branch with one key, and passes their siblings. Returns whether the key has a leaf, which was
    /// visited then; None if the branch has to be visited node by node.
    ///
    /// After an interrupt, `branch` is the rest of the branch, and `forks` also has the siblings to pass after it. That
    /// is so, too, where the rest is put off, which returns false.
    #[inline(always)]
    fn follow(
        &mut self,
        _key: &[u8],
        _branch: &mut Branch<Self::Id>,
        _forks: &mut Vec<Fork<Self::Id>>,
    ) -> Attempt<Option<bool>> {
        Ok(None)
    }

    /// The target of the leaf that was visited last.
    fn target(&self) -> Cid;

    /// Passes a child that no key visits.
    fn pass(&mut self, id: Self::Id) -> Attempt<()>;

    /// Continues with the right child of the node that branches at `bit`.
    fn turn(&mut self, bit: u32);

    /// Completes the node that branches at `bit`.
    fn close(&mut self, bit: u32) -> Attempt<()>;
}

/// An inner node whose subtrees are not complete, and the right one unless it has begun.
pub(crate) struct Fork<Id> {
    pub(crate) bit: u32,
    pub(crate) right: Option<Branch<Id>>,
}

/// Descents to the keys of a branch, as far as they have got: after an interrupt they continue there.
pub(crate) struct Descents<Id> {
    /// The inner nodes above `next`.
    forks: Vec<Fork<Id>>,
    next: Branch<Id>,
    /// The place of the first key that was not approached.
    near: usize,
}

impl<Id> Descents<Id> {
    pub(crate) fn new(branch: Branch<Id>) -> Self {
        Self { forks: Vec::with_capacity(FORKS), next: branch, near: 0 }
    }

    /// The branches that have not begun.
    pub(crate) fn branches(&mut self) -> impl Iterator<Item = &mut Branch<Id>> {
        self.forks.iter_mut().filter_map(|fork| fork.right.as_mut()).chain([&mut self.next])
    }
}

/// What the node of a branch decides.
enum Next<Id> {
    Fork(Fork<Id>, Branch<Id>),
    /// The key at this place has this leaf.
    Leaf(Option<usize>),
}

impl Keys {
    /// A branch with all keys, at the top of a tree.
    pub(crate) fn all<Id>(&self, top: Id) -> Branch<Id> {
        Branch { id: top, floor: 0, keys: 0..self.len() }
    }

    /// Descends to the keys of a branch, and puts their targets into `targets`, in the order in which they were asked.
    /// O(visited nodes + keys).
    #[inline(always)]
    pub(crate) fn get<N: Preorder>(
        &self,
        nodes: &mut N,
        Descents { forks, next, near }: &mut Descents<N::Id>,
        targets: &mut [Option<Cid>],
    ) -> Attempt<()> {
        loop {
            if next.keys.start >= *near && (2..=MAX_APPROACHED).contains(&next.keys.len()) {
                nodes.approach(self, next);
                *near = next.keys.end;
            }
            let alone = match next.keys.len() {
                1 => nodes.follow(self.key(next.keys.start), next, forks)?,
                _ => None,
            };
            if next.keys.is_empty() {
                nodes.pass(next.id)?;
            } else if let Some(is_found) = alone {
                if is_found {
                    targets[self.asked(next.keys.start)] = Some(nodes.target());
                }
            } else if let Some(shape) = nodes.visit(next)? {
                match self.choose(shape, next)? {
                    Next::Fork(fork, left) => {
                        forks.push(fork);
                        *next = left;
                        continue;
                    }
                    Next::Leaf(Some(place)) => targets[self.asked(place)] = Some(nodes.target()),
                    Next::Leaf(None) => {}
                }
            }
            *next = loop {
                let Some(fork) = forks.last_mut() else {
                    return Ok(());
                };
                if let Some(right) = fork.right.take() {
                    nodes.turn(fork.bit);
                    break right;
                }
                nodes.close(fork.bit)?;
                forks.pop();
            };
        }
    }

    /// Where the keys of a branch go from its node.
    ///
    /// Keys that follow all bits of an inner node are next to each other in key order, with those of its left child first.
    #[inline(always)]
    fn choose<Id: Copy>(&self, shape: Shape<'_, Id>, branch: &Branch<Id>) -> Attempt<Next<Id>> {
        let Range { mut start, mut end } = branch.keys;
        let node = Visited { shape, counts: () };
        let step = |place: usize| ToKey(self.key(place)).choose(&node, branch.floor);
        let (mut first, mut found) = (None, None);
        while first.is_none() && start < end {
            match step(start) {
                Choice::Child(side) => first = Some(side),
                Choice::Stop(end) => {
                    found = found.or((end == End::Found).then_some(start));
                    start += 1;
                }
                Choice::Invalid(why) => return Err(Failure::Invalid(why).into()),
            }
        }
        let Shape::Inner { bit, children: [left, right], .. } = node.shape else {
            return Ok(Next::Leaf(found));
        };
        let mut last = first;
        while end - start > 1 {
            match step(end - 1) {
                Choice::Child(side) => {
                    last = Some(side);
                    break;
                }
                Choice::Stop(_) => end -= 1,
                Choice::Invalid(why) => return Err(Failure::Invalid(why).into()),
            }
        }
        let middle = match (first, last) {
            (Some(Side::Left), Some(Side::Right)) => self.first_with(bit, start..end),
            (Some(Side::Right), _) => start,
            _ => end,
        };
        let branch = |id, keys| Branch { id, floor: bit + 1, keys };
        Ok(Next::Fork(Fork { bit, right: Some(branch(right, middle..end)) }, branch(left, start..middle)))
    }
}
