//! Trees assembled by hand from the encodings of protocol section 3, so they can contain any value.
#![allow(dead_code, reason = "each test program uses only some of these items")]

use coregw_core::{Cid, Digest, Element, Error, Key, Kind, Result, RootCid, Suite, Window, map, varint, verify};

pub const SUITE: Suite = Suite::Sha2_256;

pub fn target(n: u8) -> Cid {
    Cid::from_bytes(&[&[1, 0x55, 0x12, 32][..], &[n; 32]].concat()).expect("a CID")
}

pub fn key(text: &str) -> Key {
    Key::from_text(text).expect("a path")
}

pub fn number(out: &mut Vec<u8>, n: u64) {
    varint::write(out, n);
}

/// A subtree: the count, measure and digest that its parent hashes, and its bytes in a proof.
#[derive(Clone)]
pub struct Part {
    pub count: u64,
    pub measure: u64,
    pub digest: Digest,
    pub proof: Vec<u8>,
}

pub fn map_leaf(key: &[u8], floor: usize, target: &[u8]) -> Part {
    let (mut encoding, mut proof) = (vec![1], vec![1]);
    let mut tail = key[(floor / 8).min(key.len())..].to_vec();
    if let (Some(first), 1..) = (tail.first_mut(), floor % 8) {
        *first &= 0xff >> (floor % 8);
    }
    for (out, key) in [(&mut encoding, key), (&mut proof, &tail)] {
        number(out, key.len() as u64);
        out.extend_from_slice(key);
        number(out, target.len() as u64);
        out.extend_from_slice(target);
    }
    Part { count: 1, measure: 1, digest: SUITE.digest(&encoding), proof }
}

/// An inner map node at the top of a tree; its prefix is the first `bit` bits of `prefix`.
pub fn map_inner(bit: u64, prefix: &[u8], sides: [Part; 2]) -> Part {
    let label = &prefix[..bit.div_ceil(8) as usize];
    let (mut encoding, mut proof) = (vec![2], vec![2]);
    for out in [&mut encoding, &mut proof] {
        number(out, bit);
        out.extend_from_slice(label);
    }
    for side in &sides {
        number(&mut encoding, side.count);
        encoding.extend_from_slice(&side.digest.0);
        proof.extend_from_slice(&side.proof);
    }
    let [l, r] = sides;
    Part { count: l.count + r.count, measure: l.count + r.count, digest: SUITE.digest(&encoding), proof }
}

pub fn map_stub(count: u64) -> Part {
    let digest = Digest([0xab; 32]);
    let mut proof = vec![3];
    number(&mut proof, count);
    proof.extend_from_slice(&digest.0);
    Part { count, measure: count, digest, proof }
}

pub fn list_leaf(measure: u64, target: &Cid) -> Part {
    let mut encoding = vec![0x11];
    number(&mut encoding, measure);
    number(&mut encoding, target.as_bytes().len() as u64);
    encoding.extend_from_slice(target.as_bytes());
    Part { count: 1, measure, digest: SUITE.digest(&encoding), proof: encoding }
}

pub fn list_stub(count: u64, measure: u64) -> Part {
    let digest = Digest([0xcd; 32]);
    let mut proof = vec![0x13];
    number(&mut proof, count);
    number(&mut proof, measure);
    proof.extend_from_slice(&digest.0);
    Part { count, measure, digest, proof }
}

pub fn list_inner(sides: [Part; 2]) -> Part {
    let (mut encoding, mut proof) = (vec![0x12], vec![0x12]);
    for side in &sides {
        number(&mut encoding, side.count);
        number(&mut encoding, side.measure);
        encoding.extend_from_slice(&side.digest.0);
        proof.extend_from_slice(&side.proof);
    }
    let [l, r] = sides;
    let digest = SUITE.digest(&encoding);
    Part { count: l.count + r.count, measure: l.measure.wrapping_add(r.measure), digest, proof }
}

pub fn root(kind: Kind, part: &Part) -> RootCid {
    RootCid { kind, suite: SUITE, digest: part.digest }
}

pub fn get(part: &Part, key: &Key) -> Result<Option<Cid>> {
    verify::key(&root(Kind::Map, part), key, &part.proof, verify::PROOF_LIMIT)
}

/// Verifies a listing of the first entry of the map.
pub fn list(part: &Part) -> Result<map::Listing> {
    let window = Window::new::<&str, &str>(&[], None).expect("a window");
    verify::scan(&root(Kind::Map, part), window, 1, &part.proof, verify::PROOF_LIMIT)
}

pub fn index(part: &Part, index: u64) -> Result<Element> {
    verify::index(&root(Kind::List, part), index, &part.proof, verify::PROOF_LIMIT)
}

/// Asserts that `outcome` is a proof error whose failed check contains `why`.
#[track_caller]
pub fn assert_refused<T: std::fmt::Debug>(outcome: Result<T>, why: &str) {
    assert!(matches!(&outcome, Err(Error::Proof { check, .. }) if check.contains(why)), "{why}: {outcome:?}");
}
