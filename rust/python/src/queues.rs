//! The queues of what hot requests read from a store and write to it, as threads of Python see them.

use std::sync::Arc;

use core::{Digest, RootCid};
use coregw_core as core;
use coregw_front::reads::{Failure, Found, Reads, SMALL_PAYLOAD_BYTES};
use coregw_front::writes::{Writes, Written};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::{BytesLike, Items};
use crate::engine::cache::{PageCache, root_bytes};
use crate::engine::need::pairs;
use crate::errors::{guarded, refused};
use crate::tuples;

/// What hot requests read from a store: a queue, from which threads of the caller take batches.
///
/// Args:
///     cache: What is known about the store. Pages that are read are parsed, and put into it.
///     guided: Whether the store has guides, so that inner pages on the paths to keys can be read early.
///
/// >>> reads = StoreReads(PageCache(1 << 20))
/// >>> reads.close()
/// >>> reads.next() is None
/// True
#[pyclass(frozen, module = "coregw._core")]
pub struct StoreReads(pub(crate) Arc<Reads>);

/// A digest and a page.
type EarlyPage = (BytesLike, BytesLike);
/// The size of a payload, and its bytes if it is small.
type FoundPayload = (u64, Option<BytesLike>);

#[pymethods]
impl StoreReads {
    #[new]
    #[pyo3(signature = (cache, guided = false))]
    fn new(cache: &PageCache, guided: bool) -> Self {
        Self(Reads::new(Arc::clone(&cache.0), guided))
    }

    /// Payloads of at most so many bytes are read with their sizes.
    #[getter]
    fn small_payload_bytes(&self) -> u64 {
        SMALL_PAYLOAD_BYTES
    }

    /// Wait, with the GIL released, until something is to be read. For any number of threads.
    ///
    /// Returns:
    ///     A `ReadBatch`, which `supply` or `fail` answers; None when the queue was closed.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(batch) = py.detach(|| self.0.next()) else { return Ok(None) };
        let bytes = |each: &[u8]| PyBytes::new(py, each);
        let all = |names: &[Vec<u8>]| names.iter().map(|name| bytes(name)).collect::<Vec<_>>();
        let pages: Vec<_> = batch.pages.iter().map(|page| bytes(&page.0)).collect();
        let roots: Vec<_> = batch.roots.iter().map(|root| root_bytes(py, root)).collect();
        let descents: Vec<_> = batch.descents.iter().map(|(top, keys)| (bytes(&top.0), all(keys))).collect();
        let chunks: Vec<_> = batch.chunks.iter().map(|(name, range)| (bytes(name), range.start, range.end)).collect();
        let fields = (batch.id, pages, roots, descents, all(&batch.payloads), all(&batch.sizes), chunks);
        tuples::READ_BATCH.instance(py, fields).map(Some)
    }

    /// Answer a batch. O(bytes); pages are parsed with the GIL released. An unknown batch is ignored.
    ///
    /// Args:
    ///     batch: The id of the batch. All lists are in its order.
    ///     pages: Pages, None for one that is not stored.
    ///     roots: Whether each root is complete, None for one that is not held.
    ///     early: Digests and pages on the paths to the keys of the descents, in any order.
    ///     payloads: Sizes, with the bytes of small payloads; None for one that is not held.
    ///     sizes: Sizes; None for a payload that is not held.
    ///     chunks: The parts of payloads.
    ///
    /// Raises:
    ///     ValueError: If a digest does not have 32 bytes.
    #[allow(clippy::too_many_arguments, reason = "one for each list of a batch")]
    fn supply(
        &self,
        py: Python<'_>,
        batch: u64,
        pages: Items<Option<BytesLike>>,
        roots: Items<Option<bool>>,
        early: Items<EarlyPage>,
        payloads: Items<Option<FoundPayload>>,
        sizes: Items<Option<u64>>,
        chunks: Items<BytesLike>,
    ) -> PyResult<()> {
        let early = early.0.iter().map(|(digest, page)| Ok((digest_of(digest)?, page.to_vec())));
        let found = Found {
            pages: pages.0.iter().map(|page| page.as_deref().map(<[u8]>::to_vec)).collect(),
            roots: roots.0,
            early: early.collect::<PyResult<_>>()?,
            payloads: (payloads.0.iter())
                .map(|each| each.as_ref().map(|(size, bytes)| (*size, bytes.as_deref().map(<[u8]>::to_vec))))
                .collect(),
            sizes: sizes.0,
            chunks: chunks.0.iter().map(|chunk| chunk.to_vec()).collect(),
        };
        guarded(py, || self.0.supply(batch, Ok(found)))
    }

    /// Say why a batch was not read. An unknown batch is ignored.
    ///
    /// Args:
    ///     batch: The id of the batch.
    ///     kind: ``unavailable`` if the store does not answer, of which all requests of the batch learn; ``damaged`` or
    ///         ``not_found`` if something stored is, or a payload is not held any more; ``internal`` for a failure that
    ///         the caller has logged.
    ///     message: A sentence for clients, or for the log if something is damaged.
    ///
    /// Raises:
    ///     ValueError: If there is no such kind.
    fn fail(&self, py: Python<'_>, batch: u64, kind: &str, message: String) -> PyResult<()> {
        let failure = failure_of(kind, message)?;
        guarded(py, || self.0.supply(batch, Err(failure)))
    }

    /// End the queue: requests fail from now on, and `next` returns None. Idempotent.
    fn close(&self) {
        self.0.close();
    }

    /// How many batches were taken, and how many pages were read. O(1).
    #[getter]
    fn figures(&self) -> (u64, u64) {
        self.0.figures()
    }
}

