//! The class `Operation`: everything that runs on stored trees, and what it waits for.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use coregw_core as core;
use coregw_folders::parallel::{self, Cores};
use coregw_ops as ops;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cid::CidLike;
use crate::convert::{BytesLike, Items};
use crate::detach::{self, MAX_ATTACHED_NODES, Work};
use crate::engine::batch::batch_exception;
use crate::engine::cache::{PageCache, root_bytes, root_of};
use crate::engine::car::CarReader;
use crate::engine::need::Polled;
use crate::errors::call;
use crate::results;
use crate::sorting::ArcSorter;

/// A root, and what is looked for in its tree.
type Lookahead<'py> = (Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>);

/// A query, batch, diff, mutation, import or export on stored trees. Does no I/O.
///
/// Call `poll` until it returns the response; in between, meet the need that it returns.
#[pyclass(module = "coregw._core")]
pub struct Operation {
    // `Mutex` makes the future `Sync`; with `&mut self` it is never locked.
    operation: Mutex<ops::Operation>,
    /// Whether its first nodes are visited with the GIL held, since it mostly finds all in the cache and ends there.
    starts_attached: bool,
    /// The store's time when its first pages were put without a root record; the driver sets it.
    #[pyo3(get, set)]
    since: Option<u64>,
    /// The time that `poll` has taken so far, without waiting for the GIL.
    busy: Duration,
}

impl Operation {
    fn new(operation: ops::Operation, starts_attached: bool) -> Self {
        Self { operation: Mutex::new(operation), starts_attached, since: None, busy: Duration::ZERO }
    }

    /// The operation that `start` makes of a request in JSON.
    fn query(
        py: Python<'_>,
        cache: &PageCache,
        request: &[u8],
        start: impl FnOnce(Arc<core::PageCache>) -> core::Result<ops::Operation> + Send,
    ) -> PyResult<Self> {
        let cache = Arc::clone(&cache.0);
        let work = Work::Json { bytes: request.len() };
        let operation = detach::run(py, work, || start(cache))?;
        Ok(Self::new(operation, !work.is_long()))
    }

