//! `FolderWriter`, `PayloadSink` and `files_match`: folders that are restored, and files that are compared.

use std::collections::HashMap;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use core::{Cid, InputCode};
use coregw_core as core;
use coregw_folders::beneath::Beneath;
use coregw_folders::compare::{self, ComparedFile};
use coregw_folders::lane::{self, Lane, Received};
use coregw_folders::metadata::{FileIdentity, Metadata};
use coregw_folders::parallel::locked;
use coregw_folders::plan::{Files, Plan, PlannedPayload};
use coregw_folders::restore::Restore;
use coregw_folders::stat_file::{Header, Stat, StatFile, StatSorter};
use coregw_folders::top::RestoreFailure;
use coregw_folders::writer::{NotedFile, States};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::sync::{MutexExt as _, PyOnceLock};
use pyo3::types::PyString;

use crate::cid::{CidLike, text};
use crate::convert::BytesLike;
use crate::detach::{self, Work};
use crate::errors::{call, exception, invalid, of_panic};
use crate::signals::Signals;

use super::attributes::EntryTuple;
use super::listing::FolderListing;
use super::survey::os_error;

/// The inode of a file, its size, and its times of modification and change.
type StatTuple = (u64, u64, i64, i64);
/// The path of a file, its state, and its target.
type StateTuple<'py> = (String, StatTuple, Bound<'py, PyString>);

fn state_tuple<'py>(py: Python<'py>, (path, stat, target): NotedFile) -> StateTuple<'py> {
    let Stat { inode, size, mtime, ctime } = stat;
    (path, (inode, size, mtime, ctime), text(py, &target))
}

/// Writes files below one folder from payloads, which its own threads verify and write with the GIL released.
///
/// Paths are added before and after `start`. Each `request` makes the folders that were added, and names payloads
/// whose bytes are given to its `PayloadSink`. `finish` makes links and sets the attributes of folders. Nothing outside
/// the folder is touched: paths are opened name by name, and symbolic links are not followed. Nothing that exists is
/// written to. What is known of a file is forgotten when it is complete.
///
/// Args:
///     folder: The folder, which exists.
///     incomplete: An empty folder on the same file system, for files until they are complete: each is renamed to its
///         path then. None: files are created at their paths.
///     is_moved: Whether what is in `folder` itself is moved elsewhere in the end. Then `finish` does not set the
///         attributes of folders there, and `take_states` returns files there apart from the others.
///     max_bytes: Bytes that all files together may have; None for any number. A file that exceeds them is refused when
///         it is added, or, if its size is not known then, before its first byte is written.
///
/// Raises:
///     OSError: If a folder can't be opened.
#[pyclass(frozen, module = "coregw._core")]
pub struct FolderWriter(Arc<Restoring>);

/// What a writer and its sinks share.
struct Restoring {
    restore: Restore,
    /// The first failure: the same exception for each caller, since any of them may report it.
    failure: PyOnceLock<Option<PyErr>>,
}

impl Restoring {
    /// Raises the first failure, if there is one.
    fn raise(&self, py: Python<'_>) -> PyResult<()> {
        let work = self.restore.work();
        if !work.is_stopped() {
            return Ok(());
        }
        let taken = || work.take_failure().map(|failure| into_exception(failure, py));
        let stopped = || invalid(InputCode::InvalidRequest, "the writer has been stopped");
        Err(self.failure.get_or_init(py, taken).as_ref().map_or_else(stopped, |error| error.clone_ref(py)))
    }

    /// Changes what is planned. The GIL is released if a thread has the locks, which may make folders.
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut Plan, &mut Files) -> core::Result<T> + Send,
    ) -> PyResult<T> {
        let work = self.restore.work();
        match work.try_planned() {
            Some((mut files, mut plan)) => call(|| change(&mut plan, &mut files)),
            None => detach::run(py, Work::Unbounded, || {
                let (mut files, mut plan) = work.planned();
                change(&mut plan, &mut files)
            }),
        }
    }
}

