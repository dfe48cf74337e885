//! The pages of a CAR's trees, which are those of any store that holds them: where to cut was noted on the way up.
//!
//! A page is made from its top down; each page is made once, whichever roots share it.

use super::archive::{Archive, Span, Stop};
use super::index::{KEEP_LEFT, KEEP_RIGHT, NodeRecord, PAGE};
use crate::writes::Outgoing;
use coregw_core::Digest;
use coregw_core::Page;
use coregw_core::internals::arena::{Arena, Node, NodeId, SHOWN, Side, State, Tail};
use coregw_core::internals::block::Block;
use coregw_core::internals::node::Summary;
use coregw_core::internals::pruned::{self, Form};
use coregw_core::{Error, Result};
use coregw_core::{Kind, RootCid};

/// Pages with their digests.
pub type Pages = Vec<(Digest, Vec<u8>)>;

/// Pages on their way.
#[derive(Default)]
pub(super) struct Forming {
    /// Nodes that pages begin with, and that have none yet.
    tops: Vec<u32>,
    /// The kind of tree that the page at hand is of.
    kind: Option<Kind>,
    arena: Arena,
    /// Nodes of the page at hand that are not on it yet.
    rest: Vec<Ahead>,
    outgoing: Outgoing,
    /// Bytes of the pages in `outgoing`.
    bytes: usize,
}

/// A node to put on a page, below which one and on which side.
#[derive(Clone, Copy)]
struct Ahead {
    at: u32,
    parent: Option<(NodeId, Side)>,
}

impl Archive {
    /// The next (digest, page) pairs to store, at most `max_bytes` of them but at least one; empty when none is left.
    /// The error is what bytes are needed first.
    ///
    /// # Errors
    /// [`Error::Input`] before [`Archive::check`] gave None.
    pub fn next_pages(&mut self, max_bytes: usize) -> Result<Result<Pages, Span>> {
        match self.form(max_bytes) {
            Ok(()) => {
                let forming = self.forming.get_or_insert_default();
                let pages = forming.outgoing.next(max_bytes);
                forming.bytes -= pages.iter().map(|(_, page)| page.len()).sum::<usize>();
                Ok(Ok(pages))
            }
            Err(Stop::Needs(span)) => Ok(Err(span)),
            Err(Stop::Fault(error)) => Err(error),
        }
    }

    fn form(&mut self, max_bytes: usize) -> Result<(), Stop> {
        if self.forming.is_none() {
            if !self.is_checked() {
                return Err(Error::request("a CAR has no pages before it is checked").into());
            }
            let mut forming = Forming::default();
            for &top in &self.found {
                begin(&mut forming.tops, &mut self.index.nodes[top as usize], top);
            }
            self.forming = Some(forming);
        }
        while let Some(forming) = self.forming.as_mut().filter(|forming| forming.bytes < max_bytes) {
            match (forming.rest.last().copied(), forming.arena.nodes.is_empty()) {
                (Some(ahead), _) => self.put(ahead)?,
                (None, false) => forming.end_page(),
                (None, true) => match forming.tops.pop() {
                    None => return Ok(()),
                    Some(at) => forming.rest.push(Ahead { at, parent: None }),
                },
            }
        }
        Ok(())
    }

    /// Puts the next node on the page at hand.
    fn put(&mut self, ahead: Ahead) -> Result<(), Stop> {
        let Some(forming) = self.forming.as_mut() else {
            return Ok(());
        };
        let record = self.index.nodes[ahead.at as usize];
        let arena = &mut forming.arena;
        let block = self.window.block(&record)?;
        forming.rest.pop();
        forming.kind = Some(record.root().kind);
        let (count, measure) = block.amounts();
        let (own, _) = block.own();
        let own = arena.store(own);
        let state = match block {
            Block::Empty => State::Empty,
            Block::Leaf { key, target, .. } => {
                let tail = Tail { offset: own, start: 0, len: key.len() as u16 };
                State::Leaf { tail, target: arena.store(target), target_len: target.len() as u8 }
            }
            Block::Inner { bit, .. } => State::Inner { bit, label: own, start: 0, left: Page::TOP, right: Page::TOP },
        };
        let mut node = Node::new(Summary { count, measure, digest: record.digest }, state);
        node.flags = SHOWN;
        let id = arena.push(node);
        attach(arena, ahead.parent, id);
        if let Block::Inner { children, .. } = block {
            for (sum, side, keep) in [(children[1], Side::Right, KEEP_RIGHT), (children[0], Side::Left, KEEP_LEFT)] {
                let root = RootCid { digest: sum.digest, ..record.root() };
                let at = self.index.node(&root).ok_or_else(|| Error::damaged("the CAR changed while it was read"))?;
                if record.has(keep) {
                    forming.rest.push(Ahead { at, parent: Some((id, side)) });
                } else {
                    let below = &mut self.index.nodes[at as usize];
                    begin(&mut forming.tops, below, at);
                    let mut stub = Node::new(sum, State::Stub { extent: below.extent, ordinal: 0 });
                    (stub.height, stub.weight) = (below.height, below.weight);
                    let stub = arena.push(stub);
                    attach(arena, Some((id, side)), stub);
                }
            }
        }
        Ok(())
    }
}

impl Forming {
    /// All nodes of the page at hand are there.
    fn end_page(&mut self) {
        let arena = &self.arena;
        let kind = self.kind.unwrap_or(Kind::Map);
        let page = pruned::encode(arena, kind, Page::TOP, Form::Page, |id| &arena.node(id).sum);
        self.bytes += page.len();
        self.outgoing.0.push_back((arena.node(Page::TOP).sum.digest, page));
        self.arena.nodes.clear();
        self.arena.bytes.clear();
    }
}

/// Notes that a page begins with the node, if that is new.
fn begin(tops: &mut Vec<u32>, record: &mut NodeRecord, at: u32) {
    if !record.has(PAGE) {
        record.flags |= PAGE;
        tops.push(at);
    }
}

/// Hangs a node below its parent.
fn attach(arena: &mut Arena, parent: Option<(NodeId, Side)>, id: NodeId) {
    if let Some((parent, side)) = parent
        && let State::Inner { left, right, .. } = &mut arena.node_mut(parent).state
    {
        *(if side == Side::Left { left } else { right }) = id;
    }
}
