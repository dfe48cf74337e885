//! The class `HashedFolder`: the targets of a survey's files, and the roots of its maps.

use std::path::PathBuf;
use std::sync::Arc;

use core::Suite;
use coregw_core as core;
use coregw_folders::entries::EntryKind;
use coregw_folders::hashed::{Hashed, Recorded, Totals};
use coregw_folders::reading::{self, Chunks};
use coregw_folders::{FolderRoots, RESERVED_NAME};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::cid::{CidLike, text};
use crate::convert;
use crate::detach::{self, Work};
use crate::errors::{call, invalid};
use crate::signals::Signals;

use super::survey::{Survey, each_item, entry, pairs, place};

/// A folder whose files were read: their targets, and the roots of the folder's maps. Made by `hash_survey`.
///
/// A sequence of the survey's entries, with the sizes, modes and times with which the files were read.
#[pyclass(frozen, module = "coregw")]
pub struct HashedFolder {
    hashed: Arc<Hashed>,
    /// The chunks of the files that are lists.
    chunks: Chunks,
    totals: Totals,
}

/// Read and hash the files of a survey on all cores, with the GIL released. Each byte is read once. O(bytes).
///
/// A file that changes while it is read is read again, at most three times. If the bytes that it had at first are the
/// same again, it has only grown, and these bytes are its content; otherwise it is skipped and reported. Each thread
/// reads into 2 MiB of memory.
///
/// Args:
///     found: The survey.
///     suite: The hash function of lists and maps: ``sha2-256`` or ``blake3``.
///     known: The targets and sizes of files that need not be read, by their positions in the survey.
///     xattrs: Whether extended attributes are read as well.
///     progress: Called about every 50 milliseconds with the number of bytes that were read since, in the caller's
///         thread. An exception that it raises ends the work.
///
/// Raises:
///     InvalidInput: If `suite` is neither of these, or a known target is not that of a file of a folder.
///     IndexError: If a known target belongs to no file of the survey.
///     KeyboardInterrupt: If the process gets SIGINT meanwhile, in the main thread.
///
/// >>> import pathlib, tempfile
/// >>> with tempfile.TemporaryDirectory() as folder:
/// ...     _ = pathlib.Path(folder, "a").write_bytes(b"hello")
/// ...     hashed = hash_survey(survey(folder))
/// >>> hashed.target(0) == payload_cid(b"hello")
/// True
#[pyfunction]
#[pyo3(signature = (found, suite = "sha2-256", known = None, xattrs = false, progress = None),
       text_signature = "(found, suite='sha2-256', known=None, xattrs=False, progress=None)")]
pub fn hash_survey(
    found: &Bound<'_, Survey>,
    suite: &str,
    known: Option<&Bound<'_, PyAny>>,
    xattrs: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<HashedFolder> {
    let suite = call(|| Suite::from_name(suite))?;
    let signals = Signals::with_progress(progress);
    let mut hashed = Hashed::new(Arc::clone(&found.get().0), suite);
    if let Some(known) = known {
        take_known(&mut hashed, known)?;
    }
    let folder = detach::run(found.py(), Work::Unbounded, || {
        let (hashed, chunks) = reading::read_all(hashed, xattrs, &signals)?;
        let totals = hashed.totals();
        Ok(HashedFolder { hashed, chunks, totals })
    });
    signals.result()?;
    folder
}

fn take_known(hashed: &mut Hashed, known: &Bound<'_, PyAny>) -> PyResult<()> {
    let entries = &Arc::clone(&hashed.survey).entries;
    convert::for_each(&known.call_method0("items")?, |_, item| {
        let (index, (target, size)) = item.extract::<(isize, (CidLike, u64))>()?;
        let index = place(index, entries.count())?;
        if entries.kind(index) != EntryKind::File {
            return Err(PyIndexError::new_err(format!("known: entry {index} is not a file")));
        }
        if !hashed.targets.set(index, &target.0) {
            let what = format!("known: entry {index}: {} is not the target of a file", target.0);
            return Err(invalid(core::InputCode::KindMismatch, what));
        }
        hashed.take(index, &target.0, entries.state(index).with_size(size));
        Ok(())
    })
}

/// A record: the path, the target, and the record's bytes.
type RecordTuple<'py> = (String, Bound<'py, PyString>, Bound<'py, PyBytes>);

/// The roots of both maps of a folder as text; see `HashedFolder.roots`.
pub(super) type RootsTuple<'py> = (Bound<'py, PyString>, Option<Bound<'py, PyString>>);

/// Calls what computes the roots of both maps, with what these words say recorded, while Python runs on.
pub(super) fn roots_by<'py>(
    py: Python<'py>,
    attributes: &str,
    owner: bool,
    compute: impl FnOnce(Recorded, &Signals) -> Result<FolderRoots, core::Error> + Send,
) -> PyResult<RootsTuple<'py>> {
    let recorded = call(|| Recorded::new(attributes, owner))?;
    let signals = Signals::new();
    let roots = detach::run(py, Work::Unbounded, || compute(recorded, &signals));
    signals.result()?;
    let roots = roots?;
    Ok((text(py, &roots.root.cid()), roots.attributes.map(|root| text(py, &root.cid()))))
}

