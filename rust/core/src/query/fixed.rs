//! Fixed lists: all elements have one size, except that the last may be smaller (protocol section 5, *mutations*).

use crate::error::{ConflictCode, Error, Result};
use crate::id::cid::Kind;
use crate::id::suite::Digest;
use crate::interrupt::{Attempt, Failure};
use crate::page::format::Page;
use crate::page::partial::PartialTree;
use crate::tree::arena::{NodeId, State};
use crate::tree::node::Summary;

/// The sizes of the elements of a fixed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedSizes {
    count: u64,
    total: u64,
    size: u64,
}

/// The elements below a node that is not in memory: their sum fits, but their sizes may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unchecked {
    /// The digest of the node, which names its page.
    pub digest: Digest,
    /// The index of the first element.
    pub first: u64,
    /// Whether the last element of the list is among them.
    pub has_last: bool,
}

impl FixedSizes {
    /// The sizes of a list of measure `total`, whose elements have `size`; None if `size` is 0.
    pub fn new(total: u64, size: u64) -> Option<Self> {
        (size > 0).then(|| Self { count: total.div_ceil(size), total, size })
    }

    /// The number of elements.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The size of each element but the last.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The sum of the sizes of `count` elements from `first` on.
    fn sum(&self, first: u64, count: u64) -> u64 {
        let start = |index: u64| index.saturating_mul(self.size).min(self.total);
        start(first + count) - start(first)
    }

    /// The size of element `index`; None if the list is shorter.
    pub fn size_of(&self, index: u64) -> Option<u64> {
        (index < self.count).then(|| self.sum(index, 1))
    }

    /// Checks the number of elements, their total, and the sums of all subtrees that the tree below `top` has in memory.
    pub(crate) fn check(&self, tree: &PartialTree, top: NodeId) -> Attempt<()> {
        let count = tree.sum(top).count;
        if count != self.count {
            let what = format!("commit: the list has {count} elements; the fixed list has {}", self.count);
            return Err(Failure::Conflict { code: ConflictCode::InvalidChange, what }.into());
        }
        let node = |id| (tree.sum(id), tree.state(id));
        match self.check_nodes(node, top, 0, |_| ()) {
            Ok(()) => Ok(()),
            Err(what) => Err(Failure::Conflict { code: ConflictCode::InvalidChange, what }.into()),
        }
    }

    /// Checks the sizes that a page of the list shows; its elements start at index `first`. Returns the subtrees on other
    /// pages whose sums do not determine the sizes of their elements, the last one first. O(nodes of the page).
    ///
    /// # Errors
    /// [`Error::Conflict`] that names the first elements whose size is another; [`Error::Damaged`] if it is the page of a
    /// map.
    pub fn check_page(&self, page: &Page, first: u64) -> Result<Vec<Unchecked>> {
        page.check_is_of(Kind::List, page.suite)?;
        let node = |id| (page.arena.sum(id), page.arena.node(id).state);
        let mut unchecked = Vec::new();
        self.check_nodes(node, Page::TOP, first, |subtree| unchecked.push(subtree))
            .map_err(|what| Error::conflict(ConflictCode::InvalidChange, what))?;
        unchecked.reverse();
        Ok(unchecked)
    }

    /// Compares the sum of each node with that of the fixed list, from left to right. The error is the text.
    fn check_nodes(
        &self,
        node: impl Fn(NodeId) -> (Summary, State),
        top: NodeId,
        first: u64,
        mut hidden: impl FnMut(Unchecked),
    ) -> Result<(), String> {
        let mut pending = vec![(top, first)];
        while let Some((id, first)) = pending.pop() {
            let (sum, state) = node(id);
            if let State::Inner { left, right, .. } = state {
                // If its sum does not fit, neither does that of a child.
                pending.extend([(right, first + node(left).0.count), (left, first)]);
                continue;
            }
            let expected = self.sum(first, sum.count);
            if sum.measure != expected {
                return Err(differs(first, &sum, expected));
            }
            // Sizes are at least 1, so elements that are 1 on average are 1 each.
            if sum.count > 1 && self.size > 1 {
                hidden(Unchecked { digest: sum.digest, first, has_last: first + sum.count >= self.count });
            }
        }
        Ok(())
    }
}

fn differs(first: u64, sum: &Summary, expected: u64) -> String {
    let size = sum.measure;
    match sum.count {
        1 => format!("commit: element {first} has size {size}; its size in the fixed list is {expected}"),
        count => {
            let last = first + count - 1;
            format!("commit: elements {first} to {last} have size {size} together; in the fixed list it is {expected}")
        }
    }
}
