//! `nomt` with a session and a durable commit for each request. It has one writer at a time, so writers take turns.
//!
//! Its keys are the SHA-256 of the keys, which is computed here, since a program would.

use std::sync::Mutex;

use bitvec::slice::BitSlice;
use coregw_peers::sha256;
use coregw_peers::writes::{Change, Store, run};
use nomt::hasher::{Sha2Hasher, ValueHasher};
use nomt::trie::LeafData;
use nomt::{KeyReadWrite, Nomt, Options, SessionParams, WitnessMode};

struct Tree(Mutex<Nomt<Sha2Hasher>>);

impl Tree {
    fn put(&self, changes: &[Change<'_>]) {
        let mut writes: Vec<_> = changes
            .iter()
            .map(|change| (sha256(change.key.as_bytes()), KeyReadWrite::Write(Some(change.value.to_vec()))))
            .collect();
        writes.sort_unstable_by_key(|write| write.0);
        let nomt = self.0.lock().expect("no panic");
        let session = nomt.begin_session(SessionParams::default().witness_mode(WitnessMode::disabled()));
        session.finish(writes).expect("a session").commit(&nomt).expect("a commit");
    }
}

impl Store for Tree {
    fn prepare(&mut self, _writers: usize) {}

    fn write(&self, _writer: usize, changes: &[Change<'_>]) {
        self.put(changes);
    }

    fn check(&self, _writer: usize, change: &Change<'_>) -> bool {
        let nomt = self.0.lock().expect("no panic");
        let key_path = sha256(change.key.as_bytes());
        let session = nomt.begin_session(SessionParams::default());
        let proof = session.prove(key_path).expect("a proof");
        let path = proof.verify::<Sha2Hasher>(BitSlice::from_slice(&key_path), nomt.root().into_inner());
        let leaf = LeafData { key_path, value_hash: Sha2Hasher::hash_value(&change.value) };
        assert!(path.expect("a valid proof").confirm_value(&leaf).expect("the key"), "the change is not stored");
        true
    }
}

fn main() {
    let folder = std::env::args().nth(1).expect("a folder");
    run(|first| {
        let mut options = Options::new();
        options.path(folder);
        options.hashtable_buckets(2 * (first.len() as u32).max(32_000));
        options.preallocate_ht(false);
        options.page_cache_size(4096);
        options.leaf_cache_size(1024);
        let tree = Tree(Mutex::new(Nomt::open(options).expect("a store")));
        tree.put(first);
        (tree, std::process::id())
    });
}
