//! `FolderWriter`, `PayloadSink`, `FolderRights` and `files_match`: folders that are restored, and files that are compared.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use core::{Cid, InputCode};
use coregw_core as core;
use coregw_folders::beneath::Beneath;
use coregw_folders::compare::{self, ComparedFile};
use coregw_folders::lane::{self, Lane, Received};
use coregw_folders::metadata::Extras;
use coregw_folders::plan::{Plan, PlannedPayload};
use coregw_folders::removal;
use coregw_folders::restore::{Choices, Destination, Restore};
use coregw_folders::rights;
use coregw_folders::stat_file::StatFile;
use coregw_folders::top::{RestoreFailure, Top};
use coregw_folders::update::{Done, Preview};
use coregw_folders::watch::Watch as _;
use coregw_folders::writer;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::sync::{MutexExt as _, PyOnceLock};
use pyo3::types::PyString;

use crate::cid::{CidLike, text};
use crate::convert::{BytesLike, Items};
use crate::detach::{self, Work};
use crate::errors::{call, exception, invalid, of_panic};
use crate::signals::Signals;

use super::listing::FolderListing;
use super::survey::os_error;

/// Nested maps: the number of the folder that each is, how many folders it is below in its map, and its root.
type MapTuple<'py> = (u32, usize, Bound<'py, PyString>);
/// Files that are lists: the number of each, its path, the list, and the recorded size.
type ListTuple<'py> = (u32, String, Bound<'py, PyString>, Option<u64>);
/// A path as names of files.
type PathNames = Vec<OsString>;

/// Restores a tree to a folder: its own threads verify and write payloads, with the GIL released.
///
/// Entries are added with their listings, before and after `start`. Each `request` makes the folders that were added,
/// and names payloads whose bytes are given to its `PayloadSink`. `finish` makes links and sets the attributes of
/// folders. Nothing outside the folder is touched: paths are opened name by name, and symbolic links are not followed.
/// What is known of a file is forgotten when it is complete.
///
/// If the folder has content, all entries are added first, and `survey`, `recall`, `compare`, `decide` and `apply`
/// follow instead of `start`: what is there and is right stays, and what is replaced is replaced when its new version
/// is complete.
///
/// Args:
///     folder: The folder, which exists.
///     incomplete: An empty folder on the same file system, for files until they are complete: each is renamed to its
///         path then. None: files are created at their paths.
///     is_moved: Whether what is in `folder` itself is moved elsewhere in the end. Then `finish` does not set the
///         attributes of folders there: see `finish_moved`.
///     has_content: Whether something may be in the folder.
///     gives_rights: Whether folders of this user get rights that they lack, until `close`.
///     destination: What messages name as the folder; None for `folder`.
///     max_bytes: Bytes that all files together may have; None for any number. A file that exceeds them is refused when
///         it is added, or, if its size is not known then, before its first byte is written.
///     cache: The stat cache: its file, and the absolute path of the folder that it is of.
///     all_links: Whether symbolic links that lead out of the tree are made as well.
///     allow_git: Whether what is in a ``.git`` that was there may be changed: git runs programs that it names.
///     extras: What else is restored: owners, extended attributes, and names of extended attributes that are restored
///         in any case. To root, only those of users (``user.``) are restored without being named.
///
/// Raises:
///     OSError: If a folder can't be opened.
#[pyclass(frozen, module = "coregw._core")]
pub struct FolderWriter {
    shared: Arc<Restoring>,
    /// The file of the stat cache, and the folder that it is of.
    cache: Option<(PathBuf, PathBuf)>,
}

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
        let taken = || work.take_failure().map(|failure| into_exception(failure, self.restore.destination(), py));
        let stopped = || invalid(InputCode::InvalidRequest, "the writer has been stopped");
        Err(self.failure.get_or_init(py, taken).as_ref().map_or_else(stopped, |error| error.clone_ref(py)))
    }
}

/// The exception for a failure below a folder.
fn into_exception(failure: RestoreFailure, folder: &Path, py: Python<'_>) -> PyErr {
    match failure {
        RestoreFailure::Core(error) => exception(error),
        RestoreFailure::Path(path, why) => invalid(InputCode::InvalidPath, format!("{}: {why}", path.escape_debug())),
        RestoreFailure::Io(number, path) => {
            let text = py.import("os").and_then(|os| os.call_method1("strerror", (number,)));
            let path = if path == "." { folder.to_path_buf() } else { folder.join(path) };
            text.map_or_else(|error| error, |text| PyOSError::new_err((number, text.unbind(), path.into_os_string())))
        }
        RestoreFailure::Panic(panic) => of_panic(&*panic),
    }
}

