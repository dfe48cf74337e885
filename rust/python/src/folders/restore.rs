//! `FolderWriter`: payloads to files below one folder, verified and written by threads that need no GIL.

mod attributes;
mod batch;
mod compare;
mod failure;
mod folders;
mod lane;
mod listing;
mod lock;
mod plan;
mod sink;
mod states;
mod write;
mod writing;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use coregw_core as core;
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::PyBytes;

use crate::cid::CidLike;
use crate::convert::BytesLike;
use crate::detach::{self, Work};
use crate::errors::invalid;

pub use compare::files_match;
pub use listing::FolderListing;
pub use sink::PayloadSink;

use attributes::{Attributes, FileIdentity};
use failure::RestoreFailure;
use folders::Top;
use lane::Lane;
use lock::locked;
use plan::Placement;
use states::TopState;
use writing::Writing;

/// Files as MessagePack, their number, the latest change, files at the top.
type StatesTuple<'py> = (Bound<'py, PyBytes>, u64, i64, Vec<TopState>);

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
pub struct FolderWriter {
    work: Arc<Writing>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    is_direct: bool,
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
        let top = Top::open(&folder, incomplete.as_deref()).map_err(|failure| failure.into_exception(py))?;
        Ok(Self {
            work: Arc::new(Writing::new(top, is_moved, max_bytes.unwrap_or(u64::MAX))),
            threads: Mutex::default(),
            is_direct: incomplete.is_none(),
        })
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
        self.work.change(py, |plan, _| {
            let number = plan.folder(below, &segments)?;
            let folder = &mut plan.folders[number as usize];
            let given = Attributes { mode, mtime: mtime_ns, ..Attributes::default() };
            if !given.is_empty() {
                folder.attributes = given;
            }
            folder.exists |= exists;
            Ok(number)
        })
    }

    /// Return the number of a folder in the folder of another number; None if it was not added.
    fn folder_in(&self, py: Python<'_>, folder: u32, name: &str) -> PyResult<Option<u32>> {
        self.work.change(py, |plan, _| Ok(plan.folder_in(folder, name)))
    }

    /// Return the number of the folder above another one.
    ///
    /// Raises:
    ///     InvalidInput: If no folder has this number.
    fn folder_above(&self, py: Python<'_>, folder: u32) -> PyResult<u32> {
        self.work.change(py, |plan, _| Ok(plan.folders[plan.known(folder)? as usize].parent))
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
        let is_known = |(index, part): (usize, &(core::Cid, Option<u64>))| {
            part.0.root().is_none() && (part.1.is_some() || index + 1 == parts.len())
        };
        if parts.is_empty() || !parts.iter().enumerate().all(is_known) {
            let what = "a file consists of payloads, and the size of each but the last is known";
            return Err(invalid(core::InputCode::InvalidRequest, what));
        }
        let attributes = Attributes { mode, mtime: mtime_ns, is_executable: executable };
        let (work, list) = (&self.work, list.as_ref().map(|list| &list.0));
        let placement = self.placement(replaces);
        work.change(py, |plan, files| {
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
        let attributes = Attributes { mode, mtime: mtime_ns, ..Attributes::default() };
        self.work.change(py, |plan, _| plan.keep((below, &segments), attributes, Some(identity)))
    }

    /// Add a symbolic link that exists with the right target: `finish` sets its time where that differs.
    #[pyo3(signature = (segments, mtime_ns = None, below = 0))]
    fn keep_link(&self, py: Python<'_>, segments: Vec<String>, mtime_ns: Option<i64>, below: u32) -> PyResult<()> {
        let attributes = Attributes { mtime: mtime_ns, ..Attributes::default() };
        self.work.change(py, |plan, _| plan.keep((below, &segments), attributes, None))
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
        let attributes = Attributes { mtime: mtime_ns, ..Attributes::default() };
        let placement = self.placement(replaces);
        self.work.change(py, |plan, _| plan.add_link((below, &segments), target.to_vec(), attributes, placement))
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
    fn add_listed<'py>(
        &self,
        py: Python<'py>,
        listing: &FolderListing,
        below: u32,
    ) -> PyResult<Vec<listing::EntryTuple<'py>>> {
        let placement = self.placement(false);
        let others = detach::run(py, Work::Unbounded, || listing.add_to(&self.work, below, placement))?;
        others.into_iter().map(|entry| listing.tuple(py, entry)).collect()
    }

    /// Make the folders that were added, write the payloads that are in their CIDs, and start the threads.
    ///
    /// Raises:
    ///     InvalidInput: If a path can't be made here, or exists (code ``invalid_path``); the message names it.
    ///     OSError: If the system refuses something.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        let work = &self.work;
        if !self.threads.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner).is_empty() {
            return Err(invalid(core::InputCode::InvalidRequest, "the writer has been started"));
        }
        py.detach(|| {
            work.attempt(|| lane::begin(work));
            if !work.is_stopped() {
                match work.start() {
                    Ok(threads) => *locked(&self.threads) = threads,
                    Err(error) => work.attempt(|| Err(RestoreFailure::os(&error, ""))),
                }
            }
        });
        work.raise(py)
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
        let work = &self.work;
        let mut request = None;
        py.detach(|| {
            work.attempt(|| {
                request = lane::next_request(work, max_bytes)?;
                Ok(())
            });
        });
        work.raise(py)?;
        Ok(request.map(|request| PayloadSink::new(Lane::new(request, max_payload_bytes), Arc::clone(work))))
    }

    /// Make the links and set the attributes of folders, when all payloads are written.
    ///
    /// Raises:
    ///     InvalidInput, OSError: As `start`.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let work = &self.work;
        py.detach(|| {
            if !work.is_stopped() {
                work.attempt(|| {
                    lane::begin(work)?;
                    let plan = work.plan();
                    let is_stopped = || work.is_stopped();
                    work.top.make_links(&plan, &is_stopped)?;
                    work.top.finish_kept(&plan, &is_stopped)?;
                    work.top.finish_folders(&plan, work.is_moved, &is_stopped)
                });
            }
        });
        work.raise(py)
    }

    /// The states of the files that were completed since the last call, when each had its path. O(files).
    ///
    /// Files that somebody else has changed since are left out.
    ///
    /// Returns:
    ///     The files as MessagePack, one ``[path, [inode, size, mtime_ns, ctime_ns], target]`` after the other; their
    ///     number; the latest ``ctime_ns``; and a list of the same values for files that are kept apart.
    fn take_states<'py>(&self, py: Python<'py>) -> StatesTuple<'py> {
        let states = self.work.take_states();
        (PyBytes::new(py, &states.entries), states.count, states.newest, states.top)
    }

    /// Number of files that were added, and the sum of their sizes; None if one of them is not known.
    #[getter]
    fn added(&self, py: Python<'_>) -> (u32, Option<u64>) {
        self.work.added(py)
    }

    /// Whether what is in the folder itself is moved elsewhere in the end.
    #[getter]
    fn is_moved(&self) -> bool {
        self.work.is_moved
    }

    /// Whether so many files wait to be requested that no more should be added.
    #[getter]
    fn has_enough(&self, py: Python<'_>) -> bool {
        self.work.has_enough_files(py)
    }

    /// Bytes written to files so far.
    #[getter]
    fn written(&self) -> u64 {
        self.work.written.load(Ordering::Relaxed)
    }

    /// Let every call and all threads end soon: nothing more is written. Idempotent.
    fn stop(&self) {
        self.work.stop();
    }

    /// Stop writing, and wait until the threads have ended. Idempotent.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            self.work.stop();
            self.work.end();
            // Not locked while they end.
            let threads = std::mem::take(&mut *locked(&self.threads));
            for thread in threads {
                // A panic of a thread's work is caught inside it.
                let _ = thread.join();
            }
        });
    }
}

impl FolderWriter {
    fn placement(&self, replaces: bool) -> Placement {
        match (self.is_direct, replaces) {
            (true, _) => Placement::Direct,
            (false, false) => Placement::New,
            (false, true) => Placement::Replacing,
        }
    }
}

impl Drop for FolderWriter {
    /// Lets the threads end. They are not waited for: one may be waiting for the GIL.
    fn drop(&mut self) {
        self.work.stop();
        self.work.end();
    }
}
