//! The class `ArcSorter`: any number of arcs in any order, sorted in bounded memory with the help of a temporary file.

pub mod pairs;

use std::path::PathBuf;

use core::{InputCode, Suite};
use coregw_core as core;
use coregw_folders::sort::{SortFailure, SortedReader, Sorter};
use coregw_ops::json::{self, LineFormat};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::cid::text;
use crate::convert::{BytesLike, chunk_size};
use crate::detach::{self, Work};
use crate::errors::{call, exception, invalid};
use crate::signals::Signals;

/// The memory that a run takes before it is sorted: a million arcs or less.
const RUN_BYTES: usize = 32 << 20;

/// Sorts the arcs of a map of any size, in memory for about four runs, and a temporary file for the others.
///
/// The file has no name, and disappears with the sorter or the process. `end` comes after all arcs, and before `root`,
/// `lines` and `Operation.build_root`, which may each be used any number of times. After an exception, the sorter must
/// not be used any more.
///
/// Args:
///     folder: Where the file is; None is the system's folder for temporary files.
///     format: What `feed` reads, ``ndjson`` (lines of ``["path", "CID"]``) or ``tsv`` (a path, a tab and a CID).
///     run_bytes: Memory of a run, in bytes.
///
/// Raises:
///     InvalidInput: If `format` is neither of these.
///
/// >>> sorter = ArcSorter()
/// >>> sorter.add({"b": payload_cid(b"1"), "a": payload_cid(b"2")})
/// >>> sorter.feed(b'["c","bafkqaaa"]')
/// >>> sorter.end()
/// >>> sorter.root() == Map({"a": payload_cid(b"2"), "b": payload_cid(b"1"), "c": "bafkqaaa"}).root
/// True
#[pyclass(module = "coregw._core")]
pub struct ArcSorter(Sorter);

/// The exception for a failure.
fn into_exception(failure: SortFailure) -> PyErr {
    match failure {
        SortFailure::Core(error) => exception(error),
        SortFailure::Io(error) => match error.raw_os_error() {
            Some(number) => PyOSError::new_err((number, format!("the temporary file of sorted arcs: {error}"))),
            None => error.into(),
        },
    }
}

/// Runs a part of the sorting, with the GIL released if it is long.
fn run(py: Python<'_>, work: Work, part: impl FnOnce() -> Result<(), SortFailure> + Send) -> PyResult<()> {
    detach::run(py, work, || Ok(part()))?.map_err(into_exception)
}

#[pymethods]
impl ArcSorter {
    #[new]
    #[pyo3(signature = (folder = None, format = "ndjson", run_bytes = RUN_BYTES),
           text_signature = "(folder=None, format='ndjson', run_bytes=33554432)")]
    fn new(folder: Option<PathBuf>, format: &str, run_bytes: usize) -> PyResult<Self> {
        let format = match format {
            "ndjson" => LineFormat::Json,
            "tsv" => LineFormat::Tabs,
            _ => {
                let what = format!("format {format:.40?} is unknown; use ndjson or tsv");
                return Err(invalid(InputCode::InvalidRequest, what));
            }
        };
        Ok(Self(Sorter::new(folder, format, run_bytes)))
    }

    /// Read the next bytes of lines of arcs. O(bytes); a full run is sorted in a separate thread.
    ///
    /// Raises:
    ///     InvalidInput: If a line is malformed (code ``invalid_path`` or ``invalid_cid`` if only that is). The message
    ///         names its number. Or if a path occurred twice.
    ///     OSError: If the file cannot be written.
    fn feed(&mut self, py: Python<'_>, data: BytesLike) -> PyResult<()> {
        self.check_open()?;
        run(py, Work::JsonArcs { bytes: data.len() }, || self.0.feed(&data))
    }

    /// Add arcs. O(arcs); a full run is sorted in a separate thread.
    ///
    /// Args:
    ///     arcs: A mapping from path to CID, or pairs of the two.
    ///
    /// Raises:
    ///     InvalidInput: If a path or CID is malformed (code ``invalid_path`` or ``invalid_cid``); the message names
    ///         the arc. Or if a path occurred twice.
    ///     OSError: If the file cannot be written.
    fn add(&mut self, py: Python<'_>, arcs: &Bound<'_, PyAny>) -> PyResult<()> {
        self.check_open()?;
        pairs::for_each(arcs, |index, path, target| {
            pairs::push_pair(index, path, target, self.0.arcs())?;
            if self.0.is_full() {
                run(py, Work::Unbounded, || self.0.spill())?;
            }
            Ok(())
        })
    }

    /// Note that all arcs have been added, and wait until they are sorted.
    ///
    /// Raises:
    ///     InvalidInput: If the last line is malformed, or a path occurred twice.
    ///     OSError: If the file cannot be written.
    fn end(&mut self, py: Python<'_>) -> PyResult<()> {
        self.check_open()?;
        run(py, Work::Unbounded, || self.0.finish())
    }

    /// The number of arcs so far.
    #[getter]
    fn arcs(&self) -> u64 {
        self.0.count()
    }

    /// The bytes of the temporary file.
    #[getter]
    fn spooled_bytes(&self) -> u64 {
        self.0.spooled_bytes()
    }

    /// Return the root of the map of all arcs, as text. O(n) hashing, in memory for some pages.
    ///
    /// Raises:
    ///     InvalidInput: If two arcs have the same path; the message names it. If `suite` is unknown.
    ///     TooLarge: If too many paths of thousands of bytes continue each other.
    #[pyo3(signature = (suite = "sha2-256"))]
    fn root<'py>(&self, py: Python<'py>, suite: &str) -> PyResult<Bound<'py, PyString>> {
        let suite = call(|| Suite::from_name(suite))?;
        let reader = self.reader()?;
        let signals = Signals::new();
        let root = detach::run(py, Work::Unbounded, || reader.root(suite, &signals))?;
        signals.result()?;
        Ok(text(py, &root.cid()))
    }

    /// Iterate over all arcs in key order: chunks of lines of ``["path","CID"]``, about `size` bytes.
    ///
    /// Raises:
    ///     InvalidInput: If `size` is not from 1 byte to 1 GiB.
    fn lines(&self, size: usize) -> PyResult<SortedLines> {
        Ok(SortedLines { reader: self.reader()?, size: chunk_size(size)?, more: true })
    }
}

impl ArcSorter {
    fn check_open(&self) -> PyResult<()> {
        match self.0.has_ended() {
            false => Ok(()),
            true => Err(invalid(InputCode::InvalidRequest, "the arcs have ended")),
        }
    }

    /// A reader of all arcs.
    pub fn reader(&self) -> PyResult<SortedReader> {
        call(|| self.0.reader())
    }
}

/// Iterates over sorted arcs as chunks of lines.
#[pyclass(module = "coregw._core")]
pub struct SortedLines {
    reader: SortedReader,
    size: usize,
    more: bool,
}

#[pymethods]
impl SortedLines {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let chunk = detach::run(py, Work::Unbounded, || {
            let mut out = Vec::with_capacity(self.size + (1 << 16));
            while self.more && out.len() < self.size {
                self.more = self.reader.next(16, |key, target| json::write_line(key, target, &mut out))?;
            }
            Ok(out)
        })?;
        Ok(if chunk.is_empty() { None } else { Some(PyBytes::new(py, &chunk)) })
    }
}
