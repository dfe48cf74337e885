//! The same work on many items, on all cores. Knows nothing of Python: the caller has let the interpreter go.

use std::num::NonZero;
use std::sync::OnceLock;

/// Items that make a thread of its own worth starting: some 200 µs of work.
const SHARE: usize = 64;

/// The results of `work` for each of `items`, in their order. A panic of `work` goes on in the caller.
pub fn map<I: Sync, O: Send>(items: &[I], work: impl Fn(&I) -> O + Sync) -> Vec<O> {
    // Asking costs file reads where containers limit the cores.
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    let threads = cores.min(items.len() / SHARE).max(1);
    if threads == 1 {
        return items.iter().map(work).collect();
    }
    let work = &work;
    std::thread::scope(|scope| {
        let mut shares = items.chunks(items.len().div_ceil(threads));
        let own = shares.next().unwrap_or_default();
        let others: Vec<_> = shares.map(|share| scope.spawn(|| share.iter().map(work).collect::<Vec<O>>())).collect();
        let mut all: Vec<O> = own.iter().map(work).collect();
        for other in others {
            all.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    })
}