#[pymethods]
impl HashedFolder {
    fn __len__(&self) -> usize {
        self.hashed.survey.entries.count()
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        each_item(slf)
    }

    /// The entry of the survey, with the size, mode and times with which it was read.
    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let index = place(index, self.hashed.survey.entries.count())?;
        entry(py, &self.hashed.survey.entries, index, self.hashed.now(index))
    }

    /// The number of files that have targets.
    #[getter]
    fn files(&self) -> u64 {
        self.totals.files
    }

    /// The sum of their sizes in bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.totals.bytes
    }

    /// What was skipped, by the survey or since: pairs of location and reason, in the order of locations.
    #[getter]
    fn skipped(&self) -> Vec<(PathBuf, String)> {
        pairs(&self.hashed.all_skips())
    }

    /// What could not be recorded of the folder itself, as `skipped`, where that has a record.
    #[getter]
    fn top_skipped(&self) -> Vec<(PathBuf, String)> {
        pairs(self.hashed.top_skips())
    }

    /// Return the target of an entry of the survey as text; None if it is not a file, or was skipped. O(1).
    ///
    /// Args:
    ///     index: The position of the entry in the survey.
    ///
    /// Raises:
    ///     IndexError: If there is no such position.
    fn target<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Option<Bound<'py, PyString>>> {
        let index = place(index, self.hashed.survey.entries.count())?;
        Ok(self.hashed.targets.get(index).map(|target| text(py, &target)))
    }

    /// Return the chunks of a file that was read and is a list: pairs of payload CID and length. O(chunks).
    ///
    /// Args:
    ///     index: The position of the entry in the survey.
    ///
    /// Returns:
    ///     None for any other entry: its target says all, or was known before.
    fn chunks<'py>(&self, py: Python<'py>, index: usize) -> Option<Vec<(Bound<'py, PyString>, u32)>> {
        let chunks = self.chunks.get(&index)?;
        Some(chunks.iter().map(|chunk| (text(py, &chunk.cid()), chunk.len)).collect())
    }

    /// Return the root of the folder's map, and that of the map of attributes (protocol section 7). O(entries).
    ///
    /// Args:
    ///     attributes: What is recorded: ``whole``, ``all``, ``no-times``, ``exec`` or ``none``.
    ///     owner: Whether the numeric ids of owner and group are recorded; not with ``exec`` and ``none``.
    ///
    /// Returns:
    ///     Both as text; None instead of the second if nothing is recorded. Extended attributes are recorded if they
    ///     were read.
    ///
    /// Raises:
    ///     InvalidInput: If `attributes` is unknown, or an entry's extended attributes take more than 1 MiB.
    ///     KeyboardInterrupt: If the process gets SIGINT meanwhile, in the main thread.
    #[pyo3(signature = (attributes = "all", owner = false), text_signature = "($self, attributes='all', owner=False)")]
    fn roots<'py>(&self, py: Python<'py>, attributes: &str, owner: bool) -> PyResult<RootsTuple<'py>> {
        roots_by(py, attributes, owner, |recorded, signals| self.hashed.roots(recorded, signals))
    }

    /// Return the records of the map of attributes: path, target, and the record's bytes. O(entries).
    ///
    /// That of the folder itself, at the reserved name, comes first.
    ///
    /// Args:
    ///     attributes: As for `roots`.
    ///     owner: As for `roots`.
    ///
    /// Raises:
    ///     InvalidInput: As for `roots`.
    #[pyo3(signature = (attributes = "all", owner = false), text_signature = "($self, attributes='all', owner=False)")]
    fn records<'py>(&self, py: Python<'py>, attributes: &str, owner: bool) -> PyResult<Vec<RecordTuple<'py>>> {
        let recorded = call(|| Recorded::new(attributes, owner))?;
        let entries = &self.hashed.survey.entries;
        let mut records = Vec::new();
        if let Some(record) = call(|| self.hashed.top_record(recorded))? {
            records.push((RESERVED_NAME.to_owned(), text(py, &record.target), PyBytes::new(py, &record.bytes)));
        }
        for index in 0..entries.count() {
            if let Some(record) = call(|| self.hashed.record(index, recorded))? {
                let path = entries.path(index).to_string_lossy().into_owned();
                records.push((path, text(py, &record.target), PyBytes::new(py, &record.bytes)));
            }
        }
        Ok(records)
    }
}