/// Why a batch was not read or written.
fn failure_of(kind: &str, message: String) -> PyResult<Failure> {
    Ok(match kind {
        "unavailable" => Failure::Unavailable(message),
        "full" => Failure::Full(message),
        "damaged" => Failure::Damaged(message),
        "not_found" => Failure::NotFound(message),
        "internal" => Failure::Internal,
        _ => return Err(refused("kind", &kind)),
    })
}

/// Why a write has failed: the kind and the message of `StoreWrites.fail`.
type Reason = (String, String);

/// What became of new trees.
#[derive(FromPyObject)]
enum TreesOutcome {
    Failed(Reason),
    Stored(u64),
}

/// What became of a renewal.
#[derive(FromPyObject)]
enum RenewalOutcome {
    Failed(Reason),
    Held(Vec<bool>),
}

/// What hot requests write to a store: a queue, from which threads of the caller take batches.
///
/// Args:
///     chunks: Whether it takes payloads of more than 64 KiB; those of more than 1 MiB come in chunks.
///
/// >>> writes = StoreWrites()
/// >>> writes.close()
/// >>> writes.next() is None
/// True
#[pyclass(frozen, module = "coregw._core")]
pub struct StoreWrites(pub(crate) Arc<Writes>);

#[pymethods]
impl StoreWrites {
    #[new]
    #[pyo3(signature = (chunks = false))]
    fn new(chunks: bool) -> Self {
        Self(Writes::new(chunks))
    }

