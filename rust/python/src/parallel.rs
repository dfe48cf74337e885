//! The same work on many items, on all cores. Knows nothing of Python: the caller has let the interpreter go.

use std::num::NonZero;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Items that make a thread worth its start: some 100 µs of work.
const WORTH: usize = 64;
/// Items that are taken at once: few enough that no thread waits long for the last ones of another.
const SHARE: usize = 16;

/// The results of `work` for each of `items`, in their order. A panic of `work` goes on in the caller.
pub fn map<I: Sync, O: Send>(items: &[I], work: impl Fn(&I) -> O + Sync) -> Vec<O> {
    // Asking costs file reads where containers limit the cores.
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    let threads = cores.min(items.len() / WORTH);
    if threads <= 1 {
        return items.iter().map(work).collect();
    }
    let mut results: Vec<Option<O>> = items.iter().map(|_| None).collect();
    // Shares are taken, not dealt out: a core that others use too must not hold up the rest.
    let shares = Mutex::new(items.chunks(SHARE).zip(results.chunks_mut(SHARE)));
    let take = || shares.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work_off = || {
        while let Some((items, results)) = take() {
            items.iter().zip(results).for_each(|(item, result)| *result = Some(work(item)));
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work_off)).collect();
        work_off();
        for other in others {
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    results.into_iter().map(|result| result.expect("all shares were worked off")).collect()
}
