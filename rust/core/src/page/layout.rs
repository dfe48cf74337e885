//! The nodes of a new tree, from left to right, and the pages that they are cut into.
//!
//! A subtree that is cut off becomes a page at once and its nodes and bytes are dropped, so memory holds about one page
//! for each subtree that waits for its sibling.

use std::sync::Arc;

use crate::id::cid::Kind;
use crate::id::suite::{Digest, Suite};
use crate::interrupt::{Attempt, Failure};
use crate::page::format::Page;
use crate::page::partial::SUM_TOO_LARGE;
use crate::tree::arena::{Arena, KEEP_LEFT, KEEP_RIGHT, Label, Node, NodeId, SHOWN, State, Tail};
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

/// A complete subtree: its top, where the nodes and the bytes of it that are still held begin in the arena, and what its
/// page would contain if it were cut off: so many nodes, and so many bytes besides the bits of its top.
#[derive(Debug, Clone, Copy)]
struct HeldSubtree {
    top: NodeId,
    start: NodeId,
    bytes: u32,
    page_nodes: u32,
    page_bytes: u32,
}

/// A whole subtree of a tree that is being built: the nodes of the page that its top may share with nodes above it, and
/// all pages below.
pub(crate) struct Subtree {
    held: HeldSubtree,
    arena: Arena,
    pages: Vec<Arc<Page>>,
    stored: Vec<(Digest, Vec<u8>)>,
}

impl Subtree {
    pub(crate) fn sum(&self) -> Summary {
        self.arena.sum(self.held.top)
    }
}

pub(crate) struct Layout {
    kind: Kind,
    suite: Suite,
    /// Nodes that are on no page yet. A subtree that was cut off is a stub, whose ordinal is the number of its page.
    arena: Arena,
    /// Pages that were completed, if they are kept in memory.
    pages: Vec<Arc<Page>>,
    /// Pages that were completed, if they are encoded.
    stored: Vec<(Digest, Vec<u8>)>,
    destination: Destination,
    /// Subtrees from left to right; the last two join next.
    open: Vec<HeldSubtree>,
    /// The buffer in which pages are encoded.
    encoded: Vec<u8>,
}

const UNJOINED: Failure = Failure::Invalid("subtrees that have not joined");

impl Layout {
    pub(crate) fn new(kind: Kind, suite: Suite, destination: Destination) -> Self {
        let (arena, pages, stored) = (Arena::default(), Vec::new(), Vec::new());
        Self { kind, suite, arena, pages, stored, destination, open: Vec::new(), encoded: Vec::new() }
    }

    /// Adds the next leaf. `key` is empty in a list.
    pub(crate) fn leaf(&mut self, sum: Summary, key: &[u8], target: &[u8]) {
        let bytes = self.arena.store(key);
        let tail = Tail { offset: bytes, start: 0, len: key.len() as u16 };
        let state = State::Leaf { tail, target: self.arena.store(target), target_len: target.len() as u8 };
        let weight = cut::leaf_weight(self.kind, sum.measure, target.len());
        let top = self.arena.push(Node { weight, flags: SHOWN, ..Node::new(&sum, state) }, sum.measure);
        self.open.push(HeldSubtree { top, start: top, bytes, page_nodes: 1, page_bytes: target.len() as u32 });
    }

