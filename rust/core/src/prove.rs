//! Proofs from trees: run the query, keep what it visited.
//!
//! A [`Query`] is any of the protocol's queries on one tree, on its way to an answer. It does no I/O: when it lacks
//! pages it says which ([`Progress::Pages`]), and goes on when they are supplied.

use std::sync::Arc;

use crate::arena::NodeId;
use crate::cid::{Cid, RootCid};
use crate::error::{Error, InputCode, Result};
use crate::list::{self, Span};
use crate::map::{self, Listing};
use crate::node::Summary;
use crate::page::{NodeSource, Page};
use crate::path::{Key, Window};
use crate::scan;
use crate::suite::Digest;
use crate::trail::Trail;
use crate::tree::{Halt, Step, Supply, Tree};

/// How far a query is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It has its answer.
    Done,
    /// It needs these pages; all of them are sure to be used.
    Pages(Vec<Digest>),
    /// Its budget of nodes is spent.
    Budget,
}

/// What a query on one tree asks.
#[derive(Debug)]
pub(crate) enum Ask {
    Key(Vec<u8>, map::Get),
    Index(list::Walk),
    Range(list::Range),
    Scan(scan::Scan),
    ChangeMap(map::Apply),
    ChangeList(list::Apply),
}

impl Ask {
    pub(crate) fn key(key: Key) -> Self {
        Self::Key(key.into_bytes(), map::Get::new())
    }

    pub(crate) fn index(index: u64) -> Self {
        Self::Index(list::Walk::from(Tree::TOP, index))
    }

    pub(crate) fn range(start: u64, end: Option<u64>, max_segments: usize) -> Self {
        Self::Range(list::Range::new(start, end, max_segments))
    }

    pub(crate) fn scan(window: Window, limit: usize) -> Self {
        Self::Scan(scan::Scan::new(window, limit))
    }

    /// The one place where a query meets a tree, whole or pruned.
    #[inline]
    pub(crate) fn run(&mut self, tree: &mut Tree) -> Step<Answer> {
        Ok(match self {
            Self::Key(key, get) => Answer::Key(get.run(tree, key)?.map(|id| Cid::trusted(tree.arena.target(id)))),
            Self::Index(walk) => {
                let found = walk.run(tree)?;
                Answer::Element(Element {
                    target: found.map(|id| Cid::trusted(tree.arena.target(id))),
                    size: found.map(|id| tree.sum(id).measure),
                    length: tree.sum(Tree::TOP).count,
                })
            }
            Self::Range(range) => Answer::Span(range.run(tree)?),
            Self::Scan(scan) => Answer::Listing(scan.run(tree)?),
            Self::ChangeMap(apply) => {
                let top = apply.run(tree)?;
                Answer::Changed(Changed { top, sum: *tree.sum(top) })
            }
            Self::ChangeList(apply) => {
                let top = apply.run(tree)?;
                Answer::Changed(Changed { top, sum: *tree.sum(top) })
            }
        })
    }
}

/// An element of a list, or the proof that the list is shorter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The target; None if the list is shorter.
    pub target: Option<Cid>,
    /// The element's measure; None if the list is shorter.
    pub size: Option<u64>,
    /// Number of elements of the list.
    pub length: u64,
}

/// The tree that changes lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) top: NodeId,
    pub(crate) sum: Summary,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Key(Option<Cid>),
    Element(Element),
    Span(Span),
    Listing(Listing),
    Changed(Changed),
}

/// A query on one tree, on its way.
pub(crate) struct Query {
    root: RootCid,
    way: Way,
    /// Nodes that the last run left of its budget.
    budget_left: u64,
    answer: Option<Answer>,
}

/// How a query meets its tree: one that asks for a single leaf walks on the pages, any other visits a tree.
enum Way {
    Walk(Trail<Arc<Page>>, Supply, Leaf),
    Visit(Box<(Tree, Ask)>),
}

/// What leads to a single leaf.
enum Leaf {
    Key(Vec<u8>),
    Index(list::ToIndex),
}

impl Way {
    fn supply(&mut self) -> &mut Supply {
        match self {
            Self::Walk(_, supply, _) => supply,
            Self::Visit(visit) => &mut visit.0.supply,
        }
    }
}

