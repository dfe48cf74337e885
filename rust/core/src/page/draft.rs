//! New pages: those of a changed or a new tree that no store has yet.
//!
//! Where to cut is decided in `tree::cut` and recorded in fresh nodes; here nodes are copied to pages accordingly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::bits::{PathBuffer, Side};
use crate::id::cid::Kind;
use crate::id::suite::Digest;
use crate::interrupt::{Attempt, Failure, Interrupt};
use crate::page::format::Page;
use crate::page::partial::PartialTree;
use crate::tree::arena::{Arena, FRESH, KEEP_LEFT, KEEP_RIGHT, Node, NodeId, PAGE_TOP, SHOWN, State, Tail};

impl PartialTree {
    /// Creates the pages of the tree below `top`, which is whole in memory, that do not exist yet, the top page first. Each
    /// links to the pages below it. O(fresh nodes and the pages they are in).
    pub(crate) fn linked_pages(&mut self, top: NodeId) -> Attempt<Vec<Arc<Page>>> {
        let mut drafts = Vec::new();
        let tops = self.draft_pages(top, |_, draft| drafts.push(draft))?;
        let mut built = BTreeMap::new();
        // Pages come after the pages above them, so in reverse order every link finds its page.
        for (mut draft, top) in drafts.into_iter().zip(&tops).rev() {
            draft.arena.nodes.shrink_to_fit();
            draft.arena.bytes.shrink_to_fit();
            let next = draft.stubs.iter().map(|&id| self.linked_page(id, &built)).collect::<Attempt<_>>()?;
            built.insert(*top, Arc::new(Page { kind: self.kind, suite: self.suite, arena: draft.arena, next }));
        }
        tops.iter().map(|top| built.remove(top).ok_or(Failure::Invalid("a page has two parents").into())).collect()
    }

    /// Creates the pages of the tree below `top` that no store has yet, encoded, with their digests. O(fresh nodes and the
    /// pages they are in) time, and memory for one page besides the result.
    ///
    /// # Errors
    /// [`Interrupt::Pages`] if a sibling that was cut off fits again and its page is missing.
    pub(crate) fn encoded_pages(&mut self, top: NodeId) -> Attempt<Vec<(Digest, Vec<u8>)>> {
        let mut pages = Vec::new();
        self.draft_pages(top, |tree, draft| {
            let page = Page { kind: tree.kind, suite: tree.suite, arena: draft.arena, next: Vec::new() };
            pages.push((page.digest(), page.to_bytes()));
        })?;
        Ok(pages)
    }

    /// Drafts the pages below `top` that do not exist yet, the top page first, and returns their top nodes.
    fn draft_pages(&mut self, top: NodeId, mut take: impl FnMut(&Self, Draft)) -> Attempt<Vec<NodeId>> {
        self.budget = u64::MAX; // what was changed has been paid for
        self.load_kept(top)?;
        if self.has_page(top) {
            return Ok(Vec::new());
        }
        let mut tops = vec![PageTop { id: top, floor: 0, prefix: Vec::new() }];
        let mut drafted = Vec::new();
        while let Some(top) = tops.get_mut(drafted.len()) {
            let top = PageTop { prefix: std::mem::take(&mut top.prefix), ..*top };
            drafted.push(top.id);
            let mut draft = Draft::default();
            self.draft(top, &mut tops, &mut draft)?;
            take(self, draft);
        }
        Ok(drafted)
    }

