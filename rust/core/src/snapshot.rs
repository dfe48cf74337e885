//! Whole maps and lists in memory, as pages that hold on to each other.
//!
//! A [`Snapshot`] is immutable and cheap to clone; a changed one shares all pages that the change did not touch.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::id::cid::{Cid, Kind, RootCid};
use crate::id::suite::Suite;
use crate::key::{Key, Window};
use crate::page::Page;
use crate::proof::prove::{Answer, Ask, Element, Task, halt_error};
use crate::proof::trail::{End, Linked, Seek, Trail};
use crate::tree::arcs::Arcs;
use crate::tree::build::{Built, Pages};
use crate::tree::list::{self, Span};
use crate::tree::map::{self, Listing};
use crate::tree::node::{SUM_LIMIT, Summary};
use crate::tree::{Halt, Step, Tree};

/// A whole tree in memory.
#[derive(Debug, Clone)]
pub struct Snapshot {
    top: Arc<Page>,
}

const OTHER_ANSWER: &str = "the query gave an answer of another kind";

impl Snapshot {
    /// The map of `arcs`. O(n log n).
    ///
    /// # Errors
    /// [`Error::Input`] if two arcs have the same path.
    pub fn map(suite: Suite, mut arcs: Arcs) -> Result<Self> {
        arcs.sort()?;
        Self::built(map::build(suite, arcs, Pages::Linked))
    }

    /// The list of `elements`, targets and their sizes. O(n).
    ///
    /// # Errors
    /// [`Error::Input`] for a size of 0 or sizes that sum to 2^53 or more.
    pub fn list(suite: Suite, elements: &[(Cid, u64)]) -> Result<Self> {
        if let Some(i) = elements.iter().position(|e| e.1 == 0 || e.1 >= SUM_LIMIT) {
            return Err(Error::request(format!("sizes: element {i}: a size is at least 1 and below 2^53")));
        }
        Self::built(list::build(suite, elements.iter().map(|(cid, size)| (cid.as_bytes(), *size)), Pages::Linked))
    }

    fn built(built: Step<Built>) -> Result<Self> {
        match built {
            Ok(Built { top: Some(top), .. }) => Ok(Self { top }),
            Err(Halt::Full(what)) => Err(Error::request(what)),
            _ => Err(Error::request("the arcs make no tree")),
        }
    }

    fn sum(&self) -> Summary {
        self.top.arena.node(Page::TOP).sum
    }

    /// The root.
    pub fn root(&self) -> RootCid {
        RootCid { kind: self.top.kind, suite: self.top.suite, digest: self.top.digest() }
    }

    /// Number of keys or elements.
    pub fn count(&self) -> u64 {
        self.sum().count
    }

    /// Sum of the measures of a list's elements; of a map the count.
    pub fn measure(&self) -> u64 {
        self.sum().measure
    }

    /// The pages, each once, the top's first. O(pages).
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

    #[inline]
    fn walk(&self, kind: Kind, seek: &mut impl Seek) -> Result<(End, Trail<&Page>)> {
        self.check_is(kind)?;
        let mut trail = Trail::new(kind, self.top.suite, Some(&*self.top));
        match trail.run(seek, &mut Linked, &self.top.digest(), &mut { u64::MAX }) {
            Ok(end) => Ok((end, trail)),
            Err(halt) => Err(halt_error(halt, &self.root())),
        }
    }

    fn ask(&self, kind: Kind, ask: Ask) -> Result<(Answer, Tree)> {
        self.check_is(kind)?;
        let mut tree = Tree::of_page(&self.top);
        let answer = Task::from(ask).run(&mut tree).map_err(|halt| halt_error(halt, &self.root()))?;
        Ok((answer, tree))
    }

    /// The target of a key, and the proof of it or of its absence. O(depth).
    ///
    /// # Errors
    /// [`Error::Input`] if this is no map.
    pub fn key(&self, key: &Key) -> Result<(Option<Cid>, impl FnOnce() -> Vec<u8>)> {
        let (end, trail) = self.walk(Kind::Map, &mut map::ToKey(key.as_bytes()))?;
        Ok((trail.target(end), move || trail.proof()))
    }

    /// An element, and its proof. O(log n).
    ///
    /// # Errors
    /// [`Error::Input`] if this is no list.
    pub fn index(&self, index: u64) -> Result<(Element, impl FnOnce() -> Vec<u8>)> {
        let (end, trail) = self.walk(Kind::List, &mut list::ToIndex(index))?;
        Ok((trail.element(end), move || trail.proof()))
    }

    /// The elements that a range of measure meets, and their proof. O(log n + segments).
    ///
    /// # Errors
    /// [`Error::Input`] if this is no list.
    pub fn range(&self, start: u64, end: Option<u64>) -> Result<(Span, Vec<u8>)> {
        match self.ask(Kind::List, Ask::Range { start, end, max_segments: usize::MAX })? {
            (Answer::Span(span), tree) => Ok((span, tree.proof())),
            _ => Err(Error::request(OTHER_ANSWER)),
        }
    }

    /// One page of a listing, and the proof that it is complete. O(depth + entries).
    ///
    /// # Errors
    /// [`Error::Input`] if this is no map or `limit` is 0.
    pub fn scan(&self, window: Window, limit: usize) -> Result<(Listing, impl FnOnce() -> Vec<u8>)> {
        if limit == 0 {
            return Err(Error::request("limit: a listing has at least 1 entry a page"));
        }
        match self.ask(Kind::Map, Ask::Scan(window, limit))? {
            (Answer::Listing(listing), tree) => Ok((listing, move || tree.proof())),
            _ => Err(Error::request(OTHER_ANSWER)),
        }
    }

    /// The map after `changes`, and the proof of the transition. O(changes x depth).
    ///
    /// # Errors
    /// [`Error::Conflict`] if a change does not fit; [`Error::Input`] if this is no map.
    pub fn change_map(&self, changes: map::Changes) -> Result<(Self, Vec<u8>)> {
        self.change(Kind::Map, Ask::ChangeMap(changes))
    }

    /// The list after `changes`, and the proof of the transition. O(changes x log n).
    ///
    /// # Errors
    /// [`Error::Conflict`] if a change does not fit; [`Error::Input`] if this is no list.
    pub fn change_list(&self, changes: list::Changes) -> Result<(Self, Vec<u8>)> {
        self.change(Kind::List, Ask::ChangeList(changes))
    }

    fn change(&self, kind: Kind, ask: Ask) -> Result<(Self, Vec<u8>)> {
        let (Answer::Changed(changed), mut tree) = self.ask(kind, ask)? else {
            return Err(Error::request(OTHER_ANSWER));
        };
        let proof = tree.proof();
        let pages = tree.new_pages(changed.top, true).map_err(|halt| halt_error(halt, &self.root()))?;
        let top = pages.into_iter().next().or_else(|| tree.page_of(changed.top).ok());
        let top = top.ok_or_else(|| Error::damaged("the changed tree has no page"))?;
        Ok((Self { top }, proof))
    }
}
