//! Operations on stored trees: from request JSON to response JSON, saying what they need on the way.
//!
//! An [`Operation`] does no I/O. `run` it until it needs nothing; supply pages and say which roots are held in
//! between. Building and changing trees is in `writes`.

use std::sync::Arc;

use crate::diffing::{DiffRequest, Diffing};
use crate::prooflist::{MapProof, Read, Resolve, Scan};
use crate::question::Question;
use crate::resolving::{Outcome, Resolving};
use coregw_core::Digest;
use coregw_core::RootCid;
use coregw_core::internals::prove::{Progress, Query};
use coregw_core::{Error, Missing, Result};
use coregw_core::{NodeSource, Page, PageCache};

/// What an operation waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// These pages, in this order.
    Pages(Vec<Digest>),
    /// Whether the store has a record of each of these roots, in this order.
    Roots(Vec<RootCid>),
    /// Another `run`: the budget of nodes is spent.
    Budget,
}

/// A query on one tree that reads what it is supplied with into a cache.
pub(crate) struct Reading {
    cache: Arc<PageCache>,
    query: Query,
    wanted: Vec<Digest>,
}

impl Reading {
    pub(crate) fn open(
        cache: &Arc<PageCache>,
        source: Arc<dyn NodeSource>,
        root: &RootCid,
        ask: coregw_core::internals::prove::Ask,
    ) -> Self {
        Self { cache: Arc::clone(cache), query: Query::open(root, source, ask), wanted: Vec::new() }
    }

    pub(crate) fn run(&mut self, budget: u64) -> Result<Option<Need>> {
        let progress = self.query.run(budget)?;
        Ok(self.need(progress))
    }

    pub(crate) fn need(&mut self, progress: Progress) -> Option<Need> {
        match progress {
            Progress::Done => None,
            Progress::Budget => Some(Need::Budget),
            Progress::Pages(digests) => {
                self.wanted.clone_from(&digests);
                Some(Need::Pages(digests))
            }
        }
    }

    pub(crate) fn query(&mut self) -> &mut Query {
        &mut self.query
    }

    /// Takes the pages of the last need, in its order.
    pub(crate) fn supply<B: AsRef<[u8]>>(&mut self, pages: &[Option<B>]) -> Result<()> {
        let wanted = std::mem::take(&mut self.wanted);
        let pages = Page::parse_all(&self.cache, &self.query.root().clone(), &wanted, pages)?;
        self.query.supply(pages);
        Ok(())
    }
}

/// A query on stored trees, on its way from request to response.
pub struct Operation {
    cache: Arc<PageCache>,
    task: Task,
    reading: Option<Reading>,
    done: Option<Result<String>>,
}

enum Task {
    Read(Single<Read>),
    MapProof(Single<MapProof>),
    Scan(Single<Scan>),
    Resolve(Box<Resolving>),
    Diff(Box<Diffing>),
}

/// An operation with one question.
struct Single<T> {
    request: T,
    held: Option<bool>,
}

impl<T> Single<T> {
    fn new(request: T) -> Self {
        Self { request, held: None }
    }
}

impl Operation {
    fn new(cache: Arc<PageCache>, task: Task) -> Self {
        Self { cache, task, reading: None, done: None }
    }

    /// `core.resolve`: at most `max_lookups` arcs are looked up, the longest first.
    ///
    /// # Errors
    /// [`Error::Input`] for a request that is none.
    pub fn resolve(cache: Arc<PageCache>, request: &[u8], max_lookups: usize) -> Result<Self> {
        let request = Resolve::parse(request)?;
        Ok(Self::new(cache, Task::Resolve(Box::new(Resolving::new(request, max_lookups)))))
    }

    /// `core.read`.
    ///
    /// # Errors
    /// [`Error::Input`] for a request that is none.
    pub fn read(cache: Arc<PageCache>, request: &[u8]) -> Result<Self> {
        Ok(Self::new(cache, Task::Read(Single::new(Read::parse(request)?))))
    }

    /// `core.map-proof`.
    ///
    /// # Errors
    /// [`Error::Input`] for a request that is none.
    pub fn map_proof(cache: Arc<PageCache>, request: &[u8]) -> Result<Self> {
        Ok(Self::new(cache, Task::MapProof(Single::new(MapProof::parse(request)?))))
    }

    /// `core.scan`.
    ///
    /// # Errors
    /// [`Error::Input`] for a request that is none.
    pub fn scan(cache: Arc<PageCache>, request: &[u8]) -> Result<Self> {
        Ok(Self::new(cache, Task::Scan(Single::new(Scan::parse(request)?))))
    }

    /// The diff of two maps.
    pub fn diff(cache: Arc<PageCache>, request: DiffRequest) -> Self {
        Self::new(cache, Task::Diff(Box::new(Diffing::new(request))))
    }

