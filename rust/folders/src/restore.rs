//! Restoring a folder: payloads to files below it, verified and written by threads of its own.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use coregw_core::{Error, Result};

use crate::lane::{self, Lane};
use crate::parallel::locked;
use crate::plan::Placement;
use crate::top::{RestoreFailure, Top};
use crate::writer::Writing;

/// Writes files below one folder from payloads, which its threads verify and write.
///
/// What is to be made is added to its [`Writing`], before and after [`Restore::start`]. Nothing outside of the folder is
/// touched: paths are opened name by name, and symbolic links are not followed. Nothing that exists is written to. The first
/// failure stops all work, and is kept: see [`Writing::take_failure`].
pub struct Restore {
    work: Arc<Writing>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    is_direct: bool,
}

impl Restore {
    /// Opens the folder, and an empty one on the same file system for files until they are complete; without that, they are
    /// created at their paths. `is_moved`: what is in the folder itself is moved elsewhere in the end, so the attributes of
    /// folders there are not set. All files together may have `max_bytes`.
    ///
    /// # Errors
    /// A folder can't be opened.
    pub fn open(
        folder: &Path,
        incomplete: Option<&Path>,
        is_moved: bool,
        max_bytes: u64,
    ) -> Result<Self, RestoreFailure> {
        let work = Arc::new(Writing::new(Top::open(folder, incomplete)?, is_moved, max_bytes));
        Ok(Self { work, threads: Mutex::default(), is_direct: incomplete.is_none() })
    }

    /// What is to be made, and how far it is.
    pub fn work(&self) -> &Arc<Writing> {
        &self.work
    }

    /// Where files and links are made; `replaces`: in place of what exists there.
    pub fn placement(&self, replaces: bool) -> Placement {
        match (self.is_direct, replaces) {
            (true, _) => Placement::Direct,
            (false, false) => Placement::New,
            (false, true) => Placement::Replacing,
        }
    }

    /// Makes the folders that were added, writes the payloads that are in their CIDs, and starts the threads.
    ///
    /// # Errors
    /// [`Error::Input`] if that was done before.
    pub fn start(&self) -> Result<()> {
        let work = &self.work;
        if !locked(&self.threads).is_empty() {
            return Err(Error::request("the writer has been started"));
        }
        work.attempt(|| lane::begin(work));
        if !work.is_stopped() {
            match work.start() {
                Ok(threads) => *locked(&self.threads) = threads,
                Err(error) => work.attempt(|| Err(RestoreFailure::os(&error, ""))),
            }
        }
        Ok(())
    }

    /// The next payloads to request: of about `max_bytes` together, unless it is a single one; each has at most
    /// `max_payload_bytes`. None if all that were added have been requested, or after a failure.
    pub fn request(&self, max_bytes: u64, max_payload_bytes: u64) -> Option<Arc<Lane>> {
        let mut request = None;
        self.work.attempt(|| {
            request = lane::next_request(&self.work, max_bytes)?;
            Ok(())
        });
        request.map(|request| Arc::new(Lane::new(request, max_payload_bytes)))
    }

    /// Makes the links and sets the attributes of folders, when all payloads are written.
    pub fn finish(&self) {
        let work = &self.work;
        if work.is_stopped() {
            return;
        }
        work.attempt(|| {
            lane::begin(work)?;
            let plan = work.plan();
            let is_stopped = || work.is_stopped();
            work.top.make_links(&plan, &is_stopped)?;
            work.top.finish_kept(&plan, &is_stopped)?;
            work.top.finish_folders(&plan, work.is_moved, &is_stopped)
        });
    }

    /// Stops writing, and waits until the threads have ended. Idempotent.
    pub fn close(&self) {
        self.work.stop();
        self.work.end();
        // Not locked while they end.
        let threads = std::mem::take(&mut *locked(&self.threads));
        for thread in threads {
            // A panic of a thread's work is caught inside it.
            let _ = thread.join();
        }
    }
}

impl Drop for Restore {
    /// Lets the threads end. They are not waited for: what they hold may need the caller's thread to be freed.
    fn drop(&mut self) {
        self.work.stop();
        self.work.end();
    }
}