/// The exception for a failure.
fn into_exception(failure: RestoreFailure, py: Python<'_>) -> PyErr {
    match failure {
        RestoreFailure::Core(error) => exception(error),
        RestoreFailure::Path(path, why) => invalid(InputCode::InvalidPath, format!("{}: {why}", path.escape_debug())),
        RestoreFailure::Io(number, path) => {
            let text = py.import("os").and_then(|os| os.call_method1("strerror", (number,)));
            text.map_or_else(|error| error, |text| PyOSError::new_err((number, text.unbind(), path)))
        }
        RestoreFailure::Panic(panic) => of_panic(&*panic),
    }
}

#[pymethods]
impl FolderWriter {
    #[new]
    #[pyo3(signature = (folder, incomplete = None, is_moved = false, max_bytes = None))]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        incomplete: Option<PathBuf>,
        is_moved: bool,
        max_bytes: Option<u64>,
    ) -> PyResult<Self> {
        let restore = Restore::open(&folder, incomplete.as_deref(), is_moved, max_bytes.unwrap_or(u64::MAX))
            .map_err(|failure| into_exception(failure, py))?;
        Ok(Self(Arc::new(Restoring { restore, failure: PyOnceLock::new() })))
    }

    /// Add a folder; no segments are the folder itself. The folders above a path are added with it.
    ///
    /// Args:
    ///     segments: The path.
    ///     mode: Its permissions and sticky bit, set by `finish`; None leaves those of a new folder. Until then, others
    ///         have no permissions that they do not have in the end. Set-uid and set-gid bits stay as they are.
    ///     mtime_ns: Its time of modification, set by `finish`.
    ///     exists: Whether it exists already.
    ///     below: The number of the folder that the path is below; 0 is the folder itself.
    ///
    /// Returns:
    ///     The number of the folder.
    ///
    /// Raises:
    ///     InvalidInput: If a segment can't be a file name (code ``invalid_path``).
    #[pyo3(signature = (segments, mode = None, mtime_ns = None, exists = false, below = 0))]
    fn add_folder(
        &self,
        py: Python<'_>,
        segments: Vec<String>,
        mode: Option<u32>,
        mtime_ns: Option<i64>,
        exists: bool,
        below: u32,
    ) -> PyResult<u32> {
        let known = Metadata { mode, mtime: mtime_ns, ..Metadata::default() };
        self.0.change(py, |plan, _| plan.add_folder(below, &segments, known, exists))
    }

    /// Return the number of a folder in the folder of another number; None if it was not added.
    fn folder_in(&self, py: Python<'_>, folder: u32, name: &str) -> PyResult<Option<u32>> {
        self.0.change(py, |plan, _| Ok(plan.folder_in(folder, name)))
    }

    /// Return the number of the folder above another one.
    ///
    /// Raises:
    ///     InvalidInput: If no folder has this number.
    fn folder_above(&self, py: Python<'_>, folder: u32) -> PyResult<u32> {
        self.0.change(py, |plan, _| plan.above(folder))
    }

    /// Add a file that consists of payloads.
    ///
    /// Args:
    ///     segments: The path.
    ///     parts: The payloads in order, at least one: their CIDs and sizes. The size of the last one may be None.
    ///     mode: Its permissions, None for those of a new file. Bits above 0o777 are ignored.
    ///     mtime_ns: Its time of modification.
    ///     replaces: Whether an existing file at the path is replaced, if the writer has a folder for incomplete files.
    ///     list: The root of the list that the payloads are of, if they are of one.
    ///     below: As for `add_folder`.
    ///     executable: Whether a file without a mode is executable, as far as the umask lets new files be.
    ///
    /// Raises:
    ///     InvalidInput: If a segment can't be a file name (code ``invalid_path``), or a CID is invalid or a root.
    ///     TooLarge: If the sizes sum to 2^63 or more, those of all files to 2^64 or more, or to more than `max_bytes`.
    #[pyo3(signature = (
        segments, parts, mode = None, mtime_ns = None, replaces = false, list = None, below = 0, executable = false
    ))]
    #[allow(clippy::too_many_arguments)] // what is known of a file
    fn add_file(
        &self,
        py: Python<'_>,
        segments: Vec<String>,
        parts: Vec<(CidLike, Option<u64>)>,
        mode: Option<u32>,
        mtime_ns: Option<i64>,
        replaces: bool,
        list: Option<CidLike>,
        below: u32,
        executable: bool,
    ) -> PyResult<()> {
        let parts: Vec<_> = parts.into_iter().map(|(cid, size)| (cid.0, size)).collect();
        let is_known = |(index, part): (usize, &(Cid, Option<u64>))| {
            part.0.root().is_none() && (part.1.is_some() || index + 1 == parts.len())
        };
        if parts.is_empty() || !parts.iter().enumerate().all(is_known) {
            let what = "a file consists of payloads, and the size of each but the last is known";
            return Err(invalid(InputCode::InvalidRequest, what));
        }
        let attributes = Metadata { mode, mtime: mtime_ns, is_executable: executable };
        let (work, list) = (self.0.restore.work(), list.as_ref().map(|list| &list.0));
        let placement = self.0.restore.placement(replaces);
        self.0.change(py, |plan, files| {
            work.add_file((plan, files), (below, &segments), (&parts, list), attributes, placement)
        })
    }

    /// Add a file that exists with the right content: `finish` sets its attributes where they differ.
    ///
    /// Args:
    ///     segments: The path.
    ///     mode: As for `add_file`.
    ///     mtime_ns: As for `add_file`.
    ///     file: The device and the inode that it has; if it has others then, `finish` refuses it. None for any.
    ///     below: As for `add_folder`.
    #[pyo3(signature = (segments, mode = None, mtime_ns = None, file = None, below = 0))]
    fn keep_file(
        &self,
        py: Python<'_>,
        segments: Vec<String>,
        mode: Option<u32>,
        mtime_ns: Option<i64>,
        file: Option<(u64, u64)>,
        below: u32,
    ) -> PyResult<()> {
        let identity = file.map(|(device, inode)| FileIdentity { device, inode });
        let attributes = Metadata { mode, mtime: mtime_ns, ..Metadata::default() };
        self.0.change(py, |plan, _| plan.keep((below, &segments), attributes, Some(identity)))
    }

    /// Add a symbolic link that exists with the right target: `finish` sets its time where that differs.
    #[pyo3(signature = (segments, mtime_ns = None, below = 0))]
    fn keep_link(&self, py: Python<'_>, segments: Vec<String>, mtime_ns: Option<i64>, below: u32) -> PyResult<()> {
        let attributes = Metadata { mtime: mtime_ns, ..Metadata::default() };
        self.0.change(py, |plan, _| plan.keep((below, &segments), attributes, None))
    }

    /// Add a symbolic link, which `finish` makes. Its target is not checked. The path is as for `add_folder`.
    #[pyo3(signature = (segments, target, mtime_ns = None, replaces = false, below = 0))]
    fn add_link(
        &self,
        py: Python<'_>,
        segments: Vec<String>,
        target: BytesLike,
        mtime_ns: Option<i64>,
        replaces: bool,
        below: u32,
    ) -> PyResult<()> {
        let attributes = Metadata { mtime: mtime_ns, ..Metadata::default() };
        let placement = self.0.restore.placement(replaces);
        self.0.change(py, |plan, _| plan.add_link((below, &segments), target.to_vec(), attributes, placement))
    }

    /// Add files of one payload, and folders, as far as `listing` has joined them.
    ///
    /// O(entries), with the GIL released.
    ///
    /// Args:
    ///     listing: The listing of a map.
    ///     below: The number of the folder that the map is; 0 is the folder itself.
    ///
    /// Returns:
    ///     The other entries, as `FolderListing.take` does, with paths in the map: links, nested maps, files that are
    ///     lists, and folders that have no attributes because they are moved.
    ///
    /// Raises:
    ///     InvalidInput, TooLarge: As `add_file`; if a path is a file and a folder, or that of the folder for
    ///         incomplete files (code ``invalid_path``); or as `FolderListing.take`.
    fn add_listed<'py>(&self, py: Python<'py>, listing: &FolderListing, below: u32) -> PyResult<Vec<EntryTuple<'py>>> {
        let placement = self.0.restore.placement(false);
        let others = detach::run(py, Work::Unbounded, || listing.add_to(self.0.restore.work(), below, placement))?;
        others.into_iter().map(|entry| listing.tuple(py, entry)).collect()
    }

    /// Make the folders that were added, write the payloads that are in their CIDs, and start the threads.
    ///
    /// Raises:
    ///     InvalidInput: If a path can't be made here, or exists (code ``invalid_path``); the message names it.
    ///     OSError: If the system refuses something.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        detach::run(py, Work::Unbounded, || self.0.restore.start())?;
        self.0.raise(py)
    }

    /// Return the sink of the next payloads to request, or None if all that were added have been.
    ///
    /// Args:
    ///     max_bytes: The approximate total size of the payloads, unless it is a single one.
    ///     max_payload_bytes: Limit on one payload.
    ///
    /// Raises:
    ///     InvalidInput, OSError: As `start`.
    fn request(&self, py: Python<'_>, max_bytes: u64, max_payload_bytes: u64) -> PyResult<Option<PayloadSink>> {
        let lane = py.detach(|| self.0.restore.request(max_bytes, max_payload_bytes));
        self.0.raise(py)?;
        Ok(lane.map(|lane| PayloadSink { lane, shared: Arc::clone(&self.0) }))
    }

    /// Make the links and set the attributes of folders, when all payloads are written.
    ///
    /// Raises:
    ///     InvalidInput, OSError: As `start`.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.restore.finish());
        self.0.raise(py)
    }

    /// The states of the files that were completed since the last call, when each had its path. O(files).
    ///
    /// Files that somebody else has changed since are left out.
    ///
    /// Returns:
    ///     For each its path, its inode, size in bytes, and times of modification and change in nanoseconds since 1970,
    ///     and its target; and the same for files that are kept apart.
    fn take_states<'py>(&self, py: Python<'py>) -> (Vec<StateTuple<'py>>, Vec<StateTuple<'py>>) {
        let States { files, top } = self.0.restore.work().take_states();
        let tuples = |states: Vec<NotedFile>| states.into_iter().map(|state| state_tuple(py, state)).collect();
        (tuples(files), tuples(top))
    }

    /// Number of files that were added, and the sum of their sizes; None if one of them is not known.
    #[getter]
    fn added(&self, py: Python<'_>) -> (u32, Option<u64>) {
        let work = self.0.restore.work();
        let files = work.files.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        files.added()
    }

    /// Whether what is in the folder itself is moved elsewhere in the end.
    #[getter]
    fn is_moved(&self) -> bool {
        self.0.restore.work().is_moved
    }

    /// Whether so many files wait to be requested that no more should be added.
    #[getter]
    fn has_enough(&self, py: Python<'_>) -> bool {
        let work = self.0.restore.work();
        work.files.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner).are_enough()
    }

    /// Bytes written to files so far.
    #[getter]
    fn written(&self) -> u64 {
        self.0.restore.work().written.load(Ordering::Relaxed)
    }

    /// Let every call and all threads end soon: nothing more is written. Idempotent.
    fn stop(&self) {
        self.0.restore.work().stop();
    }

    /// Stop writing, and wait until the threads have ended. Idempotent.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.restore.close());
    }
}

