//! The pages of a CAR's trees: the same as in any store that holds the trees, since `check` noted where to cut.

use coregw_core::internals::arena::{Arena, Node, NodeId, SHOWN, Side, State, Tail};
use coregw_core::internals::block::Block;
use coregw_core::internals::node::Summary;
use coregw_core::internals::pruned::Form;
use coregw_core::internals::writer;
use coregw_core::{Digest, Kind, Page, Result, RootCid};

use super::blocks::changed;
use super::check::WholeTrees;
use super::index::{KEEP_LEFT, KEEP_RIGHT, NodeRecord, PAGE_TOP};

/// Makes each page of the found roots once, whichever roots share it.
pub(super) struct PageMaker {
    trees: WholeTrees,
    /// Top nodes of pages that are not made yet.
    tops: Vec<u32>,
    /// The page in progress.
    arena: Arena,
}

/// A node to put into the page in progress, below a parent and on one side of it.
#[derive(Clone, Copy)]
struct Unplaced {
    at: u32,
    parent: Option<(NodeId, Side)>,
}

impl PageMaker {
    pub(super) fn new(mut trees: WholeTrees) -> Self {
        let mut tops = Vec::new();
        for &at in &trees.found {
            queue_page(&mut tops, &mut trees.index.nodes[at as usize], at);
        }
        Self { trees, tops, arena: Arena::default() }
    }

    /// The next page; `None` if all are made.
    pub(super) async fn next(&mut self) -> Result<Option<(Digest, Vec<u8>)>> {
        let Some(top) = self.tops.pop() else {
            return Ok(None);
        };
        let mut rest = vec![Unplaced { at: top, parent: None }];
        while let Some(unplaced) = rest.pop() {
            self.put(unplaced, &mut rest).await?;
        }
        Ok(Some(self.take_page(self.trees.index.nodes[top as usize].root().kind)))
    }

    /// Puts a node into the page in progress, and stubs for its children that start other pages.
    async fn put(&mut self, unplaced: Unplaced, rest: &mut Vec<Unplaced>) -> Result<()> {
        let record = self.trees.index.nodes[unplaced.at as usize];
        let block = self.trees.blocks.get(&record).await?;
        let arena = &mut self.arena;
        let (count, measure) = block.amounts();
        let state = match block {
            Block::Empty => State::Empty,
            Block::Leaf { key, target, .. } => {
                let tail = Tail { offset: arena.store(key), start: 0, len: key.len() as u16 };
                State::Leaf { tail, target: arena.store(target), target_len: target.len() as u8 }
            }
            Block::Inner { bit, prefix, .. } => {
                State::Inner { bit, label: arena.store_label(prefix, bit), left: Page::TOP, right: Page::TOP }
            }
        };
        let node = Node::new(&Summary { count, measure, digest: record.digest }, state);
        let id = arena.push(Node { flags: SHOWN, ..node }, measure);
        attach(arena, unplaced.parent, id);
        let Block::Inner { children, .. } = block else {
            return Ok(());
        };
        for (sum, side, keep) in [(children[1], Side::Right, KEEP_RIGHT), (children[0], Side::Left, KEEP_LEFT)] {
            let root = RootCid { digest: sum.digest, ..record.root() };
            let at = self.trees.index.node(&root).ok_or_else(changed)?;
            let parent = Some((id, side));
            if record.has(keep) {
                rest.push(Unplaced { at, parent });
            } else {
                let below = &mut self.trees.index.nodes[at as usize];
                queue_page(&mut self.tops, below, at);
                let mut stub = Node::new(&sum, State::Stub { extent: below.extent, ordinal: 0 });
                (stub.height, stub.weight) = (below.height, below.weight);
                let stub = arena.push(stub, sum.measure);
                attach(arena, parent, stub);
            }
        }
        Ok(())
    }

    fn take_page(&mut self, kind: Kind) -> (Digest, Vec<u8>) {
        let arena = &mut self.arena;
        let page = writer::encode(arena, kind, Page::TOP, Form::Page, |id| (arena, id));
        let digest = arena.node(Page::TOP).digest;
        arena.truncate(0, 0);
        (digest, page)
    }
}

/// Queues the page that starts with a node, unless it was queued before.
fn queue_page(tops: &mut Vec<u32>, record: &mut NodeRecord, at: u32) {
    if !record.has(PAGE_TOP) {
        record.flags |= PAGE_TOP;
        tops.push(at);
    }
}

/// Makes a node the child of its parent.
fn attach(arena: &mut Arena, parent: Option<(NodeId, Side)>, id: NodeId) {
    if let Some((parent, side)) = parent
        && let State::Inner { left, right, .. } = &mut arena.node_mut(parent).state
    {
        *(if side == Side::Left { left } else { right }) = id;
    }
}
