//! The class `Survey`: what a folder has, found on all cores.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use core::{Error, Key, Result};
use coregw_core as core;
use pyo3::exceptions::{PyIndexError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyRange;
use rustix::fs::{FileType, Stat};

use crate::cid::CidLike;
use crate::detach::{self, Work};
use crate::errors::call;
use crate::tuples;

use super::beneath::{self, Beneath};
use super::contents;
use super::entries::{EntryKind, FileState, FolderDraft, FolderItems, Inventory};
use super::ignores::{Excludes, Rules};
use super::signals::Signals;
use super::walk::{self, Skip, Unmapped, Walked};

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
pub struct Survey(pub(super) Arc<State>);

/// A survey without Python.
pub(super) struct State {
    /// The folder; of a single file, the file.
    top: PathBuf,
    /// The folder, opened; none of a single file.
    beneath: Option<Beneath>,
    pub(super) entries: Inventory,
    skips: Vec<Skip>,
    left_out: Vec<Skip>,
    counts: Counts,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    files: u64,
    links: u64,
    folders: u64,
    bytes: u64,
}

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
#[pyo3(signature = (top, exclude = Vec::new(), gitignore = false, purpose = "add", named = None),
       text_signature = "(top, exclude=(), gitignore=False, purpose='add', named=None)")]
pub fn survey(
    py: Python<'_>,
    top: PathBuf,
    exclude: Vec<OsString>,
    gitignore: bool,
    purpose: &str,
    named: Option<BTreeMap<PathBuf, CidLike>>,
) -> PyResult<Survey> {
    let (rules, unmapped) = call(|| rules_of(purpose, named))?;
    let signals = Signals::new();
    let failed = |error: io::Error| os_error(&top, &error);
    let stat = rustix::fs::stat(&top).map_err(|error| failed(error.into()))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    // An error of the folder itself is raised; one of a folder below it is reported.
    let beneath = (kind == FileType::Directory).then(|| Beneath::new(&top).map_err(failed)).transpose()?;
    let found = detach::run(py, Work::Unbounded, || {
        if kind == FileType::RegularFile {
            return single_file(&top, &stat);
        }
        let Some(beneath) = beneath else {
            return Err(Error::request(format!("{}: neither a folder nor a regular file", beneath::shown(&top))));
        };
        let excludes = Excludes::new(&exclude, gitignore, rules)?;
        let found = walk::walk((&top, &beneath), &excludes, unmapped, &|| signals.is_interrupted())?;
        Ok(State::new(top, Some(beneath), found))
    });
    signals.result()?;
    found.map(|state| Survey(Arc::new(state)))
}

/// Which files of patterns count, and what becomes of that which no map has.
fn rules_of(purpose: &str, named: Option<BTreeMap<PathBuf, CidLike>>) -> Result<(Rules, Unmapped)> {
    match (purpose, named) {
        ("add", None) => Ok((Rules::Own, Unmapped::Refused)),
        ("keep", None) => Ok((Rules::Own, Unmapped::Skipped)),
        ("strict", None) => Ok((Rules::None, Unmapped::Skipped)),
        ("as-added", None) => Ok((Rules::Included, Unmapped::LeftOut)),
        ("as-added", Some(named)) => {
            let targets = named.into_iter().map(|(path, target)| (path, target.0)).collect();
            Ok((Rules::Named(targets), Unmapped::LeftOut))
        }
        ("add" | "keep" | "strict", Some(_)) => Err(Error::request("named: only with the purpose as-added")),
        _ => Err(Error::request("purpose: expected add, keep, strict or as-added")),
    }
}

/// The `OSError` that Python raises for a file.
pub fn os_error(file: &Path, error: &io::Error) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), beneath::why(error), file.as_os_str().to_owned()))
}

fn single_file(top: &Path, found: &Stat) -> Result<State> {
    let state = FileState::of(found);
    let name = top.file_name().unwrap_or(top.as_os_str());
    if name.to_str().is_none() {
        return Err(walk::refused(top, walk::NOT_UTF8));
    }
    if name.as_bytes().len() > core::key::MAX_TEXT {
        return Err(walk::refused(top, walk::TOO_LONG));
    }
    let mut draft = FolderDraft::default();
    draft.push(EntryKind::File, name, &[], state);
    let folder: FolderItems = draft.finish((0, 0), |_, _| true);
    // Resolved, because files are opened without following symbolic links.
    let file = fs::canonicalize(top)
        .map_err(|error| Error::request(format!("{}: {}", beneath::shown(top), beneath::why(&error))))?;
    let skip = (!state.has_mtime_of(found)).then(|| Skip { file: file.clone(), why: walk::INEXACT_TIME.to_owned() });
    let found =
        Walked { entries: Inventory::new(vec![folder]), skips: skip.into_iter().collect(), left_out: Vec::new() };
    Ok(State::new(file, None, found))
}

impl State {
    fn new(top: PathBuf, beneath: Option<Beneath>, found: Walked) -> Self {
        let Walked { entries, skips, left_out } = found;
        let mut counts = Counts::default();
        for index in 0..entries.len() {
            match entries.kind(index) {
                EntryKind::File => {
                    counts.files += 1;
                    counts.bytes = counts.bytes.saturating_add(entries.state(index).size);
                }
                EntryKind::Link => counts.links += 1,
                EntryKind::Folder => counts.folders += 1,
            }
        }
        Self { top, beneath, entries, skips, left_out, counts }
    }

    /// What the walk left out.
    pub(super) fn skips(&self) -> &[Skip] {
        &self.skips
    }

    /// Opens a file or folder for reading. No symbolic link below the folder is followed. O(depth).
    pub(super) fn open(&self, index: usize) -> io::Result<File> {
        match &self.beneath {
            None => contents::open(&self.top),
            Some(beneath) => beneath.open(&self.entries.path(index)),
        }
    }

    /// Where an entry is on the disk. O(depth).
    pub(super) fn location(&self, index: usize) -> PathBuf {
        if self.beneath.is_none() { self.top.clone() } else { self.top.join(self.entries.path(index)) }
    }

    /// A `SurveyEntry` with this state.
    pub(super) fn entry<'py>(&self, py: Python<'py>, index: usize, now: FileState) -> PyResult<Bound<'py, PyAny>> {
        let path = self.entries.path(index);
        let FileState { size, ctime_ns, inode, device, mode, owner, .. } = now;
        let kind = self.entries.kind(index).name();
        let fields = (path.to_string_lossy(), kind, size, mode, now.mtime_ns, ctime_ns, inode, device, owner);
        tuples::SURVEY_ENTRY.instance(py, fields)
    }

    /// The key of an entry's path. O(depth).
    ///
    /// # Errors
    /// None: the walk has checked all paths.
    pub(super) fn key(&self, index: usize) -> Result<Key> {
        Key::from_text(&self.entries.path(index).to_string_lossy())
    }
}

#[pymethods]
impl Survey {
    fn __len__(&self) -> usize {
        self.0.entries.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let index = place(index, self.0.entries.len())?;
        self.0.entry(py, index, self.0.entries.state(index))
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
        Ok(self.0.location(place(index, self.0.entries.len())?))
    }
}

fn pairs(skips: &[Skip]) -> Vec<(PathBuf, String)> {
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
