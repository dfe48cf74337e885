//! Which roots a cache shows as held while roots expire and other threads read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use coregw_core::{PageCache, RootCid, Snapshot, Suite};

fn root() -> RootCid {
    Snapshot::map(Suite::Sha2_256, coregw_core::Arcs::default()).expect("an empty map").root()
}

/// What happens to a root, one after the other.
enum Event {
    /// A reader notes the generation.
    Begin(usize),
    /// It has found the root.
    Remember(usize),
    /// Roots expire.
    Expire,
    /// Whether the cache has to know the root.
    Held(bool),
}

#[test]
fn a_root_is_held_only_as_of_the_generation_in_which_its_read_began() {
    use Event::{Begin, Expire, Held, Remember};
    let cases: [(&str, &[Event]); 6] = [
        ("unknown", &[Held(false)]),
        ("read", &[Begin(0), Remember(0), Held(true)]),
        ("expired", &[Begin(0), Remember(0), Expire, Held(false)]),
        ("expired while it was read", &[Begin(0), Expire, Remember(0), Held(false)]),
        ("read again", &[Begin(0), Expire, Begin(1), Remember(1), Held(true), Expire, Held(false)]),
        ("a late reader", &[Begin(0), Expire, Begin(1), Remember(1), Remember(0), Held(false)]),
    ];
    for (name, events) in cases {
        let (cache, root, mut began) = (PageCache::new(1 << 20, 16), root(), [u64::MAX; 2]);
        for event in events {
            match event {
                Begin(reader) => began[*reader] = cache.generation(),
                Remember(reader) => cache.remember(root, began[*reader]),
                Expire => cache.expire(),
                Held(expected) => assert_eq!(cache.is_held(&root), expected.then_some(true), "{name}"),
            }
        }
    }
}

#[test]
fn a_root_that_has_expired_is_never_held_whatever_threads_do() {
    // The root expires for good after so many generations, in which readers find it.
    const GENERATIONS: u64 = 2000;
    let (cache, root) = (PageCache::new(1 << 20, 16), root());
    let (in_store, is_over) = (AtomicBool::new(true), AtomicBool::new(false));
    let found = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let generation = cache.generation();
                    if in_store.load(Ordering::SeqCst) {
                        found.fetch_add(1, Ordering::Relaxed);
                        thread::yield_now();
                        cache.remember(root, generation);
                    }
                }
            });
        }
        for _ in 0..GENERATIONS {
            let before = found.load(Ordering::Relaxed);
            while found.load(Ordering::Relaxed) == before {
                thread::yield_now();
            }
            in_store.store(false, Ordering::SeqCst);
            cache.expire();
            for _ in 0..20 {
                assert_eq!(cache.is_held(&root), None);
            }
            in_store.store(true, Ordering::SeqCst);
        }
        is_over.store(true, Ordering::SeqCst);
    });
}