#[pymethods]
impl FolderWriter {
    #[new]
    #[pyo3(signature = (
        folder, incomplete = None, *, is_moved = false, has_content = false, gives_rights = true, destination = None,
        max_bytes = None, cache = None, all_links = false, allow_git = false, extras = (false, false, Vec::new())
    ), text_signature = "(folder, incomplete=None, *, is_moved=False, has_content=False, gives_rights=True, \
        destination=None, max_bytes=None, cache=None, all_links=False, allow_git=False, extras=(False, False, ()))")]
    #[allow(clippy::too_many_arguments)] // what the caller has chosen
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        incomplete: Option<PathBuf>,
        is_moved: bool,
        has_content: bool,
        gives_rights: bool,
        destination: Option<PathBuf>,
        max_bytes: Option<u64>,
        cache: Option<(PathBuf, PathBuf)>,
        all_links: bool,
        allow_git: bool,
        extras: (bool, bool, Vec<String>),
    ) -> PyResult<Self> {
        let destination = destination.unwrap_or_else(|| folder.clone());
        let cached_in = cache.as_ref().map(|(file, _)| file.with_file_name(""));
        let place = Destination { folder, incomplete, is_moved, has_content, gives_rights, destination, cached_in };
        let extras = Extras::new(extras.0, extras.1, extras.2);
        let shown = place.destination.clone();
        let restore = Restore::open(place, Choices { all_links, allow_git, extras }, max_bytes.unwrap_or(u64::MAX))
            .map_err(|failure| into_exception(failure, &shown, py))?;
        Ok(Self { shared: Arc::new(Restoring { restore, failure: PyOnceLock::new() }), cache })
    }

    /// Add the entries that `listing` has joined. O(entries), with the GIL released.
    ///
    /// Args:
    ///     listing: The listing of a map.
    ///     below: The number of the folder that the map is; 0 is the folder itself.
    ///
    /// Returns:
    ///     The nested maps: the number of the folder that each is, how many folders it is below in its map, and its
    ///     root; and the files that are lists, whose payloads `supply_list` needs: the number of each, its path, the
    ///     list, and the size that is recorded.
    ///
    /// Raises:
    ///     InvalidInput: If a segment can't be a file name, a path is a file and a folder, or that of the folder for
    ///         incomplete files, or the tree has a path twice (code ``invalid_path``); or as `FolderListing.take`.
    ///     TooLarge: If the sizes of a file's payloads sum to 2^63 or more, or those of all files to more than
    ///         `max_bytes`.
    fn add_listed<'py>(
        &self,
        py: Python<'py>,
        listing: &FolderListing,
        below: u32,
    ) -> PyResult<(Vec<MapTuple<'py>>, Vec<ListTuple<'py>>)> {
        let restore = &self.shared.restore;
        let placement = restore.placement();
        let wanted = detach::run(py, Work::Unbounded, || listing.add_to(restore.work(), below, placement))?;
        let maps = wanted.maps.into_iter().map(|(number, depth, root)| (number, depth, text(py, &root)));
        let lists = wanted.lists.into_iter().map(|(number, path, list, size)| (number, path, text(py, &list), size));
        Ok((maps.collect(), lists.collect()))
    }

    /// Supply the payloads of a file that is a list.
    ///
    /// Args:
    ///     number: The number of the list.
    ///     parts: The payloads in order, at least one: their CIDs and sizes. The size of the last one may be None.
    ///
    /// Raises:
    ///     InvalidInput: If a CID is invalid or a root, or as `add_listed`.
    ///     TooLarge: As `add_listed`.
    fn supply_list(&self, py: Python<'_>, number: u32, parts: Items<PartLike>) -> PyResult<()> {
        let parts: Vec<_> = parts.0.into_iter().map(|(cid, size)| (cid.0, size)).collect();
        let is_known = |(index, part): (usize, &(Cid, Option<u64>))| {
            part.0.root().is_none() && (part.1.is_some() || index + 1 == parts.len())
        };
        if parts.is_empty() || !parts.iter().enumerate().all(is_known) {
            let what = "a file consists of payloads, and the size of each but the last is known";
            return Err(invalid(InputCode::InvalidRequest, what));
        }
        detach::run(py, Work::Unbounded, || self.shared.restore.supply_list(number, &parts))
    }

    /// Find what is there of what was added, and return the bytes of files at paths of files. O(entries).
    ///
    /// Raises:
    ///     InvalidInput, OSError: If a link has taken the place of a folder, or the system refuses something.
    fn survey(&self, py: Python<'_>) -> PyResult<u64> {
        let bytes = py.detach(|| self.shared.restore.survey());
        self.shared.raise(py)?;
        Ok(bytes)
    }

    /// Take files for right, unread, that have not changed since they were, as the cache says. O(files).
    ///
    /// Returns:
    ///     Their bytes.
    fn recall(&self, py: Python<'_>) -> PyResult<u64> {
        let Some((file, folder)) = &self.cache else { return Ok(0) };
        let bytes = py.detach(|| {
            let known = StatFile::open(file, folder.as_os_str().as_bytes(), writer::RESTORED);
            known.map_or(0, |known| self.shared.restore.recall(&known))
        });
        self.shared.raise(py)?;
        Ok(bytes)
    }

    /// Compare the next files that are there, about 256 MiB or 1,000 files. O(bytes), on all cores.
    ///
    /// Returns:
    ///     The bytes of those that are right; None if no file is left.
    ///
    /// Raises:
    ///     TooLarge: If the sizes of a file's payloads sum to 2^63 or more.
    fn compare(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let right_bytes = py.detach(|| self.shared.restore.compare());
        self.shared.raise(py)?;
        Ok(right_bytes)
    }

    /// Decide what becomes of what is there.
    ///
    /// Args:
    ///     delete: Paths of what stays of that which the tree does not have, without what is below them. None deletes
    ///         nothing: it stays.
    ///
    /// Raises:
    ///     InvalidInput: If a folder is in the place of a file, or the reverse, and nothing is deleted; or if a
    ///         ``.git`` that was there would be changed (code ``invalid_path``).
    #[pyo3(signature = (delete))]
    fn decide(&self, py: Python<'_>, delete: Option<Items<PathBuf>>) -> PyResult<()> {
        py.detach(|| self.shared.restore.decide(delete.as_ref().map(|delete| &delete.0[..])));
        self.shared.raise(py)
    }

    /// Return what `apply` and all that follows would do. O(entries).
    ///
    /// Returns:
    ///     The paths of files, links and empty folders that are created, those that are replaced, and those that are
    ///     deleted, without what is in deleted folders; and the number of files that are right.
    fn preview(&self, py: Python<'_>) -> (Vec<PathNames>, Vec<PathNames>, Vec<PathNames>, u64) {
        let Preview { created, replaced, deleted, kept } = py.detach(|| self.shared.restore.preview());
        let names = |path: Vec<Vec<u8>>| path.into_iter().map(OsString::from_vec).collect();
        let paths = |paths: Vec<Vec<Vec<u8>>>| paths.into_iter().map(names).collect();
        (paths(created), paths(replaced), paths(deleted), kept)
    }

    /// Plan what is to be made, remove what is in the way of it, and start, as `start` does.
    ///
    /// Args:
    ///     free_bytes: Bytes that all files together may have, besides those of files that are replaced; None for any
    ///         number.
    ///
    /// Raises:
    ///     TooLarge: If there are more.
    ///     InvalidInput, OSError: As `start`.
    #[pyo3(signature = (free_bytes))]
    fn apply(&self, py: Python<'_>, free_bytes: Option<u64>) -> PyResult<()> {
        detach::run(py, Work::Unbounded, || self.shared.restore.apply(free_bytes.unwrap_or(u64::MAX)))?;
        self.shared.raise(py)
    }

    /// Make the folders that were added, write the payloads that are in their CIDs, and start the threads.
    ///
    /// Raises:
    ///     InvalidInput: If a path can't be made here, or exists (code ``invalid_path``); the message names it.
    ///     OSError: If the system refuses something.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        detach::run(py, Work::Unbounded, || self.shared.restore.start())?;
        self.shared.raise(py)
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
        let lane = py.detach(|| self.shared.restore.request(max_bytes, max_payload_bytes));
        self.shared.raise(py)?;
        Ok(lane.map(|lane| PayloadSink { lane, shared: Arc::clone(&self.shared) }))
    }

    /// Make the links and set the attributes of folders, when all payloads are written.
    ///
    /// Raises:
    ///     InvalidInput, OSError: As `start`.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.shared.restore.finish());
        self.shared.raise(py)
    }

    /// Give the folder that the content is in, or is moved to, a mode that is no looser than in the end.
    ///
    /// Raises:
    ///     OSError: If the system refuses it.
    fn prepare_top(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        self.run_on_top(py, &folder, Top::prepare_top)
    }

    /// Set the attributes of the folders that were moved to a folder.
    ///
    /// Raises:
    ///     OSError: If the system refuses it.
    fn finish_moved(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        self.run_on_top(py, &folder, Top::finish_moved)
    }

    /// Set what is recorded of the folder itself, where its content is now: nothing in it changes after that.
    ///
    /// Raises:
    ///     OSError: If the system refuses it.
    fn finish_top(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        self.run_on_top(py, &folder, Top::finish_top)
    }

    /// Write to a file, for the next time, what is known of files that were written or right. O(n log n).
    ///
    /// Waits for up to a tick of the file system's clock, mostly 10 ms or less.
    ///
    /// Args:
    ///     file: The file, which is replaced.
    ///     clock: A folder of this user on the file system of `folder`, whose times are changed.
    ///     folder: The folder that has the files now.
    ///
    /// Raises:
    ///     OSError: If the file cannot be written.
    fn save_cache(&self, py: Python<'_>, file: PathBuf, clock: PathBuf, folder: PathBuf) -> PyResult<()> {
        let Some((_, known_as)) = &self.cache else { return Ok(()) };
        let (work, known_as) = (self.shared.restore.work(), known_as.as_os_str().as_bytes());
        Ok(py.detach(|| work.save(&file, &folder, &clock, known_as))?)
    }

    /// The number of files that were added, and the sum of their sizes; None if one of them is not known.
    #[getter]
    fn added(&self, py: Python<'_>) -> (u64, Option<u64>) {
        py.detach(|| self.shared.restore.work().added())
    }

    /// The numbers of files that were written, files that were right, deletions, and files that were replaced.
    ///
    /// What was in deleted folders does not count. A file that was replaced is one of those that were written.
    #[getter]
    fn done(&self, py: Python<'_>) -> (u64, u64, u64, u64) {
        let Done { files, kept, deleted, replaced } = py.detach(|| self.shared.restore.done());
        (files, kept, deleted, replaced)
    }

    /// The paths of symbolic links that lead out of the tree and are not made.
    #[getter]
    fn links_left_out(&self) -> Vec<String> {
        self.shared.restore.links_left_out()
    }

    /// Recorded extended attributes that are not restored: the first path, the name and the number of each.
    #[getter]
    fn unrestored_xattrs(&self, py: Python<'_>) -> Vec<(String, String, u64)> {
        py.detach(|| self.shared.restore.unrestored_xattrs())
    }

    /// Whether so many files wait to be requested that no more should be added.
    #[getter]
    fn has_enough(&self, py: Python<'_>) -> bool {
        let work = self.shared.restore.work();
        work.files.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner).are_enough()
    }

    /// Bytes written to files so far.
    #[getter]
    fn written(&self) -> u64 {
        self.shared.restore.work().written.load(Ordering::Relaxed)
    }

    /// Let every call and all threads end soon: nothing more is written. Idempotent.
    fn stop(&self) {
        self.shared.restore.work().stop();
    }

    /// Stop writing, and wait until the threads have ended. Idempotent.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.shared.restore.close());
    }
}