    fn poll_for<'py>(&mut self, py: Python<'py>, budget: u64, most: Duration) -> PyResult<Polled<'py>> {
        let mut detached_budget = budget;
        if self.starts_attached {
            let began = Instant::now();
            let operation = self.operation();
            let progress = call(|| operation.poll(budget.min(MAX_ATTACHED_NODES)))?;
            self.busy += began.elapsed();
            // What is longer than this stays detached: the rest of its work may come all at once.
            self.starts_attached = !is_spent(&progress);
            detached_budget = budget.saturating_sub(MAX_ATTACHED_NODES);
            if self.starts_attached || (detached_budget == 0 && most.is_zero()) {
                return Ok(Polled::of(py, progress));
            }
        }
        let operation = self.operation();
        let task = || {
            let began = Instant::now();
            let mut progress = operation.poll(detached_budget)?;
            while is_spent(&progress) && began.elapsed() < most {
                progress = operation.poll(budget)?;
            }
            Ok((progress, began.elapsed()))
        };
        // The time until the GIL is free again is not the operation's.
        let (progress, took) = detach::run(py, Work::Unbounded, task)?;
        self.busy += took;
        Ok(Polled::of(py, progress))
    }

    fn operation(&mut self) -> &mut ops::Operation {
        self.operation.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Operation {
    /// What it will look for in the trees of roots for which it waits, as far as it knows: for each such root (a binary
    /// CID) the keys, as bytes, or where a listing begins. Pages on the paths to them may be read early.
    #[getter]
    fn lookahead<'py>(&mut self, py: Python<'py>) -> Vec<Lookahead<'py>> {
        let keys = |keys: &[Vec<u8>]| keys.iter().map(|key| PyBytes::new(py, key)).collect();
        self.operation().lookahead().iter().map(|each| (root_bytes(py, &each.root), keys(&each.keys))).collect()
    }

    /// Return an operation for a `core.resolve` request. Its response is the result.
    ///
    /// Raises:
    ///     InvalidInput: If the request is malformed.
    #[staticmethod]
    fn resolve(py: Python<'_>, cache: &PageCache, request: BytesLike) -> PyResult<Self> {
        Self::query(py, cache, &request, |cache| ops::Operation::resolve(cache, &request))
    }

    /// Return an operation for a `core.read` request. Its response is the result.
    ///
    /// Raises:
    ///     InvalidInput: If the request is malformed.
    #[staticmethod]
    fn read(py: Python<'_>, cache: &PageCache, request: BytesLike) -> PyResult<Self> {
        Self::query(py, cache, &request, |cache| ops::Operation::read(cache, &request))
    }

    /// Return an operation for a `core.map-proof` request. Its response is the result, or the proof alone.
    ///
    /// Args:
    ///     cache: The page cache.
    ///     request: The request, as JSON.
    ///     bare: Whether the response is the bytes of the proof, and nothing else.
    ///
    /// Raises:
    ///     InvalidInput: If the request is malformed.
    #[staticmethod]
    #[pyo3(signature = (cache, request, *, bare = false))]
    fn map_proof(py: Python<'_>, cache: &PageCache, request: BytesLike, bare: bool) -> PyResult<Self> {
        let form = if bare { ops::MapProofForm::Proof } else { ops::MapProofForm::Result };
        Self::query(py, cache, &request, |cache| ops::Operation::map_proof(cache, &request, form))
    }

    /// Return an operation for a `core.scan` request. Its response is the result.
    ///
    /// Raises:
    ///     InvalidInput: If the request is malformed.
    #[staticmethod]
    fn scan(py: Python<'_>, cache: &PageCache, request: BytesLike) -> PyResult<Self> {
        Self::query(py, cache, &request, |cache| ops::Operation::scan(cache, &request))
    }

    /// Return an operation for one page of the differences between two maps of one suite (docs/protocol.md, *diff*).
    ///
    /// Raises:
    ///     InvalidInput: If a CID is not the root of a map, the suites differ, a path is invalid, or `limit` is not
    ///         from 1 to 1000.
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
        let request = results::diff_request(&a, &b, prefix, after, limit)?;
        Ok(Self::new(ops::Operation::diff(Arc::clone(&cache.0), request), true))
    }

    /// Return an operation that answers the body of `POST /v1/resolve/batch`: many paths of one root, on all cores.
    ///
    /// Its response is `{"results": [{"result": ...} or {"error": ...}, ...]}`: each outcome is what a resolve of that
    /// path alone would have answered. A limit of nodes (`limit_nodes`) is for all paths together.
    ///
    /// Args:
    ///     cache: The page cache.
    ///     request: The body.
    ///     max_bytes: Bound of all outcomes together, in bytes.
    ///
    /// Raises:
    ///     InvalidInput: If the request is malformed. If a path is invalid, `details` is `{"index": ...}`.
    ///     TooLarge: If there are more than 1,000 paths.
    #[staticmethod]
    fn resolve_batch(py: Python<'_>, cache: &PageCache, request: BytesLike, max_bytes: usize) -> PyResult<Self> {
        let cache = Arc::clone(&cache.0);
        let start = || Ok(ops::Operation::resolve_batch(cache, &request, max_bytes, for_each));
        let started = detach::run(py, Work::Json { bytes: request.len() }, start)?;
        let operation = started.map_err(|error| batch_exception(py, error))?;
        Ok(Self::new(operation, request.len() <= MAX_ATTACHED_BATCH_BYTES))
    }

    /// Return an operation that makes and stores a map, from the body of `POST /v1/roots`. O(n log n).
    ///
    /// Its response is `{"root": ...}`.
    ///
    /// Raises:
    ///     InvalidInput: If the request is malformed; the message names the arc.
    #[staticmethod]
    fn create_root(py: Python<'_>, cache: &PageCache, request: BytesLike) -> PyResult<Self> {
        let cache = Arc::clone(&cache.0);
        let work = Work::JsonArcs { bytes: request.len() };
        let operation = detach::run(py, work, || ops::Operation::create_root(cache, &request, &Cores))?;
        Ok(Self::new(operation, false))
    }

    /// Return an operation that makes and stores the map of arcs that are sorted, page by page. O(n) hashing.
    ///
    /// Its response is `{"root": ...}`. Its root is recorded at the end: if it raises `InvalidInput`, naming a path
    /// that two arcs have, only pages are stored, which are garbage.
    ///
    /// Raises:
    ///     InvalidInput: If the arcs have not ended, or `suite` is unknown.
    #[staticmethod]
    fn build_root(cache: &PageCache, arcs: &ArcSorter, suite: &str) -> PyResult<Self> {
        let suite = call(|| core::Suite::from_name(suite))?;
        let reader = Box::new(arcs.reader()?);
        Ok(Self::new(ops::Operation::build_root(Arc::clone(&cache.0), suite, reader), false))
    }

    /// Return an operation that applies the body of `POST /v1/roots/{root}/mutations`, and stores the results.
    ///
    /// Its response is the receipt. If it raises `Conflict` or `InvalidInput`, naming the delta and the coordinate, it
    /// has stored no root.
    ///
    /// Raises:
    ///     InvalidInput: If the request is malformed, or `base_root` is a payload.
    #[staticmethod]
    fn mutate(py: Python<'_>, cache: &PageCache, base_root: CidLike, request: BytesLike) -> PyResult<Self> {
        let cache = Arc::clone(&cache.0);
        let work = Work::JsonArcs { bytes: request.len() };
        let operation = detach::run(py, work, || ops::Operation::mutate(cache, &base_root.0, &request))?;
        Ok(Self::new(operation, false))
    }

    /// Return an operation that outputs a root as CARv1, about `output_bytes` at a time. Its response is empty.
    ///
    /// With `after`, it outputs the header and the blocks that follow the one with this CID, or, if the CID occurs
    /// repeatedly, that occurrence of it. If there is none, it raises `InvalidInput` before it outputs anything.
    ///
    /// Raises:
    ///     InvalidInput: If the CID is not a root.
    #[staticmethod]
    #[pyo3(signature = (cache, root, with_payloads, output_bytes, after = None, occurrence = 1))]
    fn export_car(
        cache: &PageCache,
        root: CidLike,
        with_payloads: bool,
        output_bytes: usize,
        after: Option<CidLike>,
        occurrence: u64,
    ) -> PyResult<Self> {
        let root = root_of(&root)?;
        let cache = Arc::clone(&cache.0);
        let after = after.map(|cid| ops::car::BlockPlace { cid: cid.0, occurrence });
        Ok(Self::new(ops::Operation::export_car(cache, root, with_payloads, after, output_bytes), false))
    }

    /// Return an operation that visits the tree of a held root, and those of the roots nested in it.
    ///
    /// It outputs the payloads that they name, without bytes, and without those below `complete`, a root that is held
    /// completely. Its response is the CID of a nested root that is not held completely, or empty.
    ///
    /// Raises:
    ///     InvalidInput: If the CID is not a root.
    #[staticmethod]
    #[pyo3(signature = (cache, root, complete = None))]
    fn check_complete(cache: &PageCache, root: CidLike, complete: Option<CidLike>) -> PyResult<Self> {
        let (root, complete) = (root_of(&root)?, complete.as_ref().map(root_of).transpose()?);
        Ok(Self::new(ops::Operation::check_complete(Arc::clone(&cache.0), root, complete), false))
    }

    /// Return an operation that stores the CAR whose bytes `reader` has read; the reader starts over.
    ///
    /// Its response is `{"roots": [...], "blocks": ..., "bytes": ...}`. If it raises `InvalidInput`, naming the block,
    /// since the CAR is truncated or its nodes do not form whole trees, it has stored nothing.
    #[staticmethod]
    fn import_car(cache: &PageCache, reader: &mut CarReader) -> Self {
        Self::new(ops::Operation::import_car(Arc::clone(&cache.0), reader.take()), false)
    }

    /// Return an operation that checks the CAR whose bytes `reader` has read; the reader starts over.
    ///
    /// Its response is `{"roots": [...], "missing_payloads": ..., "missing_roots": ...}`: the roots whose trees are
    /// whole, and the numbers of leaves whose payload or nested root is not in the CAR. It raises as an import does.
    #[staticmethod]
    fn check_car(reader: &mut CarReader) -> Self {
        Self::new(ops::Operation::check_car(reader.take()), false)
    }

    /// Return an operation that checks a CAR as `check_car` does, and then lists the leaves of each tree as lines.
    ///
    /// The lines are `["path", "CID"]` of a map and `["CID", measure]` of a list. Trees nested in others come first,
    /// those of the header last. A list of a CAR can have 2^50 elements: drop the operation when there are too many.
    #[staticmethod]
    fn list_car(reader: &mut CarReader) -> Self {
        Self::new(ops::Operation::list_car(reader.take()), false)
    }

    /// Let the operation visit at most `nodes` nodes in all; beyond that, `poll` raises `TooLarge`.
    ///
    /// Writing 64 bytes of a response counts as one node, and starting a lookup of a resolve as 32. No limit is set
    /// without this call.
    fn limit_nodes(&mut self, nodes: u64) {
        self.operation().limit_nodes(nodes);
    }

    /// Run until the operation ends or waits: the response body, or the need.
    ///
    /// Args:
    ///     budget: Approximate number of nodes to visit before `Need.budget`.
    ///     seconds: Instead of returning `Need.budget`, go on with a new budget until this time is over.
    ///
    /// Raises:
    ///     RootNotFound: If a root is not held.
    ///     PathNotFound: If a path does not resolve; for a read, `details` has the prooflist of the proven absence.
    ///     IndexNotFound: If a list is shorter; `details` as for `PathNotFound`.
    ///     TooLarge: If a limit is exceeded.
    ///     Conflict: If a change does not fit.
    ///     StoreDamaged: If stored trees are damaged.
    #[pyo3(signature = (budget, seconds = 0.0))]
    fn poll<'py>(&mut self, py: Python<'py>, budget: u64, seconds: f64) -> PyResult<Polled<'py>> {
        self.poll_for(py, budget, Duration::try_from_secs_f64(seconds).unwrap_or_default())
    }

    /// The time that `poll` has taken so far, in seconds, without waiting for the GIL.
    #[getter]
    fn busy_seconds(&self) -> f64 {
        self.busy.as_secs_f64()
    }

    /// The memory of what the operation holds, in bytes: the nodes that its current query has visited and made, the arcs
    /// of a new map and the pages that are made of them, or the index of a CAR.
    #[getter]
    fn held_bytes(&mut self) -> usize {
        self.operation().held_bytes()
    }

    /// Supply the pages of the need, in its order; None is a page that the store does not have.
    ///
    /// Raises:
    ///     StoreDamaged: If a page is None or does not have its digest; the message names it.
    fn supply_pages(&mut self, py: Python<'_>, pages: Items<Option<BytesLike>>) -> PyResult<()> {
        let bytes: Vec<Option<&[u8]>> = pages.0.iter().map(Option::as_deref).collect();
        let operation = self.operation();
        detach::run(py, Work::Pages { count: bytes.len() }, || {
            operation.check_page_count(bytes.len())?;
            let wanted: Vec<_> = operation.wanted_pages().iter().zip(&bytes).collect();
            let pages = parallel::map(&wanted, |(page, bytes)| page.parse(**bytes));
            operation.supply_pages(pages.into_iter().collect::<core::Result<_>>()?)
        })
    }

    /// Supply whether the store has a record of each root of the need, in its order.
    fn supply_roots(&mut self, held: Items<bool>) -> PyResult<()> {
        call(|| self.operation().supply_roots(held.0))
    }

    /// Supply the bytes of the need's span.
    fn supply_bytes(&mut self, data: BytesLike) -> PyResult<()> {
        call(|| self.operation().supply_bytes(data.to_vec()))
    }
}

fn is_spent(progress: &ops::Progress) -> bool {
    *progress == ops::Progress::Needs(ops::Need::Budget)
}

/// Spreads the paths of a batch over all cores.
pub fn for_each(count: usize, work: &(dyn Fn(usize) + Sync)) {
    let indices: Vec<usize> = (0..count).collect();
    parallel::map(&indices, |&index| work(index));
}

/// A larger batch of resolves is polled with the GIL released from the start: its paths are more than a few.
const MAX_ATTACHED_BATCH_BYTES: usize = 256;
