//! The same work on many items, on all cores. Knows nothing of Python: the caller has let the interpreter go.

use std::num::NonZero;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Items that are taken at once: some 200 µs of work, enough for a thread to be worth its start.
const SHARE: usize = 64;

/// The results of `work` for each of `items`, in their order. A panic of `work` goes on in the caller.
pub fn map<I: Sync, O: Send>(items: &[I], work: impl Fn(&I) -> O + Sync) -> Vec<O> {
    // Asking costs file reads where containers limit the cores.
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    let threads = cores.min(items.len() / SHARE);
    if threads <= 1 {
        return items.iter().map(work).collect();
    }
    // Shares are taken, not dealt out: a core that others use too must not hold up the rest.
    let shares = Mutex::new(items.chunks(SHARE).enumerate());
    let take = || shares.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work_off = || -> Vec<(usize, Vec<O>)> {
        std::iter::from_fn(take).map(|(i, share)| (i, share.iter().map(&work).collect())).collect()
    };
    let mut done = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work_off)).collect();
        let mut done = work_off();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|share| share.0);
    done.into_iter().flat_map(|share| share.1).collect()
}
