//! Proofs from trees: run the query, keep what it visited.
//!
//! A [`Query`] is any of the protocol's queries on one tree, on its way to an answer. It does no I/O: when it lacks
//! pages it says which ([`Progress::Pages`]), and goes on when they are supplied.

use std::sync::Arc;

use crate::error::{Error, InputCode, Result};
use crate::id::cid::{Cid, RootCid};
use crate::id::suite::Digest;
use crate::key::{Key, Window};
use crate::page::{NodeSource, Page};
use crate::proof::trail::Trail;
use crate::tree::arena::NodeId;
use crate::tree::list::{self, Span};
use crate::tree::map::{self, Listing};
use crate::tree::node::Summary;
use crate::tree::scan;
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
#[derive(Debug, Clone)]
pub enum Ask {
    /// The target of a key of a map.
    Key(Key),
    /// An element of a list.
    Index(u64),
    /// The elements whose span of measure meets `start..end`.
    Range {
        /// Where the range starts, in units of measure.
        start: u64,
        /// Where it ends, exclusive; None: with the list.
        end: Option<u64>,
        /// The most elements that the answer may have.
        max_segments: usize,
    },
    /// One page of the listing of a window, of so many entries.
    Scan(Window, usize),
    /// The map after these changes.
    ChangeMap(map::Changes),
    /// The list after these changes.
    ChangeList(list::Changes),
}

impl From<Ask> for Task {
    fn from(ask: Ask) -> Self {
        match ask {
            Ask::Key(key) => Self::Key(key.into_bytes(), map::Get::new()),
            Ask::Index(index) => Self::Index(list::Walk::from(Tree::TOP, index)),
            Ask::Range { start, end, max_segments } => Self::Range(list::Range::new(start, end, max_segments)),
            Ask::Scan(window, limit) => Self::Scan(scan::Scan::new(window, limit)),
            Ask::ChangeMap(changes) => Self::ChangeMap(map::Apply::new(changes)),
            Ask::ChangeList(changes) => Self::ChangeList(list::Apply::new(changes)),
        }
    }
}

/// A query, and how far it is.
#[derive(Debug)]
pub(crate) enum Task {
    Key(Vec<u8>, map::Get),
    Index(list::Walk),
    Range(list::Range),
    Scan(scan::Scan),
    ChangeMap(map::Apply),
    ChangeList(list::Apply),
}

impl Task {
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
pub struct Changed {
    pub top: NodeId,
    pub sum: Summary,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Key(Option<Cid>),
    Element(Element),
    Span(Span),
    Listing(Listing),
    Changed(Changed),
}

/// A query on one tree, on its way.
pub struct Query {
    root: RootCid,
    way: Way,
    /// Nodes that the last run left of its budget.
    budget_left: u64,
    answer: Option<Answer>,
}

/// How a query meets its tree: one that asks for a single leaf walks on the pages, any other visits a tree.
enum Way {
    Walk(Trail<Arc<Page>>, Supply, Leaf),
    Visit(Box<(Tree, Task)>),
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
    pub fn open(root: &RootCid, source: Arc<dyn NodeSource>, ask: Ask) -> Self {
        let walk = |leaf, source| Way::Walk(Trail::new(root.kind, root.suite, None), Supply::from(source), leaf);
        let way = match ask {
            Ask::Key(key) => walk(Leaf::Key(key.into_bytes()), source),
            Ask::Index(index) => walk(Leaf::Index(list::ToIndex(index)), source),
            ask => Way::Visit(Box::new((Tree::open(root, source), ask.into()))),
        };
        Self { root: *root, way, budget_left: 0, answer: None }
    }

    /// A query that visits its tree, whatever it asks.
    #[cfg(test)]
    pub fn visiting(root: &RootCid, source: Arc<dyn NodeSource>, ask: Ask) -> Self {
        let way = Way::Visit(Box::new((Tree::open(root, source), ask.into())));
        Self { root: *root, way, budget_left: 0, answer: None }
    }

    /// Goes on as far as it can, visiting at most `budget` nodes.
    pub fn run(&mut self, budget: u64) -> Result<Progress> {
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
    pub fn budget_left(&self) -> u64 {
        self.budget_left
    }

    /// The pages of the changed tree that are not stored yet.
    pub fn new_pages(&mut self, top: NodeId) -> Result<std::result::Result<Vec<Arc<Page>>, Progress>> {
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
    pub fn supply(&mut self, pages: Vec<Arc<Page>>) {
        self.way.supply().add(pages);
    }

    pub fn root(&self) -> &RootCid {
        &self.root
    }

    /// The answer, once [`Progress::Done`] was said.
    pub fn answer(&mut self) -> Option<Answer> {
        self.answer.take()
    }

    /// The proof of the answer.
    pub fn proof(&self) -> Vec<u8> {
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
