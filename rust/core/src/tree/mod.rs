//! A tree partly in hand, and what it means to visit a node of it.
//!
//! Queries are written once, against [`Tree`]; those of a single leaf do without one (`trail`). For the prover it is
//! opened on a root and fetches nodes from pages as they are visited; for the verifier it is the pruned tree that was
//! sent. Either way, what was visited is what the proof shows. Changes add fresh nodes beside the old ones, so the old
//! tree stays whole until its proof is written.

pub(crate) mod arcs;
#[doc(hidden)]
pub mod arena;
#[doc(hidden)]
pub mod block;
pub(crate) mod build;
#[doc(hidden)]
pub mod diff;
pub mod list;
pub mod map;
#[doc(hidden)]
pub mod node;
pub(crate) mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::{ConflictCode, Error};
use crate::id::cid::{Kind, RootCid};
use crate::id::suite::{Digest, Suite};
use crate::page::cut;
use crate::page::{NodeSource, Page};
use crate::proof::pruned::{self, Form};
use crate::proof::trail::{Pages, View};
use crate::tree::arena::{Arena, FRESH, Node, NodeId, PAGE_TOP, SHOWN, Side, State, Tail};
use crate::tree::node::{Encoder, Summary};

/// Why a query stops before its end.
#[derive(Debug)]
pub(crate) enum Halt {
    /// It needs the pages in [`Tree::wanted`]; it goes on when they are supplied.
    Pages,
    /// Its budget is spent; it goes on with a new one.
    Budget,
    /// It needs a node that a pruned tree does not show.
    Stub,
    /// The tree is none that could have been built.
    Faulty(&'static str),
    /// A change does not fit the tree; the sentence names its coordinate.
    Conflict { code: ConflictCode, why: String },
    /// A limit is passed.
    Full(&'static str),
    /// A page is not what it must be.
    Damaged(Error),
}

pub(crate) type Step<T> = Result<T, Halt>;

/// Room for the nodes and their bytes that the walk to one key mostly passes.
const NODES: usize = 96;
const BYTES: usize = 512;

/// Pages asked for at once, at most.
pub(crate) const MAX_WANTED: usize = 128;

/// Where the pages of a query come from.
#[derive(Default)]
pub(crate) struct Supply {
    source: Option<Arc<dyn NodeSource>>,
    supplied: BTreeMap<Digest, Arc<Page>>,
    /// Pages that the query is sure to need next.
    pub(crate) wanted: BTreeSet<Digest>,
}

impl Supply {
    pub(crate) fn from(source: Arc<dyn NodeSource>) -> Self {
        Self { source: Some(source), ..Self::default() }
    }

    /// Adds pages that were asked for.
    pub(crate) fn add(&mut self, pages: impl IntoIterator<Item = Arc<Page>>) {
        self.supplied.extend(pages.into_iter().map(|page| (page.digest(), page)));
    }

    /// The page of this digest; `linked`, if another page holds on to it. One that is not at hand is wanted.
    fn get(&mut self, linked: Option<Arc<Page>>, digest: &Digest) -> Step<Arc<Page>> {
        let page = linked
            .or_else(|| self.supplied.get(digest).map(Arc::clone))
            .or_else(|| self.source.as_ref().and_then(|source| source.page(digest)));
        page.ok_or_else(|| {
            self.wanted.insert(*digest);
            Halt::Pages
        })
    }
}

impl Pages<Arc<Page>> for Supply {
    fn page(&mut self, behind: Option<(&Arc<Page>, u32)>, digest: &Digest) -> Step<Arc<Page>> {
        self.get(behind.and_then(|(page, ordinal)| page.next.get(ordinal as usize)).map(Arc::clone), digest)
    }
}

impl View for Tree {
    #[inline(always)]
    fn arena(&self) -> &Arena {
        &self.arena
    }

    #[inline(always)]
    fn sum(&self, id: NodeId) -> &Summary {
        &self.there(id).sum
    }
}

pub(crate) struct Tree {
    pub(crate) kind: Kind,
    pub(crate) suite: Suite,
    pub(crate) arena: Arena,
    /// Pages that nodes were copied from, held so that no cache can drop them under the query.
    pub(crate) pages: Vec<Arc<Page>>,
    pub(crate) supply: Supply,
    /// Nodes that may still be visited before [`Halt::Budget`].
    pub(crate) budget: u64,
    /// Nodes visited that are no fresh ones.
    visited: usize,
}

impl Drop for Tree {
    fn drop(&mut self) {
        std::mem::take(&mut self.arena).recycle();
    }
}

impl Tree {
    /// The top node of the tree that was opened.
    pub(crate) const TOP: NodeId = NodeId(0);

    fn with(kind: Kind, suite: Suite, arena: Arena) -> Self {
        Self { kind, suite, arena, pages: Vec::new(), supply: Supply::default(), budget: u64::MAX, visited: 0 }
    }

    /// The tree of a root whose pages come from `source`, or are asked for.
    pub(crate) fn open(root: &RootCid, source: Arc<dyn NodeSource>) -> Self {
        let mut tree = Self::with(root.kind, root.suite, Arena::spare());
        tree.arena.reserve(NODES, BYTES);
        let sum = Summary { count: 0, measure: 0, digest: root.digest };
        tree.arena.push(Node::new(sum, State::Stub { extent: 0, ordinal: 0 }));
        tree.supply = Supply::from(source);
        tree
    }

    /// The tree of a top page whose linked pages are all in memory.
    pub(crate) fn of_page(page: &Arc<Page>) -> Self {
        let mut tree = Self::with(page.kind, page.suite, Arena::spare());
        tree.arena.reserve(NODES, BYTES);
        tree.pages.push(Arc::clone(page));
        let mut node = Node::new(Summary::UNKNOWN, State::Remote { page: 0, node: Page::TOP });
        node.flags = PAGE_TOP;
        node.home = 0;
        tree.arena.push(node);
        tree
    }

    /// A tree for a proof that is not read yet.
    #[inline(always)]
    pub(crate) fn of_proof(kind: Kind, suite: Suite) -> Self {
        Self::with(kind, suite, Arena::spare())
    }

    /// Reads the pruned tree that was sent.
    #[inline(always)]
    pub(crate) fn read(&mut self, proof: &[u8]) -> Result<(), pruned::Fault> {
        pruned::decode(&mut self.arena, proof, self.kind, self.suite, Form::Proof)
    }

    /// A tree with nothing in it yet, for building.
    pub(crate) fn empty(kind: Kind, suite: Suite) -> Self {
        Self::with(kind, suite, Arena::default())
    }

    /// Whether every node that the proof shows was visited.
    pub(crate) fn all_shown_visited(&self) -> bool {
        self.visited == self.arena.shown
    }

    #[inline]
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        self.arena.node(id)
    }

    /// The node itself, or the one on a page that it stands for and was not copied from yet.
    #[inline]
    pub(crate) fn there(&self, id: NodeId) -> &Node {
        match self.node(id).state {
            State::Remote { page, node } => self.pages[page as usize].arena.node(node),
            _ => self.node(id),
        }
    }

    /// What the node says of all that is below it.
    #[inline]
    pub(crate) fn sum(&self, id: NodeId) -> &Summary {
        &self.there(id).sum
    }

    #[inline]
    pub(crate) fn state(&self, id: NodeId) -> State {
        self.arena.node(id).state
    }

    /// Makes sure that the node is in hand, and notes that the query saw it.
    #[inline(always)]
    pub(crate) fn visit(&mut self, id: NodeId) -> Step<()> {
        let node = self.arena.node(id);
        if node.has(SHOWN) {
            return Ok(());
        }
        if self.budget == 0 {
            return Err(Halt::Budget);
        }
        if matches!(node.state, State::Remote { .. } | State::Stub { .. }) {
            self.load(id)?;
        }
        self.budget -= 1;
        self.visited += 1;
        self.arena.node_mut(id).flags |= SHOWN;
        Ok(())
    }

    /// Makes sure that the node is in hand, without the proof showing it for that.
    pub(crate) fn load(&mut self, id: NodeId) -> Step<()> {
        match self.state(id) {
            State::Remote { page, node } => self.fetch(id, page, node),
            State::Stub { .. } if self.may_lack_pages() => {
                let page = self.page_at(&self.node(id).sum.digest.clone(), None)?;
                self.enter(id, page);
                Ok(())
            }
            State::Stub { .. } => Err(Halt::Stub),
            _ => Ok(()),
        }
    }

    fn fetch(&mut self, id: NodeId, page: u32, node: NodeId) -> Step<()> {
        let held = &self.pages[page as usize];
        if let State::Stub { ordinal, .. } = held.arena.node(node).state {
            let digest = held.arena.node(node).sum.digest;
            let linked = held.next.get(ordinal as usize).map(Arc::clone);
            let page = self.page_at(&digest, linked)?;
            self.enter(id, page);
        } else {
            self.copy(id, page, node);
        }
        Ok(())
    }

    /// The tree as it was opened, with everything that was not visited pruned. O(bytes).
    pub(crate) fn proof(&self) -> Vec<u8> {
        pruned::encode(&self.arena, self.kind, Self::TOP, Form::Proof, |id| self.sum(id))
    }

    fn page_at(&mut self, digest: &Digest, linked: Option<Arc<Page>>) -> Step<Arc<Page>> {
        let page = self.supply.get(linked, digest)?;
        page.check_is_of(self.kind, self.suite).map_err(Halt::Damaged)?;
        Ok(page)
    }

    /// Puts the top of a page in the place of its stub.
    fn enter(&mut self, id: NodeId, page: Arc<Page>) {
        let number = self.pages.len() as u32;
        self.pages.push(page);
        self.copy(id, number, Page::TOP);
        self.arena.node_mut(id).flags |= PAGE_TOP;
    }

    /// Copies a node of a page, with stand-ins for its children.
    #[inline]
    fn copy(&mut self, id: NodeId, page: u32, from: NodeId) {
        let (held, arena) = (&self.pages[page as usize].arena, &mut self.arena);
        let source = held.node(from);
        let state = match source.state {
            State::Inner { bit, label, start, left, right } => {
                let len = bit.div_ceil(8) as usize - usize::from(start);
                let label = arena.store(&held.bytes[label as usize..][..len]);
                let [left, right] = [left, right]
                    .map(|child| arena.push(Node::new(Summary::UNKNOWN, State::Remote { page, node: child })));
                State::Inner { bit, label, start, left, right }
            }
            State::Leaf { tail, target_len, .. } => {
                let target = arena.store(held.target(from));
                let bytes = &held.bytes[tail.offset as usize..][..usize::from(tail.len)];
                let tail = Tail { offset: arena.store(bytes), ..tail };
                State::Leaf { tail, target, target_len }
            }
            other => other,
        };
        let node = arena.node_mut(id);
        node.sum = source.sum;
        node.state = state;
        node.home = page;
        (node.height, node.weight) = (source.height, source.weight);
    }

    /// Whether pages may be missing, so that asking for many at once pays.
    pub(crate) fn may_lack_pages(&self) -> bool {
        self.supply.source.is_some()
    }

    /// The bit and the children of an inner node that will be visited. None for another node, and where its page is not
    /// at hand: then that is added to `wanted`.
    pub(crate) fn children_ahead(&mut self, place: Place) -> Option<(u32, [Place; 2])> {
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
                    page = self.page_at(&page.arena.node(node).sum.digest.clone(), linked).ok()?;
                    node = Page::TOP;
                }
                _ => return None,
            }
        }
    }

    /// The summary of a place.
    pub(crate) fn sum_at(&self, place: &Place) -> Summary {
        match place {
            Place::Here(id) => *self.sum(*id),
            Place::There(page, node) => page.arena.node(*node).sum,
        }
    }

    // Changing: fresh nodes, and the way back up.

    /// Adds a fresh node.
    pub(crate) fn push_fresh(&mut self, sum: Summary, state: State) -> NodeId {
        let mut node = Node::new(sum, state);
        node.flags = FRESH | SHOWN;
        self.arena.push(node)
    }

    /// Puts `child` below the nodes of `path`, from the last to the first, and gives back the new top.
    /// Fresh nodes are changed in place, others are copied. Digests are left for [`Tree::seal`].
    pub(crate) fn graft(&mut self, path: &[(NodeId, Side)], mut child: NodeId) -> Step<NodeId> {
        for &(id, side) in path.iter().rev() {
            let State::Inner { bit, label, start, mut left, mut right } = self.state(id) else {
                return Err(Halt::Faulty("a path through a leaf"));
            };
            match side {
                Side::Left => left = child,
                Side::Right => right = child,
            }
            let state = State::Inner { bit, label, start, left, right };
            let sum = pruned::join(self.sum(left), self.sum(right), |_, _| Digest::ZERO)
                .ok_or(Halt::Full("the counts or measures would sum to 2^53 or more"))?;
            child = if self.node(id).has(FRESH) {
                let node = self.arena.node_mut(id);
                (node.sum, node.state) = (sum, state);
                id
            } else {
                self.push_fresh(sum, state)
            };
        }
        Ok(child)
    }

    /// Computes the digests of all fresh nodes below `top` and decides where the new tree is cut. O(fresh nodes).
    ///
    /// The decisions need nothing but what stubs note, so a verifier may run it too; it ignores them.
    pub(crate) fn seal(&mut self, top: NodeId) {
        let mut encoder = Encoder::new(self.suite);
        let mut rest = vec![(top, 0u32, None, false)];
        while let Some((id, floor, turn, children_done)) = rest.pop() {
            if !self.node(id).has(FRESH) {
                continue;
            }
            if let Some((bit, side)) = turn {
                encoder.turn(bit, side);
            }
            match self.state(id) {
                State::Inner { bit, left, right, .. } if children_done => {
                    let (l, r) = (*self.sum(left), *self.sum(right));
                    let digest = match self.kind {
                        Kind::Map => encoder.map_inner(bit, &l, &r),
                        Kind::List => encoder.list_inner(&l, &r),
                    };
                    self.arena.node_mut(id).sum.digest = digest;
                }
                State::Inner { bit, label, start, left, right } => {
                    encoder.put(floor, self.arena.label(label, start, floor, bit));
                    rest.push((id, floor, None, true));
                    rest.push((right, bit + 1, Some((bit, Side::Right)), false));
                    rest.push((left, bit + 1, Some((bit, Side::Left)), false));
                    continue;
                }
                _ => self.seal_leaf(id, &mut encoder),
            }
            self.decide_cut(id);
        }
    }

    fn seal_leaf(&mut self, id: NodeId, encoder: &mut Encoder) {
        let node = self.arena.node(id);
        let digest = match (self.kind, node.state) {
            (Kind::Map, State::Leaf { tail, .. }) => {
                let key = self.arena.tail(tail, 0);
                encoder.put(0, key);
                encoder.map_leaf(key.len(), self.arena.target(id))
            }
            (Kind::List, State::Leaf { .. }) => encoder.list_leaf(node.sum.measure, self.arena.target(id)),
            (Kind::Map, _) => encoder.map_empty(),
            (Kind::List, _) => encoder.list_empty(),
        };
        self.arena.node_mut(id).sum.digest = digest;
    }

    /// Decides where a fresh node whose children are decided is cut from them.
    pub(crate) fn decide_cut(&mut self, id: NodeId) {
        match self.state(id) {
            State::Inner { bit, left, right, .. } => {
                let children = [left, right]
                    .map(|child| cut::Child::of(self.there(child), self.kind, bit + 1, self.extent(child)));
                cut::apply(self.arena.node_mut(id), children);
            }
            State::Leaf { .. } => cut::note(&mut self.arena, self.kind, id),
            _ => {}
        }
    }

    pub(crate) fn extent(&self, id: NodeId) -> u32 {
        match self.state(id) {
            State::Remote { page, node } => self.pages[page as usize].arena.extent(node),
            _ => self.arena.extent(id),
        }
    }
}

/// A node in a tree, or on a page that the tree has not copied it from yet.
#[derive(Clone)]
pub(crate) enum Place {
    Here(NodeId),
    There(Arc<Page>, NodeId),
}
