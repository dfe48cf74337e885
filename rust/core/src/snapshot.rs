//! Whole trees in memory: pages that link to each other.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::id::cid::{Cid, Kind, RootCid};
use crate::id::suite::Suite;
use crate::interrupt::{Failure, Interrupt};
use crate::key::{Key, Window};
use crate::key_list::Keys;
use crate::page::format::Page;
use crate::page::layout::{Built, Destination};
use crate::page::partial::PartialTree;
use crate::page::path::{Linked, PagePath};
use crate::page::union::PageUnion;
use crate::proof::query::{self, Answer, Ask, Element};
use crate::query::arcs::Arcs;
use crate::query::changes::{ListChanges, MapChanges};
use crate::query::list::Span;
use crate::query::map::{Listing, Made};
use crate::query::{new_list, new_map};
use crate::tree::arena::NodeId;
use crate::tree::descent::{Counts, Goal, ToIndex, ToKey};
use crate::tree::node::{SUM_LIMIT, Summary};
use crate::workers::{OneThread, Workers};

/// A whole tree in memory.
#[derive(Debug, Clone)]
pub struct Snapshot {
    top: Arc<Page>,
}

/// A descent in a snapshot.
type SnapshotPath<'a> = PagePath<&'a Page, Linked<'a>>;

fn unexpected() -> Error {
    Error::request("the query gave an answer of another kind")
}

impl Snapshot {
    /// Builds a map in this thread. O(n log n).
    ///
    /// # Errors
    /// [`Error::Input`] if two arcs have the same path.
    pub fn map(suite: Suite, arcs: Arcs) -> Result<Self> {
        Self::map_by(&OneThread, suite, arcs)
    }

    /// Builds a map, its subtrees by `workers`. O(n log n).
    ///
    /// # Errors
    /// As [`Snapshot::map`].
    pub fn map_by(workers: &dyn Workers, suite: Suite, arcs: Arcs) -> Result<Self> {
        Self::built(new_map::build(suite, arcs, Destination::Memory, workers)?)
    }

    /// Builds a list from targets and sizes in this thread. O(n).
    ///
    /// # Errors
    /// [`Error::Input`] if a size is 0, or the sizes sum to 2^53 or more.
    pub fn list(suite: Suite, elements: &[(Cid, u64)]) -> Result<Self> {
        Self::list_by(&OneThread, suite, elements)
    }

    /// Builds a list from targets and sizes, its subtrees by `workers`. O(n).
    ///
    /// # Errors
    /// As [`Snapshot::list`].
    pub fn list_by(workers: &dyn Workers, suite: Suite, elements: &[(Cid, u64)]) -> Result<Self> {
        if let Some(i) = elements.iter().position(|e| e.1 == 0 || e.1 >= SUM_LIMIT) {
            return Err(Error::request(format!("sizes[{i}]: a size must be at least 1 and below 2^53")));
        }
        Self::built(new_list::build(suite, elements, Destination::Memory, workers)?)
    }

    fn built(Built { top, .. }: Built) -> Result<Self> {
        Ok(Self { top: top.ok_or_else(|| Error::damaged("the new tree has no page"))? })
    }

    fn sum(&self) -> Summary {
        self.top.arena.sum(Page::TOP)
    }

    /// The root CID.
    pub fn root(&self) -> RootCid {
        RootCid { kind: self.top.kind, suite: self.top.suite, digest: self.top.digest() }
    }

    /// The number of keys or elements.
    pub fn count(&self) -> u64 {
        self.sum().count
    }

    /// The sum of the measures of a list's elements; in a map, the count.
    pub fn measure(&self) -> u64 {
        self.sum().measure
    }

    /// The pages, the top page first. O(pages).
    pub fn pages(&self) -> impl Iterator<Item = Arc<Page>> {
        let mut rest = vec![Arc::clone(&self.top)];
        std::iter::from_fn(move || {
            let page = rest.pop()?;
            rest.extend(page.next.iter().map(Arc::clone));
            Some(page)
        })
    }

    fn check_is(&self, kind: Kind) -> Result<()> {
        if self.top.kind != kind {
            RootCid::of(&self.root().cid(), kind)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn descend<'a>(&'a self, kind: Kind, goal: &mut impl Goal<NodeId, Counts>) -> Result<SnapshotPath<'a>> {
        self.check_is(kind)?;
        let mut path = PagePath::new(kind, self.top.suite, self.top.digest(), Linked(&self.top));
        path.run(goal).map_err(|interrupt| interrupt.in_memory(&self.root()))?;
        Ok(path)
    }