impl FolderWriter {
    fn run_on_top(
        &self,
        py: Python<'_>,
        folder: &Path,
        run: impl FnOnce(&Top, &Plan, &Path) -> Result<(), RestoreFailure> + Send,
    ) -> PyResult<()> {
        let restore = &self.shared.restore;
        let done = py.detach(|| run(&restore.work().top, &restore.work().plan(), folder));
        done.map_err(|failure| into_exception(failure, restore.destination(), py))
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

/// Gives this user all rights to a folder of the user's own that lacks some, until `close`.
///
/// Nothing happens to a folder that does not exist, or in which the user may do everything, as a superuser may.
///
/// Args:
///     folder: The folder. Its path may lead through links.
///
/// Raises:
///     OSError: If the folder can't be opened, or its mode not be changed.
#[pyclass(frozen, module = "coregw._core")]
pub struct FolderRights {
    path: PathBuf,
    given: Mutex<Option<rights::FolderRights>>,
}

#[pymethods]
impl FolderRights {
    #[new]
    #[pyo3(signature = (folder), text_signature = "(folder)")]
    fn new(folder: PathBuf) -> PyResult<Self> {
        let given = rights::FolderRights::give(&folder).map_err(|error| os_error(&folder, &error))?;
        Ok(Self { path: folder, given: Mutex::new(given) })
    }

    /// Give the folder the mode that it had. What others may no longer do stays so. Idempotent.
    ///
    /// Raises:
    ///     OSError: If the mode can't be changed.
    fn close(&self) -> PyResult<()> {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner).take();
        given.map_or(Ok(()), rights::FolderRights::take_back).map_err(|error| os_error(&self.path, &error))
    }
}

/// Remove a folder with all that is in it, as far as that is possible, without following links. O(entries).
///
/// Folders of this user get the rights that this needs; one that is not removed has its mode again.
///
/// Args:
///     folder: The folder; nothing happens if it does not exist.
///     progress: Called about every 50 milliseconds with 0, in the caller's thread. An exception that it raises ends
///         the work.
///
/// Raises:
///     KeyboardInterrupt: If the process gets SIGINT meanwhile, in the main thread.
#[pyfunction]
#[pyo3(signature = (folder, progress = None), text_signature = "(folder, progress=None)")]
pub fn remove_tree(py: Python<'_>, folder: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<()> {
    let signals = Signals::with_progress(progress);
    detach::run(py, Work::Unbounded, || {
        removal::remove_folder(&folder, &|| signals.is_interrupted());
        Ok(())
    })?;
    signals.result()
}
