//! Workers: the threads that run independent jobs, which the caller supplies.

use std::sync::Mutex;

use crate::error::{Error, Result};

/// Runs independent jobs. This crate has no threads of its own, so its callers decide where large builds run.
///
/// ```
/// use coregw_core::Workers;
///
/// struct TwoThreads;
///
/// impl Workers for TwoThreads {
///     fn run(&self, jobs: usize, job: &(dyn Fn(usize) + Sync)) {
///         std::thread::scope(|scope| {
///             scope.spawn(|| (0..jobs).step_by(2).for_each(job));
///             (1..jobs).step_by(2).for_each(job);
///         });
///     }
/// }
/// ```
pub trait Workers: Sync {
    /// Calls `job` once with each number below `jobs`, in any order, and returns after all of them.
    fn run(&self, jobs: usize, job: &(dyn Fn(usize) + Sync));
}

/// Runs jobs one after the other in the caller's thread.
#[derive(Debug, Clone, Copy)]
pub struct OneThread;

impl Workers for OneThread {
    fn run(&self, jobs: usize, job: &(dyn Fn(usize) + Sync)) {
        (0..jobs).for_each(job);
    }
}

/// The results of `job` for each number below `jobs`.
pub(crate) fn map<T: Send>(workers: &dyn Workers, jobs: usize, job: impl Fn(usize) -> T + Sync) -> Result<Vec<T>> {
    let results: Vec<Mutex<Option<T>>> = (0..jobs).map(|_| Mutex::new(None)).collect();
    workers.run(jobs, &|number| {
        let result = job(number);
        if let Ok(mut slot) = results[number].lock() {
            *slot = Some(result);
        }
    });
    let result = |slot: Mutex<Option<T>>| slot.into_inner().ok().flatten();
    results.into_iter().map(|slot| result(slot).ok_or_else(|| Error::request("a worker left its job undone"))).collect()
}
