//! The class `Cid`, and the conversion of CIDs.

use core::InputCode;
use coregw_core as core;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::convert::{self, ArgumentError, type_name};

/// A content identifier as protocol section 1 defines it. Immutable, hashable, equal to a `Cid` of the same bytes.
///
/// Args:
///     value: Text in any multibase of section 1 (``b``, ``f``, ``k``, ``z``, ``m``, ``u``, or a CIDv0 ``Qm``), the
///         binary form as bytes, or a `Cid`.
///
/// Raises:
///     InvalidInput: If `value` is not a CID that section 1 allows; its code is ``invalid_cid``.
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

    /// CIDv1 in lower-case base32, ``b...``: the form of all results.
    #[getter]
    fn text<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        text(py, &self.0)
    }

    /// The number of the content's multicodec, such as 0x55 for ``raw``.
    #[getter]
    fn codec(&self) -> u64 {
        self.0.codec()
    }

    /// The number of the hash function, such as 0x12 for ``sha2-256``.
    #[getter]
    fn hash_code(&self) -> u64 {
        self.0.hash_function().multihash()
    }

    /// The hash function: ``sha2-256``, ``sha2-512``, ``sha3-256``, ``blake2b-256``, ``blake3`` or ``identity``.
    #[getter]
    fn hash_name(&self) -> &'static str {
        self.0.hash_function().name()
    }

    /// The digest without its multihash prefix, 32 or 64 bytes; the payload itself in an identity CID.
    #[getter]
    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.digest())
    }

    /// The multihash: number of the hash function, length, digest.
    #[getter]
    fn multihash<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.multihash())
    }

    /// What the CID names: ``map`` or ``list`` for the root of one, ``cas`` for a payload.
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

/// A CID given as text, as bytes or as a `Cid`.
#[derive(Debug, Clone, Copy)]
pub struct CidLike(pub core::Cid);

impl<'py> FromPyObject<'_, 'py> for CidLike {
    type Error = ArgumentError;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> Result<Self, ArgumentError> {
        cid(&value).map(Self)
    }
}

/// The CID that a value denotes.
pub fn cid(value: &Bound<'_, PyAny>) -> Result<core::Cid, ArgumentError> {
    if let Ok(given) = value.cast::<PyString>() {
        return Ok(core::Cid::from_text(convert::text(given, InputCode::InvalidCid)?)?);
    }
    if let Ok(given) = value.cast::<PyBytes>() {
        return Ok(core::Cid::from_bytes(given.as_bytes())?);
    }
    if let Ok(given) = value.cast::<Cid>() {
        return Ok(given.get().0);
    }
    if let Ok(given) = convert::bytes(value) {
        return Ok(core::Cid::from_bytes(given.as_bytes())?);
    }
    Err(ArgumentError::Type(format!("a CID is a str, bytes or a Cid, not {}", type_name(value))))
}

/// The text form, as a `str`.
pub fn text<'py>(py: Python<'py>, cid: &core::Cid) -> Bound<'py, PyString> {
    PyString::new(py, &cid.text())
}

/// Python's own, keyed hash of the bytes: others choose digests, and could choose ones whose first bytes collide.
pub fn hash(py: Python<'_>, cid: &core::Cid) -> PyResult<isize> {
    PyBytes::new(py, cid.as_bytes()).hash()
}
