//! Signals that arrive while a long call has the GIL released.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

use pyo3::prelude::*;

/// The time between two checks for signals.
const CHECK_MILLISECONDS: u64 = 50;

/// Looks for signals while the GIL is released.
pub struct Signals {
    /// Python handles signals in its main thread only. If any thread of the work is that one, it is the caller.
    caller: ThreadId,
    began: Instant,
    last_check: AtomicU64,
    is_interrupted: AtomicBool,
    raised: Mutex<Option<PyErr>>,
}

impl Signals {
    pub fn new() -> Self {
        Self {
            caller: thread::current().id(),
            began: Instant::now(),
            last_check: AtomicU64::new(0),
            is_interrupted: AtomicBool::new(false),
            raised: Mutex::new(None),
        }
    }

    /// Whether a signal handler has raised an exception. Only the caller's thread attaches to Python, and rarely.
    pub fn is_interrupted(&self) -> bool {
        let now = self.began.elapsed().as_millis() as u64;
        if thread::current().id() == self.caller && now >= self.last_check.load(Ordering::Relaxed) + CHECK_MILLISECONDS
        {
            self.last_check.store(now, Ordering::Relaxed);
            if let Err(error) = Python::attach(|py| py.check_signals()) {
                *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                self.is_interrupted.store(true, Ordering::Relaxed);
            }
        }
        self.is_interrupted.load(Ordering::Relaxed)
    }

    /// The exception that a signal handler has raised.
    pub fn result(self) -> PyResult<()> {
        self.raised.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}