    /// Wait, with the GIL released, until something is to be written, and take all that waits, up to a size.
    ///
    /// Returns:
    ///     A `WriteBatch`, of which `done` or `fail` is told; None when the queue was closed.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(batch) = py.detach(|| self.0.next()) else { return Ok(None) };
        let payloads: Vec<_> =
            batch.payloads.iter().map(|(name, bytes)| (PyBytes::new(py, name), PyBytes::new(py, bytes))).collect();
        let all = |roots: &[RootCid]| roots.iter().map(|root| root_bytes(py, root)).collect::<Vec<_>>();
        let trees = batch.trees.iter().map(|each| {
            let (pages, differences) = (pairs(py, &each.pages), pairs(py, &each.differences));
            let (roots, requires) = (all(&each.roots), all(&each.requires));
            tuples::NEW_TREES.instance(py, (pages, differences, roots, requires, each.since))
        });
        let trees = trees.collect::<PyResult<Vec<_>>>()?;
        let renewals: Vec<_> = batch.renewals.iter().map(|roots| all(roots)).collect();
        let chunks = batch.chunks.iter().map(|chunk| {
            let ends = chunk.ends.as_deref().map(|name| PyBytes::new(py, name));
            tuples::PAYLOAD_CHUNK.instance(py, (chunk.upload, PyBytes::new(py, &chunk.bytes), ends))
        });
        let chunks = chunks.collect::<PyResult<Vec<_>>>()?;
        let fields = (batch.id, payloads, trees, renewals, chunks, batch.dropped);
        tuples::WRITE_BATCH.instance(py, fields).map(Some)
    }

    /// Say what became of a batch, when that is durable. An unknown batch is ignored.
    ///
    /// Args:
    ///     batch: The id of the batch. All lists are in its order; a write without an outcome has failed.
    ///     payloads: None for one that is stored; or why it is not, as the kind and the message of `fail`.
    ///     trees: The store's time; or why they are not stored, where ``not_found`` is a required root.
    ///     renewals: Which roots are held; or why that is not known.
    ///     chunks: As of payloads; of a last chunk, whether the payload is stored.
    ///
    /// Raises:
    ///     ValueError: If there is no such kind.
    fn done(
        &self,
        py: Python<'_>,
        batch: u64,
        payloads: Items<Option<Reason>>,
        trees: Items<TreesOutcome>,
        renewals: Items<RenewalOutcome>,
        chunks: Items<Option<Reason>>,
    ) -> PyResult<()> {
        let bytes = |reason: Option<Reason>| match reason {
            Some((kind, message)) => failure_of(&kind, message).map(Err),
            None => Ok(Ok(())),
        };
        let stored = |outcome| match outcome {
            TreesOutcome::Failed((kind, message)) => failure_of(&kind, message).map(Err),
            TreesOutcome::Stored(now) => Ok(Ok(now)),
        };
        let renewed = |outcome| match outcome {
            RenewalOutcome::Failed((kind, message)) => failure_of(&kind, message).map(Err),
            RenewalOutcome::Held(held) => Ok(Ok(held)),
        };
        let written = Written {
            payloads: payloads.0.into_iter().map(bytes).collect::<PyResult<_>>()?,
            chunks: chunks.0.into_iter().map(bytes).collect::<PyResult<_>>()?,
            trees: trees.0.into_iter().map(stored).collect::<PyResult<_>>()?,
            renewals: renewals.0.into_iter().map(renewed).collect::<PyResult<_>>()?,
        };
        guarded(py, || self.0.done(batch, Ok(written)))
    }

    /// Say why nothing of a batch is known to be written. An unknown batch is ignored.
    ///
    /// Args:
    ///     batch: The id of the batch.
    ///     kind: ``unavailable`` or ``full`` if the store takes nothing now; ``damaged`` if something stored is;
    ///         ``internal`` for a failure that the caller has logged.
    ///     message: A sentence for clients, or for the log if something is damaged.
    ///
    /// Raises:
    ///     ValueError: If there is no such kind.
    fn fail(&self, py: Python<'_>, batch: u64, kind: &str, message: String) -> PyResult<()> {
        let failure = failure_of(kind, message)?;
        guarded(py, || self.0.done(batch, Err(failure)))
    }

    /// End the queue: what waits fails, and `next` returns None. Idempotent.
    fn close(&self) {
        self.0.close();
    }
}

pub(crate) fn digest_of(bytes: &[u8]) -> PyResult<Digest> {
    bytes.try_into().map(Digest).map_err(|_| PyValueError::new_err("a digest has 32 bytes"))
}
