//! Batches of payloads: their requests.

use coregw_core as core;
use coregw_ops::{BatchError, CasBatch};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::cid::{Cid, text};
use crate::convert::BytesLike;
use crate::detach::{self, Work};
use crate::errors::exception;

/// Read a body of ``POST /v1/cas/batch``.
///
/// Returns whether to store its payloads (otherwise: to look them up), and the payloads. Each is ``(cid, multihash,
/// data)``; `data` is None if it is only looked up. O(bytes), all of them hashed.
///
/// Args:
///     body: The JSON text.
///     max_payload: Bound of one payload, in bytes.
///
/// Raises:
///     InvalidInput: If the request is malformed. If a block or CID is invalid, the message names it, and `details` is
///         ``{"index": ...}``.
///     TooLarge: If there are more than 4,096 blocks or CIDs, more than 64 MiB of data, or a larger payload.
#[pyfunction]
pub fn read_cas_batch<'py>(
    py: Python<'py>,
    body: BytesLike,
    max_payload: usize,
) -> PyResult<(bool, Vec<Payload<'py>>)> {
    let read = detach::run(py, Work::Json { bytes: body.len() }, || Ok(CasBatch::read(&body, max_payload)))?;
    let payload = |cid: core::Cid, data: Option<Vec<u8>>| {
        (text(py, &cid), PyBytes::new(py, cid.multihash()), data.map(|data| PyBytes::new(py, &data)))
    };
    Ok(match read.map_err(|refused| batch_exception(py, refused))? {
        CasBatch::Put(blocks) => (true, blocks.into_iter().map(|(cid, data)| payload(cid, Some(data))).collect()),
        CasBatch::Has(cids) => (false, cids.into_iter().map(|cid| payload(cid, None)).collect()),
    })
}

/// Read a body of ``POST /v1/cas/car``, and return the CIDs that it names. O(bytes).
///
/// Args:
///     body: The JSON text.
///
/// Raises:
///     InvalidInput: If the request is malformed. If a CID is invalid, or is a root, the message names it, and
///         `details` is ``{"index": ...}``.
///     TooLarge: If there are more than 4,096 CIDs.
#[pyfunction]
pub fn read_get_batch(py: Python<'_>, body: BytesLike) -> PyResult<Vec<Cid>> {
    let read = detach::run(py, Work::Json { bytes: body.len() }, || Ok(coregw_ops::read_get_batch(&body)))?;
    read.map(|cids| cids.into_iter().map(Cid).collect()).map_err(|refused| batch_exception(py, refused))
}

/// Read a body of ``POST /v1/cas/has``, and return the multihashes of its CIDs. O(bytes).
///
/// Args:
///     body: Binary CIDs, one after the other.
///
/// Raises:
///     InvalidInput: If something is not a CID. The message names it, and `details` is ``{"index": ...}``.
///     TooLarge: If there are more than 16,384 CIDs.
#[pyfunction]
pub fn read_cids<'py>(py: Python<'py>, body: BytesLike) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let read = detach::run(py, Work::Json { bytes: body.len() }, || Ok(coregw_ops::read_cids(&body)))?;
    read.map(|cids| cids.iter().map(|cid| PyBytes::new(py, cid.multihash())).collect())
        .map_err(|refused| batch_exception(py, refused))
}

/// A CID, its multihash, and the payload unless it is only looked up.
type Payload<'py> = (Bound<'py, PyString>, Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

/// The exception for a batch that is refused. Its `details` are the index of the invalid item.
pub fn batch_exception(py: Python<'_>, refused: BatchError) -> PyErr {
    let error = exception(refused.error);
    let Some(index) = refused.index else { return error };
    let details = PyBytes::new(py, format!("{{\"index\":{index}}}").as_bytes());
    match error.value(py).setattr("details", details) {
        Ok(()) => error,
        Err(other) => other,
    }
}
