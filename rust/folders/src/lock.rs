//! Locks that a panic does not poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is behind a lock. What a thread that has panicked leaves is of no use, but its failure is kept elsewhere.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
