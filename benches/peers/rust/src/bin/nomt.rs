//! `nomt`, a binary Merkle trie in pages on disk, with SHA-256 (its default, BLAKE3, is slower on processors with SHA-256
//! instructions). All its pages fit into its cache.
//!
//! Its keys have 32 bytes: it gets the SHA-256 of the keys, computed beforehand. It proves that a digest has the hash of a
//! value, which the verifier computes. Proofs are encoded with Borsh.

use bitvec::slice::BitSlice;
use coregw_peers::{Peer, run, sha256, value};
use nomt::hasher::{Sha2Hasher, ValueHasher};
use nomt::proof::PathProof;
use nomt::trie::LeafData;
use nomt::{KeyReadWrite, Nomt, Options, Session, SessionParams, WitnessMode};

struct Tree {
    session: Session<Sha2Hasher>,
    root: [u8; 32],
    keys: Vec<([u8; 32], Vec<u8>)>,
    _nomt: Nomt<Sha2Hasher>,
    _folder: tempfile::TempDir,
}

impl Peer for Tree {
    fn prove(&self, i: usize) -> Vec<u8> {
        borsh::to_vec(&self.session.prove(self.keys[i].0).expect("a proof")).expect("bytes")
    }

    fn verify(&self, i: usize, proof: &[u8]) -> bool {
        let (key_path, value) = &self.keys[i];
        let proof: PathProof = borsh::from_slice(proof).expect("a proof");
        let leaf = LeafData { key_path: *key_path, value_hash: Sha2Hasher::hash_value(value) };
        let verified = proof.verify::<Sha2Hasher>(BitSlice::from_slice(key_path), self.root);
        verified.is_ok_and(|path| path.confirm_value(&leaf).is_ok_and(|good| good))
    }
}

fn main() {
    run(|texts| {
        let keys: Vec<_> = texts.iter().map(|text| (sha256(text.as_bytes()), value(text).to_vec())).collect();
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = Options::new();
        options.path(folder.path());
        options.hashtable_buckets(2 * (texts.len() as u32).max(32_000));
        options.preallocate_ht(false);
        options.page_cache_size(4096);
        options.leaf_cache_size(1024);
        let nomt = Nomt::<Sha2Hasher>::open(options).expect("a store");
        let mut writes: Vec<_> =
            keys.iter().map(|(key, value)| (*key, KeyReadWrite::Write(Some(value.clone())))).collect();
        writes.sort_unstable_by_key(|write| write.0);
        let session = nomt.begin_session(SessionParams::default().witness_mode(WitnessMode::disabled()));
        session.finish(writes).expect("a session").commit(&nomt).expect("a commit");
        let session = nomt.begin_session(SessionParams::default());
        Tree { root: nomt.root().into_inner(), session, keys, _nomt: nomt, _folder: folder }
    });
}
