//! The class `Survey`: what a folder has, found on all cores.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coregw_folders::beneath;
use coregw_folders::entries::{FileState, Inventory};
use coregw_folders::survey::{self as engine, Purpose, SurveyTop};
use coregw_folders::walk::Skip;
use pyo3::exceptions::{PyIndexError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyRange;

use crate::cid::CidLike;
use crate::detach::{self, Work};
use crate::errors::call;
use crate::signals::Signals;
use crate::tuples;

/// What a folder, or a single file, has: its files, symbolic links and folders, in key order, and what is left out.
///
/// A sequence of ``SurveyEntry(path, kind, size, mode, mtime_ns, ctime_ns, inode, device, owner)``, each made when it
/// is accessed: an entry takes about 120 bytes of memory.
///
/// >>> import tempfile
/// >>> with tempfile.TemporaryDirectory() as folder:
/// ...     survey(folder).files
/// 0
#[pyclass(frozen, module = "coregw")]
pub struct Survey(pub(super) Arc<engine::Survey>);

/// Walk a folder on all cores, with the GIL released, and return what it has. O(entries).
///
/// Symbolic links are not followed, except for `top` itself. Anything else, and what cannot be read, is
/// skipped and reported; so is a file or folder of `top` that is named ``.coregw``, which is reserved. Folders and
/// files that patterns exclude are not entered and not reported.
///
/// Patterns are those of git, which compares bytes. Those of `exclude` come first; then those of ``.coregwignore``
/// files, of the nearest one first; then ``.git`` is excluded. A pattern that begins with ``!`` includes what later
/// ones exclude.
///
/// Args:
///     top: The folder, or a single file, whose path is its name.
///     exclude: Patterns, relative to `top`.
///     gitignore: Whether ``.gitignore`` files also count, each after the ``.coregwignore`` beside it.
///     purpose: ``add``; or ``keep``, the same, but names that are not UTF-8 and paths that are too long are skipped.
///         Or ``strict``: in addition, no file of patterns counts, and ``.git`` is not excluded. Or ``as-added``: as
///         ``keep``, but special files and ``.coregw`` are excluded, and a file of patterns counts only if it is not a
///         link, and not excluded itself.
///     named: For ``as-added``: the targets of files that a root names, by their paths. Then the files of patterns that
///         have these targets count, and no others.
///     progress: Called about every 50 milliseconds with the number of entries that were found since, in the caller's
///         thread. An exception that it raises ends the walk.
///
/// Raises:
///     InvalidInput: If a name is not UTF-8 or a path exceeds 4,096 bytes (code ``invalid_path``; the message names the
///         file), a file of patterns cannot be read, a pattern is malformed, or `top` is neither a folder nor a regular
///         file.
///     OSError: If `top` cannot be read.
///     KeyboardInterrupt: If the process gets SIGINT meanwhile, in the main thread.
///
/// >>> import pathlib, tempfile
/// >>> with tempfile.TemporaryDirectory() as folder:
/// ...     for name in ("a", "b.o"):
/// ...         _ = pathlib.Path(folder, name).write_bytes(b"hello")
/// ...     found = survey(folder, exclude=["*.o"])
/// >>> [(entry.path, entry.kind, entry.size) for entry in found]
/// [('a', 'file', 5)]
#[pyfunction]
#[pyo3(signature = (top, exclude = Vec::new(), gitignore = false, purpose = "add", named = None, progress = None),
       text_signature = "(top, exclude=(), gitignore=False, purpose='add', named=None, progress=None)")]
pub fn survey(
    py: Python<'_>,
    top: PathBuf,
    exclude: Vec<OsString>,
    gitignore: bool,
    purpose: &str,
    named: Option<BTreeMap<PathBuf, CidLike>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Survey> {
    let named = named.map(|named| named.into_iter().map(|(path, target)| (path, target.0)).collect());
    let purpose = call(|| Purpose::new(purpose, named))?;
    let signals = Signals::with_progress(progress);
    let opened = SurveyTop::open(top.clone()).map_err(|error| os_error(&top, &error))?;
    let found = detach::run(py, Work::Unbounded, || opened.survey(&exclude, gitignore, purpose, &signals));
    signals.result()?;
    found.map(|found| Survey(Arc::new(found)))
}

/// The `OSError` that Python raises for a file.
pub fn os_error(file: &Path, error: &io::Error) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), beneath::why(error), file.as_os_str().to_owned()))
}

/// A `SurveyEntry` with this state.
pub(super) fn entry<'py>(
    py: Python<'py>,
    entries: &Inventory,
    index: usize,
    now: FileState,
) -> PyResult<Bound<'py, PyAny>> {
    let path = entries.path(index);
    let FileState { size, ctime_ns, inode, device, mode, owner, .. } = now;
    let kind = entries.kind(index).name();
    let fields = (path.to_string_lossy(), kind, size, mode, now.mtime_ns, ctime_ns, inode, device, owner);
    tuples::SURVEY_ENTRY.instance(py, fields)
}

#[pymethods]
impl Survey {
    fn __len__(&self) -> usize {
        self.0.entries.count()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let index = place(index, self.0.entries.count())?;
        entry(py, &self.0.entries, index, self.0.entries.state(index))
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        each_item(slf)
    }

    /// The number of files.
    #[getter]
    fn files(&self) -> u64 {
        self.0.counts.files
    }

    /// The number of symbolic links.
    #[getter]
    fn links(&self) -> u64 {
        self.0.counts.links
    }

    /// The number of folders, without the top one.
    #[getter]
    fn folders(&self) -> u64 {
        self.0.counts.folders
    }

    /// The sum of the files' sizes in bytes when they were found.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.counts.bytes
    }

    /// What was skipped: pairs of the location and the reason, in the order of locations.
    #[getter]
    fn skipped(&self) -> Vec<(PathBuf, String)> {
        pairs(&self.0.skips)
    }

    /// What is excluded, without what is below it: pairs of the location and the reason, in order.
    #[getter]
    fn left_out(&self) -> Vec<(PathBuf, String)> {
        pairs(&self.0.left_out)
    }

    /// Return the location of an entry on the disk. O(depth).
    ///
    /// Args:
    ///     index: The position of the entry in this survey.
    ///
    /// Raises:
    ///     IndexError: If there is no such position.
    fn location(&self, index: isize) -> PyResult<PathBuf> {
        Ok(self.0.location(place(index, self.0.entries.count())?))
    }
}

pub(super) fn pairs(skips: &[Skip]) -> Vec<(PathBuf, String)> {
    skips.iter().map(|skip| (skip.file.clone(), skip.why.clone())).collect()
}

/// The place that an index of Python means.
pub(super) fn place(index: isize, len: usize) -> PyResult<usize> {
    let from_end = if index < 0 { len.checked_add_signed(index) } else { usize::try_from(index).ok() };
    from_end.filter(|&index| index < len).ok_or_else(|| PyIndexError::new_err("the survey has no such entry"))
}

/// An iterator over the items of a sequence.
pub(super) fn each_item<'py>(sequence: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = sequence.py();
    let places = PyRange::new(py, 0, sequence.len()?.try_into()?)?;
    py.import("builtins")?.call_method1("map", (sequence.getattr("__getitem__")?, places))
}