    /// The bytes of memory that incomplete pages take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.arena.nodes.len() * size_of::<Node>() + self.arena.bytes.len()
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
        let tops = [left.top, right.top];
        let [l, r] = tops.map(|id| self.arena.sum(id));
        let sum = pruned::join(&l, &r, |_, _| digest).ok_or(SUM_TOO_LARGE)?;
        let children = tops.map(|id| {
            let extent = self.arena.extent(id);
            Child::of(self.arena.node(id), self.arena.measure(id), self.kind, bit + 1, extent)
        });
        let mut node = Node { flags: SHOWN, ..Node::new(&sum, State::Empty) };
        cut::apply(&mut node, children);
        let keep = [node.has(KEEP_LEFT), node.has(KEEP_RIGHT)];
        let (mut page_nodes, mut page_bytes) = (1, 0);
        for ((subtree, child), keep) in [left, right].into_iter().zip(children).zip(keep) {
            if keep {
                page_nodes += subtree.page_nodes;
                let own = child.own_bytes();
                let own = if self.is_leaf(subtree.top) { own } else { Label::stored_len(own) };
                page_bytes += subtree.page_bytes + own;
            } else {
                page_nodes += 1;
                self.cut_off(subtree)?;
            }
        }
        let [left_top, right_top] = self.drop_cut([left, right], keep);
        let label = self.label([left_top, right_top], bit, prefix);
        node.state = State::Inner { bit, label, left: left_top, right: right_top };
        let top = self.arena.push(node, sum.measure);
        self.open.push(HeldSubtree { top, page_nodes, page_bytes, ..left });
        Ok(())
    }

    fn is_leaf(&self, id: NodeId) -> bool {
        matches!(self.arena.node(id).state, State::Leaf { .. })
    }

    /// The label of the first `bit` bits of the prefix: a child that stays starts with them, too.
    fn label(&mut self, children: [NodeId; 2], bit: u32, prefix: &[u8]) -> Label {
        if self.kind == Kind::List {
            return Label::NONE;
        }
        let own = &prefix[..bit.div_ceil(8) as usize];
        let offset = children.into_iter().find_map(|child| match self.arena.node(child).state {
            State::Leaf { tail, .. } => Some(tail.offset),
            State::Inner { bit, label, .. } => label.offset(bit),
            _ => None,
        });
        match offset {
            Some(offset) => Label::new(own, bit, offset),
            None => self.arena.store_label(own, bit),
        }
    }

    /// Drops the nodes that were cut off, if they are the last ones. Those of a left subtree before a right one that stays
    /// are dropped later, with the subtree around them.
    fn drop_cut(&mut self, [left, right]: [HeldSubtree; 2], keep: [bool; 2]) -> [NodeId; 2] {
        if keep[1] {
            return [left.top, right.top];
        }
        let arena = &mut self.arena;
        let [(left_stub, left_measure), (right_stub, right_measure)] =
            [left.top, right.top].map(|id| (*arena.node(id), arena.measure(id)));
        let first = if keep[0] { right } else { left };
        arena.truncate(first.start.0 as usize, first.bytes as usize);
        let left_top = if keep[0] { left.top } else { arena.push(left_stub, left_measure) };
        [left_top, arena.push(right_stub, right_measure)]
    }

    /// Creates the page of a subtree, and replaces the subtree by a stub.
    fn cut_off(&mut self, subtree: HeldSubtree) -> Attempt<()> {
        let (top, extent) = (subtree.top, self.arena.extent(subtree.top));
        let number = self.pages.len() as u32;
        match self.destination {
            Destination::Store => {
                self.encoded.clear();
                let arena = &self.arena;
                writer::encode_to(&mut self.encoded, arena, self.kind, top, Form::Page, |id| (arena, id));
                self.stored.push((arena.node(top).digest, self.encoded.clone()));
            }
            Destination::Memory => {
                let page = self.page(subtree)?;
                self.pages.push(Arc::new(page));
            }
        }
        let node = self.arena.node_mut(top);
        node.state = State::Stub { extent, ordinal: number };
        node.flags = 0;
        Ok(())
    }

    /// Copies the nodes of a subtree that are on no page yet, in preorder, to a page of exactly their size. The page's top
    /// stores all its bits, the others only those from their floor on.
    fn page(&self, subtree: HeldSubtree) -> Attempt<Page> {
        let top_bytes = self.arena.extent(subtree.top).div_ceil(8);
        let top_bytes = if self.is_leaf(subtree.top) { top_bytes } else { Label::stored_len(top_bytes) };
        let (mut arena, mut next) = (Arena::default(), Vec::new());
        arena.reserve(subtree.page_nodes as usize, (subtree.page_bytes + top_bytes) as usize);
        // Nodes to copy, with their floors and the parents of which they are the right child.
        let mut rest = vec![(subtree.top, 0, None)];
        while let Some((id, floor, parent)) = rest.pop() {
            let there = NodeId(arena.nodes.len() as u32);
            if let Some(parent) = parent
                && let State::Inner { right, .. } = &mut arena.node_mut(parent).state
            {
                *right = there;
            }
            let from = self.arena.node(id);
            let state = match from.state {
                State::Leaf { tail, target_len, .. } if self.kind == Kind::Map => {
                    let own = self.arena.tail(tail, floor);
                    let (offset, len) = (arena.store(own), own.len() as u16);
                    let tail = Tail { offset, start: tail.key_len() as u16 - len, len };
                    State::Leaf { tail, target: arena.store(self.arena.target(id)), target_len }
                }
                State::Leaf { target_len, .. } => {
                    State::Leaf { tail: Tail::NONE, target: arena.store(self.arena.target(id)), target_len }
                }
                State::Inner { bit, label, left, right } => {
                    rest.push((right, bit + 1, Some(there)));
                    rest.push((left, bit + 1, None));
                    let label = arena.store_label(self.arena.label(&label, floor, bit), bit);
                    State::Inner { bit, label, left: NodeId(there.0 + 1), right: there }
                }
                State::Stub { extent, ordinal } => {
                    let page = self.pages.get(ordinal as usize).ok_or(UNLINKED)?;
                    next.push(Arc::clone(page));
                    State::Stub { extent, ordinal: next.len() as u32 - 1 }
                }
                other => other,
            };
            arena.push(Node { state, flags: from.flags & SHOWN, ..*from }, self.arena.measure(id));
        }
        Ok(Page::new(self.kind, self.suite, arena, next))
    }

    /// Takes the only subtree.
    pub(crate) fn into_subtree(self) -> Attempt<Subtree> {
        let [held] = self.open[..] else {
            return Err(UNJOINED.into());
        };
        // It is kept until all others are built, too.
        Ok(Subtree { held, arena: self.arena.exact(), pages: self.pages, stored: self.stored })
    }

    /// Adds a subtree with its pages.
    pub(crate) fn adopt(&mut self, Subtree { held, arena, pages, stored }: Subtree) {
        let first_page = self.pages.len() as u32;
        let (start, bytes) = self.arena.append(&arena);
        for node in &mut self.arena.nodes[start.0 as usize..] {
            if let State::Stub { ordinal, .. } = &mut node.state {
                *ordinal += first_page;
            }
        }
        self.pages.extend(pages);
        self.stored.extend(stored);
        self.open.push(HeldSubtree { top: NodeId(start.0 + held.top.0), start, bytes, ..held });
    }

    /// Completes the tree. Without leaves, it is the empty tree, whose digest is `empty`.
    pub(crate) fn finish(mut self, empty: Digest) -> Attempt<Built> {
        let whole = match self.open[..] {
            [] => {
                let sum = Summary { count: 0, measure: 0, digest: empty };
                let top = self.arena.push(Node { flags: SHOWN, ..Node::new(&sum, State::Empty) }, 0);
                HeldSubtree { top, start: top, bytes: 0, page_nodes: 1, page_bytes: 0 }
            }
            [only] => only,
            _ => return Err(UNJOINED.into()),
        };
        self.cut_off(whole)?;
        let sum = self.arena.sum(whole.top);
        Ok(Built { sum, top: self.pages.pop(), stored: self.stored })
    }
}

const UNLINKED: Failure = Failure::Invalid("a subtree that was cut off has no page");
