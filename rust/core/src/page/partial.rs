//! Partial trees: trees of which only some nodes are in memory, and what it means to visit one.
//!
//! Queries are functions of a [`PartialTree`]. For a prover it is opened on a root, and nodes are copied from pages as
//! they are visited. For a verifier it is the pruned tree of a proof. Either way, the nodes that were visited are those
//! that the proof shows.
//!
//! Changes add *fresh* nodes and leave the others in place, so the tree before the changes stays whole and can still be
//! encoded as a proof:
//!
//! ```text
//!   TOP ●          ◆ top after the change     ◆ fresh
//!      ╱ ╲       ╱   ╲                        ● visited
//!     ○   ● ────┼──   ◆                       ○ not visited: on a page, or a stub
//!     └─────────┘    ╱ ╲
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::bits::Side;
use crate::id::cid::{Kind, RootCid};
use crate::id::suite::{Digest, Suite};
use crate::interrupt::{Attempt, Failure, Fault, Interrupt};
use crate::page::cache::PageSource;
use crate::page::format::Page;
use crate::page::held::{Released, Undo};
use crate::page::supply::Supply;
use crate::tree::arena::{Arena, Node, NodeId, PAGE_TOP, SHOWN, State};
use crate::tree::descent::{Counts, Nodes, Shape, Step, Visited};
use crate::tree::node::Summary;
use crate::tree::pruned::{self, Form, VisitLimits};
use crate::tree::writer;

/// The initial capacity for nodes and their bytes: enough for the descent to most keys.
const NODES: usize = 96;
const BYTES: usize = 512;

/// What a node takes in a proof besides labels, tails and targets, in bytes: every other node is a stub.
const TYPICAL_NODE: usize = 20;

/// The maximum number of pages in one interrupt.
pub(crate) const MAX_MISSING_PAGES: usize = 128;

/// A tree of which only some nodes are in memory.
pub(crate) struct PartialTree {
    pub(crate) kind: Kind,
    pub(crate) suite: Suite,
    pub(crate) arena: Arena,
    /// Pages that nodes were copied from; holding them keeps the cache from evicting them during the query.
    pub(crate) pages: Vec<Arc<Page>>,
    /// In a tree that is whole in memory: the pages whose top nodes were copied.
    pub(crate) entered: BTreeMap<NodeId, u32>,
    pub(crate) released: Released,
    pub(crate) undo: Undo,
    pub(crate) supply: Supply,
    /// The number of nodes that may still be loaded before [`Interrupt::Budget`].
    pub(crate) budget: u64,
    /// The number of nodes visited, without fresh ones.
    visited: usize,
}

impl Drop for PartialTree {
    fn drop(&mut self) {
        std::mem::take(&mut self.arena).recycle();
    }
}

impl PartialTree {
    /// The top node of the tree before any change.
    pub(crate) const TOP: NodeId = NodeId(0);

    fn with(kind: Kind, suite: Suite, arena: Arena) -> Self {
        let (pages, entered, supply) = (Vec::new(), BTreeMap::new(), Supply::default());
        let (released, undo) = (Released::default(), Undo::default());
        Self { kind, suite, arena, pages, entered, released, undo, supply, budget: u64::MAX, visited: 0 }
    }

    /// Opens the tree of a root; pages that `source` does not have are asked for.
    pub(crate) fn open(root: &RootCid, source: Arc<dyn PageSource>) -> Self {
        let mut tree = Self::with(root.kind, root.suite, Arena::spare());
        tree.arena.reserve(NODES, BYTES);
        let sum = Summary { count: 0, measure: 0, digest: root.digest };
        tree.arena.push(Node::new(&sum, State::Stub { extent: 0, ordinal: 0 }), 0);
        tree.supply = Supply::from(source);
        tree
    }

    /// Opens the tree of a top page that links to all pages below it.
    pub(crate) fn of_page(page: &Arc<Page>) -> Self {
        let mut tree = Self::with(page.kind, page.suite, Arena::spare());
        tree.arena.reserve(NODES, BYTES);
        tree.pages.push(Arc::clone(page));
        let node = Node::new(&Summary::UNKNOWN, State::Remote { page: 0, node: Page::TOP });
        tree.arena.push(Node { flags: PAGE_TOP, ..node }, 0);
        tree.entered.insert(Self::TOP, 0);
        tree
    }

    /// Creates a tree for a proof, to be read by [`PartialTree::read`].
    #[inline(always)]
    pub(crate) fn of_proof(kind: Kind, suite: Suite) -> Self {
        Self::with(kind, suite, Arena::spare())
    }

