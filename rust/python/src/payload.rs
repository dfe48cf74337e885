//! Payloads: `payload_cid`, `PayloadHasher`, `PayloadCheck`, `payload_matches`, the codecs that their CIDs name, and what these say of links.

use std::sync::{Mutex, PoisonError};

use core::InputCode;
use core::codec::Codec;
use core::payload;
use coregw_core as core;
use coregw_ops as ops;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyString;

use crate::cid::{self, CidLike};
use crate::convert::{self, ArgumentError, BytesLike};
use crate::detach::{self, Work};
use crate::errors::call;

/// The codec of a payload, by name or number; None is `raw`.
#[derive(Debug, Clone, Copy, Default)]
pub struct CodecLike(Codec);

impl<'py> FromPyObject<'_, 'py> for CodecLike {
    type Error = ArgumentError;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> Result<Self, ArgumentError> {
        if value.is_none() {
            return Ok(Self(Codec::RAW));
        }
        if let Ok(given) = value.cast::<PyString>() {
            return Ok(Self(Codec::parse(convert::text(&given, InputCode::InvalidCodec)?)?));
        }
        match convert::unsigned(&value, format_args!("a codec is a str or an int"))? {
            Some(number) => Ok(Self(Codec::from_number(number)?)),
            None => Err(ArgumentError::input(InputCode::InvalidCodec, "a codec is from 0 to 2^63 - 1")),
        }
    }
}

/// Return the number of a multicodec. O(log n) in the size of the multicodec table.
///
/// Args:
///     codec: A name of the multicodec table (``"dag-cbor"``), a number as text (``"85"``, ``"0x55"``) or as an int;
///         None means ``raw``.
///
/// Raises:
///     InvalidInput: If the name is unknown, the number exceeds 2^63 - 1, or it is a codec of roots (0x300000 to
///         0x30ffff); its code is ``invalid_codec``.
///
/// >>> codec_code("raw"), codec_code("0x55"), codec_code(85), codec_code(None)
/// (85, 85, 85, 85)
#[pyfunction]
pub fn codec_code(codec: CodecLike) -> u64 {
    codec.0.number()
}

/// Return the CID of a payload, as text (protocol section 1).
///
/// O(bytes); the GIL is released above 32 KiB.
///
/// Args:
///     data: The payload.
///     codec: What the bytes are, in the forms that `codec_code` takes.
///     hash: ``sha2-256``, ``sha2-512``, ``sha3-256``, ``blake2b-256``, ``blake3``, or ``identity``: the CID then
///         contains the payload itself, at most 128 bytes.
///
/// Raises:
///     InvalidInput: If `codec` is not a codec of payloads (code ``invalid_codec``) or `hash` is unknown.
///     TooLarge: If the payload is too long for an identity CID.
///
/// >>> payload_cid(b"hello")
/// 'bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq'
#[pyfunction]
#[pyo3(signature = (data, codec = CodecLike::default(), hash = "sha2-256"),
       text_signature = "(data, codec='raw', hash='sha2-256')")]
pub fn payload_cid<'py>(
    py: Python<'py>,
    data: BytesLike,
    codec: CodecLike,
    hash: &str,
) -> PyResult<Bound<'py, PyString>> {
    let work = Work::Hash { bytes: data.len() };
    let cid = detach::run(py, work, || payload::cid(&data, codec.0, payload::Function::from_name(hash)?))?;
    Ok(cid::text(py, &cid))
}

/// Computes the CID of a payload that arrives in chunks. Threads may share one.
///
/// Args:
///     codec: What the bytes are, in the forms that `codec_code` takes.
///     hash: ``sha2-256``, ``sha2-512``, ``sha3-256``, ``blake2b-256``, ``blake3`` or ``identity``.
///
/// Raises:
///     InvalidInput: If `codec` is not a codec of payloads (code ``invalid_codec``) or `hash` is unknown.
///
/// >>> hasher = PayloadHasher()
/// >>> hasher.update(b"hel")
/// >>> hasher.update(b"lo")
/// >>> hasher.cid() == payload_cid(b"hello")
/// True
#[pyclass(frozen, module = "coregw")]
pub struct PayloadHasher(Mutex<payload::Hasher>);

