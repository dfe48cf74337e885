//! The descent to one leaf, made on the pages themselves, and the proof that it gives.
//!
//! Most queries look for one key or one element. A [`PartialTree`](crate::page::partial::PartialTree) would copy every
//! node, only for the proof to be encoded from the copy.

use std::ops::Deref;
use std::sync::Arc;

use crate::bits::Side;
use crate::id::cid::{Cid, Kind};
use crate::id::suite::{Digest, Suite};
use crate::id::varint;
use crate::interrupt::{Attempt, Failure, Interrupt};
use crate::page::format::Page;
use crate::page::supply::Supply;
use crate::tree::arena::{Arena, Node, NodeId, State};
use crate::tree::descent::{Counts, End, Goal, Landing, Nodes, Shape, Step, Visited, descend};
use crate::tree::node::Summary;
use crate::tree::writer;

/// Finds the pages of a path.
pub(crate) trait Finder<P> {
    /// Returns the page with this digest; `link` is the page above it and the ordinal of the stub, None for the top page.
    fn find(&mut self, link: Option<(&P, u32)>, digest: &Digest) -> Attempt<P>;

    /// Leaves a page that was found to the caller. It may be asked for again.
    #[inline]
    fn leave(&mut self, _page: &P) {}
}

impl Finder<Arc<Page>> for Supply {
    fn find(&mut self, link: Option<(&Arc<Page>, u32)>, digest: &Digest) -> Attempt<Arc<Page>> {
        let Some((above, ordinal)) = link else {
            return self.page(None, digest);
        };
        if let Some(page) = above.links.get(ordinal) {
            self.touch(digest);
            return Ok(page);
        }
        let page = self.page(above.next.get(ordinal as usize).map(Arc::clone), digest)?;
        above.links.set(ordinal, &page);
        Ok(page)
    }

    fn leave(&mut self, page: &Arc<Page>) {
        self.remove(page);
    }
}

/// Finds the pages of a tree in memory by the links between them.
pub(crate) struct Linked<'a>(pub(crate) &'a Page);

impl<'a> Finder<&'a Page> for Linked<'a> {
    #[inline]
    fn find(&mut self, link: Option<(&&'a Page, u32)>, _: &Digest) -> Attempt<&'a Page> {
        match link {
            None => Ok(self.0),
            Some((page, ordinal)) => page.next.get(ordinal as usize).map(Deref::deref).ok_or(Failure::Stub.into()),
        }
    }
}

/// A node of a page; pages are numbered from the top down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OnPage {
    pub(crate) page: u32,
    pub(crate) node: NodeId,
}

/// A step of the descent from a node of a page; the sibling is on the same page.
#[derive(Debug, Clone, Copy)]
struct PageStep {
    page: u32,
    node: NodeId,
    floor: u32,
    side: Side,
    sibling: NodeId,
}

/// A descent on pages. After an interrupt it starts again; the pages that it has found are kept, and nodes that it has
/// visited cost no budget again.
pub(crate) struct PagePath<P, F> {
    kind: Kind,
    suite: Suite,
    top: Digest,
    pub(crate) finder: F,
    /// The number of nodes that may still be visited for the first time.
    pub(crate) budget: u64,
    /// The number of nodes that were visited, now or before an interrupt.
    seen: usize,
    /// The number of steps after which the budget is spent.
    max_steps: usize,
    pages: Vec<P>,
    steps: Vec<PageStep>,
    landing: Option<Landing<OnPage>>,
}

/// The initial capacity for steps: enough for the descent to most keys.
const STEPS: usize = 32;

const TOP: OnPage = OnPage { page: 0, node: Page::TOP };

/// The nodes of one page, for a descent that ends at the stub where the next page starts.
struct OnePage<'t> {
    page: u32,
    arena: &'t Arena,
    steps: &'t mut Vec<PageStep>,
    max_steps: usize,
    /// The stub that the descent has reached, and its floor.
    stub: Option<(NodeId, u32)>,
}

impl Nodes for OnePage<'_> {
    type Id = NodeId;
    type Counts = Counts;

    #[inline(always)]
    fn visit(&mut self, id: NodeId, floor: u32) -> Attempt<Visited<'_, NodeId, Counts>> {
        if self.steps.len() == self.max_steps {
            return Err(Interrupt::Budget);
        }
        let Some(shape) = self.arena.shape(id, floor) else {
            self.stub = Some((id, floor));
            return Err(Failure::Stub.into());
        };
        // Without a panic, so that the compiler drops the counts where the goal does not need them.
        let count = |id: NodeId| self.arena.nodes.get(id.0 as usize).map_or(0, |node| node.count);
        let left = if let Shape::Inner { children: [left, _], .. } = shape { count(left) } else { 0 };
        Ok(Visited { shape, counts: Counts { here: count(id), left } })
    }

    #[inline(always)]
    fn step(&mut self, Step { from: node, floor, side, sibling, .. }: Step<NodeId>) -> Attempt<()> {
        self.steps.push(PageStep { page: self.page, node, floor, side, sibling });
        Ok(())
    }
}

impl<P: Deref<Target = Page>, F: Finder<P>> PagePath<P, F> {
    pub(crate) fn new(kind: Kind, suite: Suite, top: Digest, finder: F) -> Self {
        let (pages, steps) = (Vec::with_capacity(4), Vec::with_capacity(STEPS));
        Self { kind, suite, top, finder, budget: u64::MAX, seen: 0, max_steps: 0, pages, steps, landing: None }
    }

