//! The class `HashedFolder`: the targets of a survey's files, and the roots of its maps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use core::{Cid, Error, Key, Result, Suite};
use coregw_core as core;
use coregw_ops::folder::attributes::{self, MAX_XATTR_BYTES};
use coregw_ops::folder::{self, Attributes, Entry};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::cid::{CidLike, text};
use crate::convert;
use crate::detach::{self, Work};
use crate::errors::{call, invalid};
use crate::parallel;

use super::contents::{self, Contents, Unread};
use super::entries::{EntryKind, FileState};
use super::signals::Signals;
use super::survey::{State, Survey, each_item, place};
use super::targets::FileTargets;
use super::walk::Skip;

/// Files that are hashed before their results are put away.
const FILES_AT_ONCE: usize = 4096;

/// The executable bit of a file's owner.
const OWNER_EXECUTES: u16 = 0o100;
/// The mode of executable files at level `exec`.
const EXECUTABLE: u16 = 0o755;

/// A folder whose files were read: their targets, and the roots of the folder's maps. Made by `hash_survey`.
///
/// A sequence of the survey's entries, with the sizes, modes and times with which the files were read.
#[pyclass(frozen, module = "coregw")]
pub struct HashedFolder {
    survey: Py<Survey>,
    suite: Suite,
    targets: FileTargets,
    /// The chunks of the files that are lists: digests and lengths.
    chunks: BTreeMap<usize, Vec<([u8; 32], u32)>>,
    xattrs: BTreeMap<usize, BTreeMap<String, Vec<u8>>>,
    /// The states of files that were not read in the state in which they were found.
    changed: BTreeMap<usize, FileState>,
    skips: Vec<Skip>,
    files: u64,
    bytes: u64,
}

/// How much is recorded (protocol section 7, *writers*).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    All,
    NoTimes,
    Exec,
    None,
}

impl Level {
    fn from_name(name: &str) -> Result<Self> {
        match name {
            "all" => Ok(Self::All),
            "no-times" => Ok(Self::NoTimes),
            "exec" => Ok(Self::Exec),
            "none" => Ok(Self::None),
            other => {
                let shown: String = other.chars().take(80).collect();
                Err(Error::request(format!("attributes: {shown:?} is not all, no-times, exec or none")))
            }
        }
    }
}

/// Which attributes are recorded.
#[derive(Debug, Clone, Copy)]
struct Recorded {
    level: Level,
    owner: bool,
}

/// What became of one entry.
enum Outcome {
    Read(Contents),
    Unread(Unread),
    /// There is nothing to read: a link, a folder, or a file whose target is known.
    Nothing,
}

/// What was found at one entry.
struct Found {
    outcome: Outcome,
    xattrs: BTreeMap<String, Vec<u8>>,
    why_no_xattrs: Option<String>,
}

/// Read and hash the files of a survey on all cores, with the GIL released. Each byte is read once. O(bytes).
///
/// A file that changes while it is read is read again, at most three times. If the bytes that it had at first are the
/// same again, it has only grown, and these bytes are what it is; otherwise it is skipped and reported. Each thread
/// reads into 2 MiB of memory.
///
/// Args:
///     found: The survey.
///     suite: The hash function of lists and maps: ``sha2-256`` or ``blake3``.
///     known: FileTargets of files that need not be read, by their places in the survey.
///     xattrs: Whether extended attributes are read, too.
///     progress: Called about every 50 milliseconds with the number of bytes that were read since, in the caller's
///         thread. An exception that it raises ends the work.
///
/// Raises:
///     InvalidInput: If `suite` is another, or a known target is not that of a file of a folder.
///     IndexError: If a known target is that of no file of the survey.
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
    let state = &found.get().0;
    let mut hashed = HashedFolder {
        survey: found.clone().unbind(),
        suite,
        targets: FileTargets::new(suite, state.entries.len()),
        chunks: BTreeMap::new(),
        xattrs: BTreeMap::new(),
        changed: BTreeMap::new(),
        skips: Vec::new(),
        files: 0,
        bytes: 0,
    };
    if let Some(known) = known {
        hashed.take_known(state, known)?;
    }
    let hashed = detach::run(found.py(), Work::Unbounded, || {
        hashed.read_all(state, xattrs, &signals);
        Ok(hashed)
    });
    signals.result()?;
    hashed
}

