//! The same work on many items, on all cores; and locks.

use std::num::NonZero;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use coregw_core::Workers;

/// Items that are worth the start of a thread: about 100 µs of work.
const ITEMS_PER_THREAD: usize = 64;
/// Items that a thread takes at a time: few enough that no thread waits long for the last ones of another.
const ITEMS_PER_SHARE: usize = 16;
/// The same for work that is done on several items at a time: all but the last few of a share fill its lanes.
const ITEMS_PER_WIDE_SHARE: usize = 128;
/// How often a caller that waits for other threads looks after what only it can do.
const WATCH: Duration = Duration::from_millis(20);

/// What is behind a lock, also after a panic: what the thread that panicked leaves is of no use, but what went wrong is
/// kept elsewhere.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The results of `work` for each of `items`, in their order. A panic of `work` is resumed in the caller.
pub fn map<I: Sync, O: Send>(items: &[I], work: impl Fn(&I) -> O + Sync) -> Vec<O> {
    run(items, items.len() / ITEMS_PER_THREAD, ITEMS_PER_SHARE, one_by_one(work), None)
}

/// The results of `work`, which takes several items and returns a result for each, for all of `items`, in their order.
pub fn map_shares<I: Sync, O: Send>(items: &[I], work: impl Fn(&[I]) -> Vec<O> + Sync) -> Vec<O> {
    run(items, items.len() / ITEMS_PER_THREAD, ITEMS_PER_WIDE_SHARE, work, None)
}

/// The same for items that take long, or for very different times. A caller that has nothing left to do calls `watch`
/// again and again until the other threads are done.
pub fn map_watched<I: Sync, O: Send>(items: &[I], work: impl Fn(&I) -> O + Sync, watch: &dyn Fn()) -> Vec<O> {
    run(items, items.len(), 1, one_by_one(work), Some(watch))
}

/// Runs the jobs of a large build.
#[derive(Debug)]
pub struct Cores;

impl Workers for Cores {
    fn run(&self, jobs: usize, job: &(dyn Fn(usize) + Sync)) {
        let numbers: Vec<usize> = (0..jobs).collect();
        run(&numbers, jobs, 1, one_by_one(|&number| job(number)), None);
    }
}

fn one_by_one<I, O>(work: impl Fn(&I) -> O) -> impl Fn(&[I]) -> Vec<O> {
    move |items| items.iter().map(&work).collect()
}

fn run<I: Sync, O: Send>(
    items: &[I],
    max_threads: usize,
    share: usize,
    work: impl Fn(&[I]) -> Vec<O> + Sync,
    watch: Option<&dyn Fn()>,
) -> Vec<O> {
    // Reads files where the cores of a container are limited, so it is done once.
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get));
    let threads = cores.min(max_threads);
    if threads <= 1 {
        return work(items);
    }
    let mut results: Vec<Option<O>> = items.iter().map(|_| None).collect();
    // Threads take shares from a queue: a core that is also used by others must not delay the rest.
    let shares = Mutex::new(items.chunks(share).zip(results.chunks_mut(share)));
    let next_share = || locked(&shares).next();
    let work_through = || {
        while let Some((items, results)) = next_share() {
            work(items).into_iter().zip(results).for_each(|(done, result)| *result = Some(done));
        }
    };
    thread::scope(|scope| {
        // Where the system refuses another thread, those that exist do the work.
        let start = |_| thread::Builder::new().spawn_scoped(scope, work_through).ok();
        let others: Vec<_> = (1..threads).map_while(start).collect();
        work_through();
        if let Some(watch) = watch {
            while others.iter().any(|other| !other.is_finished()) {
                watch();
                thread::sleep(WATCH);
            }
        }
        for other in others {
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    results.into_iter().map(|result| result.expect("every share was taken and worked through")).collect()
}
