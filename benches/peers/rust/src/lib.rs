//! Measures one peer written in Rust, or coregw itself, as benches/peers/README.md says.

use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::time::Duration;

use cpu_time::ProcessTime;
use sha2::{Digest, Sha256};

/// How many keys are asked for again and again, before the next ones are.
const IN_A_ROW: usize = 200;

/// A tree that was built of the keys. `prove` and `verify` are about the key of a number.
pub trait Peer {
    /// Makes the proof of a key, as bytes to send.
    fn prove(&self, i: usize) -> Vec<u8>;
    /// Whether the bytes received are a good proof.
    fn verify(&self, i: usize, proof: &[u8]) -> bool;
}

/// SHA-256.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The value of a key: the digest of the key's digest.
pub fn value(key: &str) -> [u8; 32] {
    sha256(&sha256(key.as_bytes()))
}

/// Builds a peer of the keys in the file that the last argument but one names, and answers each line on stdin with one
/// round of as many look-ups as the last argument says.
pub fn run<P: Peer>(build: impl FnOnce(&[&str]) -> P) {
    let args: Vec<_> = std::env::args().rev().take(2).collect();
    let lookups: usize = args[0].parse().expect("a number of look-ups");
    let text = std::fs::read_to_string(&args[1]).expect("a file of keys");
    let keys: Vec<_> = text.lines().collect();
    let start = ProcessTime::now();
    let peer = build(&keys);
    let built = start.elapsed().as_secs_f64();
    let proofs: Vec<_> = (0..lookups).map(|i| peer.prove(i)).collect();
    let bytes = proofs.iter().map(Vec::len).sum::<usize>() as f64 / lookups as f64;
    println!(r#"{{"build": {built}, "proof_bytes": {bytes}}}"#);
    for line in io::stdin().lock().lines() {
        line.expect("a line");
        let [spread, prove, verify] = round(&peer, &proofs).map(|time| time.as_secs_f64() / lookups as f64);
        println!(r#"{{"spread": {spread}, "prove": {prove}, "verify": {verify}}}"#);
        io::stdout().flush().expect("an open stdout");
    }
}

/// The times of proving all keys one after the other; of proving the same few keys a second time; of verifying them.
fn round<P: Peer>(peer: &P, proofs: &[Vec<u8>]) -> [Duration; 3] {
    let prove = |keys: Range<usize>| time(|| keys.map(|i| peer.prove(i).len()).sum::<usize>());
    let verify = |keys: Range<usize>| time(|| keys.filter(|i| !peer.verify(*i, &proofs[*i])).count());
    let spread = prove(0..proofs.len()).0;
    let mut warm = [Duration::ZERO; 2];
    for from in (0..proofs.len()).step_by(IN_A_ROW) {
        let row = from..(from + IN_A_ROW).min(proofs.len());
        prove(row.clone());
        warm[0] += prove(row.clone()).0;
        let (time, bad) = verify(row);
        assert_eq!(bad, 0, "a proof is refused");
        warm[1] += time;
    }
    [spread, warm[0], warm[1]]
}

fn time<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = ProcessTime::now();
    let result = black_box(work());
    (start.elapsed(), result)
}
