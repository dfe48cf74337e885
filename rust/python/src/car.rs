//! Roots as CARv1, out and in: convert, let the interpreter go, call, convert.

use std::sync::Arc;

use coregw_ops as ops;
use ops::car::{self, Limits, Progress, Span};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cid::{Cid, CidLike};
use crate::convert::{self, Items};
use crate::detach::{self, Work};
use crate::engine::{Need, PageCache, Pages, known_root, page_pairs, root_bytes};
use crate::errors::call;

/// Takes in the bytes of a CARv1, in pieces of any size, and checks the hash of every block.
///
/// Args:
///     payload_bytes: The most bytes of a payload.
///     blocks: The most blocks. Each takes some 60 bytes of memory.
///
/// >>> reader = CarReader(1 << 20, 1000)
/// >>> reader.feed(b"")
/// >>> reader.roots, reader.blocks, reader.bytes
/// (None, 0, 0)
#[pyclass(module = "coregw._core")]
pub struct CarReader {
    limits: Limits,
    reader: car::Reader,
}

#[pymethods]
impl CarReader {
    #[new]
    fn new(payload_bytes: u32, blocks: u32) -> Self {
        let limits = Limits { payload_bytes, blocks };
        Self { limits, reader: car::Reader::new(limits) }
    }

    /// Takes the next bytes. O(bytes) hashing. Raises `InvalidInput`, naming the block and its first byte, for what is
    /// no CAR or has another hash, and `TooLarge` for what is past a limit. The reader is of no use after that.
    fn feed(&mut self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        detach::run(py, Work::Hash { bytes: data.len() }, || self.reader.feed(data))
    }

    /// The roots that the header names, as text, or None before it is read.
    #[getter]
    fn roots(&self) -> Option<Vec<String>> {
        self.reader.roots().map(|roots| roots.iter().map(|root| root.cid().text()).collect())
    }

    /// Number of whole blocks so far.
    #[getter]
    fn blocks(&self) -> u32 {
        self.reader.blocks()
    }

    /// Bytes so far.
    #[getter]
    fn bytes(&self) -> u64 {
        self.reader.bytes()
    }

    /// Ends the bytes. The reader begins anew. O(n log n) of blocks. Raises `InvalidInput` if they end inside a block.
    fn finish(&mut self, py: Python<'_>) -> PyResult<Car> {
        let reader = std::mem::replace(&mut self.reader, car::Reader::new(self.limits));
        let archive = detach::run(py, Work::Unbounded, || reader.finish())?;
        Ok(Car { archive, given: 0 })
    }
}

/// A CAR all of whose blocks have their hashes; made by `CarReader.finish`.
///
/// First `check` until it returns None, then take `next_pages` and `next_payloads`. It reads blocks again: where a
/// span (start, end) is returned, `supply` those bytes of the CAR, as far as there are so many, and call again.
#[pyclass(module = "coregw._core")]
pub struct Car {
    archive: car::Archive,
    given: usize,
}

/// The next pages, or the bytes that are needed first.
#[derive(IntoPyObject)]
pub enum Formed<'py> {
    Pages(Pages<'py>),
    Span((u64, u64)),
}

#[pymethods]
impl Car {
    /// Checks that the blocks are whole trees. Raises `InvalidInput`, naming the block, where a tree is wrong or lacks
    /// a node, and for a node that no root leads to.
    fn check(&mut self, py: Python<'_>) -> PyResult<Option<(u64, u64)>> {
        Ok(detach::run(py, Work::Unbounded, || self.archive.check())?.map(ends))
    }

    /// Takes bytes that were asked for.
    fn supply(&mut self, start: u64, data: &[u8]) {
        self.archive.supply(start, data.to_vec());
    }

    /// Binary CIDs of the header's roots, and of those nested in them whose nodes are here: all are whole trees.
    #[getter]
    fn roots<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        self.archive.found().map(|root| root_bytes(py, &root)).collect()
    }

    /// How many leaves name a payload that is not here.
    #[getter]
    fn missing_payloads(&self) -> u64 {
        self.archive.missing_payloads()
    }

    /// The next (digest, page) pairs, at most `max_bytes` in all but at least one; empty when none is left. Or a span.
    fn next_pages<'py>(&mut self, py: Python<'py>, max_bytes: usize) -> PyResult<Formed<'py>> {
        Ok(match detach::run(py, Work::Unbounded, || self.archive.next_pages(max_bytes))? {
            Ok(pages) => Formed::Pages(page_pairs(py, pages)),
            Err(span) => Formed::Span(ends(span)),
        })
    }

    /// Where the next payloads lie, at most `count`: the first byte of the CID, and the end; empty when none is left.
    /// Each comes once, in no order.
    fn next_payloads(&mut self, count: usize) -> Vec<(u64, u64)> {
        let next: Vec<_> = self.archive.payloads().skip(self.given).take(count).collect();
        self.given += next.len();
        next.into_iter().map(|(offset, len)| (offset, offset + u64::from(len))).collect()
    }
}

fn ends(span: Span) -> (u64, u64) {
    (span.start, span.end)
}

/// A held root on its way out as CARv1. Runs like an `Operation`, but gives bytes as it goes.
#[pyclass(module = "coregw._core")]
pub struct CarExport(car::Export);

/// What an export needs, or its next bytes and the payloads to write behind them.
#[derive(IntoPyObject)]
pub enum Exported<'py> {
    Needs(Need),
    Part((Bound<'py, PyBytes>, Vec<Cid>)),
}

#[pymethods]
impl CarExport {
    /// Raises `InvalidInput` for a CID that is no root.
    #[new]
    fn new(cache: &PageCache, root: CidLike, payloads: bool) -> PyResult<Self> {
        let root = known_root(&root)?;
        call(|| Ok(Self(car::Export::new(Arc::clone(&cache.0), root, payloads))))
    }

    /// Goes on until some `max_bytes` are written. None: that was all. Raises `RootNotFound` if the root is not held,
    /// `StoreDamaged` if its trees are not what they must be, `TooLarge` for too many nested roots.
    fn run<'py>(&mut self, py: Python<'py>, max_bytes: usize) -> PyResult<Option<Exported<'py>>> {
        Ok(match detach::run(py, Work::Unbounded, || self.0.run(max_bytes))? {
            Progress::Needs(need) => Some(Exported::Needs(Need(need))),
            Progress::Part(bytes, payloads) => {
                let payloads = payloads.into_iter().map(Cid).collect();
                Some(Exported::Part((PyBytes::new(py, &bytes), payloads)))
            }
            Progress::Done => None,
        })
    }

    /// Takes the pages of the last need, in its order. Raises `StoreDamaged`, naming the page, for a page that is
    /// None or does not have its digest.
    fn supply_pages(&mut self, py: Python<'_>, pages: Items<Option<Bound<'_, PyBytes>>>) -> PyResult<()> {
        let bytes: Vec<Option<&[u8]>> = pages.0.iter().map(|page| page.as_ref().map(|page| page.as_bytes())).collect();
        detach::run(py, Work::Unbounded, || self.0.supply_pages(&bytes))
    }

    /// Says of each root of the last need whether the store has its record.
    fn supply_roots(&mut self, held: Items<bool>) -> PyResult<()> {
        call(|| self.0.supply_roots(&held.0))
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

/// The CID that the bytes of a block of a CAR begin with, behind its length. Raises `InvalidInput` if there is none.
#[pyfunction]
pub fn block_cid(data: &[u8]) -> PyResult<Cid> {
    call(|| car::block_cid(data)).map(Cid)
}
