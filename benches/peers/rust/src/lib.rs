//! Driver for peers written in Rust, and for coregw itself, run by benches/bench_peers.py.

pub mod writes;

use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::time::Duration;

use cpu_time::ProcessTime;
use sha2::{Digest, Sha256};

/// How many keys are looked up repeatedly before the next ones.
const ROW_LENGTH: usize = 200;

/// A tree of keys. `prove` and `verify` take the number of a key.
pub trait Peer {
    /// Creates the proof of a key, as bytes to send.
    fn prove(&self, i: usize) -> Vec<u8>;
    /// Returns whether the received bytes are a valid proof.
    fn verify(&self, i: usize, proof: &[u8]) -> bool;
}

/// Returns the SHA-256 digest of the bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Returns the value of a key: the digest of the key's digest.
pub fn value(key: &str) -> [u8; 32] {
    sha256(&sha256(key.as_bytes()))
}

/// Builds a peer from the keys in a file, and measures one round for each line on stdin. The last three arguments are
/// the file, the number of lookups, and how often a round repeats each of them.
pub fn run<P: Peer>(build: impl FnOnce(&[&str]) -> P) {
    let args: Vec<_> = std::env::args().collect();
    let [.., path, lookups, passes] = &args[..] else { panic!("usage: FILE LOOKUPS PASSES") };
    let lookups: usize = lookups.parse().expect("a number of lookups");
    let passes: u32 = passes.parse().expect("a number of passes");
    let text = std::fs::read_to_string(path).expect("a file of keys");
    let keys: Vec<_> = text.lines().collect();
    let start = ProcessTime::now();
    let peer = build(&keys);
    let built = start.elapsed().as_secs_f64();
    let proofs: Vec<_> = (0..lookups).map(|i| peer.prove(i)).collect();
    let bytes = proofs.iter().map(Vec::len).sum::<usize>() as f64 / lookups as f64;
    println!(r#"{{"build": {built}, "proof_bytes": {bytes}}}"#);
    for line in io::stdin().lock().lines() {
        line.expect("a line");
        let [spread, prove, verify] = round(&peer, &proofs, passes).map(|time| time.as_secs_f64() / lookups as f64);
        println!(r#"{{"spread": {spread}, "prove": {prove}, "verify": {verify}}}"#);
        io::stdout().flush().expect("an open stdout");
    }
}

/// The times of proving each key once, of proving rows of keys repeatedly, and of verifying them as often.
fn round<P: Peer>(peer: &P, proofs: &[Vec<u8>], passes: u32) -> [Duration; 3] {
    let prove = |keys: Range<usize>| keys.map(|i| peer.prove(i).len()).sum::<usize>();
    let verify =
        |keys: Range<usize>| assert!(keys.into_iter().all(|i| peer.verify(i, &proofs[i])), "a proof was rejected");
    let spread = time(1, || prove(0..proofs.len()));
    let mut warm = [Duration::ZERO; 2];
    for from in (0..proofs.len()).step_by(ROW_LENGTH) {
        let row = from..(from + ROW_LENGTH).min(proofs.len());
        prove(row.clone());
        warm[0] += time(passes, || prove(row.clone()));
        warm[1] += time(passes, || verify(row.clone()));
    }
    [spread, warm[0], warm[1]]
}

/// The mean CPU time of some work.
fn time<T>(passes: u32, mut work: impl FnMut() -> T) -> Duration {
    let start = ProcessTime::now();
    for _ in 0..passes {
        black_box(work());
    }
    start.elapsed() / passes
}
