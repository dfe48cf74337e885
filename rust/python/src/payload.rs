//! Payloads: their CIDs, at once or piece by piece, and the check of bytes against a CID.

use std::sync::{Mutex, PoisonError};

use coregw_core::payload;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyString;

use crate::cid::text;
use crate::convert::{CidLike, CodecLike};
use crate::detach::{self, Work};
use crate::errors::call;

/// The number of a multicodec given by name or number.
///
/// Args:
///     codec: A name of the multicodec table (``"dag-cbor"``), a number as text (``"85"``, ``"0x55"``) or as an int;
///         None is ``raw``.
///
/// Raises:
///     InvalidInput: An unknown name, a number past 2^63 - 1, or a codec of roots (0x300000 to 0x30ffff); its code is
///         ``invalid_codec``.
///
/// >>> codec_code("raw"), codec_code("0x55"), codec_code(85), codec_code(None)
/// (85, 85, 85, 85)
#[pyfunction]
pub fn codec_code(codec: CodecLike) -> u64 {
    codec.0.number()
}

/// The CID of a payload, as text (protocol section 1). O(bytes); releases the GIL above 32 KiB.
///
/// Args:
///     data: The payload.
///     codec: What the bytes are, as `codec_code` takes it.
///     hash: ``sha2-256``, ``blake3``, or ``identity``: the CID holds the payload itself, at most 128 bytes.
///
/// Raises:
///     InvalidInput: An invalid codec (code ``invalid_codec``) or an unsupported hash function.
///     TooLarge: More than 128 bytes for an identity CID.
///
/// >>> payload_cid(b"hello")
/// 'bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq'
#[pyfunction]
#[pyo3(signature = (data, codec = CodecLike::default(), hash = "sha2-256"),
       text_signature = "(data, codec='raw', hash='sha2-256')")]
pub fn payload_cid<'py>(py: Python<'py>, data: &[u8], codec: CodecLike, hash: &str) -> PyResult<Bound<'py, PyString>> {
    let cid = detach::run(py, Work::Hash { bytes: data.len() }, || {
        payload::cid(data, codec.0, payload::Function::from_name(hash)?)
    })?;
    Ok(text(py, &cid))
}

/// Makes the CID of a payload that comes in pieces. May be used by several threads, one after the other.
///
/// Args:
///     codec: What the bytes are, as `codec_code` takes it.
///     hash: ``sha2-256``, ``blake3`` or ``identity``.
///
/// Raises:
///     InvalidInput: An invalid codec (code ``invalid_codec``) or an unsupported hash function.
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

    /// Adds the next bytes. O(bytes); releases the GIL above 32 KiB.
    fn update(&self, py: Python<'_>, chunk: &[u8]) -> PyResult<()> {
        let work = Work::Hash { bytes: chunk.len() };
        if !work.is_long() {
            let mut hasher = self.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
            return call(|| {
                hasher.update(chunk);
                Ok(())
            });
        }
        // The lock is taken and given back without the interpreter, so who waits for it keeps nobody waiting.
        detach::run(py, work, || {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).update(chunk);
            Ok(())
        })
    }

    /// The CID of the bytes so far, as text; more may follow. O(1). Raises `TooLarge` if an identity CID cannot hold them.
    fn cid<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let cid = {
            let hasher = self.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
            call(|| hasher.cid())?
        };
        Ok(text(py, &cid))
    }
}

/// Whether `data` matches `cid`, whatever its hash function (protocol section 1); an identity CID holds the bytes.
///
/// Of a root, `data` is the encoding of the tree's top node. O(bytes); releases the GIL above 32 KiB.
///
/// Args:
///     cid: The CID that was asked for; not one that came with the bytes.
///     data: The bytes that came.
///
/// Raises:
///     InvalidInput: `cid` is no CID; its code is ``invalid_cid``.
///
/// >>> cid = payload_cid(b"hello", hash="blake3")
/// >>> payload_matches(cid, b"hello"), payload_matches(cid, b"hullo")
/// (True, False)
#[pyfunction]
pub fn payload_matches(py: Python<'_>, cid: CidLike, data: &[u8]) -> PyResult<bool> {
    detach::run(py, Work::Hash { bytes: data.len() }, || Ok(payload::matches(&cid.0, data)))
}
