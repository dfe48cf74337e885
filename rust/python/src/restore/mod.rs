//! `FolderWriter`: payloads to files below one folder, verified and written by threads that need no GIL.

mod attributes;
mod compare;
mod failure;
mod folders;
mod lane;
mod lock;
mod plan;
mod write;
mod writing;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use coregw_core as core;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::cid::{CidLike, text};
use crate::convert::BytesLike;
use crate::errors::{call, invalid};

pub use compare::files_match;

use attributes::Attributes;
use failure::RestoreFailure;
use folders::Top;
use lane::Lane;
use lock::locked;
use plan::{Placement, Plan};
use writing::Writing;

/// Inode, size, times of modification and change.
type StateTuple = (u64, i64, i128, i128);

/// Writes files below one folder from payloads, which its own threads verify and write with the GIL released.
///
/// First the paths are added, then `start` makes the folders, and each `request` names payloads whose bytes are given
/// to its `PayloadSink`. `finish` makes links and sets the attributes of folders. Nothing outside the folder is
/// touched: paths are opened name by name, and symbolic links are not followed. Nothing that exists is written to.
///
/// Args:
///     folder: The folder, which exists.
///     incomplete: An empty folder on the same file system, for files until they are complete: each is renamed to its
///         path then. None: files are created at their paths.
///
/// Raises:
///     OSError: If a folder can't be opened.
#[pyclass(frozen, module = "coregw._core")]
pub struct FolderWriter {
    top: Mutex<Option<Top>>,
    plan: Mutex<Plan>,
    work: Mutex<Option<Arc<Writing>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    is_direct: bool,
}

#[pymethods]
impl FolderWriter {
    #[new]
    #[pyo3(signature = (folder, incomplete = None))]
    fn new(py: Python<'_>, folder: PathBuf, incomplete: Option<PathBuf>) -> PyResult<Self> {
        let top = Top::open(&folder, incomplete.as_deref()).map_err(|failure| failure.into_exception(py))?;
        Ok(Self {
            top: Mutex::new(Some(top)),
            plan: Mutex::new(Plan::new()),
            work: Mutex::default(),
            threads: Mutex::default(),
            is_direct: incomplete.is_none(),
        })
    }

    /// Add a folder; no segments are the folder itself. The folders above a path are added with it.
    ///
    /// Args:
    ///     segments: The path.
    ///     mode: Its permissions, set by `finish`; None leaves those of a new folder. Bits above 0o777 are ignored.
    ///     mtime_ns: Its time of modification, set by `finish`.
    ///     exists: Whether it exists already.
    ///
    /// Raises:
    ///     InvalidInput: If a segment can't be a file name (code ``invalid_path``).
    #[pyo3(signature = (segments, mode = None, mtime_ns = None, exists = false))]
    fn add_folder(
        &self,
        segments: Vec<String>,
        mode: Option<u32>,
        mtime_ns: Option<i64>,
        exists: bool,
    ) -> PyResult<()> {
        let mut plan = locked(&self.plan);
        let number = call(|| plan.folder(&segments))?;
        let folder = &mut plan.folders[number as usize];
        folder.attributes = Attributes { mode, mtime: mtime_ns };
        folder.exists |= exists;
        Ok(())
    }

    /// Add a file that consists of payloads.
    ///
    /// Args:
    ///     segments: The path.
    ///     parts: The payloads in order, at least one: their CIDs and sizes. The size of the last one may be None.
    ///     mode: As for `add_folder`.
    ///     mtime_ns: As for `add_folder`.
    ///     replaces: Whether what has the path is replaced, if the writer has a folder for incomplete files.
    ///
    /// Raises:
    ///     InvalidInput: If a segment can't be a file name (code ``invalid_path``), or a CID is invalid or a root.
    #[pyo3(signature = (segments, parts, mode = None, mtime_ns = None, replaces = false))]
    fn add_file(
        &self,
        segments: Vec<String>,
        parts: Vec<(CidLike, Option<u64>)>,
        mode: Option<u32>,
        mtime_ns: Option<i64>,
        replaces: bool,
    ) -> PyResult<()> {
        let parts: Vec<_> = parts.into_iter().map(|(cid, size)| (cid.0, size)).collect();
        let is_known = |(index, part): (usize, &(core::Cid, Option<u64>))| {
            part.0.root().is_none() && (part.1.is_some() || index + 1 == parts.len())
        };
        if parts.is_empty() || !parts.iter().enumerate().all(is_known) {
            let what = "a file consists of payloads, and the size of each but the last is known";
            return Err(invalid(core::InputCode::InvalidRequest, what));
        }
        let attributes = Attributes { mode, mtime: mtime_ns };
        call(|| locked(&self.plan).add_file(&segments, &parts, attributes, self.placement(replaces)))
    }

    /// Add a file that exists with the right content: `finish` sets its attributes where they differ.
    ///
    /// Args:
    ///     segments: The path.
    ///     mode: As for `add_folder`.
    ///     mtime_ns: As for `add_folder`.
    #[pyo3(signature = (segments, mode = None, mtime_ns = None))]
    fn keep_file(&self, segments: Vec<String>, mode: Option<u32>, mtime_ns: Option<i64>) -> PyResult<()> {
        call(|| locked(&self.plan).keep_file(&segments, Attributes { mode, mtime: mtime_ns }))
    }

    /// Add a symbolic link, which `finish` makes. Its target is not checked.
    #[pyo3(signature = (segments, target, mtime_ns = None, replaces = false))]
    fn add_link(
        &self,
        segments: Vec<String>,
        target: BytesLike,
        mtime_ns: Option<i64>,
        replaces: bool,
    ) -> PyResult<()> {
        let attributes = Attributes { mode: None, mtime: mtime_ns };
        call(|| locked(&self.plan).add_link(&segments, target.to_vec(), attributes, self.placement(replaces)))
    }