    /// Goes on as far as it can, visiting some `budget` nodes at most. None: [`Operation::result`] is ready.
    ///
    /// # Errors
    /// [`Error::Damaged`] if stored trees are not what they must be.
    pub fn run(&mut self, budget: u64) -> Result<Option<Need>> {
        if self.done.is_some() {
            return Ok(None);
        }
        if let Task::Resolve(resolving) = &mut self.task {
            let outcome = resolving.run(&self.cache, budget)?;
            return Ok(match outcome {
                Outcome::Needs(need) => Some(need),
                Outcome::Result(result) => {
                    self.done = Some(result);
                    None
                }
            });
        }
        if let Task::Diff(diffing) = &mut self.task {
            return match diffing.run(&self.cache, budget) {
                Ok(Err(need)) => Ok(Some(need)),
                Ok(Ok(response)) => {
                    self.done = Some(Ok(response));
                    Ok(None)
                }
                Err(error) => Err(error),
            };
        }
        let (root, question, held) = match &self.task {
            Task::Read(one) => (&one.request.root, &one.request.question, one.held),
            Task::MapProof(one) => (&one.request.root, &one.request.question, one.held),
            Task::Scan(one) => (&one.request.root, &one.request.question, one.held),
            Task::Resolve(_) | Task::Diff(_) => return Ok(None),
        };
        match held.or_else(|| self.cache.is_held(root)) {
            None => return Ok(Some(Need::Roots(vec![*root]))),
            Some(false) => {
                self.done = Some(Err(not_held(root)));
                return Ok(None);
            }
            Some(true) => {}
        }
        let reading = match &mut self.reading {
            Some(reading) => reading,
            none => {
                let source = Arc::clone(&self.cache) as Arc<dyn NodeSource>;
                none.insert(Reading::open(&self.cache, source, root, question.ask()?))
            }
        };
        if let Some(need) = reading.run(budget)? {
            return Ok(Some(need));
        }
        let answer = reading.query().answer().ok_or_else(|| Error::damaged("a query ended without an answer"))?;
        let proof = reading.query().proof();
        self.done = Some(match &self.task {
            Task::Read(one) => one.request.result(&answer, proof).map_err(|details| absent(&one.request, details)),
            Task::MapProof(one) => Ok(one.request.result(&answer, proof)),
            Task::Scan(one) => Ok(one.request.result(&answer, proof)),
            Task::Resolve(_) | Task::Diff(_) => Ok(String::new()),
        });
        Ok(None)
    }

    /// Takes the pages of the last need, in its order; None is a page that the store does not have.
    ///
    /// # Errors
    /// [`Error::Damaged`], naming the page, if one is missing or not what its digest says.
    pub fn supply_pages<B: AsRef<[u8]>>(&mut self, pages: &[Option<B>]) -> Result<()> {
        let reading = match &mut self.task {
            Task::Diff(diffing) => return diffing.supply_pages(&self.cache, pages),
            Task::Resolve(resolving) => resolving.reading.as_mut(),
            _ => self.reading.as_mut(),
        };
        reading.ok_or_else(|| Error::request("no pages were asked for"))?.supply(pages)
    }

    /// Takes the answers to the last need, in its order.
    ///
    /// # Errors
    /// [`Error::Input`] if none were asked for.
    pub fn supply_roots(&mut self, held: &[bool]) -> Result<()> {
        if let Task::Diff(diffing) = &mut self.task {
            return diffing.supply_roots(held);
        }
        let &[held] = held else {
            return Err(Error::request("one root was asked for"));
        };
        match &mut self.task {
            Task::Read(one) => one.held = Some(held),
            Task::MapProof(one) => one.held = Some(held),
            Task::Scan(one) => one.held = Some(held),
            Task::Resolve(resolving) => resolving.held = Some(held),
            Task::Diff(_) => {}
        }
        Ok(())
    }

    /// The response body, once [`Operation::run`] gave None.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a root that is not held, and for what is absent: then with the details that prove it.
    pub fn result(&self) -> Result<&str> {
        match &self.done {
            Some(Ok(body)) => Ok(body),
            Some(Err(error)) => Err(error.clone()),
            None => Err(Error::request("the operation has not ended")),
        }
    }
}

pub(crate) fn not_held(root: &RootCid) -> Error {
    let what = format!("the store has no root {root}");
    Error::NotFound { missing: Missing::Root, what, details: None }
}

fn absent(request: &Read, details: String) -> Error {
    let details = Some(details);
    match &request.question {
        Question::Index(index) => {
            let what = format!("the list {} has no index {index}", request.root);
            Error::NotFound { missing: Missing::Index, what, details }
        }
        question => {
            let what = format!("the map {} has no key {:?}", request.root, question.text());
            Error::NotFound { missing: Missing::Path, what, details }
        }
    }
}
