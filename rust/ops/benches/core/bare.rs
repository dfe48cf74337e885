//! The bare work that the core is compared with: hashing the same byte strings, sorting the same keys.

use std::time::Duration;

use coregw_core::{Digest, Key, Suite, varint};

use crate::data::target;
use crate::measure::time;

/// Byte strings, concatenated in one block.
#[derive(Clone, Default)]
pub struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Where `bytes` contains the digest of a string, if the next string contains it.
    links: Vec<Option<usize>>,
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

    /// Finds which strings contain the digest of the previous one.
    pub fn link(&mut self, suite: Suite) {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let strings: Vec<_> = starts.zip(self.ends.iter().copied()).collect();
        let bytes = &self.bytes;
        let place = |pair: &[(usize, usize)]| {
            let digest = suite.digest(&bytes[pair[0].0..pair[0].1]).0;
            let next = bytes[pair[1].0..pair[1].1].windows(32).position(|window| window == digest)?;
            Some(pair[1].0 + next)
        };
        self.links = strings.windows(2).map(place).chain([None]).collect();
    }

    /// The time to hash all strings of linked proofs once, copying each digest into the next string. No verifier can
    /// avoid this chain, and no processor can run it in parallel.
    pub fn chain(&mut self, suite: Suite) -> Duration {
        assert_eq!(self.links.len(), self.ends.len(), "the strings are linked");
        time(|| {
            let (mut from, mut all) = (0, 0);
            for (&end, link) in self.ends.iter().zip(&self.links) {
                let digest = suite.digest(&self.bytes[from..end]).0;
                match *link {
                    Some(at) => self.bytes[at..at + 32].copy_from_slice(&digest),
                    None => all ^= digest[0],
                }
                from = end;
            }
            all
        })
    }

    /// The time to hash all strings once, independently of each other.
    pub fn floor(&self, suite: Suite) -> Duration {
        time(|| self.hash(suite))
    }

    /// Hashes each string. The result depends on all of them, so the compiler cannot skip any.
    fn hash(&self, suite: Suite) -> u8 {
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

/// The encodings of all nodes of the map with these keys.
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

/// The encodings of all nodes of a list of `n` elements of measure 1.
pub fn nodes_of_list(suite: Suite, n: u64) -> Strings {
    let mut out = Strings::default();
    list_below(suite, 0, n, &mut out);
    out
}

fn list_below(suite: Suite, from: u64, n: u64, out: &mut Strings) -> Digest {
    let encoding = match n {
        1 => list_leaf(1, target(from).as_bytes()),
        n => {
            let left = 1 << (63 - (n - 1).leading_zeros());
            let sides = [(from, left), (from + left, n - left)];
            list_node(sides.map(|(from, n)| Sum { count: n, measure: n, digest: list_below(suite, from, n, out) }))
        }
    };
    out.push(&encoding);
    suite.digest(&encoding)
}

fn list_leaf(measure: u64, target: &[u8]) -> Vec<u8> {
    let mut out = vec![0x11];
    varint::write(&mut out, measure);
    varint::write(&mut out, target.len() as u64);
    [&out, target].concat()
}

fn list_node(sides: [Sum; 2]) -> Vec<u8> {
    let mut out = vec![0x12];
    for side in sides {
        varint::write(&mut out, side.count);
        varint::write(&mut out, side.measure);
        out.extend_from_slice(&side.digest.0);
    }
    out
}

#[derive(Clone, Copy)]
struct Sum {
    count: u64,
    measure: u64,
    digest: Digest,
}

/// Adds the encodings of all nodes that a proof shows. Recursive, so for trusted proofs only.
pub fn nodes_of_proof(suite: Suite, proof: &[u8], out: &mut Strings) -> Digest {
    let mut shown = Shown { suite, proof, path: Vec::new(), out };
    let top = shown.node(0);
    assert!(shown.proof.is_empty(), "the proof has trailing bytes");
    top.digest
}

struct Shown<'a> {
    suite: Suite,
    proof: &'a [u8],
    path: Vec<u8>,
    out: &'a mut Strings,
}

impl Shown<'_> {
    fn take(&mut self, n: usize) -> Vec<u8> {
        let (taken, rest) = self.proof.split_at(n);
        self.proof = rest;
        taken.to_vec()
    }

    fn number(&mut self) -> u64 {
        let (value, n) = varint::read(self.proof).expect("a varint");
        self.take(n);
        value
    }

    /// Replaces the bits of the path from `floor` on.
    fn put(&mut self, floor: usize, own: &[u8]) {
        self.path.truncate(floor.div_ceil(8));
        match (self.path.last_mut(), own.split_first()) {
            (Some(last), Some((first, rest))) if !floor.is_multiple_of(8) => {
                *last = *last & !(0xff >> (floor % 8)) | first;
                self.path.extend_from_slice(rest);
            }
            _ => self.path.extend_from_slice(own),
        }
    }

    fn node(&mut self, floor: usize) -> Sum {
        let (count, measure, encoding) = match self.take(1)[0] {
            1 => {
                let n = self.number() as usize;
                let tail = self.take(n);
                self.put(floor, &tail);
                let n = self.number() as usize;
                let target = self.take(n);
                (1, 1, leaf(&self.path, &target))
            }
            2 => {
                let gap = self.number() as usize;
                let bit = floor + gap;
                let label = self.take(if gap == 0 { 0 } else { bit.div_ceil(8) - floor / 8 });
                self.put(floor, &label);
                let mut prefix = self.path.clone();
                prefix.resize(bit / 8 + 1, 0);
                let turn = 0x80 >> (bit % 8);
                prefix[bit / 8] &= !(0xff >> (bit % 8));
                self.path.clone_from(&prefix);
                let left = self.node(bit + 1);
                self.path.clone_from(&prefix);
                self.path[bit / 8] |= turn;
                let right = self.node(bit + 1);
                let sides = [left, right].map(|side| (side.count, side.digest));
                (left.count + right.count, left.count + right.count, node(bit as u32, &prefix, sides))
            }
            0x11 => {
                let measure = self.number();
                let n = self.number() as usize;
                (1, measure, list_leaf(measure, &self.take(n)))
            }
            0x12 => {
                let [left, right] = [self.node(0), self.node(0)];
                (left.count + right.count, left.measure + right.measure, list_node([left, right]))
            }
            stub => {
                let count = self.number();
                let measure = if stub == 0x13 { self.number() } else { count };
                return Sum { count, measure, digest: Digest(self.take(32).try_into().expect("32 bytes")) };
            }
        };
        self.out.push(&encoding);
        Sum { count, measure, digest: self.suite.digest(&encoding) }
    }
}

/// Sorts the keys, as bytes. O(n log n).
pub fn sort(keys: &[Key]) -> usize {
    let mut keys: Vec<_> = keys.iter().map(Key::as_bytes).collect();
    keys.sort_unstable();
    keys.len()
}
