//! Test data: keys of three kinds, the same in every run on the same machine.

use std::path::Path;

use coregw_core::{Arcs, Cid, Key, Suite};

/// Deterministic pseudorandom numbers (splitmix64).
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        (1..all.len()).rev().for_each(|i| all.swap(i, self.below(i + 1)));
    }
}

/// The target of arc `i`.
pub fn target(i: u64) -> Cid {
    let mut bytes = vec![1, 0x55, 0x12, 32];
    let mut numbers = Numbers::new(i);
    (0..4).for_each(|_| bytes.extend_from_slice(&numbers.next().to_le_bytes()));
    Cid::from_bytes(&bytes).expect("a CID")
}

/// The arcs with these keys, in the same order.
pub fn arcs(keys: &[Key]) -> Arcs {
    let mut arcs = Arcs::default();
    keys.iter().zip(0..).for_each(|(key, i)| arcs.push(key, &target(i)));
    arcs
}

/// The kinds of keys.
pub const KINDS: [&str; 3] = ["sequential ids", "random hex", "file paths"];

/// `n` keys of one kind, shuffled.
pub fn keys(kind: &str, n: usize) -> Vec<Key> {
    let key = |text: String| Key::from_text(&text).expect("a path");
    let hex = |i: u64| Suite::Blake3.digest(&i.to_le_bytes()).to_string()[..32].to_owned();
    let mut keys: Vec<_> = match kind {
        "sequential ids" => (0..n).map(|i| key(format!("users/{i:09}"))).collect(),
        "random hex" => (0..n as u64).map(|i| key(hex(i))).collect(),
        _ => files(n).into_iter().map(key).collect(),
    };
    Numbers::new(7).shuffle(&mut keys);
    keys
}

/// The paths of all files below /usr, repeated below numbered folders until there are `n`.
fn files(n: usize) -> Vec<String> {
    let mut found = Vec::new();
    for top in ["/usr", env!("CARGO_MANIFEST_DIR")] {
        if found.is_empty() {
            walk(Path::new(top), &mut found);
        }
    }
    found.sort_unstable();
    eprintln!("file paths: {} files found, repeated below numbered folders until there are {n}", found.len());
    (0..n).map(|i| format!("image-{:03}{}", i / found.len(), found[i % found.len()])).collect()
}

fn walk(folder: &Path, found: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        match (entry.file_type(), entry.path().to_str()) {
            (Ok(kind), _) if kind.is_dir() => walk(&entry.path(), found),
            (Ok(kind), Some(path)) if kind.is_file() && path.len() < 4000 => found.push(path.to_owned()),
            _ => {}
        }
    }
}