impl HashedFolder {
    fn take_known(&mut self, state: &State, known: &Bound<'_, PyAny>) -> PyResult<()> {
        convert::for_each(&known.call_method0("items")?, |_, item| {
            let (index, (target, size)) = item.extract::<(isize, (CidLike, u64))>()?;
            let index = place(index, state.entries.len())?;
            if state.entries.kind(index) != EntryKind::File {
                return Err(PyIndexError::new_err(format!("known: entry {index} is not a file")));
            }
            if !self.targets.set(index, &target.0) {
                let what = format!("known: entry {index}: {} is not the target of a file", target.0);
                return Err(invalid(core::InputCode::KindMismatch, what));
            }
            let found = state.entries.state(index);
            if found.size != size {
                self.changed.insert(index, found.with_size(size));
            }
            self.files += 1;
            self.bytes = self.bytes.saturating_add(size);
            Ok(())
        })
    }

    fn read_all(&mut self, state: &State, xattrs: bool, signals: &Signals) {
        let count = state.entries.len();
        for from in (0..count).step_by(FILES_AT_ONCE) {
            let places: Vec<_> = (from..count.min(from + FILES_AT_ONCE)).collect();
            let targets = &self.targets;
            let find = |&index: &usize| find(state, index, targets, self.suite, xattrs, signals);
            let found = parallel::map_watched(&places, find, &|| signals.look());
            if signals.is_interrupted() {
                return;
            }
            for (index, found) in places.into_iter().zip(found) {
                self.take(state, index, found);
            }
        }
    }

    fn take(&mut self, state: &State, index: usize, found: Found) {
        match found.outcome {
            Outcome::Read(read) => {
                self.targets.set(index, &read.target);
                self.files += 1;
                self.bytes += read.state.size;
                if read.state != state.entries.state(index) {
                    self.changed.insert(index, read.state);
                }
                if read.chunks.len() > 1 {
                    let digest = |cid: &Cid| cid.digest().try_into().unwrap_or_default();
                    let chunks = read.chunks.iter().map(|chunk| (digest(&chunk.cid), chunk.len)).collect();
                    self.chunks.insert(index, chunks);
                }
            }
            Outcome::Unread(Unread::Skipped(why)) => self.skips.push(Skip { file: state.location(index), why }),
            Outcome::Unread(Unread::Interrupted) | Outcome::Nothing => {}
        }
        if let Some(why) = found.why_no_xattrs {
            self.skips.push(Skip { file: state.location(index), why });
        }
        if !found.xattrs.is_empty() {
            self.xattrs.insert(index, found.xattrs);
        }
    }

    /// What an entry was when it was read.
    fn state(&self, state: &State, index: usize) -> FileState {
        self.changed.get(&index).copied().unwrap_or_else(|| state.entries.state(index))
    }

    /// The record of an entry, unless it has none.
    fn record(&self, state: &State, index: usize, recorded: Recorded) -> Result<Option<attributes::Record>> {
        let attributes = self.attributes(state, index, recorded);
        attributes.filter(|attributes| !attributes.is_empty()).map(|attributes| attributes.record()).transpose()
    }

