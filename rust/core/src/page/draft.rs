//! New pages of a changed tree that no store has yet. Those of a new tree are made in `page::layout`.
//!
//! Where to cut is decided in `tree::cut` and recorded in fresh nodes; here nodes are copied to pages accordingly.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bits::{PathBuffer, Side};
use crate::id::cid::Kind;
use crate::interrupt::{Attempt, Failure, Interrupt};
use crate::page::difference::PageDifference;
use crate::page::format::Page;
use crate::page::partial::{MAX_MISSING_PAGES, PartialTree};
use crate::tree::arena::{Arena, FRESH, KEEP_LEFT, KEEP_RIGHT, Node, NodeId, PAGE_TOP, SHOWN, State, Tail};

/// A page, and its encoding for a store.
#[derive(Debug)]
pub struct EncodedPage {
    /// The page.
    pub page: Arc<Page>,
    /// Its encoding.
    pub bytes: Vec<u8>,
    /// Its difference to an existing page, if it was made by a change of one.
    pub difference: Option<PageDifference>,
}

impl PartialTree {
    /// Creates the pages of the tree below `top`, which is whole in memory, that do not exist yet, the top page first. Each
    /// links to the pages below it. O(fresh nodes and the pages they are in).
    pub(crate) fn linked_pages(&mut self, top: NodeId) -> Attempt<Vec<Arc<Page>>> {
        let mut drafts = Vec::new();
        let tops = self.draft_pages(top, |draft| drafts.push(draft))?;
        let mut built = BTreeMap::new();
        // Pages come after the pages above them, so in reverse order every link finds its page.
        for (mut draft, top) in drafts.into_iter().zip(&tops).rev() {
            draft.arena.shrink();
            let next = draft.stubs.iter().map(|stub| self.page_below(stub, &built)).collect::<Attempt<_>>()?;
            built.insert(*top, Arc::new(Page::new(self.kind, self.suite, draft.arena, next)));
        }
        tops.iter().map(|top| built.remove(top).ok_or(Failure::Invalid("a page has two parents").into())).collect()
    }

    /// Creates pages of the tree below `top` that no store has yet, of about `max_bytes` together, and encodes them. None
    /// are left when it returns none. O(fresh nodes and the pages they are in) time for all pages, and memory
    /// for one page besides the result.
    ///
    /// # Errors
    /// [`Interrupt::Pages`] if a page was released, or a sibling that was cut off fits again, and its page is missing.
    pub(crate) fn encoded_pages(
        &mut self,
        top: NodeId,
        drafting: &mut Drafting,
        max_bytes: usize,
    ) -> Attempt<Vec<EncodedPage>> {
        self.budget = u64::MAX; // what was changed has been paid for
        drafting.begin(self, top);
        let (mut pages, mut bytes) = (Vec::new(), 0);
        while bytes < max_bytes {
            let (before, mut draft) = (drafting.tops.len(), Draft { arena: Arena::spare(), ..Draft::default() });
            let Some(top) = drafting.tops.get(drafting.done) else {
                break;
            };
            let top = PageTop { prefix: top.prefix.clone(), ..*top };
            self.record_loads();
            if let Err(interrupt) = self.draft(top, &mut drafting.tops, &mut draft) {
                drafting.tops.truncate(before);
                match pages.is_empty() {
                    true => return Err(self.look_ahead(&drafting.tops[drafting.done..], interrupt)),
                    false => break,
                }
            }
            let old = draft.most_copied().map(|page| Arc::clone(&self.pages[page as usize]));
            self.undo_loads();
            drafting.tops[drafting.done].prefix = Vec::new();
            drafting.done += 1;
            let page = Page::linking(self.kind, self.suite, draft.arena.exact()); // a cache may keep it
            let encoded = page.to_bytes();
            bytes += encoded.len();
            let difference = old
                .map(|old| PageDifference::between(&old.digest(), &old.to_bytes(), &encoded))
                .filter(|difference| difference.is_short(encoded.len()));
            pages.push(EncodedPage { page: Arc::new(page), bytes: encoded, difference });
        }
        Ok(pages)
    }

    /// Adds pages that the next drafts are sure to need to those that are missing, and makes place for them.
    fn look_ahead(&mut self, tops: &[PageTop], interrupt: Interrupt<Failure>) -> Interrupt<Failure> {
        let Interrupt::Pages(mut missing) = interrupt else {
            return interrupt;
        };
        self.supply.clear();
        for top in tops {
            let mut rest = vec![top.id];
            while let Some(id) = rest.pop() {
                if missing.len() >= MAX_MISSING_PAGES {
                    return Interrupt::Pages(missing);
                }
                let needed = match self.state(id) {
                    State::Inner { left, right, .. } => {
                        let kept = |&(child, keep): &(NodeId, u8)| self.keeps(id, child, keep);
                        rest.extend([(left, KEEP_LEFT), (right, KEEP_RIGHT)].iter().filter(|c| kept(c)).map(|c| c.0));
                        None
                    }
                    State::Released { page, .. } => self.released_page(page),
                    State::Stub { .. } => Some(self.node(id).digest),
                    _ => None,
                };
                missing.extend(needed.filter(|digest| self.page_at(digest, None).is_err()));
            }
        }
        Interrupt::Pages(missing)
    }

