//! Reading a proof accepts exactly what replaying the query on the decoded tree accepts, with the same answer.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{DEPTH, read};
use crate::id::cid::{Cid, Kind, RootCid};
use crate::id::suite::Suite;
use crate::id::varint;
use crate::key::Key;
use crate::page::partial::PartialTree;
use crate::proof::query::{Answer, Ask};
use crate::proof::verify;
use crate::query::arcs::Arcs;
use crate::snapshot::Snapshot;
use crate::tree::node::SUM_LIMIT;
use crate::tree::pruned::VisitLimits;

fn target(n: usize) -> Cid {
    // Of two lengths.
    let (codec, function, len) = if n.is_multiple_of(3) { (0x70, 0x13, 64) } else { (0x55, 0x12, 32) };
    let digest = [Suite::Sha2_256.digest(&n.to_be_bytes()).0, Suite::Blake3.digest(&n.to_be_bytes()).0].concat();
    Cid::from_bytes(&[&[1, codec, function, len as u8], &digest[..len]].concat()).expect("a CID")
}

fn map(suite: Suite, paths: impl IntoIterator<Item = String>) -> Snapshot {
    let mut arcs = Arcs::default();
    paths.into_iter().enumerate().for_each(|(i, path)| arcs.push(&key(&path), &target(i)));
    Snapshot::map(suite, arcs).expect("a map")
}

fn key(path: &str) -> Key {
    Key::from_text(path).expect("a path")
}

/// The roots of which the bytes are a proof, read in either way, as if the owner of the root had lied.
fn own_roots(suite: Suite, key: &Key, bytes: &[u8]) -> [Option<RootCid>; 2] {
    let mut tree = PartialTree::of_proof(Kind::Map, suite);
    let replayed = tree.read(bytes, VisitLimits::NONE).ok().map(|()| tree.node(PartialTree::TOP).digest);
    let streamed = read(suite, key.as_bytes(), bytes).ok().map(|shown| shown.digest);
    [streamed, replayed].map(|digest| Some(RootCid { kind: Kind::Map, suite, digest: digest? }))
}

/// Verifies bytes as they are read and on the decoded tree, under one root. Returns whether they are a proof.
fn agree(root: &RootCid, key: &Key, bytes: &[u8]) -> bool {
    let streamed = verify::key(root, key, bytes, verify::PROOF_LIMIT);
    let replayed = verify::replay_on_tree(root, &Ask::Key(key.clone()), bytes, verify::PROOF_LIMIT);
    assert_eq!(
        streamed.clone().map(Answer::Key).ok(),
        replayed.clone().ok(),
        "{bytes:02x?}: {streamed:?}, {replayed:?}"
    );
    assert_eq!(
        verify::replay(root, Ask::Key(key.clone()), bytes, verify::PROOF_LIMIT),
        streamed.clone().map(Answer::Key)
    );
    streamed.is_ok()
}

/// Compares both ways on every small change of a proof, under the true root and under roots of its own. Returns how many
/// changed proofs are valid under a root of their own.
fn agree_on_tampered(root: &RootCid, key: &Key, proof: &[u8]) -> usize {
    let encoded = |count| {
        let mut bytes = Vec::new();
        varint::write(&mut bytes, count);
        bytes
    };
    let huge = encoded(SUM_LIMIT - 1);
    // Counts of two to eight bytes.
    let counts: Vec<_> = (1..8).map(|sevens| encoded(1 << (7 * sevens))).collect();
    let mut proofs = 0;
    let mut both = |bytes: &[u8]| {
        assert!(bytes == proof || !agree(root, key, bytes));
        let valid =
            own_roots(root.suite, key, bytes).into_iter().flatten().filter(|own| agree(own, key, bytes)).count();
        proofs += valid.min(1);
    };
    for at in 0..proof.len() {
        let (before, after) = proof.split_at(at);
        both(before);
        both(&[before, &[1], after].concat());
        both(&[before, &after[1..]].concat());
        both(&[before, &huge, &after[1..]].concat());
        both(&[before, &counts[at % counts.len()], &after[1..]].concat());
        for flip in [1, 2, 3, 0x10, 0x80, 0xff] {
            both(&[before, &[after[0] ^ flip], &after[1..]].concat());
        }
    }
    both(&[proof, &[0]].concat());
    proofs
}

