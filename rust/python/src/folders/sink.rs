//! `PayloadSink`: takes the answer to one request of a `FolderWriter`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyString;

use super::batch::PlannedPayload;
use super::lane::{self, Lane};
use super::writing::Writing;
use crate::cid::text;
use crate::convert::BytesLike;

/// Takes the answers to one request of a `FolderWriter`: a CAR with the payloads that `cids` names.
///
/// After an answer that was truncated, the rest of the payload in which it ended may follow (`continued`), then another
/// CAR (`restart`).
#[pyclass(frozen, module = "coregw._core")]
pub struct PayloadSink {
    lane: Arc<Lane>,
    work: Arc<Writing>,
}

impl PayloadSink {
    /// The sink of the payloads that `lane` takes for a writer.
    pub(super) fn new(lane: Lane, work: Arc<Writing>) -> Self {
        Self { lane: Arc::new(lane), work }
    }
}

#[pymethods]
impl PayloadSink {
    /// The CIDs to request, in this order.
    #[getter]
    fn cids<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyString>> {
        let asked = py.detach(|| self.lane.asked());
        asked.iter().map(|payload| text(py, &payload.cid())).collect()
    }

    /// The sum of the sizes of the payloads to request; None if one of them is not known.
    #[getter]
    fn size(&self, py: Python<'_>) -> Option<u64> {
        let sum = |sum: u64, payload: &PlannedPayload| Some(sum.saturating_add(payload.size()?));
        py.detach(|| self.lane.asked().into_iter().try_fold(0, sum))
    }

    /// Number of bytes of payloads that have come and need not come again, as far as is known.
    #[getter]
    fn received(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.lane.received())
    }

    /// Take the next bytes of the answer: a thread parses, verifies and writes them. O(1).
    ///
    /// Waits, with the GIL released, while 32 MiB of all sinks wait for threads.
    ///
    /// Raises:
    ///     ProofError: If bytes that were taken before are not the requested payloads.
    ///     InvalidInput: If a path can't be made here, or a file's parts have other sizes; the message names the path.
    ///     OSError: If the system refuses something.
    fn write(&self, py: Python<'_>, chunk: BytesLike) -> PyResult<()> {
        self.writelines(py, vec![chunk])
    }

    /// Take the next bytes of the answer as several chunks. O(chunks). Waits and raises as `write`.
    fn writelines(&self, py: Python<'_>, chunks: Vec<BytesLike>) -> PyResult<()> {
        self.lane.push(chunks.into_iter().map(|chunk| chunk.0).collect(), &self.work);
        if self.work.is_full() {
            py.detach(|| self.work.wait_for_room());
        }
        self.work.raise(py)
    }

    /// Return the payload in which the last answer ended, and the byte from which on it is taken next.
    ///
    /// None if `restart` has to be called. What is written next is the rest of that payload, without a head. If it has
    /// another hash then, all of it is requested again.
    fn continued<'py>(&self, py: Python<'py>) -> Option<(Bound<'py, PyString>, u64)> {
        let (payload, start) = py.detach(|| self.lane.continued())?;
        Some((text(py, &payload.cid()), start))
    }

    /// Forget the part of the payload that `continued` has returned: its first byte is written next.
    fn restart_continued(&self, py: Python<'_>) {
        py.detach(|| self.lane.restart_continued());
    }

    /// Keep the payloads that are complete. The answer to a request for `cids`, the others, is written next.
    fn restart(&self, py: Python<'_>) {
        py.detach(|| self.lane.restart());
    }

    /// Wait until all that has been taken is written, and return the CIDs of the payloads that did not arrive.
    ///
    /// Raises:
    ///     ProofError, InvalidInput, OSError: As `write`. Also `ProofError` if the answer is not complete.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyString>>> {
        py.detach(|| {
            let finished = self.lane.finish(&self.work);
            if finished.is_err() {
                self.work.attempt(|| finished);
            }
        });
        self.work.raise(py)?;
        Ok(lane::missing(&self.lane).iter().map(|cid| text(py, cid)).collect())
    }
}