    /// Whether a child of an inner node belongs to the same page.
    fn keeps(&self, id: NodeId, child: NodeId, keep: u8) -> bool {
        let node = self.node(id);
        if node.has(FRESH) { node.has(keep) } else { !self.has_page(child) }
    }

    /// Drafts the pages below `top` that do not exist yet, the top page first, and returns their top nodes.
    fn draft_pages(&mut self, top: NodeId, mut take: impl FnMut(Draft)) -> Attempt<Vec<NodeId>> {
        self.budget = u64::MAX; // what was changed has been paid for
        let mut drafting = Drafting::default();
        drafting.begin(self, top);
        while let Some(top) = drafting.tops.get_mut(drafting.done) {
            let top = PageTop { prefix: std::mem::take(&mut top.prefix), ..*top };
            drafting.done += 1;
            let mut draft = Draft::default();
            self.draft(top, &mut drafting.tops, &mut draft)?;
            take(draft);
        }
        Ok(drafting.tops.into_iter().map(|top| top.id).collect())
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

    /// Whether the node is on a page, is not its top, and has not been copied.
    pub(crate) fn on_same_page(&self, id: NodeId) -> bool {
        matches!(self.state(id), State::Remote { .. } | State::Released { .. }) && !self.has_page(id)
    }

    /// Copies the nodes of one page, and appends the tops of further new pages to `tops`.
    fn draft(&mut self, top: PageTop, tops: &mut Vec<PageTop>, draft: &mut Draft) -> Attempt<()> {
        let mut path = PathBuffer(top.prefix);
        draft.rest.push(PendingCopy { id: top.id, floor: top.floor, parent: None, kept: true, is_unchanged: false });
        while let Some(PendingCopy { id, floor, parent, kept, is_unchanged }) = draft.rest.pop() {
            if let (true, true, Some((parent, _, side)), State::Remote { page, node }) =
                (kept, is_unchanged, parent, self.state(id))
            {
                let before = draft.arena.nodes.len();
                draft.copy(&self.pages[page as usize].arena, page, node, (parent, side));
                draft.note_copied(page, draft.arena.nodes.len() - before);
                continue;
            }
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
            if let Some((parent, _, side)) = parent {
                draft.link(parent, side, there);
            }
            if let (true, State::Inner { bit, left, right, .. }) = (kept, self.state(id)) {
                let is_unchanged = !self.node(id).has(FRESH);
                for (child, side, keep) in [(right, Side::Right, KEEP_RIGHT), (left, Side::Left, KEEP_LEFT)] {
                    let (parent, kept) = (Some((there, bit, side)), self.keeps(id, child, keep));
                    draft.rest.push(PendingCopy { id: child, floor: bit + 1, parent, kept, is_unchanged });
                }
            }
        }
        Ok(())
    }

    /// Copies a node to a page. The page's top stores all its bits, the others only those from their floor on.
    fn draft_node(&self, id: NodeId, floor: u32, is_top: bool, path: &mut PathBuffer, draft: &mut Draft) -> NodeId {
        let arena = &mut draft.arena;
        let from = self.node(id);
        let mut own = match &from.state {
            State::Leaf { tail, .. } if self.kind == Kind::Map => self.arena.tail(*tail, floor),
            State::Inner { bit, label, .. } => self.arena.label(label, floor, *bit),
            _ => &[],
        };
        // No other node's bits depend on those of a leaf.
        if is_top || matches!(from.state, State::Inner { .. }) {
            path.put(floor, own);
        }
        if is_top {
            own = &path.0[..self.arena.extent(id).div_ceil(8) as usize];
        }
        let state = match from.state {
            State::Leaf { tail, target_len, .. } => {
                let start = (tail.key_len() - own.len()) as u16;
                let tail = Tail { offset: arena.store(own), start, len: own.len() as u16 };
                State::Leaf { tail, target: arena.store(self.arena.target(id)), target_len }
            }
            State::Inner { bit, .. } => {
                State::Inner { bit, label: arena.store_label(own, bit), left: Self::TOP, right: Self::TOP }
            }
            other => other,
        };
        arena.push(Node { state, flags: SHOWN, ..*from }, self.arena.measure(id))
    }

    fn draft_stub(&self, id: NodeId, draft: &mut Draft) -> NodeId {
        let (arena, there) = self.source(id);
        let state = State::Stub { extent: self.extent(id), ordinal: draft.stubs.len() as u32 };
        draft.stubs.push(StubOf::Node(id));
        draft.arena.push(Node { state, flags: 0, ..*arena.node(there) }, arena.measure(there))
    }

    /// The page that a stub of a draft stands for.
    fn page_below(&self, stub: &StubOf, built: &BTreeMap<NodeId, Arc<Page>>) -> Attempt<Arc<Page>> {
        match *stub {
            StubOf::Node(id) => self.linked_page(id, built),
            StubOf::Page { page, ordinal } => self.next_page(page, ordinal).map(Arc::clone).ok_or(UNLINKED.into()),
        }
    }

    /// The page that a stub of a held page stands for, if these pages are linked.
    fn next_page(&self, page: u32, ordinal: u32) -> Option<&Arc<Page>> {
        self.pages[page as usize].next.get(ordinal as usize)
    }

    fn linked_page(&self, id: NodeId, built: &BTreeMap<NodeId, Arc<Page>>) -> Attempt<Arc<Page>> {
        if let Some(page) = built.get(&id) {
            return Ok(Arc::clone(page));
        }
        let page = match self.state(id) {
            State::Remote { page, node } => match self.pages[page as usize].arena.node(node).state {
                State::Stub { ordinal, .. } => self.next_page(page, ordinal),
                _ => None,
            },
            _ => self.entered.get(&id).and_then(|&page| self.pages.get(page as usize)),
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

/// The new pages of a changed tree, while they are created.
#[derive(Default)]
pub(crate) struct Drafting {
    has_begun: bool,
    /// The tops of pages that were found so far.
    tops: Vec<PageTop>,
    /// How many of these pages are done.
    done: usize,
}

impl Drafting {
    fn begin(&mut self, tree: &PartialTree, top: NodeId) {
        if !std::mem::replace(&mut self.has_begun, true) && !tree.has_page(top) {
            self.tops.push(PageTop { id: top, floor: 0, prefix: Vec::new() });
        }
    }
}

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
    /// Whether its parent was not changed, so that everything below is as on its page, own bits included.
    is_unchanged: bool,
}

/// What a stub of a draft stands for.
pub(crate) enum StubOf {
    /// A node of the changed tree.
    Node(NodeId),
    /// A stub of a page that the tree holds.
    Page { page: u32, ordinal: u32 },
}

/// A page under construction, and the nodes that its stubs stand for.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) arena: Arena,
    pub(crate) stubs: Vec<StubOf>,
    rest: Vec<PendingCopy>,
    /// Nodes of a page that are to be copied with what is below them, and their parents in the draft.
    below: Vec<(NodeId, (NodeId, Side))>,
    /// How many nodes were copied of each page, of few pages.
    copied: Vec<(u32, usize)>,
}

impl Draft {
    /// Copies everything below a node of a page, with its number, and makes it a child.
    fn copy(&mut self, from: &Arena, page: u32, top: NodeId, parent: (NodeId, Side)) {
        self.below.push((top, parent));
        while let Some((id, (parent, side))) = self.below.pop() {
            let (node, arena) = (from.node(id), &mut self.arena);
            let (state, flags) = match node.state {
                State::Inner { bit, label, .. } => {
                    let label = arena.copy_label(from, label, bit);
                    (State::Inner { bit, label, left: PartialTree::TOP, right: PartialTree::TOP }, SHOWN)
                }
                State::Leaf { tail, target_len, .. } => (arena.copy_leaf(from, id, tail, target_len), SHOWN),
                State::Stub { extent, ordinal } => {
                    self.stubs.push(StubOf::Page { page, ordinal });
                    (State::Stub { extent, ordinal: self.stubs.len() as u32 - 1 }, 0)
                }
                other => (other, node.flags),
            };
            let there = self.arena.push(Node { state, flags, ..*node }, from.measure(id));
            self.link(parent, side, there);
            if let State::Inner { left, right, .. } = node.state {
                self.below.extend([(right, (there, Side::Right)), (left, (there, Side::Left))]);
            }
        }
    }

    fn note_copied(&mut self, page: u32, nodes: usize) {
        match self.copied.iter_mut().find(|(other, _)| *other == page) {
            Some((_, count)) => *count += nodes,
            None => self.copied.push((page, nodes)),
        }
    }

    /// The page of which most nodes were copied, if these are at least half of the draft: it is a version of that page.
    fn most_copied(&self) -> Option<u32> {
        let (page, nodes) = self.copied.iter().max_by_key(|(_, nodes)| *nodes)?;
        (nodes * 2 >= self.arena.nodes.len()).then_some(*page)
    }

    /// Makes a node the child of another one.
    fn link(&mut self, parent: NodeId, side: Side, child: NodeId) {
        if let State::Inner { left, right, .. } = &mut self.arena.node_mut(parent).state {
            *(if side == Side::Left { left } else { right }) = child;
        }
    }
}
