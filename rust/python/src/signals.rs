//! Signals that arrive, and progress that is shown, while a long call has the GIL released.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

use coregw_folders::watch::Watch;
use pyo3::prelude::*;

/// The time between two checks for signals.
const CHECK_MILLISECONDS: u64 = 50;

/// Looks for signals and reports progress while the GIL is released.
pub struct Signals {
    /// Python handles signals in its main thread only. If any thread of the work is that one, it is the caller.
    caller: ThreadId,
    began: Instant,
    last_check: AtomicU64,
    is_interrupted: AtomicBool,
    raised: Mutex<Option<PyErr>>,
    /// A callable that takes the amount of work done since its last call; it may be 0.
    progress: Option<Py<PyAny>>,
    done: AtomicU64,
}

impl Signals {
    /// Looks for signals only.
    pub fn new() -> Self {
        Self::with_progress(None)
    }

    /// Calls `progress`, too, with the amount of work done since its last call.
    pub fn with_progress(progress: Option<Py<PyAny>>) -> Self {
        Self {
            caller: thread::current().id(),
            began: Instant::now(),
            last_check: AtomicU64::new(0),
            is_interrupted: AtomicBool::new(false),
            raised: Mutex::new(None),
            progress,
            done: AtomicU64::new(0),
        }
    }

    fn check(&self) {
        let checked = Python::attach(|py| {
            py.check_signals()?;
            // Also if nothing was done meanwhile: the callable may want to end the work.
            let done = self.done.swap(0, Ordering::Relaxed);
            self.progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (done,)).map(drop))
        });
        if let Err(error) = checked {
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            self.is_interrupted.store(true, Ordering::Relaxed);
        }
    }

    /// Reports the rest of the progress. The exception that a signal handler or the callable has raised.
    pub fn result(self) -> PyResult<()> {
        if !self.is_interrupted.load(Ordering::Relaxed) {
            self.check();
        }
        self.raised.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

impl Watch for Signals {
    /// Whether a signal handler or the callable has raised an exception. Only the caller's thread attaches to Python, and
    /// rarely.
    fn is_interrupted(&self) -> bool {
        let now = self.began.elapsed().as_millis() as u64;
        if thread::current().id() == self.caller && now >= self.last_check.load(Ordering::Relaxed) + CHECK_MILLISECONDS
        {
            self.last_check.store(now, Ordering::Relaxed);
            self.check();
        }
        self.is_interrupted.load(Ordering::Relaxed)
    }

    fn progress(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}