    /// Decodes a proof of about `limits.nodes` nodes at most, and of `limits.leaves` leaves.
    #[inline(always)]
    pub(crate) fn read(&mut self, proof: &[u8], limits: VisitLimits) -> Result<(), Fault> {
        pruned::decode(&mut self.arena, proof, self.kind, self.suite, Form::Proof, limits)
    }

    /// Whether every node that the proof shows was visited.
    pub(crate) fn all_shown_visited(&self) -> bool {
        self.visited == self.arena.shown
    }

    #[inline]
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        self.arena.node(id)
    }

    /// The node itself, or the node of a page that has not been copied into it yet, and the arena that holds it.
    #[inline]
    pub(crate) fn source(&self, id: NodeId) -> (&Arena, NodeId) {
        match self.node(id).state {
            State::Remote { page, node } => (&self.pages[page as usize].arena, node),
            _ => (&self.arena, id),
        }
    }

    /// The summary of the subtree below a node.
    #[inline]
    pub(crate) fn sum(&self, id: NodeId) -> Summary {
        let (arena, there) = self.source(id);
        arena.sum(there)
    }

    #[inline]
    pub(crate) fn state(&self, id: NodeId) -> State {
        self.arena.node(id).state
    }

    /// Loads a node, and records that the query visits it.
    #[inline(always)]
    pub(crate) fn visit(&mut self, id: NodeId) -> Attempt<()> {
        let node = self.arena.node(id);
        if node.has(SHOWN) {
            return Ok(());
        }
        if node.state.is_elsewhere() {
            self.load(id)?;
        }
        self.visited += 1;
        self.arena.node_mut(id).flags |= SHOWN;
        Ok(())
    }

    /// Loads a node without recording a visit. Costs one unit of the budget unless the node is loaded already.
    pub(crate) fn load(&mut self, id: NodeId) -> Attempt<()> {
        let state = self.state(id);
        if !state.is_elsewhere() {
            return Ok(());
        }
        if self.budget == 0 {
            return Err(Interrupt::Budget);
        }
        self.undo.note(id, &self.arena);
        match state {
            State::Remote { page, node } => self.fetch(id, page, node)?,
            State::Released { page, node, .. } => {
                let page = self.regain(page)?;
                self.copy(id, page, node);
            }
            _ if self.may_lack_pages() => {
                let page = self.page_at(&self.node(id).digest.clone(), None)?;
                self.enter(id, page);
            }
            _ => return Err(Failure::Stub.into()),
        }
        self.budget -= 1;
        Ok(())
    }

    fn fetch(&mut self, id: NodeId, page: u32, node: NodeId) -> Attempt<()> {
        let held = &self.pages[page as usize];
        if let State::Stub { ordinal, .. } = held.arena.node(node).state {
            let digest = held.arena.node(node).digest;
            let linked = held.next.get(ordinal as usize).map(Arc::clone);
            let page = self.page_at(&digest, linked)?;
            self.enter(id, page);
        } else {
            self.copy(id, page, node);
        }
        Ok(())
    }

    /// Encodes the tree before any change, with everything pruned that was not visited. O(bytes).
    pub(crate) fn proof(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.arena.bytes.len() + TYPICAL_NODE * self.arena.nodes.len());
        writer::encode_to(&mut out, &self.arena, self.kind, Self::TOP, Form::Proof, |id| self.source(id));
        out
    }

    pub(crate) fn page_at(&self, digest: &Digest, linked: Option<Arc<Page>>) -> Attempt<Arc<Page>> {
        let page = self.supply.page(linked, digest)?;
        page.check_is_of(self.kind, self.suite).map_err(Failure::Damaged)?;
        Ok(page)
    }

    /// Replaces a stub by the top node of its page.
    fn enter(&mut self, id: NodeId, page: Arc<Page>) {
        let number = self.hold(page);
        self.copy(id, number, Page::TOP);
        self.arena.node_mut(id).flags |= PAGE_TOP;
        if !self.may_lack_pages() {
            self.entered.insert(id, number);
        }
    }

    /// Copies a node of a page, with references to its children.
    #[inline]
    fn copy(&mut self, id: NodeId, page: u32, from: NodeId) {
        let (held, arena) = (&self.pages[page as usize].arena, &mut self.arena);
        let source = held.node(from);
        let state = match source.state {
            State::Inner { bit, label, left, right } => {
                let label = arena.copy_label(held, label, bit);
                let [left, right] = [left, right]
                    .map(|child| arena.push(Node::new(&Summary::UNKNOWN, State::Remote { page, node: child }), 0));
                State::Inner { bit, label, left, right }
            }
            State::Leaf { tail, target_len, .. } => arena.copy_leaf(held, from, tail, target_len),
            other => other,
        };
        arena.set_sum(id, &held.sum(from));
        let node = arena.node_mut(id);
        node.state = state;
        (node.height, node.weight) = (source.height, source.weight);
    }

    /// Whether pages may be missing, so that looking ahead for them pays.
    pub(crate) fn may_lack_pages(&self) -> bool {
        self.supply.source.is_some()
    }

    /// The children of an inner node that will be visited, found without loading any. None for other nodes, and if the
    /// page is missing; its digest is then added to `missing`.
    pub(crate) fn children_ahead(&self, place: Place, missing: &mut BTreeSet<Digest>) -> Option<(u32, [Place; 2])> {
        let (mut page, mut node) = match place {
            Place::Here(id) => match self.state(id) {
                State::Inner { bit, left, right, .. } => return Some((bit, [left, right].map(Place::Here))),
                State::Remote { page, node } => (Arc::clone(&self.pages[page as usize]), node),
                _ => return None,
            },
            Place::There(page, node) => (page, node),
        };
        loop {
            match page.arena.node(node).state {
                State::Inner { bit, left, right, .. } => {
                    return Some((bit, [left, right].map(|child| Place::There(Arc::clone(&page), child))));
                }
                State::Stub { ordinal, .. } => {
                    let linked = page.next.get(ordinal as usize).map(Arc::clone);
                    page = match self.page_at(&page.arena.node(node).digest, linked) {
                        Ok(page) => page,
                        Err(Interrupt::Pages(pages)) => {
                            missing.extend(pages);
                            return None;
                        }
                        Err(_) => return None,
                    };
                    node = Page::TOP;
                }
                _ => return None,
            }
        }
    }

    /// The summary of the subtree at a place.
    pub(crate) fn sum_at(&self, place: &Place) -> Summary {
        match place {
            Place::Here(id) => self.sum(*id),
            Place::There(page, node) => page.arena.sum(*node),
        }
    }

    /// What a loaded node says to a descent.
    #[inline(always)]
    pub(crate) fn visited(&self, id: NodeId, floor: u32) -> Attempt<Visited<'_, NodeId, Counts>> {
        let shape = self.arena.shape(id, floor).ok_or(Failure::Stub)?;
        let left = match shape {
            Shape::Inner { children: [left, _], .. } => self.sum(left).count,
            _ => 0,
        };
        Ok(Visited { shape, counts: Counts { here: self.sum(id).count, left } })
    }

    pub(crate) fn extent(&self, id: NodeId) -> u32 {
        match self.state(id) {
            State::Remote { page, node } => self.pages[page as usize].arena.extent(node),
            _ => self.arena.extent(id),
        }
    }
}

