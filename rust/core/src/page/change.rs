//! Changes of partial trees: fresh nodes, their digests, and where the changed tree is cut.

use crate::bits::Side;
use crate::id::cid::Kind;
use crate::id::suite::Digest;
use crate::interrupt::{Attempt, Failure};
use crate::page::partial::{PartialTree, SUM_TOO_LARGE};
use crate::tree::arena::{FRESH, Node, NodeId, SHOWN, State};
use crate::tree::cut;
use crate::tree::encoder::Encoder;
use crate::tree::node::Summary;
use crate::tree::pruned;

impl PartialTree {
    /// Adds a fresh node.
    pub(crate) fn push_fresh(&mut self, sum: Summary, state: State) -> NodeId {
        self.arena.push(Node { flags: FRESH | SHOWN, ..Node::new(&sum, state) }, sum.measure)
    }

    /// Replaces the end of `path` by `child` and returns the new top. Fresh nodes on the path are changed in place, others
    /// are copied. Digests are left to [`PartialTree::seal`].
    pub(crate) fn graft(&mut self, path: &[(NodeId, Side)], mut child: NodeId) -> Attempt<NodeId> {
        for &(id, side) in path.iter().rev() {
            let State::Inner { bit, label, mut left, mut right } = self.state(id) else {
                return Err(Failure::Invalid("a leaf has no children").into());
            };
            match side {
                Side::Left => left = child,
                Side::Right => right = child,
            }
            let state = State::Inner { bit, label, left, right };
            let sum = pruned::join(&self.sum(left), &self.sum(right), |_, _| Digest::ZERO).ok_or(SUM_TOO_LARGE)?;
            child = if self.node(id).has(FRESH) {
                self.arena.set_sum(id, &sum);
                self.arena.node_mut(id).state = state;
                id
            } else {
                self.push_fresh(sum, state)
            };
        }
        Ok(child)
    }

    /// Computes the digests of all fresh nodes below `top`, and decides where the new tree is cut. O(fresh nodes).
    ///
    /// The decisions need only the fields of stubs, so a verifier can run this too; it ignores them.
    pub(crate) fn seal(&mut self, top: NodeId) {
        let mut encoder = Encoder::new(self.suite);
        let mut rest = vec![(top, 0u32, None, false)];
        while let Some((id, floor, turn, children_done)) = rest.pop() {
            if !self.node(id).has(FRESH) {
                continue;
            }
            if let Some((bit, side)) = turn {
                encoder.turn(bit, side);
            }
            match self.state(id) {
                State::Inner { bit, left, right, .. } if children_done => {
                    let (l, r) = (self.sum(left), self.sum(right));
                    let digest = match self.kind {
                        Kind::Map => encoder.map_inner(bit, &l, &r),
                        Kind::List => encoder.list_inner(&l, &r),
                    };
                    self.arena.node_mut(id).digest = digest;
                }
                State::Inner { bit, label, left, right } => {
                    encoder.put(floor, self.arena.label(&label, floor, bit));
                    rest.push((id, floor, None, true));
                    rest.push((right, bit + 1, Some((bit, Side::Right)), false));
                    rest.push((left, bit + 1, Some((bit, Side::Left)), false));
                    continue;
                }
                _ => self.seal_leaf(id, &mut encoder),
            }
            self.decide_cut(id);
        }
    }

    fn seal_leaf(&mut self, id: NodeId, encoder: &mut Encoder) {
        let node = self.arena.node(id);
        let digest = match (self.kind, node.state) {
            (Kind::Map, State::Leaf { tail, .. }) => {
                let key = self.arena.tail(tail, 0);
                encoder.put(0, key);
                encoder.map_leaf(key.len(), self.arena.target(id))
            }
            (Kind::List, State::Leaf { .. }) => encoder.list_leaf(self.arena.measure(id), self.arena.target(id)),
            (Kind::Map, _) => encoder.map_empty(),
            (Kind::List, _) => encoder.list_empty(),
        };
        self.arena.node_mut(id).digest = digest;
    }

    /// Decides which children stay in the page of a fresh node.
    pub(crate) fn decide_cut(&mut self, id: NodeId) {
        match self.state(id) {
            State::Inner { bit, left, right, .. } => {
                let children = [left, right].map(|child| {
                    let (arena, there) = self.source(child);
                    let extent = self.extent(child);
                    cut::Child::of(arena.node(there), arena.measure(there), self.kind, bit + 1, extent)
                });
                cut::apply(self.arena.node_mut(id), children);
            }
            State::Leaf { .. } => cut::measure(&mut self.arena, self.kind, id),
            _ => {}
        }
    }
}
