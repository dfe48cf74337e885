//! The nodes of a new tree, from left to right, and the pages that they are cut into.
//!
//! A subtree that is cut off becomes a page at once and its nodes and bytes are dropped, so memory holds about one page
//! for each subtree that waits for its sibling.

use std::sync::Arc;

use crate::id::cid::Kind;
use crate::id::suite::{Digest, Suite};
use crate::interrupt::{Attempt, Failure};
use crate::page::draft::Draft;
use crate::page::format::Page;
use crate::page::partial::{PartialTree, SUM_TOO_LARGE};
use crate::tree::arena::{Arena, KEEP_LEFT, KEEP_RIGHT, Node, NodeId, PAGE_TOP, State, Tail};
use crate::tree::cut::{self, Child};
use crate::tree::node::Summary;
use crate::tree::pruned::{self, Form};
use crate::tree::writer;

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

/// A complete subtree: its top, and where the nodes and the bytes of it that are still held begin in the arena.
#[derive(Debug, Clone, Copy)]
struct HeldSubtree {
    top: NodeId,
    start: NodeId,
    bytes: u32,
}

/// A whole subtree of a tree that is being built: the nodes of the page that its top may share with nodes above it, and
/// all pages below.
pub(crate) struct Subtree {
    top: NodeId,
    arena: Arena,
    pages: Vec<Arc<Page>>,
    stored: Vec<(Digest, Vec<u8>)>,
}

impl Subtree {
    pub(crate) fn sum(&self) -> Summary {
        self.arena.node(self.top).sum
    }
}

pub(crate) struct Layout {
    tree: PartialTree,
    destination: Destination,
    stored: Vec<(Digest, Vec<u8>)>,
    /// Subtrees from left to right; the last two join next.
    open: Vec<HeldSubtree>,
    draft: Draft,
    /// The buffer in which pages are encoded.
    page: Vec<u8>,
}

const UNJOINED: Failure = Failure::Invalid("subtrees that have not joined");

impl Layout {
    pub(crate) fn new(kind: Kind, suite: Suite, destination: Destination) -> Self {
        Self {
            tree: PartialTree::empty(kind, suite),
            destination,
            stored: Vec::new(),
            open: Vec::new(),
            draft: Draft::default(),
            page: Vec::new(),
        }
    }

    /// Adds the next leaf. `key` is empty in a list.
    pub(crate) fn leaf(&mut self, sum: Summary, key: &[u8], target: &[u8]) {
        let arena = &mut self.tree.arena;
        let bytes = arena.store(key);
        let tail = Tail { offset: bytes, start: 0, len: key.len() as u16 };
        let state = State::Leaf { tail, target: arena.store(target), target_len: target.len() as u8 };
        let top = self.tree.push_fresh(sum, state);
        cut::measure(&mut self.tree.arena, self.tree.kind, top);
        self.open.push(HeldSubtree { top, start: top, bytes });
    }

    /// The bytes of memory that incomplete pages take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.tree.arena.nodes.len() * size_of::<Node>() + self.tree.arena.bytes.len()
    }

    /// Takes the encoded pages that are complete.
    pub(crate) fn take_stored(&mut self) -> Vec<(Digest, Vec<u8>)> {
        std::mem::take(&mut self.stored)
    }

    /// Joins the last two subtrees below a node with this digest. In a map, `prefix` starts with its prefix.
    pub(crate) fn join(&mut self, bit: u32, digest: Digest, prefix: &[u8]) -> Attempt<()> {
        let (Some(right), Some(left)) = (self.open.pop(), self.open.pop()) else {
            return Err(Failure::Invalid("an inner node without two children").into());
        };
        let (arena, kind) = (&self.tree.arena, self.tree.kind);
        let (l, r) = (&arena.node(left.top).sum, &arena.node(right.top).sum);
        let sum = pruned::join(l, r, |_, _| digest).ok_or(SUM_TOO_LARGE)?;
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
        let label = self.label([left_top, right_top], bit, prefix);
        let state = State::Inner { bit, label, start: 0, left: left_top, right: right_top };
        let top = self.tree.push_fresh(sum, state);
        let there = self.tree.arena.node_mut(top);
        (there.height, there.weight) = (node.height, node.weight);
        there.flags |= node.flags;
        self.open.push(HeldSubtree { top, ..left });
        Ok(())
    }

    /// Where the first `bit` bits of the prefix are stored: a child that stays starts with them, too.
    fn label(&mut self, children: [NodeId; 2], bit: u32, prefix: &[u8]) -> u32 {
        if self.tree.kind == Kind::List {
            return 0;
        }
        for child in children {
            match self.tree.state(child) {
                State::Leaf { tail, .. } => return tail.offset,
                State::Inner { label, .. } => return label,
                _ => {}
            }
        }
        self.tree.arena.store(&prefix[..bit.div_ceil(8) as usize])
    }

    /// Drops the nodes that were cut off, if they are the last ones. Those of a left subtree before a right one that stays
    /// are dropped later, with the subtree around them.
    fn drop_cut(&mut self, [left, right]: [HeldSubtree; 2], keep: [bool; 2]) -> [NodeId; 2] {
        let arena = &mut self.tree.arena;
        let stubs = [*arena.node(left.top), *arena.node(right.top)];
        let mut drop_from = |subtree: HeldSubtree| {
            arena.nodes.truncate(subtree.start.0 as usize);
            arena.bytes.truncate(subtree.bytes as usize);
        };
        match keep {
            [_, true] => [left.top, right.top],
            [true, false] => {
                drop_from(right);
                [left.top, arena.push(stubs[1])]
            }
            [false, false] => {
                drop_from(left);
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
                writer::encode_to(&mut self.page, arena, self.tree.kind, Page::TOP, Form::Page, sum);
                self.stored.push((arena.node(Page::TOP).sum.digest, self.page.clone()));
                0
            }
            Destination::Memory => {
                let Arena { nodes, bytes, .. } = &self.draft.arena;
                let arena = Arena { nodes: nodes.clone(), bytes: bytes.clone(), shown: 0 };
                let next = self.draft.stubs.iter().map(|&stub| self.tree.page_of(stub)).collect::<Attempt<_>>()?;
                self.tree.hold(Arc::new(Page { kind: self.tree.kind, suite: self.tree.suite, arena, next }))
            }
        };
        let node = self.tree.arena.node_mut(id);
        node.state = State::Stub { extent, ordinal: 0 };
        node.flags = PAGE_TOP;
        node.home = page;
        Ok(())
    }

    /// Takes the only subtree.
    pub(crate) fn into_subtree(mut self) -> Attempt<Subtree> {
        let [HeldSubtree { top, .. }] = self.open[..] else {
            return Err(UNJOINED.into());
        };
        let (arena, pages) = (std::mem::take(&mut self.tree.arena), std::mem::take(&mut self.tree.pages));
        Ok(Subtree { top, arena, pages, stored: self.stored })
    }

    /// Adds a subtree with its pages.
    pub(crate) fn adopt(&mut self, Subtree { top, arena, pages, stored }: Subtree) {
        let (start, bytes) = self.tree.append(&arena, pages);
        self.stored.extend(stored);
        self.open.push(HeldSubtree { top: NodeId(start.0 + top.0), start, bytes });
    }

    /// Completes the tree. Without leaves, it is the empty tree, whose digest is `empty`.
    pub(crate) fn finish(mut self, empty: Digest) -> Attempt<Built> {
        let top = match self.open[..] {
            [] => self.tree.push_fresh(Summary { count: 0, measure: 0, digest: empty }, State::Empty),
            [only] => only.top,
            _ => return Err(UNJOINED.into()),
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
