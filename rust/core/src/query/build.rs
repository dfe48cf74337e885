//! Building trees from their leaves, in one pass and page by page.
//!
//! `map` and `list` decide which leaf comes next and which two subtrees join; here they are hashed and cut. A subtree
//! that is cut off becomes a page at once and its nodes are dropped, so memory holds about one page per page level.

use std::sync::Arc;

use crate::error::Error;
use crate::id::cid::Kind;
use crate::id::suite::{Digest, Suite};
use crate::interrupt::{Attempt, Failure, Interrupt};
use crate::page::draft::Draft;
use crate::page::format::Page;
use crate::page::partial::{PartialTree, SUM_TOO_LARGE};
use crate::tree::arena::{Arena, KEEP_LEFT, KEEP_RIGHT, Node, NodeId, PAGE_TOP, State};
use crate::tree::cut::{self, Child};
use crate::tree::node::{Encoder, Summary};
use crate::tree::pruned::{self, Form};

/// Where the pages of a new tree go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    /// They stay in memory, linked to each other.
    Memory,
    /// They are encoded for a store.
    Store,
}

/// A built tree.
pub(crate) struct Built {
    pub(crate) sum: Summary,
    /// The top page, if they are kept in memory.
    pub(crate) top: Option<Arc<Page>>,
    /// The digests and bytes of all pages, if they are encoded.
    pub(crate) stored: Vec<(Digest, Vec<u8>)>,
}

/// A complete subtree: its top, and the first of its nodes that are still held.
#[derive(Debug, Clone, Copy)]
struct Subtree {
    top: NodeId,
    start: NodeId,
}

pub(crate) struct Builder {
    pub(crate) tree: PartialTree,
    pub(crate) encoder: Encoder,
    destination: Destination,
    stored: Vec<(Digest, Vec<u8>)>,
    /// Subtrees from left to right; the last two join next.
    open: Vec<Subtree>,
    draft: Draft,
    /// The buffer in which pages are encoded.
    page: Vec<u8>,
}

impl Builder {
    /// Creates a builder; `pool` holds the keys and targets that nodes refer to.
    pub(crate) fn new(kind: Kind, suite: Suite, pool: Vec<u8>, destination: Destination) -> Self {
        let mut tree = PartialTree::empty(kind, suite);
        tree.arena.bytes = pool;
        Self {
            tree,
            encoder: Encoder::new(suite),
            destination,
            stored: Vec::new(),
            open: Vec::new(),
            draft: Draft::default(),
            page: Vec::new(),
        }
    }

    /// Adds the next leaf.
    pub(crate) fn leaf(&mut self, sum: Summary, state: State) {
        let top = self.tree.push_fresh(sum, state);
        cut::measure(&mut self.tree.arena, self.tree.kind, top);
        self.open.push(Subtree { top, start: top });
    }

    /// The number of subtrees that have not joined.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether the last two subtrees have the same number of leaves.
    pub(crate) fn last_two_equal(&self) -> bool {
        match self.open[..] {
            [.., left, right] => self.tree.sum(left.top).count == self.tree.sum(right.top).count,
            _ => false,
        }
    }

    /// Joins the last two subtrees. In a map, the new node's prefix is the first `bit` bits of the key at `key` in the pool,
    /// which the encoder's path holds too.
    pub(crate) fn join(&mut self, bit: u32, key: u32) -> Attempt<()> {
        let (Some(right), Some(left)) = (self.open.pop(), self.open.pop()) else {
            return Err(Failure::Invalid("an inner node without two children").into());
        };
        let (encoder, arena, kind) = (&mut self.encoder, &self.tree.arena, self.tree.kind);
        let (l, r) = (&arena.node(left.top).sum, &arena.node(right.top).sum);
        let sum = pruned::join(l, r, |l, r| match kind {
            Kind::Map => encoder.map_inner(bit, l, r),
            Kind::List => encoder.list_inner(l, r),
        });
        let sum = sum.ok_or(SUM_TOO_LARGE)?;
        let children = [left.top, right.top];
        let seen = children.map(|id| Child::of(arena.node(id), kind, bit + 1, arena.extent(id)));
        let mut node = Node::new(sum, State::Empty);
        cut::apply(&mut node, seen);
        let keep = [node.has(KEEP_LEFT), node.has(KEEP_RIGHT)];
        for (child, keep) in children.into_iter().zip(keep) {
            if !keep {
                self.cut_off(child)?;
            }
        }
        let [left_top, right_top] = self.drop_cut([left, right], keep);
        let state = State::Inner { bit, label: key, start: 0, left: left_top, right: right_top };
        let top = self.tree.push_fresh(sum, state);
        let there = self.tree.arena.node_mut(top);
        (there.height, there.weight) = (node.height, node.weight);
        there.flags |= node.flags;
        self.open.push(Subtree { top, start: left.start });
        Ok(())
    }

