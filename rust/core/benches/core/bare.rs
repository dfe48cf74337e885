//! The bare work that the crate is compared with: the same byte strings hashed, the same keys sorted.

use coregw_core::{Digest, Key, Suite, varint};

use crate::data::target;

/// Byte strings behind each other in one block.
#[derive(Default)]
pub struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Mean length, in bytes.
    pub fn mean(&self) -> usize {
        self.bytes.len() / self.ends.len().max(1)
    }

    /// Hashes each string; the result depends on all of them, so that none is left out.
    pub fn hash(&self, suite: Suite) -> u8 {
        let (mut from, mut all) = (0, 0);
        for &end in &self.ends {
            all ^= suite.digest(&self.bytes[from..end]).0[0];
            from = end;
        }
        all
    }
}

fn node(bit: u32, path: &[u8], sides: [(u64, Digest); 2]) -> Vec<u8> {
    let mut out = vec![2];
    varint::write(&mut out, bit.into());
    out.extend_from_slice(&path[..bit.div_ceil(8) as usize]);
    if !bit.is_multiple_of(8) {
        let last = out.len() - 1;
        out[last] &= !(0xff >> (bit % 8));
    }
    for (count, digest) in sides {
        varint::write(&mut out, count);
        out.extend_from_slice(&digest.0);
    }
    out
}

fn leaf(key: &[u8], target: &[u8]) -> Vec<u8> {
    let mut out = vec![1];
    for part in [key, target] {
        varint::write(&mut out, part.len() as u64);
        out.extend_from_slice(part);
    }
    out
}

/// The encodings of all nodes of the map of these keys.
pub fn nodes_of_map(suite: Suite, keys: &[Key]) -> Strings {
    let mut sorted: Vec<_> = keys.iter().map(Key::as_bytes).zip(0..).collect();
    sorted.sort_unstable();
    let mut out = Strings::default();
    let (mut open, mut bits): (Vec<(u64, Digest)>, Vec<u32>) = Default::default();
    let mut before: &[u8] = &[];
    let close = |out: &mut Strings, open: &mut Vec<_>, bit, path: &[u8]| {
        let (right, left): ((u64, Digest), (u64, Digest)) = (open.pop().expect("a side"), open.pop().expect("a side"));
        let encoding = node(bit, path, [left, right]);
        open.push((left.0 + right.0, suite.digest(&encoding)));
        out.push(&encoding);
    };
    for (i, (key, n)) in sorted.into_iter().enumerate() {
        if i > 0 {
            let at = key.iter().zip(before).position(|(a, b)| a != b).expect("keys differ");
            let bit = 8 * at as u32 + (key[at] ^ before[at]).leading_zeros();
            while bits.last().is_some_and(|last| *last > bit) {
                close(&mut out, &mut open, bits.pop().expect("a bit"), before);
            }
            bits.push(bit);
        }
        let encoding = leaf(key, target(n).as_bytes());
        open.push((1, suite.digest(&encoding)));
        out.push(&encoding);
        before = key;
    }
    while let Some(bit) = bits.pop() {
        close(&mut out, &mut open, bit, before);
    }
    out
}

/// The encodings of the shown nodes of the proof of a present key, the leaf's first.
pub fn nodes_of_proof(suite: Suite, key: &Key, target: &[u8], proof: &[u8], out: &mut Strings) {
    let mut at = 0;
    let number = |at: &mut usize| {
        let (value, n) = varint::read(&proof[*at..]).expect("a varint");
        *at += n;
        value
    };
    let mut turns = Vec::new();
    let mut floor = 0;
    let key = key.as_bytes();
    let stub = |at: &mut usize| {
        *at += 1;
        let count = number(at);
        *at += 32;
        (count, Digest(proof[*at - 32..*at].try_into().expect("32 bytes")))
    };
    // Down: inner nodes, each with a stub on the left where the key goes right.
    while proof[at] == 2 {
        at += 1;
        let (gap, n) = varint::read(&proof[at..]).expect("a varint");
        let bit = floor + gap as u32;
        at += n + if gap == 0 { 0 } else { (bit.div_ceil(8) - floor / 8) as usize };
        let right = key[bit as usize / 8] >> (7 - bit % 8) & 1 == 1;
        turns.push((bit, right.then(|| stub(&mut at))));
        floor = bit + 1;
    }
    let encoding = leaf(key, target);
    at += 1;
    let (n, used) = varint::read(&proof[at..]).expect("a varint");
    at += used + n as usize + 1 + target.len();
    let mut below = (1, suite.digest(&encoding));
    out.push(&encoding);
    // Up: stubs on the right where the key goes left.
    for (bit, left) in turns.into_iter().rev() {
        let sides = match left {
            Some(left) => [left, below],
            None => [below, stub(&mut at)],
        };
        let encoding = node(bit, key, sides);
        below = (sides[0].0 + sides[1].0, suite.digest(&encoding));
        out.push(&encoding);
    }
    assert_eq!(at, proof.len(), "the proof is read to its end");
}

/// Sorts the keys, as bytes. O(n log n).
pub fn sort(keys: &[Key]) -> usize {
    let mut keys: Vec<_> = keys.iter().map(Key::as_bytes).collect();
    keys.sort_unstable();
    keys.len()
}