#[pymethods]
impl PayloadHasher {
    #[new]
    #[pyo3(signature = (codec = CodecLike::default(), hash = "sha2-256"),
           text_signature = "(codec='raw', hash='sha2-256')")]
    fn new(codec: CodecLike, hash: &str) -> PyResult<Self> {
        let function = call(|| payload::Function::from_name(hash))?;
        Ok(Self(Mutex::new(payload::Hasher::new(codec.0, function))))
    }

    /// Append bytes to the payload. O(bytes); the GIL is released above 32 KiB.
    fn update(&self, py: Python<'_>, chunk: BytesLike) -> PyResult<()> {
        update(py, &self.0, &chunk, payload::Hasher::update)
    }

    /// Return the CID of the bytes so far, as text. More may follow. O(1).
    ///
    /// Raises:
    ///     TooLarge: If they are too long for an identity CID.
    fn cid<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let cid = {
            let hasher = self.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
            call(|| hasher.cid())?
        };
        Ok(cid::text(py, &cid))
    }
}

/// Appends a chunk to a hash that threads may share.
fn update<T: Send>(py: Python<'_>, hash: &Mutex<T>, chunk: &[u8], append: fn(&mut T, &[u8])) -> PyResult<()> {
    let work = Work::Hash { bytes: chunk.len() };
    if work.is_long() {
        // Locked and unlocked with the GIL released, so that a thread that waits for the lock does not hold it.
        return detach::run(py, work, || {
            append(&mut hash.lock().unwrap_or_else(PoisonError::into_inner), chunk);
            Ok(())
        });
    }
    let mut hash = hash.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
    call(|| {
        append(&mut hash, chunk);
        Ok(())
    })
}

/// Checks a payload that arrives in chunks against its CID. Threads may share one.
///
/// Args:
///     cid: The CID that was requested.
///
/// Raises:
///     InvalidInput: If `cid` is not a valid CID; its code is ``invalid_cid``.
///
/// >>> check = PayloadCheck(payload_cid(b"hello", hash="sha3-256"))
/// >>> check.update(b"hel")
/// >>> check.matches()
/// False
/// >>> check.update(b"lo")
/// >>> check.matches()
/// True
#[pyclass(frozen, module = "coregw")]
pub struct PayloadCheck(Mutex<payload::Check>);

#[pymethods]
impl PayloadCheck {
    #[new]
    #[pyo3(signature = (cid))]
    fn new(cid: CidLike) -> Self {
        Self(Mutex::new(payload::Check::new(&cid.0)))
    }

    /// Append bytes to the payload. O(bytes); the GIL is released above 32 KiB.
    fn update(&self, py: Python<'_>, chunk: BytesLike) -> PyResult<()> {
        update(py, &self.0, &chunk, payload::Check::update)
    }

    /// Return whether the bytes so far are the whole payload that the CID names. More may follow. O(1).
    fn matches(&self, py: Python<'_>) -> PyResult<bool> {
        let check = self.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner).clone();
        call(|| Ok(check.is_match()))
    }
}

/// Return whether `data` has the digest that `cid` names, by any hash function of protocol section 1.
///
/// An identity CID contains the payload itself. For a root, `data` is the encoding of the tree's top node. O(bytes);
/// the GIL is released above 32 KiB.
///
/// Args:
///     cid: The CID that was requested, not one that came with the bytes.
///     data: The bytes that were received.
///
/// Raises:
///     InvalidInput: If `cid` is not a valid CID; its code is ``invalid_cid``.
///
/// >>> cid = payload_cid(b"hello", hash="blake3")
/// >>> payload_matches(cid, b"hello"), payload_matches(cid, b"hullo")
/// (True, False)
#[pyfunction]
pub fn payload_matches(py: Python<'_>, cid: CidLike, data: BytesLike) -> PyResult<bool> {
    detach::run(py, Work::Hash { bytes: data.len() }, || Ok(payload::matches(&cid.0, &data)))
}

/// Return whether a payload is DAG-CBOR or DAG-JSON by its CID, is strictly encoded, and has no links.
///
/// False for any other codec, and for a payload that decoders may read in different ways. O(bytes log bytes); the GIL
/// is released above 16 KiB.
///
/// Args:
///     cid: The CID of the payload. Its digest is not checked.
///     data: The payload.
///
/// Raises:
///     InvalidInput: If `cid` is not a valid CID; its code is ``invalid_cid``.
///
/// >>> data = bytes.fromhex("d82a450001550000")
/// >>> is_linkless(payload_cid(data, "dag-cbor"), data), is_linkless(payload_cid(data[2:], "dag-cbor"), data[2:])
/// (False, True)
#[pyfunction]
pub fn is_linkless(py: Python<'_>, cid: CidLike, data: BytesLike) -> PyResult<bool> {
    detach::run(py, Work::Json { bytes: data.len() }, || Ok(ops::is_linkless(cid.0.codec(), &data)))
}