    fn attributes(&self, state: &State, index: usize, Recorded { level, owner }: Recorded) -> Option<Attributes> {
        let kind = state.entries.kind(index);
        if level == Level::None || kind == EntryKind::File && self.targets.get(index).is_none() {
            return None;
        }
        let now = self.state(state, index);
        let entry = match kind {
            EntryKind::File => Entry::File,
            EntryKind::Link => Entry::Link(state.entries.link(index).to_vec()),
            EntryKind::Folder => Entry::Folder,
        };
        if level == Level::Exec {
            let is_executable = kind == EntryKind::File && now.mode & OWNER_EXECUTES != 0;
            let mode = is_executable.then_some(EXECUTABLE);
            return (kind != EntryKind::Folder).then(|| Attributes { entry, mode, ..Attributes::default() });
        }
        Some(Attributes {
            entry,
            size: (kind == EntryKind::File).then_some(now.size),
            mode: (kind != EntryKind::Link).then_some(now.mode),
            mtime: now.mtime_ns().filter(|_| level == Level::All),
            owner: owner.then_some(now.owner),
            xattrs: self.xattrs.get(&index).cloned().unwrap_or_default(),
        })
    }

    fn build(&self, state: &State, recorded: Recorded, signals: &Signals) -> Result<folder::FolderRoots> {
        let check = |index: usize| {
            let is_interrupted = index.is_multiple_of(FILES_AT_ONCE) && signals.is_interrupted();
            if is_interrupted { Err(Error::request("interrupted")) } else { Ok(()) }
        };
        let entries = || 0..state.entries.len();
        let arc = |index: usize, target: Result<Option<Cid>>| -> Option<Result<(Key, Cid)>> {
            let target = target.transpose()?;
            Some(target.and_then(|target| Ok((state.key(index)?, target))))
        };
        let records = entries().filter_map(|index| {
            let record = check(index).and_then(|()| self.record(state, index, recorded));
            arc(index, record.map(|record| record.map(|record| record.target)))
        });
        let files = entries().filter_map(|index| arc(index, check(index).map(|()| self.targets.get(index))));
        folder::build(self.suite, records, files, drop)
    }
}

/// Reads one entry.
fn find(state: &State, index: usize, targets: &FileTargets, suite: Suite, xattrs: bool, signals: &Signals) -> Found {
    let mut found = Found { outcome: Outcome::Nothing, xattrs: BTreeMap::new(), why_no_xattrs: None };
    if signals.is_interrupted() {
        return found;
    }
    if state.entries.kind(index) == EntryKind::File && targets.get(index).is_none() {
        let read = contents::read_here(&state.location(index), suite, &|bytes| signals.is_interrupted_after(bytes));
        found.outcome = read.map_or_else(Outcome::Unread, Outcome::Read);
    }
    if xattrs {
        match read_xattrs(&state.location(index)) {
            Ok(xattrs) => found.xattrs = xattrs,
            Err(why) => found.why_no_xattrs = Some(why),
        }
    }
    found
}

/// The extended attributes of a file, link or folder. Attributes that vanish meanwhile are left out.
fn read_xattrs(file: &Path) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let mut xattrs = BTreeMap::new();
    let Ok(names) = xattr::list(file) else { return Ok(xattrs) };
    for name in names {
        let Some(text) = name.to_str() else {
            return Err("the name of an extended attribute is not UTF-8".to_owned());
        };
        if let Ok(Some(value)) = xattr::get(file, &name) {
            if value.len() > MAX_XATTR_BYTES {
                return Err(format!("its extended attribute {text:?} is too long"));
            }
            xattrs.insert(text.to_owned(), value);
        }
    }
    Ok(xattrs)
}

/// A record: the path, the target, and the record's bytes.
type RecordTuple<'py> = (String, Bound<'py, PyString>, Bound<'py, PyBytes>);

#[pymethods]
impl HashedFolder {
    fn __len__(&self) -> usize {
        self.survey.get().0.entries.len()
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        each_item(slf)
    }

