//! Verification of whole results (protocol section 5), and the strict reading of JSON text.

use core::Cid;
use coregw_core as core;
use coregw_ops as ops;
use ops::json::Integers;
use ops::{MapProofOutcome, ReadOutcome};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::cid::CidLike;
use crate::convert::{self, BytesLike};
use crate::detach::{self, Work};
use crate::errors::call;
use crate::{path, tuples};

/// JSON text: a `str`, or bytes of any object with the buffer protocol.
pub enum Json<'a> {
    Text(&'a str),
    Bytes(BytesLike),
}

impl Json<'_> {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Json<'a> {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if value.is_instance_of::<PyString>() {
            return Ok(Self::Text(value.extract::<&'a str>()?));
        }
        Ok(Self::Bytes(value.extract()?))
    }
}

/// Runs a verifier of request and result.
fn verify<T: Send>(
    py: Python<'_>,
    request: &Json<'_>,
    result: &Json<'_>,
    verifier: impl FnOnce(&[u8], &[u8]) -> core::Result<T> + Send,
) -> PyResult<T> {
    let (request, result) = (request.as_bytes(), result.as_bytes());
    detach::run(py, Work::Json { bytes: request.len() + result.len() }, || verifier(request, result))
}

/// Verify the result of a resolve and return the target's CID. O(steps x depth) hashes.
///
/// Args:
///     request: The `core.resolve` request that the caller sent, as JSON.
///     result: The result that it received, as JSON.
///
/// Raises:
///     InvalidInput: If the request is malformed.
///     ProofError: If anything is wrong in the result.
#[pyfunction]
pub fn verify_resolve(py: Python<'_>, request: Json<'_>, result: Json<'_>) -> PyResult<String> {
    verify(py, &request, &result, ops::verify_resolve).map(|cid| cid.text())
}

/// Verify the result of a read, or the details of a 404 that prove an absence. O(depth + segments) hashes.
///
/// Args:
///     request: The `core.read` request that the caller sent, as JSON.
///     result: The result that it received, as JSON.
///
/// Raises:
///     InvalidInput: If the request is malformed.
///     ProofError: If anything is wrong in the result.
#[pyfunction]
pub fn verify_read<'py>(py: Python<'py>, request: Json<'_>, result: Json<'_>) -> PyResult<Bound<'py, PyAny>> {
    let outcome = verify(py, &request, &result, ops::verify_read)?;
    let text = |cid: Option<Cid>| cid.map(|cid| cid.text());
    let nothing = || (None::<Vec<String>>, None::<Vec<u64>>, None::<u64>);
    let (present, target, (segments, sizes, offset), length, total_size) = match outcome {
        ReadOutcome::Key(target) => (target.is_some(), text(target), nothing(), None, None),
        ReadOutcome::Element(element) => {
            (element.target.is_some(), text(element.target), nothing(), Some(element.length), None)
        }
        ReadOutcome::Range { list, span } => {
            let segments = span.segments.iter().map(Cid::text).collect();
            let found = (Some(segments), Some(span.sizes), span.offset);
            (true, Some(list.cid().text()), found, Some(span.length), Some(span.total_size))
        }
    };
    tuples::READ_OUTCOME.instance(py, (present, target, segments, sizes, offset, length, total_size))
}

/// Verify a map proof and return the target's CID, or None if the key is proven absent. O(nodes shown) hashes.
///
/// Args:
///     request: The `core.map-proof` request that the caller sent, as JSON: with `key`, or with `keys` and then one
///         multiproof for all of them.
///     result: The result that it received, as JSON.
///
/// Returns:
///     The target's CID or None; for a request with `keys`, a list of them in the order of the request.
///
/// Raises:
///     InvalidInput: If the request is malformed.
///     ProofError: If anything is wrong in the result.
#[pyfunction]
pub fn verify_map_proof(py: Python<'_>, request: Json<'_>, result: Json<'_>) -> PyResult<MapTargets> {
    let text = |cid: Option<Cid>| cid.map(|cid| cid.text());
    Ok(match verify(py, &request, &result, ops::verify_map_proof)? {
        MapProofOutcome::Key(target) => MapTargets::One(text(target)),
        MapProofOutcome::Keys(targets) => MapTargets::Many(targets.into_iter().map(text).collect()),
    })
}

/// The target of a key, or those of several keys.
#[derive(IntoPyObject)]
pub enum MapTargets {
    One(Option<String>),
    Many(Vec<Option<String>>),
}

/// Verify one page of a listing: its entries are all there are, and whether more follow. O(depth + entries) hashes.
///
/// Args:
///     request: The `core.scan` request that the caller sent, as JSON.
///     result: The result that it received, as JSON.
///
/// Raises:
///     InvalidInput: If the request is malformed.
///     ProofError: If anything is wrong in the result.
#[pyfunction]
pub fn verify_scan_result<'py>(py: Python<'py>, request: Json<'_>, result: Json<'_>) -> PyResult<Bound<'py, PyAny>> {
    let (entries, more, proof) = verify(py, &request, &result, |request, result| {
        let (listing, proof) = ops::verify_scan(request, result)?;
        Ok((listing.decoded(), listing.more, proof))
    })?;
    tuples::scan(py, entries, more, PyBytes::new(py, &proof))
}

