//! Durable writes by concurrent writers, for benches/bench_writes.py.
//!
//! The last argument of a driver is a file of keys. It stores them, and prints the process that writes. Then each case is
//! three lines on stdin, each answered by one: `WRITERS CHANGES SECONDS`, when the writers may start; how many changes
//! were acknowledged in which time; and whether the last ones have proofs, which are verified.

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A new value of a key.
pub struct Change<'a> {
    /// The number of the key in the file.
    pub number: usize,
    /// The key.
    pub key: &'a str,
    /// Its value.
    pub value: [u8; 32],
}

/// A store with all keys of the file. Each writer has keys of its own.
pub trait Store: Sync {
    /// Prepares a case of this many writers, which is not measured.
    fn prepare(&mut self, writers: usize);
    /// Makes the changes of one request durable.
    fn write(&self, writer: usize, changes: &[Change<'_>]);
    /// Panics unless a change is stored, and returns whether a proof shows it.
    fn check(&self, writer: usize, change: &Change<'_>) -> bool;
}

/// Returns a value of 32 bytes that occurs once.
pub fn value(seed: u64) -> [u8; 32] {
    let mut value = [0; 32];
    for (lane, word) in value.chunks_exact_mut(8).enumerate() {
        // The finalizer of SplitMix64.
        let mut mixed = (4 * seed + lane as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
    }
    value
}

/// Creates a store, in a process with this identifier, and measures the cases that stdin asks for. `create` takes the
/// keys with their first values.
pub fn run<S: Store>(create: impl FnOnce(&[Change<'_>]) -> (S, u32)) {
    let path = std::env::args().next_back().expect("a file of keys");
    let text = std::fs::read_to_string(path).expect("a file of keys");
    let keys: Vec<_> = text.lines().collect();
    let seeds = AtomicU64::new(0);
    let change = |number: usize| {
        let seed = seeds.fetch_add(1, Ordering::Relaxed);
        Change { number, key: keys[number], value: value(seed) }
    };
    let first: Vec<_> = (0..keys.len()).map(change).collect();
    let (mut store, process) = create(&first);
    answer(&format!(r#"{{"process": {process}}}"#));
    let mut lines = io::stdin().lock().lines().map(|line| line.expect("a line"));
    while let Some(case) = lines.next() {
        let case: Vec<f64> = case.split(' ').map(|number| number.parse().expect("a number")).collect();
        let (writers, changes, seconds) = (case[0] as usize, case[1] as usize, Duration::from_secs_f64(case[2]));
        store.prepare(writers);
        answer("{}");
        lines.next().expect("a line");
        let start = Instant::now();
        let write = |writer: usize| {
            let mut next = (writer..keys.len() / writers * writers).step_by(writers).cycle();
            let mut requests = 0;
            loop {
                let mut request: Vec<_> = next.by_ref().take(changes).map(change).collect();
                store.write(writer, &request);
                requests += 1;
                if start.elapsed() >= seconds {
                    return (requests * changes, request.pop().expect("a change"));
                }
            }
        };
        let done: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..writers).map(|writer| scope.spawn(move || write(writer))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a writer")).collect()
        });
        let count: usize = done.iter().map(|(count, _)| count).sum();
        let elapsed = start.elapsed().as_secs_f64();
        answer(&format!(r#"{{"changes": {count}, "seconds": {elapsed}}}"#));
        lines.next().expect("a line");
        let proven = done.iter().enumerate().all(|(writer, (_, last))| store.check(writer, last));
        answer(&format!(r#"{{"proof": {proven}}}"#));
    }
}

fn answer(line: &str) {
    println!("{line}");
    io::stdout().flush().expect("an open stdout");
}
