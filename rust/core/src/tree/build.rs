//! Building trees from their leaves, in one pass and page by page.
//!
//! `map` and `list` say which leaf comes next and which two subtrees join; here they are hashed and cut. A subtree
//! that is cut off becomes a page at once and its nodes are forgotten, so what is held is little more than a page
//! for each height of the tree.

use std::sync::Arc;

use crate::id::cid::Kind;
use crate::id::suite::{Digest, Suite};
use crate::page::Page;
use crate::page::cut::{self, Child};
use crate::page::paging::Draft;
use crate::proof::pruned::{self, Form};
use crate::tree::arena::{Arena, KEEP_LEFT, KEEP_RIGHT, Node, NodeId, PAGE_TOP, State};
use crate::tree::node::{Encoder, Summary};
use crate::tree::{Halt, Step, Tree};

/// What becomes of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    /// They stay in memory, each with those below it.
    Linked,
    /// Their bytes go to a store.
    Stored,
}

/// A built tree.
pub(crate) struct Built {
    pub(crate) sum: Summary,
    /// The top's page, if they are [`Pages::Linked`].
    pub(crate) top: Option<Arc<Page>>,
    /// Digests and bytes of all pages, if they are [`Pages::Stored`].
    pub(crate) stored: Vec<(Digest, Vec<u8>)>,
}

/// A whole subtree: its top, and the first of the nodes that are held of it.
#[derive(Debug, Clone, Copy)]
struct Subtree {
    top: NodeId,
    start: NodeId,
}

pub(crate) struct Builder {
    pub(crate) tree: Tree,
    pub(crate) encoder: Encoder,
    pages: Pages,
    stored: Vec<(Digest, Vec<u8>)>,
    /// From the left; the last two join next.
    open: Vec<Subtree>,
    draft: Draft,
    /// The bytes of a page, on their way.
    page: Vec<u8>,
}

impl Builder {
    /// `pool` is where keys and targets are; nodes point into it.
    pub(crate) fn new(kind: Kind, suite: Suite, pool: Vec<u8>, pages: Pages) -> Self {
        let mut tree = Tree::empty(kind, suite);
        tree.arena.bytes = pool;
        Self {
            tree,
            encoder: Encoder::new(suite),
            pages,
            stored: Vec::new(),
            open: Vec::new(),
            draft: Draft::default(),
            page: Vec::new(),
        }
    }

    /// Adds the next leaf.
    pub(crate) fn leaf(&mut self, sum: Summary, state: State) {
        let top = self.tree.push_fresh(sum, state);
        cut::note(&mut self.tree.arena, self.tree.kind, top);
        self.open.push(Subtree { top, start: top });
    }

    /// Number of subtrees that have not joined.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether the last two subtrees have as many leaves.
    pub(crate) fn last_two_equal(&self) -> bool {
        match self.open[..] {
            [.., left, right] => self.tree.sum(left.top).count == self.tree.sum(right.top).count,
            _ => false,
        }
    }

    /// Joins the last two subtrees. In a map, the new node's key bits are those before `bit` at `key` in the pool, and
    /// in the encoder's path.
    pub(crate) fn join(&mut self, bit: u32, key: u32) -> Step<()> {
        let (Some(right), Some(left)) = (self.open.pop(), self.open.pop()) else {
            return Err(Halt::Faulty("an inner node without two sides"));
        };
        let (encoder, arena, kind) = (&mut self.encoder, &self.tree.arena, self.tree.kind);
        let (l, r) = (&arena.node(left.top).sum, &arena.node(right.top).sum);
        let sum = pruned::join(l, r, |l, r| match kind {
            Kind::Map => encoder.map_inner(bit, l, r),
            Kind::List => encoder.list_inner(l, r),
        });
        let sum = sum.ok_or(Halt::Full("the counts or measures would sum to 2^53 or more"))?;
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
        let [left_top, right_top] = self.forget([left, right], keep);
        let state = State::Inner { bit, label: key, start: 0, left: left_top, right: right_top };
        let top = self.tree.push_fresh(sum, state);
        let there = self.tree.arena.node_mut(top);
        (there.height, there.weight) = (node.height, node.weight);
        there.flags |= node.flags;
        self.open.push(Subtree { top, start: left.start });
        Ok(())
    }

    /// Forgets the nodes that were cut off, as far as they are the last ones. Those of a left side in front of a
    /// right side that stays are forgotten when the subtree around them is.
    fn forget(&mut self, [left, right]: [Subtree; 2], keep: [bool; 2]) -> [NodeId; 2] {
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

    /// Makes a page of a subtree and puts a stub in its place.
    fn cut_off(&mut self, id: NodeId) -> Step<()> {
        self.draft.clear();
        self.tree.draft_built(id, &mut self.draft)?;
        let extent = self.tree.arena.extent(id);
        let page = match self.pages {
            Pages::Stored => {
                let arena = &self.draft.arena;
                self.page.clear();
                let sum = |id| &arena.node(id).sum;
                pruned::encode_to(&mut self.page, arena, self.tree.kind, Page::TOP, Form::Page, sum);
                self.stored.push((arena.node(Page::TOP).sum.digest, self.page.clone()));
                0
            }
            Pages::Linked => {
                let Arena { nodes, bytes, .. } = &self.draft.arena;
                let arena = Arena { nodes: nodes.clone(), bytes: bytes.clone(), shown: 0 };
                let next = self.draft.stubs.iter().map(|&stub| self.tree.page_of(stub)).collect::<Step<_>>()?;
                self.tree.pin(Page { kind: self.tree.kind, suite: self.tree.suite, arena, next })
            }
        };
        let node = self.tree.arena.node_mut(id);
        node.state = State::Stub { extent, ordinal: 0 };
        node.flags = PAGE_TOP;
        node.home = page;
        Ok(())
    }

    /// Ends the tree. No leaves make the empty one.
    pub(crate) fn finish(mut self) -> Step<Built> {
        let top = match self.open[..] {
            [] => {
                let digest = match self.tree.kind {
                    Kind::Map => self.encoder.map_empty(),
                    Kind::List => self.encoder.list_empty(),
                };
                self.tree.push_fresh(Summary { count: 0, measure: 0, digest }, State::Empty)
            }
            [only] => only.top,
            _ => return Err(Halt::Faulty("subtrees that have not joined")),
        };
        self.cut_off(top)?;
        let sum = self.tree.arena.node(top).sum;
        let top = match self.pages {
            Pages::Linked => Some(self.tree.page_of(top)?),
            Pages::Stored => None,
        };
        Ok(Built { sum, top, stored: self.stored })
    }
}
