//! Fuzz target: proofs up to the longest. Maps with a node at many bits of long keys: the proof of a key, and the multiproof
//! of several. What is honest is accepted with the answer of a sorted map; what was edited is accepted by all verifiers
//! alike.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use coregw_core::internals::node;
use coregw_core::key::{MAX_BITS, MAX_TEXT};
use coregw_core::{Arcs, Ask, Cid, Digest, Key, Kind, RootCid, Snapshot, Suite, varint, verify};
use coregw_fuzz::agree::agree_on_own_root;
use coregw_fuzz::input::Input;
use coregw_fuzz::model::{Answer, Path, Query, key, slow_get_many};
use libfuzzer_sys::fuzz_target;

/// The reference keeps all bits of the path at every node, so it gets no deeper trees.
const MAX_REFERENCE_NODES: usize = 300;

/// A long text: a pattern that is repeated.
fn long_text(input: &mut Input<'_>) -> String {
    let n = 1 + input.below(4);
    let pattern: String = (0..n).map(|_| ["U", "\0", "a", "\u{1}", "\u{e9}", "z"][input.below(6)]).collect();
    let len = if input.byte() < 16 { MAX_TEXT } else { 1 + input.below(600) };
    let mut text = pattern.repeat(len / pattern.len());
    while text.len() < len {
        text.push('q');
    }
    text
}

fn bit(key: &[u8], at: u32) -> bool {
    key[at as usize / 8] >> (7 - at % 8) & 1 == 1
}

/// The proof of `key` in a map that has a sibling at each of `bits`, which ascend, and the digest of that map.
fn shown_key(suite: Suite, key: &[u8], target: &Cid, bits: &[u32], count: u64) -> (Vec<u8>, Digest) {
    let sibling = node::Summary { count, measure: 0, digest: Digest([7; 32]) };
    let mut stub = vec![0x03];
    varint::write(&mut stub, sibling.count);
    stub.extend(sibling.digest.0);
    let leaf = node::bytes(&node::MapLeaf { key, target: target.as_bytes() });
    let mut child = node::Summary { count: 1, measure: 0, digest: suite.digest(&leaf) };
    for &at in bits.iter().rev() {
        let children = if bit(key, at) { [&sibling, &child] } else { [&child, &sibling] };
        let mut path = key[..at.div_ceil(8) as usize].to_vec();
        if let (Some(last), 1..) = (path.last_mut(), at % 8) {
            *last &= 0xff << (8 - at % 8);
        }
        let digest = suite.digest(&node::bytes(&node::MapInner { bit: at, path: &path, children }));
        child = node::Summary { count: child.count + sibling.count, digest, ..child };
    }
    let (mut start, mut end) = (Vec::new(), Vec::new());
    let mut floor = 0;
    for &at in bits {
        start.push(0x02);
        varint::write(&mut start, (at - floor).into());
        label(&mut start, key, floor, at);
        (if bit(key, at) { &mut start } else { &mut end }).extend(&stub);
        floor = at + 1;
    }
    let mut tail = key[floor as usize / 8..].to_vec();
    if let (Some(first), 1..) = (tail.first_mut(), floor % 8) {
        *first &= 0xff >> (floor % 8);
    }
    start.push(0x01);
    varint::write(&mut start, tail.len() as u64);
    start.extend(tail);
    varint::write(&mut start, target.as_bytes().len() as u64);
    start.extend(target.as_bytes());
    ([start, end].concat(), child.digest)
}

/// Writes the bits of a key from `floor` to `end`, in their bytes.
fn label(out: &mut Vec<u8>, key: &[u8], floor: u32, end: u32) {
    if end == floor {
        return;
    }
    let mut own = key[floor as usize / 8..end.div_ceil(8) as usize].to_vec();
    let last = own.len() - 1;
    if !end.is_multiple_of(8) {
        own[last] &= 0xff << (8 - end % 8);
    }
    own[0] &= 0xff >> (floor % 8);
    out.extend(own);
}

/// Edits a few bytes, or the end.
fn edit(input: &mut Input<'_>, mut proof: Vec<u8>) -> Vec<u8> {
    for _ in 0..=input.below(3) {
        let at = (input.byte() as usize) << 16 | (input.byte() as usize) << 8 | input.byte() as usize;
        let len = proof.len().max(1);
        match input.byte() {
            0..180 if !proof.is_empty() => proof[at % len] ^= 1 << (input.byte() % 8),
            180..200 => proof.truncate(at % len),
            200..220 => proof.extend_from_within(at % len..),
            220..240 if at % len + 1 < proof.len() => drop(proof.remove(at % len)),
            _ => proof.push(input.byte()),
        }
    }
    proof
}