impl Query {
    /// Opens the tree of `root`, whose pages come from `source` or are asked for.
    pub(crate) fn open(root: &RootCid, source: Arc<dyn NodeSource>, ask: Ask) -> Self {
        let walk = |leaf, source| Way::Walk(Trail::new(root.kind, root.suite, None), Supply::from(source), leaf);
        let way = match ask {
            Ask::Key(key, _) => walk(Leaf::Key(key), source),
            Ask::Index(to) => walk(Leaf::Index(to.to), source),
            ask => Way::Visit(Box::new((Tree::open(root, source), ask))),
        };
        Self { root: *root, way, budget_left: 0, answer: None }
    }

    /// A query that visits its tree, whatever it asks.
    #[cfg(test)]
    pub(crate) fn visiting(root: &RootCid, source: Arc<dyn NodeSource>, ask: Ask) -> Self {
        let way = Way::Visit(Box::new((Tree::open(root, source), ask)));
        Self { root: *root, way, budget_left: 0, answer: None }
    }

    /// Goes on as far as it can, visiting at most `budget` nodes.
    pub(crate) fn run(&mut self, budget: u64) -> Result<Progress> {
        self.way.supply().wanted.clear();
        self.budget_left = budget;
        let (left, top) = (&mut self.budget_left, &self.root.digest);
        let answer = match &mut self.way {
            Way::Walk(trail, supply, Leaf::Key(key)) => {
                trail.run(&mut map::ToKey(key), supply, top, left).map(|end| Answer::Key(trail.target(end)))
            }
            Way::Walk(trail, supply, Leaf::Index(index)) => {
                trail.run(index, supply, top, left).map(|end| Answer::Element(trail.element(end)))
            }
            Way::Visit(visit) => {
                let (tree, ask) = &mut **visit;
                tree.budget = budget;
                let answer = ask.run(tree);
                *left = tree.budget;
                answer
            }
        };
        match answer {
            Ok(answer) => {
                self.answer = Some(answer);
                Ok(Progress::Done)
            }
            Err(Halt::Pages) => Ok(self.lacks_pages()),
            Err(Halt::Budget) => Ok(Progress::Budget),
            Err(halt) => Err(halt_error(halt, &self.root)),
        }
    }

    fn lacks_pages(&mut self) -> Progress {
        Progress::Pages(self.way.supply().wanted.iter().copied().collect())
    }

    /// Nodes that the last run left of its budget.
    pub(crate) fn budget_left(&self) -> u64 {
        self.budget_left
    }

    /// The pages of the changed tree that are not stored yet.
    pub(crate) fn new_pages(&mut self, top: NodeId) -> Result<std::result::Result<Vec<Arc<Page>>, Progress>> {
        self.way.supply().wanted.clear();
        let Way::Visit(visit) = &mut self.way else {
            return Ok(Ok(Vec::new())); // it changes nothing
        };
        match visit.0.new_pages(top, false) {
            Ok(pages) => Ok(Ok(pages)),
            Err(Halt::Pages) => Ok(Err(self.lacks_pages())),
            Err(halt) => Err(halt_error(halt, &self.root)),
        }
    }

    /// Hands over pages that were asked for.
    pub(crate) fn supply(&mut self, pages: Vec<Arc<Page>>) {
        self.way.supply().add(pages);
    }

    pub(crate) fn root(&self) -> &RootCid {
        &self.root
    }

    /// The answer, once [`Progress::Done`] was said.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        self.answer.take()
    }

    /// The proof of the answer.
    pub(crate) fn proof(&self) -> Vec<u8> {
        match &self.way {
            Way::Walk(trail, ..) => trail.proof(),
            Way::Visit(visit) => visit.0.proof(),
        }
    }
}

/// What a halt means on stored trees.
pub(crate) fn halt_error(halt: Halt, root: &RootCid) -> Error {
    match halt {
        Halt::Conflict { code, why, .. } => Error::conflict(code, why),
        Halt::Full(what) => Error::input(InputCode::TooLarge, what),
        Halt::Damaged(error) => error,
        Halt::Faulty(why) => Error::damaged(format!("the tree of {root} was built wrong: {why}")),
        Halt::Stub | Halt::Pages | Halt::Budget => Error::damaged(format!("a page of {root} is not at hand")),
    }
}