/// Derive the new root of a mutation from the caller's own changes, and check the receipt against it.
///
/// The changes are replayed on the pruned trees in the receipt. O(changes x depth) hashes.
///
/// With ``commit.fixed_list`` this proves that the result is a fixed list if the delta's object was one with the same
/// chunk size, or is new. Otherwise the sizes of unchanged elements are proven only as far as the receipt shows them.
///
/// Args:
///     request: The mutation request as JSON, with the base root that the caller chose as its member `root`.
///     receipt: The receipt that it received, as JSON. The request must have had `"prove": true`.
///
/// Raises:
///     InvalidInput: If the request is malformed.
///     Conflict: If the request contradicts itself.
///     ProofError: If anything is wrong in the receipt; `step` is the delta concerned.
#[pyfunction]
pub fn verify_transition(py: Python<'_>, request: Json<'_>, receipt: Json<'_>) -> PyResult<String> {
    verify(py, &request, &receipt, ops::verify_transition).map(|cid| cid.text())
}

/// The parameters of a diff.
pub fn diff_request(
    a: &CidLike,
    b: &CidLike,
    prefix: Option<&Bound<'_, PyAny>>,
    after: Option<&Bound<'_, PyAny>>,
    limit: Option<&Bound<'_, PyAny>>,
) -> PyResult<ops::DiffRequest> {
    let window = path::window(prefix, after)?;
    let limit = limit.map_or(Ok(MAX_ENTRIES), |limit| convert::integer(limit, "limit"))?;
    call(|| ops::DiffRequest::new(&a.0, &b.0, window, limit))
}

/// The default limit on the differences in one page.
const MAX_ENTRIES: u64 = 1000;

/// Verify one page of the differences between two maps: its entries are all there are (docs/protocol.md, *diff*).
///
/// Args:
///     a: The root of the first map.
///     b: The root of the second map, of the same suite.
///     response: The response, as JSON.
///     prefix: The requested prefix; None for the whole maps.
///     after: The path after which the page starts; None for the first page.
///     limit: The requested limit, from 1 to 1000; None for 1000.
///
/// Raises:
///     InvalidInput: If a root or a parameter is invalid.
///     ProofError: If anything is wrong in the response; `step` 0 is the proof of `a`, 1 that of `b`.
#[pyfunction]
#[pyo3(signature = (a, b, response, prefix = None, after = None, limit = None))]
pub fn verify_diff<'py>(
    py: Python<'py>,
    a: CidLike,
    b: CidLike,
    response: Json<'_>,
    prefix: Option<&Bound<'py, PyAny>>,
    after: Option<&Bound<'py, PyAny>>,
    limit: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let request = diff_request(&a, &b, prefix, after, limit)?;
    let bytes = response.as_bytes();
    let found = detach::run(py, Work::Json { bytes: bytes.len() }, || request.verify(bytes))?;
    let text = |cid: Option<Cid>| cid.map(|cid| cid.text());
    let entries: Vec<_> = found.entries.into_iter().map(|d| (d.segments, text(d.before), text(d.after))).collect();
    tuples::DIFF.instance(py, (entries, found.more))
}

/// Check JSON text against the rules of protocol section 5 that hold for every message. O(bytes).
///
/// There are no duplicate members, the nesting is at most 32, integers are from 0 to 2^53 - 1 and written as plain
/// digits, strings are valid UTF-8, and nothing follows the value. Types and members are not checked.
///
/// Args:
///     body: The JSON text.
///     int64: Accept any integer from -2^63 to 2^63 - 1 instead.
///
/// Raises:
///     InvalidInput: If a rule is broken; the message names line and column.
///
/// >>> check_json(b'{"a": [1, 2]}')
/// >>> check_json(b'{"id": -9007199254740993}', True)
#[pyfunction]
#[pyo3(signature = (body, int64 = false))]
pub fn check_json(py: Python<'_>, body: BytesLike, int64: bool) -> PyResult<()> {
    let integers = if int64 { Integers::Signed64 } else { Integers::Unsigned53 };
    detach::run(py, Work::Json { bytes: body.len() }, || ops::json::check(&body, integers))
}

/// Return whether a resolve result is proven, and why not, as JSON. O(steps x depth) hashes.
///
/// Raises:
///     InvalidInput: If the body is not `{"request": ..., "result": ...}`, or the request is malformed.
#[pyfunction]
pub fn resolve_verdict(py: Python<'_>, body: BytesLike) -> PyResult<Bound<'_, PyBytes>> {
    verdict(py, &body, ops::resolve_verdict)
}

/// Return whether a read result, or the details of a 404, is proven, as `resolve_verdict` does.
///
/// Raises:
///     InvalidInput: As `resolve_verdict`.
#[pyfunction]
pub fn read_verdict(py: Python<'_>, body: BytesLike) -> PyResult<Bound<'_, PyBytes>> {
    verdict(py, &body, ops::read_verdict)
}

fn verdict<'py>(
    py: Python<'py>,
    body: &BytesLike,
    answer: impl FnOnce(&[u8]) -> core::Result<Vec<u8>> + Send,
) -> PyResult<Bound<'py, PyBytes>> {
    detach::run(py, Work::Json { bytes: body.len() }, || answer(body)).map(|answer| PyBytes::new(py, &answer))
}