/// Takes the answers to one request of a `FolderWriter`: a CAR with the payloads that `cids` names.
///
/// After an answer that was truncated, another CAR may follow (`restart`).
#[pyclass(frozen, module = "coregw._core")]
pub struct PayloadSink {
    lane: Arc<Lane>,
    shared: Arc<Restoring>,
}

#[pymethods]
impl PayloadSink {
    /// The CIDs to request, in this order.
    #[getter]
    fn cids<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyString>> {
        let asked = py.detach(|| self.lane.asked());
        asked.iter().map(|payload| text(py, &payload.cid())).collect()
    }

    /// The sum of the sizes of the payloads to request; None if one of them is not known.
    #[getter]
    fn size(&self, py: Python<'_>) -> Option<u64> {
        let sum = |sum: u64, payload: &PlannedPayload| Some(sum.saturating_add(payload.size()?));
        py.detach(|| self.lane.asked().into_iter().try_fold(0, sum))
    }

    /// Number of bytes of payloads that have come and need not come again, as far as is known.
    #[getter]
    fn received(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.lane.received())
    }

    /// Take the next bytes of the answer: a thread parses, verifies and writes them. O(1).
    ///
    /// Waits, with the GIL released, while 32 MiB of all sinks wait for threads.
    ///
    /// Raises:
    ///     ProofError: If bytes that were taken before are not the requested payloads.
    ///     InvalidInput: If a path can't be made here, or a file's parts have other sizes; the message names the path.
    ///     OSError: If the system refuses something.
    fn write(&self, py: Python<'_>, chunk: BytesLike) -> PyResult<()> {
        self.writelines(py, vec![chunk])
    }

    /// Take the next bytes of the answer as several chunks. O(chunks). Waits and raises as `write`.
    fn writelines(&self, py: Python<'_>, chunks: Vec<BytesLike>) -> PyResult<()> {
        let work = self.shared.restore.work();
        self.lane.push(chunks.into_iter().map(|chunk| Box::new(chunk.0) as Received).collect(), work);
        if work.is_full() {
            py.detach(|| work.wait_for_room());
        }
        self.shared.raise(py)
    }

    /// Keep the payloads that are complete. The answer to a request for `cids`, the others, is written next.
    fn restart(&self, py: Python<'_>) {
        py.detach(|| self.lane.restart());
    }

    /// Wait until all that has been taken is written, and return the CIDs of the payloads that did not arrive.
    ///
    /// Raises:
    ///     ProofError, InvalidInput, OSError: As `write`. Also `ProofError` if the answer is not complete.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyString>>> {
        py.detach(|| {
            let work = self.shared.restore.work();
            work.attempt(|| self.lane.finish(work));
        });
        self.shared.raise(py)?;
        Ok(lane::missing(&self.lane).iter().map(|cid| text(py, cid)).collect())
    }
}

