//! The class `ArcSorter`: any number of arcs in any order, sorted in bounded memory with the help of a temporary file.
//!
//! ```text
//! feed, add  ->  arcs in memory  --full-->  a thread sorts them, and appends a run to the file
//! end        ->  the last run    ------->   root, lines, Operation.build_root: merges of all runs
//! ```

mod merge;
pub mod pairs;
mod run;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use core::{Arcs, InputCode, MapBuilder, Suite};
use coregw_core as core;
use coregw_ops::json::{self, ArcLines, LineFormat};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::cid::text;
use crate::convert::{BytesLike, chunk_size};
use crate::detach::{self, Work};
use crate::errors::{call, exception, invalid};
use crate::files::signals::Signals;

use merge::{Sorted, SortedReader};
use run::{Run, RunFile};

/// Bytes that are read between two checks whether a run is full.
const SLICE_BYTES: usize = 256 << 10;
/// Arcs between two looks for signals.
const ARCS_AT_ONCE: usize = 1024;
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
pub struct ArcSorter {
    folder: Option<PathBuf>,
    run_bytes: usize,
    lines: ArcLines,
    /// The run in progress.
    arcs: Arcs,
    count: u64,
    /// The thread that sorts the run before, and appends it to the file; it returns the memory.
    sorting: Option<JoinHandle<Result<(Arcs, Run), SortFailure>>>,
    file: Option<Arc<RunFile>>,
    runs: Vec<Run>,
    sorted: Option<Sorted>,
}

/// Why sorting failed.
enum SortFailure {
    Core(core::Error),
    Io(io::Error),
}

impl From<core::Error> for SortFailure {
    fn from(error: core::Error) -> Self {
        Self::Core(error)
    }
}

impl From<io::Error> for SortFailure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<SortFailure> for PyErr {
    fn from(failure: SortFailure) -> Self {
        match failure {
            SortFailure::Core(error) => exception(error),
            SortFailure::Io(error) => match error.raw_os_error() {
                Some(number) => PyOSError::new_err((number, format!("the temporary file of sorted arcs: {error}"))),
                None => error.into(),
            },
        }
    }
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
        let lines = ArcLines::new(format);
        let (arcs, runs) = (Arcs::default(), Vec::new());
        Ok(Self { folder, run_bytes, lines, arcs, count: 0, sorting: None, file: None, runs, sorted: None })
    }

    /// Read the next bytes of lines of arcs. O(bytes); a full run is sorted in a separate thread.
    ///
    /// Raises:
    ///     InvalidInput: If a line is malformed (code ``invalid_path`` or ``invalid_cid`` if only that is). The message
    ///         names its number. Or if a path occurred twice.
    ///     OSError: If the file cannot be written.
    fn feed(&mut self, py: Python<'_>, data: BytesLike) -> PyResult<()> {
        self.check_open()?;
        let work = Work::JsonArcs { bytes: data.len() };
        Ok(detach::run(py, work, || Ok(self.read(&data)))??)
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
            pairs::push_pair(index, path, target, &mut self.arcs)?;
            if self.is_full() {
                detach::run(py, Work::Unbounded, || Ok(self.spill()))??;
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
        Ok(detach::run(py, Work::Unbounded, || Ok(self.finish()))??)
    }

    /// The number of arcs so far.
    #[getter]
    fn arcs(&self) -> u64 {
        self.count + if self.sorted.is_none() { self.arcs.len() as u64 } else { 0 }
    }

    /// The bytes of the temporary file.
    #[getter]
    fn spooled_bytes(&self) -> u64 {
        self.runs.iter().map(Run::len).sum()
    }

    /// Return the root of the map of all arcs, as text. O(n) hashing, in memory for some pages.
    ///
    /// Raises:
    ///     InvalidInput: If two arcs have the same path; the message names it. If `suite` is unknown.
    ///     TooLarge: If too many paths of thousands of bytes continue each other.
    #[pyo3(signature = (suite = "sha2-256"))]
    fn root<'py>(&self, py: Python<'py>, suite: &str) -> PyResult<Bound<'py, PyString>> {
        let suite = call(|| Suite::from_name(suite))?;
        let mut reader = self.reader()?;
        let signals = Signals::new();
        let root = detach::run(py, Work::Unbounded, || {
            let mut builder = MapBuilder::new(suite);
            while !signals.is_interrupted() && reader.next(ARCS_AT_ONCE, |key, target| builder.push(key, target))? {
                drop(builder.take_pages());
            }
            Ok(builder.finish()?.root)
        })?;
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
        match self.sorted {
            None => Ok(()),
            Some(_) => Err(invalid(InputCode::InvalidRequest, "the arcs have ended")),
        }
    }

    /// A reader of all arcs.
    pub fn reader(&self) -> PyResult<SortedReader> {
        match &self.sorted {
            Some(sorted) => call(|| sorted.reader()),
            None => Err(invalid(InputCode::InvalidRequest, "the arcs have not ended")),
        }
    }

    fn is_full(&self) -> bool {
        self.arcs.held_bytes() >= self.run_bytes
    }

    fn read(&mut self, data: &[u8]) -> Result<(), SortFailure> {
        for slice in data.chunks(SLICE_BYTES) {
            self.lines.feed(slice, &mut self.arcs)?;
            if self.is_full() {
                self.spill()?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SortFailure> {
        self.lines.finish(&mut self.arcs)?;
        if self.runs.is_empty() && self.sorting.is_none() {
            self.count = self.arcs.len() as u64;
            self.arcs.sort()?;
            self.sorted = Some(Sorted::Memory(Arc::new(std::mem::take(&mut self.arcs))));
            return Ok(());
        }
        if !self.arcs.is_empty() {
            self.spill()?;
        }
        self.wait()?;
        self.arcs = Arcs::default();
        if let Some(file) = &self.file {
            self.sorted = Some(Sorted::File(Arc::clone(file), self.runs.clone().into()));
        }
        Ok(())
    }

    /// Sorts the run in progress and writes it to the file, in a thread. Waits for the run before it.
    fn spill(&mut self) -> Result<(), SortFailure> {
        let spare = self.wait()?;
        let mut arcs = std::mem::replace(&mut self.arcs, spare);
        self.count += arcs.len() as u64;
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                let file = Arc::new(RunFile::create(self.folder.as_deref())?);
                self.file.insert(file).clone()
            }
        };
        let sort = move || {
            arcs.sort()?;
            let run = file.append(&arcs)?;
            arcs.clear();
            Ok((arcs, run))
        };
        self.sorting = Some(thread::Builder::new().name("coregw-sort".to_owned()).spawn(sort)?);
        Ok(())
    }

    /// Waits for the run that is being sorted, and returns its memory.
    fn wait(&mut self) -> Result<Arcs, SortFailure> {
        let Some(sorting) = self.sorting.take() else {
            return Ok(Arcs::default());
        };
        let (arcs, run) = sorting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        self.runs.push(run);
        Ok(arcs)
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
