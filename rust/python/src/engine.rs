//! Operations on stored trees for a gateway: convert, let the interpreter go, call, convert.
//!
//! Small queries that find their pages in the cache run without letting go: that would cost more than they do.

use std::sync::Arc;

use coregw_core as core;
use coregw_ops as ops;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cid::CidLike;
use crate::convert::Items;
use crate::detach::{self, MAX_ATTACHED_NODES, Work};
use crate::errors::{call, invalid};
use crate::operations;

/// What is known of a store: parsed pages by digest, and roots that it holds. Shared by threads without the
/// interpreter's lock.
///
/// Args:
///     max_bytes: The bound of the pages, in bytes of memory.
///     max_roots: How many roots are remembered.
///
/// >>> cache = PageCache(1 << 20)
/// >>> len(cache), cache.max_bytes
/// (0, 1048576)
#[pyclass(frozen, module = "coregw._core")]
pub struct PageCache(pub Arc<core::PageCache>);

#[pymethods]
impl PageCache {
    #[new]
    #[pyo3(signature = (max_bytes, max_roots = 0))]
    fn new(max_bytes: u64, max_roots: usize) -> Self {
        Self(Arc::new(core::PageCache::new(max_bytes, max_roots)))
    }

    /// Notes that the store holds a root, given as binary CID; operations do not ask for it then. Raises
    /// `InvalidInput` for what is no root.
    fn remember(&self, root: CidLike) -> PyResult<()> {
        self.0.remember(known_root(&root)?);
        Ok(())
    }

    /// Whether the store is known to hold a root, given as binary CID. Raises `InvalidInput` for what is no root.
    fn is_held(&self, root: CidLike) -> PyResult<bool> {
        Ok(self.0.is_held(&known_root(&root)?).is_some())
    }

    /// The bound of the pages, in bytes.
    #[getter]
    fn max_bytes(&self) -> u64 {
        self.0.max_bytes()
    }

    /// Bytes of the pages held.
    #[getter]
    fn used_bytes(&self) -> u64 {
        self.0.used_bytes()
    }

    /// Look-ups that found their page, since the start.
    #[getter]
    fn hits(&self) -> u64 {
        self.0.hits()
    }

    /// Look-ups that did not find their page, since the start.
    #[getter]
    fn misses(&self) -> u64 {
        self.0.misses()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// What an `Operation` or `Mutation` waits for. Exactly one of `pages`, `roots`, `budget` is set.
#[pyclass(frozen, module = "coregw._core")]
pub struct Need(pub ops::Need);

#[pymethods]
impl Need {
    /// Digests (32 bytes each) of pages to fetch and give to `supply_pages` in this order, or None.
    #[getter]
    fn pages<'py>(&self, py: Python<'py>) -> Option<Vec<Bound<'py, PyBytes>>> {
        match &self.0 {
            ops::Need::Pages(digests) => Some(digests.iter().map(|digest| PyBytes::new(py, &digest.0)).collect()),
            _ => None,
        }
    }

    /// Binary root CIDs: say with `supply_roots` whether the store has a record of each in this order, or None.
    #[getter]
    fn roots<'py>(&self, py: Python<'py>) -> Option<Vec<Bound<'py, PyBytes>>> {
        match &self.0 {
            ops::Need::Roots(roots) => Some(roots.iter().map(|root| root_bytes(py, root)).collect()),
            _ => None,
        }
    }

    /// Whether the budget of nodes is spent: then call `run` again, best in a worker thread.
    #[getter]
    fn budget(&self) -> bool {
        matches!(self.0, ops::Need::Budget)
    }

    fn __repr__(&self) -> String {
        match &self.0 {
            ops::Need::Pages(digests) => format!("<Need {} pages>", digests.len()),
            ops::Need::Roots(roots) => format!("<Need {} roots>", roots.len()),
            ops::Need::Budget => "<Need budget>".to_owned(),
        }
    }
}

/// What a turn of work ends with.
#[derive(IntoPyObject)]
pub enum Turn<'py> {
    Ends(Bound<'py, PyBytes>),
    Needs(Need),
}

impl<'py> Turn<'py> {
    pub fn of(py: Python<'py>, turn: Result<String, ops::Need>) -> Self {
        match turn {
            Ok(body) => Self::Ends(PyBytes::new(py, body.as_bytes())),
            Err(need) => Self::Needs(Need(need)),
        }
    }
}