    /// Drops the nodes that were cut off, if they are the last ones. Those of a left subtree before a right one that stays
    /// are dropped later, with the subtree around them.
    fn drop_cut(&mut self, [left, right]: [Subtree; 2], keep: [bool; 2]) -> [NodeId; 2] {
        let arena = &mut self.tree.arena;
        match keep {
            [_, true] => [left.top, right.top],
            [true, false] => {
                let stub = *arena.node(right.top);
                arena.nodes.truncate(right.start.0 as usize);
                [left.top, arena.push(stub)]
            }
            [false, false] => {
                let stubs = [*arena.node(left.top), *arena.node(right.top)];
                arena.nodes.truncate(left.start.0 as usize);
                stubs.map(|stub| arena.push(stub))
            }
        }
    }

    /// Creates the page of a subtree, and replaces the subtree by a stub.
    fn cut_off(&mut self, id: NodeId) -> Attempt<()> {
        self.draft.clear();
        self.tree.draft_built(id, &mut self.draft)?;
        let extent = self.tree.arena.extent(id);
        let page = match self.destination {
            Destination::Store => {
                let arena = &self.draft.arena;
                self.page.clear();
                let sum = |id| &arena.node(id).sum;
                pruned::encode_to(&mut self.page, arena, self.tree.kind, Page::TOP, Form::Page, sum);
                self.stored.push((arena.node(Page::TOP).sum.digest, self.page.clone()));
                0
            }
            Destination::Memory => {
                let Arena { nodes, bytes, .. } = &self.draft.arena;
                let arena = Arena { nodes: nodes.clone(), bytes: bytes.clone(), shown: 0 };
                let next = self.draft.stubs.iter().map(|&stub| self.tree.page_of(stub)).collect::<Attempt<_>>()?;
                self.tree.pin(Page { kind: self.tree.kind, suite: self.tree.suite, arena, next })
            }
        };
        let node = self.tree.arena.node_mut(id);
        node.state = State::Stub { extent, ordinal: 0 };
        node.flags = PAGE_TOP;
        node.home = page;
        Ok(())
    }

    /// Completes the tree. Without leaves, it is the empty tree.
    pub(crate) fn finish(mut self) -> Attempt<Built> {
        let top = match self.open[..] {
            [] => {
                let digest = match self.tree.kind {
                    Kind::Map => self.encoder.map_empty(),
                    Kind::List => self.encoder.list_empty(),
                };
                self.tree.push_fresh(Summary { count: 0, measure: 0, digest }, State::Empty)
            }
            [only] => only.top,
            _ => return Err(Failure::Invalid("subtrees that have not joined").into()),
        };
        self.cut_off(top)?;
        let sum = self.tree.arena.node(top).sum;
        let top = match self.destination {
            Destination::Memory => Some(self.tree.page_of(top)?),
            Destination::Store => None,
        };
        Ok(Built { sum, top, stored: self.stored })
    }
}

impl Interrupt<Failure> {
    /// The error for a build from the member `member` of a request.
    pub(crate) fn in_build(self, member: &str) -> Error {
        match self {
            Self::Failed(Failure::TooLarge(what) | Failure::Invalid(what)) => {
                Error::request(format!("{member}: {what}"))
            }
            _ => Error::request(format!("{member}: the tree cannot be built")),
        }
    }
}
