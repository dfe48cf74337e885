//! Batches of payloads: their requests.

use coregw_core as core;
use coregw_ops::BatchError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cid::Cid;
use crate::convert::BytesLike;
use crate::detach::{self, Work};
use crate::errors::exception;

/// Read a JSON body of ``POST /v1/cas/has``, and return the CIDs that it names. O(bytes).
///
/// Args:
///     body: The JSON text.
///
/// Raises:
///     InvalidInput: If the request is malformed. If a CID is invalid, the message names it, and `details` is
///         ``{"index": ...}``.
///     TooLarge: If there are more than 4,096 CIDs.
#[pyfunction]
pub fn read_has_batch(py: Python<'_>, body: BytesLike) -> PyResult<Vec<Cid>> {
    named(py, body, coregw_ops::read_has_batch)
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
    named(py, body, coregw_ops::read_get_batch)
}

/// Read a body of ``POST /v1/pages/car``, and return the digests that it names. O(bytes).
///
/// Args:
///     body: The JSON text.
///
/// Raises:
///     InvalidInput: If the request is malformed. If something is not a digest, the message names it, and `details` is
///         ``{"index": ...}``.
///     TooLarge: If there are more than 1,024 digests.
#[pyfunction]
pub fn read_get_pages<'py>(py: Python<'py>, body: BytesLike) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let read = detach::run(py, Work::Json { bytes: body.len() }, || Ok(coregw_ops::read_get_pages(&body)))?;
    read.map(|digests| digests.iter().map(|digest| PyBytes::new(py, &digest.0)).collect())
        .map_err(|refused| batch_exception(py, refused))
}

fn named(py: Python<'_>, body: BytesLike, read: fn(&[u8]) -> Result<Vec<core::Cid>, BatchError>) -> PyResult<Vec<Cid>> {
    let cids = detach::run(py, Work::Json { bytes: body.len() }, || Ok(read(&body)))?;
    cids.map(|cids| cids.into_iter().map(Cid).collect()).map_err(|refused| batch_exception(py, refused))
}

/// Read a binary body of ``POST /v1/cas/has``, and return the multihashes of its CIDs. O(bytes).
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