/// Verifies the proof of a key as it is read and on the decoded tree; both accept it, or neither.
fn both(root: &RootCid, key: &Key, proof: &[u8]) -> Option<Option<Cid>> {
    let streamed = verify::key(root, key, proof, verify::PROOF_LIMIT).ok();
    let on_tree = verify::replay_on_tree(root, &Ask::Key(key.clone()), proof, verify::PROOF_LIMIT).ok();
    assert_eq!(on_tree, streamed.map(coregw_core::Answer::Key));
    streamed
}

fn one_key(input: &mut Input<'_>, suite: Suite) {
    let path: Path = vec![long_text(input)];
    let (key, target) = (key(&path), input.target());
    let bytes = key.as_bytes();
    let all = 8 * bytes.len() as u32;
    // A node at every bit of the longest key takes a second, so these are rare.
    let step = match input.byte() {
        0..4 => 1,
        4..128 => 1 + input.below(64),
        _ => 1 + all as usize / (1 + input.below(2000)),
    };
    let first = (input.below(40) as u32).min(all - 1);
    let bits: Vec<_> = (first..all.min(MAX_BITS)).step_by(step).collect();
    let count = 1 << (input.byte() % 37);
    let (proof, digest) = shown_key(suite, bytes, &target, &bits, count);
    let root = RootCid { kind: Kind::Map, suite, digest };
    assert_eq!(both(&root, &key, &proof), Some(Some(target)));
    // Another key, which may leave the shown path anywhere: what is accepted proves that it is absent.
    let mut text = path[0].clone();
    text.truncate((0..=input.below(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0));
    text.push(if input.flag() { 'T' } else { '\0' });
    if let Ok(other) = Key::from_text(&text)
        && other != key
    {
        assert_ne!(both(&root, &other, &proof), Some(Some(target)));
    }
    let forged = edit(input, proof);
    if let Some(found) = both(&root, &key, &forged) {
        assert_eq!(found, Some(target), "a forged proof of another target");
    }
    if bits.len() < MAX_REFERENCE_NODES && bytes.len() < 1000 {
        agree_on_own_root(Kind::Map, suite, &Query::Key(path), &forged);
    }
}

/// A map of long keys that part from one another at many bits, and a multiproof of some of them and of others.
fn many_keys(input: &mut Input<'_>, suite: Suite) {
    let spine = long_text(input);
    let mut arcs = BTreeMap::new();
    let branch = |input: &mut Input<'_>| {
        let at = (0..=input.below(spine.len() + 1)).rev().find(|at| spine.is_char_boundary(*at)).unwrap_or(0);
        let end = ["T", "V", "\0", "u", "\u{e9}", "UU", "7"][input.below(7)];
        let text = format!("{}{end}", &spine[..at]);
        Key::from_text(&text).ok().map(|_| vec![text])
    };
    arcs.insert(vec![spine.clone()], input.target());
    for _ in 0..input.below(120) {
        if let Some(path) = branch(input) {
            arcs.insert(path, input.target());
        }
    }
    let mut all = Arcs::default();
    arcs.iter().for_each(|(path, target)| all.push(&key(path), target));
    let tree = Snapshot::map(suite, all).expect("a map");
    let known: Vec<Path> = arcs.keys().cloned().collect();
    let mut asked: BTreeSet<Path> = [vec![spine.clone()]].into();
    for _ in 0..input.below(40) {
        let known = known[input.below(known.len())].clone();
        asked.extend(if input.flag() { Some(known) } else { branch(input) });
    }
    let mut asked: Vec<_> = asked.into_iter().collect();
    let turn = input.below(asked.len());
    asked.rotate_left(turn);
    let query = Query::Keys(asked.clone());
    let (answer, proof) = query.prove(&tree).expect("an answer");
    let expected = slow_get_many(&arcs, &asked);
    assert_eq!(answer, expected);
    assert_eq!(query.verify(&tree.root(), &proof), Ok(expected.clone()));
    // Fewer keys do not need all that is shown; the order does not matter.
    let fewer = Query::Keys(asked[..asked.len().div_ceil(2)].to_vec());
    if let Ok(Answer::Keys(found)) = fewer.verify(&tree.root(), &proof) {
        assert_eq!(Answer::Keys(found), slow_get_many(&arcs, &asked[..asked.len().div_ceil(2)]));
    }
    let forged = edit(input, proof.clone());
    if let Ok(found) = query.verify(&tree.root(), &forged) {
        assert_eq!(found, expected, "a forged proof of other targets");
    }
    if arcs.len() < MAX_REFERENCE_NODES && spine.len() < 1000 {
        agree_on_own_root(Kind::Map, suite, &query, &forged);
        agree_on_own_root(Kind::Map, suite, &fewer, &proof);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let how = input.byte();
    let suite = Suite::ALL[usize::from(how & 1)];
    match how & 2 {
        0 => one_key(&mut input, suite),
        _ => many_keys(&mut input, suite),
    }
});