/// A payload and its size, if that is known.
type PartLike = (CidLike, Option<u64>);

/// Return whether each of these files consists of its payloads. O(bytes), on all cores, with the GIL released.
///
/// A file that is missing, can't be read, is not a regular file or is not below `top` does not match. No symbolic link
/// below `top` is followed, also if it is put there meanwhile.
///
/// Args:
///     top: The folder that the files are below. Its own path may lead through links.
///     files: The files: the path of each, relative to `top`, and its payloads in order, as CIDs and sizes. The size
///         of the last one may be None.
///     progress: Called about every 50 milliseconds with the number of bytes that were read since, in the caller's
///         thread. An exception that it raises ends the work.
///
/// Raises:
///     TooLarge: If the sizes of a file's payloads sum to 2^63 or more.
///     OSError: If `top` can't be opened.
///     KeyboardInterrupt: If the process gets SIGINT meanwhile, in the main thread.
///
/// >>> files_match("/", [("does/not/exist", [("bafkqaaa", 0)])])
/// [False]
#[pyfunction]
#[pyo3(signature = (top, files, progress = None), text_signature = "(top, files, progress=None)")]
pub fn files_match(
    py: Python<'_>,
    top: PathBuf,
    files: Vec<(PathBuf, Vec<PartLike>)>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<bool>> {
    let files = files.into_iter().map(|(path, parts)| {
        let parts = parts.into_iter().map(|(cid, size)| (cid.0, size)).collect();
        call(|| ComparedFile::new(path, parts))
    });
    let files = files.collect::<PyResult<Vec<_>>>()?;
    let beneath = Beneath::new(&top).map_err(|error| os_error(&top, &error))?;
    let signals = Signals::with_progress(progress);
    let found = detach::run(py, Work::Unbounded, || Ok(compare::files_match(&beneath, &files, &signals)))?;
    signals.result()?;
    Ok(found)
}

/// The stat cache of a folder that roots were restored to: which files have which bytes.
///
/// A file that is missing, damaged, or of another folder knows nothing. O(files of the last time).
///
/// Args:
///     file: Where it is kept.
///     folder: The absolute path of the folder.
///
/// >>> import tempfile
/// >>> with tempfile.TemporaryDirectory() as folder:
/// ...     cache = StatCache(f"{folder}/cache", folder)
/// ...     cache.add([("a", (1, 2, 3, 4), "bafkqaaa")])
/// ...     cache.save(f"{folder}/cache", 10**10)
/// ...     StatCache(f"{folder}/cache", folder).find("a", (1, 2, 3, 4))
/// 'bafkqaaa'
#[pyclass(frozen, module = "coregw._core")]
pub struct StatCache {
    file: PathBuf,
    folder: Vec<u8>,
    known: HashMap<Box<[u8]>, KnownTarget>,
    new: Mutex<Option<StatSorter>>,
}

/// A state in which a file had the bytes of a target.
type KnownTarget = (Stat, Box<[u8]>);

/// What a cache of restored files has in place of the options of an upload.
const RESTORED: &[u8] = b"restored";

#[pymethods]
impl StatCache {
    #[new]
    fn new(py: Python<'_>, file: PathBuf, folder: PathBuf) -> PyResult<Self> {
        let folder = folder.into_os_string().into_vec();
        detach::run(py, Work::Unbounded, || {
            let mut known = HashMap::new();
            if let Some(opened) = StatFile::open(&file, &folder, RESTORED) {
                let all = opened.each_final(|path, stat, target| {
                    known.insert(path.into(), (stat, target.as_bytes().into()));
                });
                if all.is_err() {
                    known.clear();
                }
            }
            Ok(Self { file, folder, known, new: Mutex::default() })
        })
    }

    /// Return the target of a file that has not changed since it was noted; None if it has to be read.
    ///
    /// Args:
    ///     path: The path of the file below the folder.
    ///     state: Its inode, size in bytes, and times of modification and change in nanoseconds since 1970.
    fn find<'py>(&self, py: Python<'py>, path: &str, state: StatTuple) -> Option<Bound<'py, PyString>> {
        let (stat, target) = self.known.get(path.as_bytes())?;
        (*stat == stat_of(state)).then(|| text(py, &Cid::trusted(target)))
    }

    /// Add files to what `save` writes, as `FolderWriter.take_states` returns them. O(files).
    ///
    /// Raises:
    ///     InvalidInput: If a target is not a CID.
    ///     OSError: If a temporary file cannot be written.
    fn add(&self, py: Python<'_>, files: Vec<(String, StatTuple, CidLike)>) -> PyResult<()> {
        Ok(detach::run(py, Work::Unbounded, || {
            let mut new = locked(&self.new);
            let sorter = new.get_or_insert_with(|| StatSorter::new(self.file.with_file_name(""), None));
            Ok(files
                .iter()
                .try_for_each(|(path, state, target)| sorter.add(path.as_bytes(), stat_of(*state), &target.0)))
        })??)
    }

    /// Write the files that were added to a file, and forget them. O(n log n).
    ///
    /// Args:
    ///     file: The file, which is replaced.
    ///     before: The file system's time, in nanoseconds since 1970: no later change has an earlier time.
    ///
    /// Raises:
    ///     OSError: If the file cannot be written.
    fn save(&self, py: Python<'_>, file: PathBuf, before: i64) -> PyResult<()> {
        let (folder, options) = (self.folder.clone(), RESTORED.to_vec());
        let header = Header { folder, options, before, ..Header::default() };
        Ok(detach::run(py, Work::Unbounded, || {
            let new = locked(&self.new).take();
            Ok(new.unwrap_or_else(|| StatSorter::new(PathBuf::new(), None)).write(&file, &header))
        })??)
    }

    /// Forget the files that were added. Idempotent.
    fn discard(&self) {
        locked(&self.new).take();
    }
}

fn stat_of((inode, size, mtime, ctime): StatTuple) -> Stat {
    Stat { inode, size, mtime, ctime }
}