/// The root that a CID names. Raises `InvalidInput` for that of a payload.
pub fn known_root(cid: &CidLike) -> PyResult<core::RootCid> {
    cid.0.root().ok_or_else(|| invalid(core::InputCode::KindMismatch, format!("{} is a payload, not a root", cid.0)))
}

pub fn root_bytes<'py>(py: Python<'py>, root: &core::RootCid) -> Bound<'py, PyBytes> {
    PyBytes::new(py, root.cid().as_bytes())
}

/// Digests and bytes.
pub type Pages<'py> = Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>;

pub fn page_pairs(py: Python<'_>, pages: Vec<(core::Digest, Vec<u8>)>) -> Pages<'_> {
    pages.into_iter().map(|(digest, bytes)| (PyBytes::new(py, &digest.0), PyBytes::new(py, &bytes))).collect()
}

/// A query on stored trees, from request JSON to response JSON (protocol section 5). Does no I/O.
///
/// `run` until it returns the response, supplying what it needs. The first need is the record of the request's own
/// root, unless the cache remembers it or the path is empty.
#[pyclass(module = "coregw._core")]
pub struct Operation(ops::Operation);

#[pymethods]
impl Operation {
    /// A `core.resolve` request. Raises `InvalidInput` for a request that is none.
    #[staticmethod]
    #[pyo3(signature = (cache, request, max_lookups = 10_000))]
    fn resolve(cache: &PageCache, request: &[u8], max_lookups: usize) -> PyResult<Self> {
        call(|| ops::Operation::resolve(Arc::clone(&cache.0), request, max_lookups)).map(Self)
    }

    /// A `core.read` request. Raises `InvalidInput` for a request that is none.
    #[staticmethod]
    fn read(cache: &PageCache, request: &[u8]) -> PyResult<Self> {
        call(|| ops::Operation::read(Arc::clone(&cache.0), request)).map(Self)
    }

    /// A `core.map-proof` request. Raises `InvalidInput` for a request that is none.
    #[staticmethod]
    fn map_proof(cache: &PageCache, request: &[u8]) -> PyResult<Self> {
        call(|| ops::Operation::map_proof(Arc::clone(&cache.0), request)).map(Self)
    }

    /// A `core.scan` request. Raises `InvalidInput` for a request that is none.
    #[staticmethod]
    fn scan(cache: &PageCache, request: &[u8]) -> PyResult<Self> {
        call(|| ops::Operation::scan(Arc::clone(&cache.0), request)).map(Self)
    }

    /// The differences between two maps of one suite, a page of them (docs/protocol.md, *diff*).
    ///
    /// Its first need is the records of both roots. Raises `InvalidInput` for roots that are no maps of one suite, bad
    /// paths, or a limit that is not from 1 to 1000.
    #[staticmethod]
    #[pyo3(signature = (cache, a, b, prefix = None, after = None, limit = None))]
    fn diff(
        cache: &PageCache,
        a: CidLike,
        b: CidLike,
        prefix: Option<&Bound<'_, PyAny>>,
        after: Option<&Bound<'_, PyAny>>,
        limit: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let request = operations::diff_request(&a, &b, prefix, after, limit)?;
        call(|| Ok(Self(ops::Operation::diff(Arc::clone(&cache.0), request))))
    }

    /// Goes on as far as it can, visiting some `budget` nodes at most: the response body, or what it needs.
    ///
    /// Raises `RootNotFound`, `PathNotFound` or `IndexNotFound`, the last two of a read with the prooflist of the
    /// proven absence in `details`, or `TooLarge`.
    fn run<'py>(&mut self, py: Python<'py>, budget: u64) -> PyResult<Turn<'py>> {
        let mut need = call(|| self.0.run(budget.min(MAX_ATTACHED_NODES)))?;
        if need == Some(ops::Need::Budget) && budget > MAX_ATTACHED_NODES {
            need = detach::run(py, Work::Unbounded, || self.0.run(budget - MAX_ATTACHED_NODES))?;
        }
        match need {
            Some(need) => Ok(Turn::Needs(Need(need))),
            None => Ok(Turn::Ends(PyBytes::new(py, call(|| self.0.result())?.as_bytes()))),
        }
    }

    /// Takes the pages of the last need, in its order. Raises `StoreDamaged`, naming the page, for a page that is
    /// None or does not have its digest.
    fn supply_pages(&mut self, py: Python<'_>, pages: Items<Option<Bound<'_, PyBytes>>>) -> PyResult<()> {
        let bytes: Vec<Option<&[u8]>> = pages.0.iter().map(|page| page.as_ref().map(|page| page.as_bytes())).collect();
        detach::run(py, Work::Pages { count: bytes.len() }, || self.0.supply_pages(&bytes))
    }

    /// Says of each root of the last need whether the store has its record.
    fn supply_roots(&mut self, held: Items<bool>) -> PyResult<()> {
        call(|| self.0.supply_roots(&held.0))
    }
}