/// Verifies proofs in lanes and one by one: the results are the same, the errors included.
fn agree_in_lanes(root: &RootCid, proofs: &[(&Key, &[u8])]) {
    let limit = 3000;
    let alone: Vec<_> = proofs.iter().map(|(key, proof)| verify::key(root, key, proof, limit)).collect();
    assert_eq!(verify::each_key(root, proofs, limit), Ok(alone));
}

/// Few letters and long repeats, so that keys diverge early, late, and inside bytes.
fn paths() -> impl Strategy<Value = BTreeSet<String>> {
    let segment = prop_oneof![4 => "[a-cq]{1,4}", 2 => "[0-9a-f]{24}", 1 => (1usize..200).prop_map(|n| "x".repeat(n))];
    let path = prop::collection::vec(segment, 1..4).prop_map(|segments| segments.join("/"));
    prop_oneof![prop::collection::btree_set(path.clone(), 0..4), prop::collection::btree_set(path, 0..200)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn proofs_are_accepted_as_by_the_replay_on_a_tree(paths in paths(), others in paths(), blake in any::<bool>()) {
        let suite = if blake { Suite::Blake3 } else { Suite::Sha2_256 };
        let tree = map(suite, paths.iter().cloned());
        let asked: Vec<_> = paths.iter().cloned().chain(others).map(|path| key(&path)).collect();
        let proofs: Vec<_> = asked.iter().map(|key| tree.key(key).expect("a map").1()).collect();
        for (i, key) in asked.iter().enumerate() {
            prop_assert!(agree(&tree.root(), key, &proofs[i]));
            // A proof of another key is one of this key only if it ends at the same node.
            agree(&tree.root(), key, &proofs[i / 2]);
        }
        // Valid and malformed ones, side by side and of different lengths.
        let mut others = proofs.clone();
        for (i, proof) in others.iter_mut().enumerate().filter(|(i, _)| i % 3 > 0) {
            let at = i * 31 % proof.len();
            match i % 9 {
                1 => proof.truncate(at),
                2 => proof.insert(at, 1),
                4 => proof[0] ^= 1,
                5 => proof.push(0),
                7 => proof.resize(3001, 0),
                _ => proof[at] ^= 1 << (i % 8),
            }
        }
        for proofs in [&proofs, &others] {
            let pairs: Vec<_> = asked.iter().zip(proofs).map(|(key, proof)| (key, &proof[..])).collect();
            agree_in_lanes(&tree.root(), &pairs);
            agree_in_lanes(&tree.root(), &pairs[..pairs.len() / 2]);
        }
    }
}

#[test]
fn tampered_proofs_are_rejected_as_by_the_replay_on_a_tree() {
    let ids = (0..40).map(|i| format!("users/{}", i * 7919 % 1000));
    let tree = map(Suite::Sha2_256, ids.chain(["a".into(), "users/15838/x\0y".into(), "users/15838/x\0/z".into()]));
    for path in ["a", "users/0", "users/919", "users/15838/x\0y", "users/9191", "users/2", "z", "users"] {
        let key = key(path);
        let proof = tree.key(&key).expect("a map").1();
        assert!(agree(&tree.root(), &key, &proof));
        assert!(agree_on_tampered(&tree.root(), &key, &proof) > 30, "digests and counts can be lied about");
    }
}

#[test]
fn proofs_of_any_depth_are_read() {
    // Each path diverges from the one before it in its last letter.
    let paths: Vec<_> = (1..=4 * DEPTH).map(|n| format!("{}b", "a".repeat(n))).collect();
    let tree = map(Suite::Sha2_256, paths.iter().cloned());
    for path in &paths {
        let key = key(path);
        let (found, proof) = tree.key(&key).expect("a map");
        let proof = proof();
        assert!(found.is_some());
        assert!(agree(&tree.root(), &key, &proof));
        assert_eq!(verify::key(&tree.root(), &key, &proof, verify::PROOF_LIMIT), Ok(found));
    }
}