    /// Make the folders, write the payloads that are in their CIDs, and start the threads. Nothing is added later.
    ///
    /// Raises:
    ///     InvalidInput: If a path can't be made here, or exists (code ``invalid_path``); the message names it.
    ///     OSError: If the system refuses something.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        let Some(top) = locked(&self.top).take() else {
            return Err(invalid(core::InputCode::InvalidRequest, "the writer has been started"));
        };
        let plan = std::mem::replace(&mut *locked(&self.plan), Plan::new());
        let work = Arc::new(Writing::new(plan, top));
        py.detach(|| {
            work.attempt(|| work.top.make_folders(&work.plan).and_then(|()| write::write_identities(&work)));
            if !work.is_stopped() {
                match work.start() {
                    Ok(threads) => *locked(&self.threads) = threads,
                    Err(error) => work.attempt(|| Err(RestoreFailure::os(&error, ""))),
                }
            }
        });
        *locked(&self.work) = Some(Arc::clone(&work));
        raised(py, &work)
    }

    /// Return the sink of the next payloads to request, or None if all have been.
    ///
    /// Args:
    ///     max_bytes: The payloads have about so many bytes together, or are a single one.
    ///     max_payload_bytes: Limit on one payload.
    fn request(&self, max_bytes: u64, max_payload_bytes: u64) -> PyResult<Option<PayloadSink>> {
        let work = self.work()?;
        let requested = work.next_request(max_bytes);
        if requested.is_empty() {
            return Ok(None);
        }
        let lane = Arc::new(Lane::new(requested, max_payload_bytes, &work));
        Ok(Some(PayloadSink { lane, work }))
    }

    /// Make the links and set the attributes of folders, when all payloads are written.
    ///
    /// Raises:
    ///     InvalidInput, OSError: As `start`.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let work = self.work()?;
        py.detach(|| {
            if !work.is_stopped() {
                work.attempt(|| {
                    work.top.make_links(&work.plan)?;
                    work.top.finish_kept(&work.plan)?;
                    work.top.finish_folders(&work.plan)
                });
            }
        });
        raised(py, &work)
    }

    /// The states of the files that were added, in that order, when each was complete and had its path. O(files).
    ///
    /// Returns:
    ///     For each file its inode, its size, and its times of modification and change in nanoseconds. None for one
    ///     that is not written, or that somebody else has changed since.
    fn states(&self) -> PyResult<Vec<Option<StateTuple>>> {
        let work = self.work()?;
        let states = work.plan.files.iter().map(|file| file.state.get());
        Ok(states.map(|state| state.map(|state| (state.inode, state.size, state.mtime, state.ctime))).collect())
    }

    /// Bytes written to files so far.
    #[getter]
    fn written(&self) -> u64 {
        locked(&self.work).as_ref().map_or(0, |work| work.written.load(Ordering::Relaxed))
    }

    /// Stop writing, and wait until the threads have ended. Idempotent.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            if let Some(work) = &*locked(&self.work) {
                work.stop();
                work.end();
            }
            for thread in std::mem::take(&mut *locked(&self.threads)) {
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

    fn work(&self) -> PyResult<Arc<Writing>> {
        let work = locked(&self.work);
        work.clone().ok_or_else(|| invalid(core::InputCode::InvalidRequest, "the writer has not been started"))
    }
}

impl Drop for FolderWriter {
    /// Lets the threads end. They are not waited for: one may be waiting for the GIL.
    fn drop(&mut self) {
        if let Some(work) = &*locked(&self.work) {
            work.stop();
            work.end();
        }
    }
}

/// Takes the answer to one request of a `FolderWriter`: a CAR with the payloads that `cids` names.
#[pyclass(frozen, module = "coregw._core")]
pub struct PayloadSink {
    lane: Arc<Lane>,
    work: Arc<Writing>,
}

#[pymethods]
impl PayloadSink {
    /// The CIDs to request, in this order.
    #[getter]
    fn cids<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyString>> {
        let payloads = &self.work.plan.payloads;
        self.lane.requested.iter().map(|&index| text(py, &payloads[index as usize].cid())).collect()
    }

    /// The sum of the sizes of the payloads; None if one of them is not known.
    #[getter]
    fn size(&self) -> Option<u64> {
        let payloads = &self.work.plan.payloads;
        self.lane.requested.iter().map(|&index| payloads[index as usize].size()).sum()
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
        self.lane.push(chunk.0, &self.work);
        if self.work.is_full() {
            py.detach(|| self.work.wait_for_room());
        }
        raised(py, &self.work)
    }

    /// Forget what has been taken: the answer is sent again from its start.
    fn restart(&self, py: Python<'_>) {
        py.detach(|| self.lane.restart(&self.work));
    }

    /// Wait until all that has been taken is written, and return the CIDs of the payloads that did not come.
    ///
    /// Raises:
    ///     ProofError, InvalidInput, OSError: As `write`. Also `ProofError` if the answer is not complete.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyString>>> {
        py.detach(|| {
            let finished = self.lane.finish(&self.work);
            if finished.is_err() {
                self.work.attempt(|| finished);
            }
        });
        raised(py, &self.work)?;
        Ok(lane::missing(&self.lane, &self.work).iter().map(|cid| text(py, cid)).collect())
    }
}

/// Raises the first failure, if there is one.
fn raised(py: Python<'_>, work: &Writing) -> PyResult<()> {
    if !work.is_stopped() {
        return Ok(());
    }
    Err(work.failure().map_or_else(
        || invalid(core::InputCode::InvalidRequest, "the writer has been stopped"),
        |failure| failure.into_exception(py),
    ))
}