    /// The entry of the survey, with the size, mode and times with which it was read.
    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let state = &self.survey.get().0;
        let index = place(index, state.entries.len())?;
        state.entry(py, index, self.state(state, index))
    }

    /// The number of files that have targets.
    #[getter]
    fn files(&self) -> u64 {
        self.files
    }

    /// The sum of their sizes in bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What was skipped, by the survey or since: pairs of location and reason, in the order of locations.
    #[getter]
    fn skipped(&self) -> Vec<(PathBuf, String)> {
        let mut skips = self.survey.get().0.skips().to_vec();
        skips.extend_from_slice(&self.skips);
        skips.sort_unstable();
        skips.into_iter().map(|skip| (skip.file, skip.why)).collect()
    }

    /// Return the target of an entry of the survey as text; None if it is not a file, or was skipped. O(1).
    ///
    /// Args:
    ///     index: The place of the entry in the survey.
    ///
    /// Raises:
    ///     IndexError: If there is no such place.
    fn target<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Option<Bound<'py, PyString>>> {
        let index = place(index, self.survey.get().0.entries.len())?;
        Ok(self.targets.get(index).map(|target| text(py, &target)))
    }

    /// Return the chunks of a file that was read and is a list: pairs of payload CID and length. O(chunks).
    ///
    /// Args:
    ///     index: The place of the entry in the survey.
    ///
    /// Returns:
    ///     None for any other entry: its target says all, or was known before.
    fn chunks<'py>(&self, py: Python<'py>, index: usize) -> Option<Vec<(Bound<'py, PyString>, u32)>> {
        let raw = core::codec::Codec::RAW.number();
        let cid = |digest: &[u8; 32]| Cid::of_payload(raw, Suite::Sha2_256, &core::Digest(*digest));
        let chunks = self.chunks.get(&index)?;
        Some(chunks.iter().map(|(digest, len)| (text(py, &cid(digest)), *len)).collect())
    }

    /// Return the root of the folder's map, and that of the map of attributes (protocol section 7). O(entries).
    ///
    /// Args:
    ///     attributes: What is recorded: ``all``, ``no-times``, ``exec`` or ``none``.
    ///     owner: Whether the numbers of owner and group are recorded, too; not with ``exec`` and ``none``.
    ///
    /// Returns:
    ///     Both as text; None instead of the second if nothing is recorded. Extended attributes are recorded if they
    ///     were read.
    ///
    /// Raises:
    ///     InvalidInput: If `attributes` is another word, or an entry's extended attributes take more than 1 MiB.
    ///     KeyboardInterrupt: If the process gets SIGINT meanwhile, in the main thread.
    #[pyo3(signature = (attributes = "all", owner = false), text_signature = "($self, attributes='all', owner=False)")]
    fn roots<'py>(
        &self,
        py: Python<'py>,
        attributes: &str,
        owner: bool,
    ) -> PyResult<(Bound<'py, PyString>, Option<Bound<'py, PyString>>)> {
        let recorded = Recorded { level: call(|| Level::from_name(attributes))?, owner };
        let signals = Signals::new();
        let roots = detach::run(py, Work::Unbounded, || self.build(&self.survey.get().0, recorded, &signals));
        signals.result()?;
        let roots = roots?;
        Ok((text(py, &roots.root.cid()), roots.attributes.map(|root| text(py, &root.cid()))))
    }

    /// Return the records of the map of attributes: path, target, and the record's bytes. O(entries).
    ///
    /// Args:
    ///     attributes: As for `roots`.
    ///     owner: As for `roots`.
    ///
    /// Raises:
    ///     InvalidInput: As for `roots`.
    #[pyo3(signature = (attributes = "all", owner = false), text_signature = "($self, attributes='all', owner=False)")]
    fn records<'py>(&self, py: Python<'py>, attributes: &str, owner: bool) -> PyResult<Vec<RecordTuple<'py>>> {
        let recorded = Recorded { level: call(|| Level::from_name(attributes))?, owner };
        let state = &self.survey.get().0;
        let mut records = Vec::new();
        for index in 0..state.entries.len() {
            if let Some(record) = call(|| self.record(state, index, recorded))? {
                let path = state.entries.path(index).to_string_lossy().into_owned();
                records.push((path, text(py, &record.target), PyBytes::new(py, &record.bytes)));
            }
        }
        Ok(records)
    }
}
