//! The class `Cid`.

use coregw_core as core;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::convert::CidLike;

/// A content identifier as protocol section 1 defines it. Immutable, hashable, equal to a `Cid` of the same bytes.
///
/// Args:
///     value: Text in any multibase of section 1 (`b`, `f`, `k`, `z`, `m`, `u`, or a CIDv0 `Qm`), the binary form
///         as bytes, or a `Cid`.
///
/// Raises:
///     InvalidInput: It is no CID, or not one that section 1 allows; its code is ``invalid_cid``.
///
/// >>> cid = Cid("QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG")
/// >>> cid.text[:8], hex(cid.codec), cid.hash_name, cid.kind
/// ('bafybeie', '0x70', 'sha2-256', 'cas')
#[pyclass(frozen, module = "coregw")]
pub struct Cid(pub core::Cid);

#[pymethods]
impl Cid {
    #[new]
    #[pyo3(signature = (value))]
    fn new(value: CidLike) -> Self {
        Self(value.0)
    }

    /// CIDv1 in lower-case base32, ``b...``: the one form that results use.
    #[getter]
    fn text<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        text(py, &self.0)
    }

    /// The multicodec of the content, such as 0x55 for ``raw``.
    #[getter]
    fn codec(&self) -> u64 {
        self.0.codec()
    }

    /// The multihash function code, such as 0x12 for ``sha2-256``.
    #[getter]
    fn hash_code(&self) -> u64 {
        self.0.function()
    }

    /// The hash function: ``sha2-256``, ``sha2-512``, ``sha3-256``, ``blake2b-256``, ``blake3`` or ``identity``.
    #[getter]
    fn hash_name(&self) -> &'static str {
        self.0.function_name()
    }

    /// The digest without its multihash prefix, 32 or 64 bytes; of an identity CID, the payload (at most 128 bytes).
    #[getter]
    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.digest())
    }

    /// The multihash: function code, length, digest.
    #[getter]
    fn multihash<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.multihash())
    }

    /// What the CID names: ``map``, ``list``, or ``cas`` for a payload.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind_name()
    }

    /// The tree suite of a root, ``sha2-256`` or ``blake3``; None for a payload.
    #[getter]
    fn suite(&self) -> Option<&'static str> {
        self.0.root().map(|root| root.suite.name())
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.as_bytes())
    }

    fn __str__<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        text(py, &self.0)
    }

    fn __repr__(&self) -> String {
        format!("Cid('{}')", self.0)
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        hash(py, &self.0)
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyString>,) {
        (text(py, &self.0),)
    }
}

/// The text form, as a Python string.
pub fn text<'py>(py: Python<'py>, cid: &core::Cid) -> Bound<'py, PyString> {
    PyString::new(py, &cid.text())
}

/// Python's own hash of the bytes: digests can be chosen by others, so their first bytes are no hash.
pub fn hash(py: Python<'_>, cid: &core::Cid) -> PyResult<isize> {
    PyBytes::new(py, cid.as_bytes()).hash()
}