/// A new map, from the JSON body of `POST /v1/roots`: its root and the pages to store.
#[pyclass(module = "coregw._core")]
pub struct Build(ops::Build);

#[pymethods]
impl Build {
    /// Reads `{"arcs": {path: cid}, "suite"?}` and builds the map. O(n log n). Raises `InvalidInput` naming the arc.
    #[staticmethod]
    fn arcs(py: Python<'_>, request: &[u8]) -> PyResult<Self> {
        detach::run(py, Work::JsonArcs { bytes: request.len() }, || ops::Build::request(request)).map(Self)
    }

    /// The root CID.
    #[getter]
    fn root(&self) -> String {
        self.0.root().cid().text()
    }

    /// Number of arcs.
    #[getter]
    fn count(&self) -> u64 {
        self.0.count()
    }

    /// The next (digest, page) pairs, at most `max_bytes` in all but at least one; empty when none is left.
    fn next_pages<'py>(&mut self, py: Python<'py>, max_bytes: usize) -> PyResult<Pages<'py>> {
        let pages = detach::run(py, Work::Unbounded, || Ok(self.0.next_pages(max_bytes)))?;
        Ok(page_pairs(py, pages))
    }
}

/// The deltas of `POST /v1/roots/{root}/mutations` applied to stored trees. Runs like an `Operation`.
#[pyclass(module = "coregw._core")]
pub struct Mutation(ops::Mutation);

#[pymethods]
impl Mutation {
    #[new]
    fn new(py: Python<'_>, cache: &PageCache, base_root: CidLike, request: &[u8]) -> PyResult<Self> {
        let cache = Arc::clone(&cache.0);
        let base = base_root.0;
        detach::run(py, Work::JsonArcs { bytes: request.len() }, || ops::Mutation::new(cache, &base, request)).map(Self)
    }

    /// Goes on as far as it can: the receipt as JSON, or what it needs. Raises `Conflict` or `InvalidInput` naming
    /// delta and coordinate; then nothing is to be stored.
    fn run<'py>(&mut self, py: Python<'py>, budget: u64) -> PyResult<Turn<'py>> {
        let turn = detach::run(py, Work::Unbounded, || match self.0.run(budget)? {
            Some(need) => Ok(Err(need)),
            None => self.0.result().map(Ok),
        })?;
        Ok(Turn::of(py, turn))
    }

    /// Takes the pages of the last need, in its order. Raises `StoreDamaged`, naming the page, for a page that is
    /// None or does not have its digest.
    fn supply_pages(&mut self, py: Python<'_>, pages: Items<Option<Bound<'_, PyBytes>>>) -> PyResult<()> {
        let bytes: Vec<Option<&[u8]>> = pages.0.iter().map(|page| page.as_ref().map(|page| page.as_bytes())).collect();
        detach::run(py, Work::Unbounded, || self.0.supply_pages(&bytes))
    }

    /// Says of each root of the last need whether the store has its record.
    fn supply_roots(&mut self, held: Items<bool>) -> PyResult<()> {
        call(|| self.0.supply_roots(&held.0))
    }

    /// Binary CIDs of the results of all deltas: the root records to write after the pages.
    #[getter]
    fn roots<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        self.0.roots().iter().map(|root| root_bytes(py, root)).collect()
    }

    /// The next (digest, page) pairs, at most `max_bytes` in all but at least one; empty when none is left.
    fn next_pages<'py>(&mut self, py: Python<'py>, max_bytes: usize) -> PyResult<Pages<'py>> {
        let pages = detach::run(py, Work::Unbounded, || Ok(self.0.next_pages(max_bytes)))?;
        Ok(page_pairs(py, pages))
    }
}

/// The block that a root CID names: the encoding of the tree's top node (protocol sections 1 and 3).
///
/// Args:
///     root: A root CID.
///     page: The stored page of its digest.
///
/// Raises:
///     InvalidInput: The CID is no root.
///     StoreDamaged: The page is not the one with the root's digest.
#[pyfunction]
pub fn root_block<'py>(py: Python<'py>, root: CidLike, page: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let root = known_root(&root)?;
    let block = call(|| Ok(core::Page::parse(page, root.kind, root.suite, &root.digest)?.top_block()))?;
    Ok(PyBytes::new(py, &block))
}