    /// Descends to where `goal` ends. O(depth).
    #[inline(always)]
    pub(crate) fn run(&mut self, goal: &mut impl Goal<NodeId, Counts>) -> Attempt<()> {
        self.steps.clear();
        self.max_steps = self.seen.saturating_add(usize::try_from(self.budget).unwrap_or(usize::MAX));
        let landing = self.descend_pages(goal);
        let seen = self.steps.len() + usize::from(landing.is_ok());
        self.budget -= seen.saturating_sub(self.seen) as u64;
        self.seen = self.seen.max(seen);
        self.landing = Some(landing?);
        Ok(())
    }

    /// Descends page by page: from the top of each to the stub of the next.
    #[inline(always)]
    fn descend_pages(&mut self, goal: &mut impl Goal<NodeId, Counts>) -> Attempt<Landing<OnPage>> {
        let (mut page, mut floor, mut stub) = (0, 0, None);
        loop {
            if page as usize == self.pages.len() {
                self.load(stub)?;
            }
            let arena = &self.pages[page as usize].arena;
            let mut nodes = OnePage { page, arena, steps: &mut self.steps, max_steps: self.max_steps, stub: None };
            match (descend(&mut nodes, Page::TOP, floor, goal), nodes.stub) {
                (Ok(Landing { id: node, floor, end }), _) => {
                    return Ok(Landing { id: OnPage { page, node }, floor, end });
                }
                (Err(_), Some((node, at))) => (page, floor, stub) = (page + 1, at, Some(node)),
                (Err(interrupt), None) => return Err(interrupt),
            }
        }
    }

    /// Finds the page that `stub` of the last page stands for, or the top page.
    fn load(&mut self, stub: Option<NodeId>) -> Attempt<()> {
        let last = self.pages.last().zip(stub);
        let (link, digest) = match last.map(|(page, stub)| (page, page.arena.node(stub))) {
            Some((page, Node { state: State::Stub { ordinal, .. }, digest, .. })) => (Some((page, *ordinal)), digest),
            _ => (None, &self.top),
        };
        let page = self.finder.find(link, digest)?;
        page.check_is_of(self.kind, self.suite).map_err(Failure::Damaged)?;
        self.pages.push(page);
        Ok(())
    }

    fn arena(&self, id: OnPage) -> &Arena {
        &self.pages[id.page as usize].arena
    }

    fn sum(&self, id: OnPage) -> Summary {
        self.arena(id).sum(id.node)
    }

    /// The leaf that was found.
    #[inline(always)]
    fn found(&self) -> Option<OnPage> {
        self.landing.as_ref().filter(|landing| landing.end == End::Found).map(|landing| landing.id)
    }

    /// The target of the leaf that was found.
    #[inline(always)]
    pub(crate) fn target(&self) -> Option<Cid> {
        self.found().map(|leaf| Cid::trusted(self.arena(leaf).target(leaf.node)))
    }

    /// The measure of the leaf that was found.
    pub(crate) fn measure(&self) -> Option<u64> {
        self.found().map(|leaf| self.sum(leaf).measure)
    }

    /// Whether the descent left another branch at this bit, or ended where the key diverges at it.
    pub(crate) fn branches_at(&self, bit: u32) -> bool {
        self.landing.as_ref().is_some_and(|landing| {
            landing.end == End::Diverges(bit)
                || landing.floor == bit + 1
                || self.steps.binary_search_by_key(&(bit + 1), |step| step.floor).is_ok()
        })
    }

    /// The summary of the whole tree.
    pub(crate) fn top(&self) -> Summary {
        self.pages.first().map_or(Summary::UNKNOWN, |_| self.sum(TOP))
    }

    /// An estimate of the length of the proof, in bytes.
    fn proof_len(&self, last: OnPage) -> usize {
        let top = self.top();
        let stub = 1 + varint::len(top.count) + if self.kind == Kind::List { varint::len(top.measure) } else { 0 } + 32;
        // An inner node takes a tag, a short gap and an extra byte of label, since labels start and end within bytes.
        let path = self.arena(last).extent(last.node) as usize / 8 + 1;
        (self.steps.len() + 2) * (stub + 3) + path + self.arena(last).target(last.node).len()
    }

    /// Encodes the tree with everything pruned that was not visited; empty before the descent has ended. O(bytes).
    pub(crate) fn proof(&self) -> Vec<u8> {
        let Some(&Landing { id: last, floor, .. }) = self.landing.as_ref() else {
            return Vec::new();
        };
        let mut proof = Vec::with_capacity(self.proof_len(last));
        let (kind, out) = (self.kind, &mut proof);
        for step in &self.steps {
            let arena = &self.pages[step.page as usize].arena;
            writer::write_shown(out, kind, arena, step.node, step.floor);
            if step.side == Side::Right {
                writer::write_stub(out, kind, arena, step.sibling);
            }
        }
        let arena = self.arena(last);
        writer::write_shown(out, kind, arena, last.node, floor);
        if let State::Inner { left, right, .. } = arena.node(last.node).state {
            writer::write_stub(out, kind, arena, left);
            writer::write_stub(out, kind, arena, right);
        }
        for step in self.steps.iter().rev().filter(|step| step.side == Side::Left) {
            writer::write_stub(out, kind, &self.pages[step.page as usize].arena, step.sibling);
        }
        proof
    }
}
