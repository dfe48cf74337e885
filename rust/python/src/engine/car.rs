//! The class `CarReader`, and the parts of a CARv1 that are written in Python.

use coregw_core as core;
use coregw_ops::car::{self, CarLimits};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cid::{Cid, CidLike};
use crate::convert::{self, BytesLike};
use crate::detach::{self, Work};
use crate::errors::call;

/// A push parser for the bytes of a CARv1 or CARv2, in chunks of any size, which checks the hash of every block.
///
/// `Operation.import_car`, `check_car` and `list_car` continue with what it has read.
///
/// Args:
///     payload_bytes: Bound of one payload, in bytes.
///     blocks: Bound of the number of blocks. Each takes about 60 bytes of memory.
///
/// >>> reader = CarReader(1 << 20, 1000)
/// >>> reader.feed(b"")
/// >>> reader.roots, reader.blocks, reader.bytes
/// (None, 0, 0)
#[pyclass(module = "coregw._core")]
pub struct CarReader {
    limits: CarLimits,
    reader: car::CarReader,
}

impl CarReader {
    /// The reader with all it has read; this one starts over.
    pub fn take(&mut self) -> car::CarReader {
        std::mem::replace(&mut self.reader, car::CarReader::new(self.limits))
    }
}

#[pymethods]
impl CarReader {
    #[new]
    fn new(payload_bytes: u32, blocks: u32) -> Self {
        let limits = CarLimits { payload_bytes, blocks };
        Self { limits, reader: car::CarReader::new(limits) }
    }

    /// Read the next bytes. O(bytes) hashing.
    ///
    /// Raises:
    ///     InvalidInput: If they are not a CAR or a block has another hash; the message names the block and its first
    ///         byte. The reader must not be used after that.
    ///     TooLarge: If a limit is exceeded.
    fn feed(&mut self, py: Python<'_>, data: BytesLike) -> PyResult<()> {
        detach::run(py, Work::Hash { bytes: data.len() }, || self.reader.feed(&data))
    }

    /// The roots that the header names, as text, or None before it is read.
    #[getter]
    fn roots(&self) -> Option<Vec<String>> {
        self.reader.roots().map(|roots| roots.iter().map(core::Cid::text).collect())
    }

    /// The version of the CAR, 1 or 2, or None before its header is read.
    #[getter]
    fn version(&self) -> Option<u8> {
        self.reader.version()
    }

    /// Number of whole blocks so far.
    #[getter]
    fn blocks(&self) -> u32 {
        self.reader.blocks()
    }

    /// How many of them are tree nodes.
    #[getter]
    fn nodes(&self) -> usize {
        self.reader.nodes()
    }

    /// Bytes so far.
    #[getter]
    fn bytes(&self) -> u64 {
        self.reader.bytes()
    }

    /// The memory of what is noted about the blocks, in bytes.
    #[getter]
    fn held_bytes(&self) -> usize {
        self.reader.held_bytes()
    }

    /// The last whole block, and which of those with its CID it is, from 1; None without one. O(blocks).
    #[getter]
    fn last_block(&self) -> Option<(Cid, u64)> {
        self.reader.last_block().map(|place| (Cid(place.cid), place.occurrence))
    }

    /// The payload in which the bytes so far end, and where it starts in the CAR; None if they do not end in one.
    #[getter]
    fn unfinished(&self) -> Option<(Cid, u64)> {
        self.reader.unfinished().map(|(cid, start)| (Cid(*cid), start))
    }

    /// Forget what was read of the unfinished payload: its first byte is read next.
    fn restart_unfinished(&mut self) {
        self.reader.restart_unfinished();
    }

    /// Forget what follows the last whole block, also after an exception, and return where that block ends.
    ///
    /// The length of another block is read next. Of a CARv2, everything is forgotten.
    fn rewind(&mut self) -> u64 {
        self.reader.rewind()
    }

    /// Check that the bytes so far end after a whole block.
    ///
    /// Raises:
    ///     InvalidInput: If they end inside the header or a block.
    fn check_end(&self) -> PyResult<()> {
        call(|| self.reader.check_end())
    }
}

/// Return the bytes before the `size` bytes of a block in a CAR: the length of CID and block, and the CID.
///
/// Raises:
///     InvalidInput: If `size` is not from 0 to 2^53 - 1.
///
/// >>> block_head("bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq", 5).hex()[:10]
/// '2901551220'
#[pyfunction]
pub fn block_head<'py>(py: Python<'py>, cid: CidLike, size: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let size = convert::integer(size, "size")?;
    Ok(PyBytes::new(py, &car::block_head(&cid.0, size)))
}

/// Return what `block_head` returns for each of these payloads. O(payloads).
///
/// Raises:
///     ValueError: If there are not as many payloads as CIDs.
///
/// >>> block_heads([Cid("bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq")], [b"hello"])[0].hex()[:10]
/// '2901551220'
#[pyfunction]
pub fn block_heads<'py>(
    py: Python<'py>,
    cids: Vec<Bound<'py, Cid>>,
    payloads: Vec<Bound<'py, PyBytes>>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    if cids.len() != payloads.len() {
        return Err(PyValueError::new_err(format!("{} CIDs, but {} payloads", cids.len(), payloads.len())));
    }
    let head = |(cid, data): (&Bound<'py, Cid>, &Bound<'py, PyBytes>)| {
        PyBytes::new(py, &car::block_head(&cid.get().0, data.as_bytes().len() as u64))
    };
    Ok(cids.iter().zip(&payloads).map(head).collect())
}

/// Return the header of a CAR of payloads, with its length. It names the empty payload.
///
/// >>> payload_car_header() == car_header("bafkqaaa")
/// True
#[pyfunction]
pub fn payload_car_header(py: Python<'_>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, car::payload_car_header())
}

/// Return the header of a CARv1 with one root, with its length.
///
/// >>> car_header("bafkqaaa").hex()
/// '19a265726f6f747381d82a4500015500006776657273696f6e01'
#[pyfunction]
pub fn car_header<'py>(py: Python<'py>, root: CidLike) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &car::car_header(&[root.0]))
}

/// Return the CID at the start of a block of a CAR, after its length, and how many bytes it has there.
///
/// `data` may end before the block does. A CIDv0 becomes a CIDv1.
///
/// Raises:
///     InvalidInput: If `data` does not start with a CID.
#[pyfunction]
pub fn block_cid(data: BytesLike) -> PyResult<(Cid, usize)> {
    call(|| car::block_cid(&data)).map(|(cid, len)| (Cid(cid), len))
}

/// Return the varint at byte `at`, and where it ends.
///
/// Varints are those of multiformats: in minimal form, and at most 9 bytes long. `data` may end anywhere after it.
///
/// Raises:
///     InvalidInput: If there is none.
///
/// >>> read_varint(bytes([7, 0xac, 0x02]), 1)
/// (300, 3)
#[pyfunction]
#[pyo3(signature = (data, at = 0))]
pub fn read_varint(data: BytesLike, at: usize) -> PyResult<(u64, usize)> {
    let refuse = |why| core::Error::request(format!("byte {at}: {why}"));
    call(|| core::varint::read(data.get(at..).unwrap_or_default()).map_err(refuse))
        .map(|(value, len)| (value, at + len))
}