    /// Loads the nodes that will be in the page of a fresh node and may be on another page now.
    fn load_kept(&mut self, top: NodeId) -> Attempt<()> {
        let mut rest = vec![top];
        let mut missing = BTreeSet::new();
        while let Some(id) = rest.pop() {
            let State::Inner { left, right, .. } = self.state(id) else {
                continue;
            };
            if !self.node(id).has(FRESH) {
                continue;
            }
            for (child, keep) in [(left, KEEP_LEFT), (right, KEEP_RIGHT)] {
                if self.node(id).has(keep) {
                    match self.load(child) {
                        Err(Interrupt::Pages(pages)) => missing.extend(pages),
                        other => other?,
                    }
                }
                rest.push(child);
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(Interrupt::Pages(missing)) }
    }

    /// Whether the node is the top of an existing page.
    fn has_page(&self, id: NodeId) -> bool {
        match self.state(id) {
            _ if self.node(id).has(FRESH) => false,
            State::Remote { page, node } => {
                matches!(self.pages[page as usize].arena.node(node).state, State::Stub { .. })
            }
            State::Stub { .. } => true,
            _ => self.node(id).has(PAGE_TOP),
        }
    }

    /// Whether the node is on a page that is in memory, is not its top, and has not been copied.
    pub(crate) fn on_same_page(&self, id: NodeId) -> bool {
        matches!(self.state(id), State::Remote { .. }) && !self.has_page(id)
    }

    /// Copies the nodes of one page, and appends the tops of further new pages to `tops`.
    fn draft(&mut self, top: PageTop, tops: &mut Vec<PageTop>, draft: &mut Draft) -> Attempt<()> {
        let mut path = PathBuffer(top.prefix);
        draft.rest.push(PendingCopy { id: top.id, floor: top.floor, parent: None, kept: true });
        while let Some(PendingCopy { id, floor, parent, kept }) = draft.rest.pop() {
            if let Some((_, bit, side)) = parent {
                path.turn(bit, side);
            }
            let has_page = self.has_page(id);
            if kept || !has_page {
                self.load(id)?;
            }
            let there = match kept {
                true => self.draft_node(id, floor, parent.is_none(), &mut path, draft),
                false => {
                    if !has_page {
                        let prefix = path.0[..path.0.len().min(floor.div_ceil(8) as usize)].to_vec();
                        tops.push(PageTop { id, floor, prefix });
                    }
                    self.draft_stub(id, draft)
                }
            };
            if let Some((parent, _, side)) = parent
                && let State::Inner { left, right, .. } = &mut draft.arena.node_mut(parent).state
            {
                *(if side == Side::Left { left } else { right }) = there;
            }
            if let (true, State::Inner { bit, left, right, .. }) = (kept, self.state(id)) {
                let fresh = self.node(id).has(FRESH);
                for (child, side, keep) in [(right, Side::Right, KEEP_RIGHT), (left, Side::Left, KEEP_LEFT)] {
                    let kept = if fresh { self.node(id).has(keep) } else { !self.has_page(child) };
                    draft.rest.push(PendingCopy { id: child, floor: bit + 1, parent: Some((there, bit, side)), kept });
                }
            }
        }
        Ok(())
    }

    /// Copies the page of a subtree that is being built and whose other pages exist.
    pub(crate) fn draft_built(&mut self, top: NodeId, draft: &mut Draft) -> Attempt<()> {
        let mut tops = Vec::new();
        self.draft(PageTop { id: top, floor: 0, prefix: Vec::new() }, &mut tops, draft)?;
        match tops.is_empty() {
            true => Ok(()),
            false => Err(Failure::Invalid("a subtree that was cut off has no page").into()),
        }
    }

    /// Keeps a new page, and returns its number.
    pub(crate) fn pin(&mut self, page: Page) -> u32 {
        self.pages.push(Arc::new(page));
        self.pages.len() as u32 - 1
    }

    /// Appends nodes that were built elsewhere and the pages that their stubs stand for. Returns where the nodes and their
    /// bytes start.
    pub(crate) fn append(&mut self, arena: &Arena, pages: Vec<Arc<Page>>) -> (NodeId, u32) {
        let first_page = self.pages.len() as u32;
        self.pages.extend(pages);
        let (start, bytes) = self.arena.append(arena);
        for node in &mut self.arena.nodes[start.0 as usize..] {
            if let State::Stub { .. } = node.state {
                node.home += first_page;
            }
        }
        (start, bytes)
    }

    /// Copies a node to a page. The page's top stores all its bits, the others only those from their floor on.
    fn draft_node(&self, id: NodeId, floor: u32, is_top: bool, path: &mut PathBuffer, draft: &mut Draft) -> NodeId {
        let arena = &mut draft.arena;
        let from = self.node(id);
        let mut own = |own: &[u8], extent: u32| -> (u16, u32, u16) {
            if self.kind == Kind::List {
                return (0, 0, 0);
            }
            path.put(floor, own);
            let own = if is_top { &path.0[..extent.div_ceil(8) as usize] } else { own };
            (extent.div_ceil(8) as u16 - own.len() as u16, arena.store(own), own.len() as u16)
        };
        let state = match from.state {
            State::Leaf { tail, target_len, .. } => {
                let extent = 8 * tail.key_len() as u32;
                let (start, offset, len) = own(self.arena.tail(tail, floor), extent);
                let target = arena.store(self.arena.target(id));
                State::Leaf { tail: Tail { offset, start, len }, target, target_len }
            }
            State::Inner { bit, label, start, .. } => {
                let (start, label, _) = own(self.arena.label(label, start, floor, bit), bit);
                State::Inner { bit, label, start, left: Self::TOP, right: Self::TOP }
            }
            other => other,
        };
        let mut node = Node::new(from.sum, state);
        (node.height, node.weight, node.flags) = (from.height, from.weight, SHOWN);
        arena.push(node)
    }

    fn draft_stub(&self, id: NodeId, draft: &mut Draft) -> NodeId {
        let from = self.source_node(id);
        let state = State::Stub { extent: self.extent(id), ordinal: draft.stubs.len() as u32 };
        let mut node = Node::new(from.sum, state);
        (node.height, node.weight) = (from.height, from.weight);
        draft.stubs.push(id);
        draft.arena.push(node)
    }

    fn linked_page(&self, id: NodeId, built: &BTreeMap<NodeId, Arc<Page>>) -> Attempt<Arc<Page>> {
        if let Some(page) = built.get(&id) {
            return Ok(Arc::clone(page));
        }
        let page = match self.state(id) {
            State::Remote { page, node } => match self.pages[page as usize].arena.node(node).state {
                State::Stub { ordinal, .. } => self.pages[page as usize].next.get(ordinal as usize),
                _ => None,
            },
            _ => self.pages.get(self.node(id).home as usize),
        };
        page.map(Arc::clone).ok_or(UNLINKED.into())
    }

    /// The page whose top the node is.
    pub(crate) fn page_of(&self, id: NodeId) -> Attempt<Arc<Page>> {
        match self.has_page(id) {
            true => self.linked_page(id, &BTreeMap::new()),
            false => Err(UNLINKED.into()),
        }
    }
}

const UNLINKED: Failure = Failure::Invalid("a page in memory does not link to the pages below it");

/// The top node of a page to create, and the bits that lead to it.
struct PageTop {
    id: NodeId,
    floor: u32,
    prefix: Vec<u8>,
}

/// A node to copy to a page.
struct PendingCopy {
    id: NodeId,
    floor: u32,
    /// The parent in the page, its bit, and the side of the node.
    parent: Option<(NodeId, u32, Side)>,
    /// Whether the node itself is in the page, not a stub.
    kept: bool,
}

/// A page under construction, and the nodes that its stubs stand for.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) arena: Arena,
    pub(crate) stubs: Vec<NodeId>,
    rest: Vec<PendingCopy>,
}

impl Draft {
    pub(crate) fn clear(&mut self) {
        self.arena.nodes.clear();
        self.arena.bytes.clear();
        self.stubs.clear();
        self.rest.clear();
    }
}