    fn ask(&self, kind: Kind, ask: Ask) -> Result<(Answer, PartialTree)> {
        self.check_is(kind)?;
        let mut tree = PartialTree::of_page(&self.top);
        let answer = query::run_once(&ask, &mut tree).map_err(|interrupt| interrupt.in_memory(&self.root()))?;
        Ok((answer, tree))
    }

    /// Looks up a key. Returns its target, and a function that encodes the inclusion or absence proof. O(depth).
    ///
    /// # Errors
    /// [`Error::Input`] if this is not a map.
    pub fn key(&self, key: &Key) -> Result<(Option<Cid>, impl FnOnce() -> Vec<u8>)> {
        let path = self.descend(Kind::Map, &mut ToKey(key.as_bytes()))?;
        Ok((path.target(), move || path.proof()))
    }

    /// Returns the inclusion or absence proof of a key. O(depth).
    ///
    /// # Errors
    /// [`Error::Input`] if this is not a map.
    pub fn prove(&self, key: &Key) -> Result<Vec<u8>> {
        Ok(self.descend(Kind::Map, &mut ToKey(key.as_bytes()))?.proof())
    }

    /// Looks up several keys. Returns their targets in the order of `keys`, and a function that encodes the multiproof.
    /// O(keys x depth).
    ///
    /// # Errors
    /// [`Error::Input`] if this is not a map.
    pub fn keys(&self, keys: Keys) -> Result<(Vec<Option<Cid>>, impl FnOnce() -> Vec<u8>)> {
        self.check_is(Kind::Map)?;
        let mut union = PageUnion::new(self.top.suite, self.top.digest(), Linked(&self.top), keys);
        let targets = union.run().map_err(|interrupt| interrupt.in_memory(&self.root()))?;
        Ok((targets, move || union.nodes.take_proof()))
    }

    /// Looks up an element. Returns it, and a function that encodes its proof. O(log n).
    ///
    /// # Errors
    /// [`Error::Input`] if this is not a list.
    pub fn index(&self, index: u64) -> Result<(Element, impl FnOnce() -> Vec<u8>)> {
        let path = self.descend(Kind::List, &mut ToIndex(index))?;
        Ok((query::element(&path), move || path.proof()))
    }

    /// Finds the elements that a range of measure meets. Returns them and the range proof. O(log n + segments).
    ///
    /// # Errors
    /// [`Error::Input`] if this is not a list.
    pub fn range(&self, start: u64, end: Option<u64>) -> Result<(Span, Vec<u8>)> {
        match self.ask(Kind::List, Ask::Range { start, end, max_segments: usize::MAX })? {
            (Answer::Span(span), tree) => Ok((span, tree.proof())),
            _ => Err(unexpected()),
        }
    }

    /// Lists one page of a window. Returns it, and a function that encodes the listing proof. O(depth + entries).
    ///
    /// # Errors
    /// [`Error::Input`] if this is not a map or `limit` is 0.
    pub fn scan(&self, window: Window, limit: usize) -> Result<(Listing, impl FnOnce() -> Vec<u8>)> {
        if limit == 0 {
            return Err(Error::request("limit: a listing has at least 1 entry per page"));
        }
        match self.ask(Kind::Map, Ask::Scan(window, limit))? {
            (Answer::Listing(listing), tree) => Ok((listing, move || tree.proof())),
            _ => Err(unexpected()),
        }
    }

    /// Applies changes to the map. Returns the new map and the transition proof. O(changes x depth).
    ///
    /// # Errors
    /// [`Error::Conflict`] if a change does not fit; [`Error::Input`] if this is not a map.
    pub fn change_map(&self, changes: MapChanges) -> Result<(Self, Vec<u8>)> {
        self.change(Kind::Map, Ask::ChangeMap(changes))
    }

    /// Applies changes to the list. Returns the new list and the transition proof. O(changes x log n).
    ///
    /// # Errors
    /// [`Error::Conflict`] if a change does not fit; [`Error::Input`] if this is not a list.
    pub fn change_list(&self, changes: ListChanges) -> Result<(Self, Vec<u8>)> {
        self.change(Kind::List, Ask::ChangeList(changes))
    }

    fn change(&self, kind: Kind, ask: Ask) -> Result<(Self, Vec<u8>)> {
        self.check_is(kind)?;
        let (mut tree, mut made) = (PartialTree::of_page(&self.top), Made::NONE);
        let in_memory = |interrupt: Interrupt<Failure>| interrupt.in_memory(&self.root());
        query::run(&ask, &mut tree, &mut made).map_err(in_memory)?;
        let proof = tree.proof();
        let pages = tree.linked_pages(made.top).map_err(in_memory)?;
        let top = pages.into_iter().next().or_else(|| tree.page_of(made.top).ok());
        let top = top.ok_or_else(|| Error::damaged("the changed tree has no page"))?;
        Ok((Self { top }, proof))
    }
}