/// A node of the tree, or of a page from which the tree has not copied it.
#[derive(Clone)]
pub(crate) enum Place {
    Here(NodeId),
    There(Arc<Page>, NodeId),
}

/// The failure of a change that would make a map or list too large.
pub(crate) const SUM_TOO_LARGE: Failure = Failure::TooLarge("the counts or measures would sum to 2^53 or more");

/// The nodes of a partial tree, for a descent that visits them. With `STEPS`, it records the steps.
pub(crate) struct Visiting<'t, const STEPS: bool> {
    pub(crate) tree: &'t mut PartialTree,
    pub(crate) steps: Vec<(NodeId, Side)>,
}

impl<'t, const STEPS: bool> Visiting<'t, STEPS> {
    pub(crate) fn new(tree: &'t mut PartialTree) -> Self {
        Self { tree, steps: Vec::new() }
    }
}

impl<const STEPS: bool> Nodes for Visiting<'_, STEPS> {
    type Id = NodeId;
    type Counts = Counts;

    #[inline(always)]
    fn visit(&mut self, id: NodeId, floor: u32) -> Attempt<Visited<'_, NodeId, Counts>> {
        self.tree.visit(id)?;
        self.tree.visited(id, floor)
    }

    #[inline(always)]
    fn step(&mut self, step: Step<NodeId>) -> Attempt<()> {
        if STEPS {
            self.steps.push((step.from, step.side));
        }
        Ok(())
    }
}

/// The nodes of a partial tree, for a descent that only loads them.
pub(crate) struct Loading<'t>(pub(crate) &'t mut PartialTree);

impl Nodes for Loading<'_> {
    type Id = NodeId;
    type Counts = Counts;

    fn visit(&mut self, id: NodeId, floor: u32) -> Attempt<Visited<'_, NodeId, Counts>> {
        self.0.load(id)?;
        self.0.visited(id, floor)
    }

    fn step(&mut self, _: Step<NodeId>) -> Attempt<()> {
        Ok(())
    }
}
