//! Node encodings and their digests (protocol section 3).
//!
//! Nothing here knows where a node comes from; every digest of the crate is made by [`Encoder`].

use sha2::block_api::compress256;

use crate::id::cid::MAX_LEN;
use crate::id::suite::{Digest, Suite};
use crate::key::{self as path, top_bits};
use crate::tree::arena::Side;

/// Counts, measures and their sums stay below this.
pub const SUM_LIMIT: u64 = 1 << 53;

/// What a node says of all that is below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Number of leaves, at least 1 but for the empty node.
    pub count: u64,
    /// Sum of the measures of a list's elements; of a map the count.
    pub measure: u64,
    /// The node's digest.
    pub digest: Digest,
}

impl Summary {
    /// Of a node that was not read yet.
    pub const UNKNOWN: Self = Self { count: 0, measure: 0, digest: Digest::ZERO };
}

/// Where an encoding is written.
pub trait Out {
    fn bytes(&mut self, bytes: &[u8]);
    fn byte(&mut self, byte: u8);
    fn digest(&mut self, digest: &Digest);

    #[inline]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }
}

impl Out for Vec<u8> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn byte(&mut self, byte: u8) {
        self.push(byte);
    }

    fn digest(&mut self, digest: &Digest) {
        self.extend_from_slice(&digest.0);
    }
}

/// Room in front of the path: a tag and the varint of a bit or of a key's length.
const HEAD: usize = 4;
/// Room after the path: a target and its length (longer than two counts and digests), and the padding of SHA-256.
const BEHIND: usize = 2 + MAX_LEN + PADDING.len() + 8;

/// Where an encoding is made in place.
struct Line {
    /// The path stands from [`HEAD`] on.
    buffer: Vec<u8>,
    /// Where the encoding ends so far.
    end: usize,
}

impl Out for Line {
    #[inline(always)]
    fn bytes(&mut self, bytes: &[u8]) {
        copy(&mut self.buffer[self.end..self.end + bytes.len()], bytes);
        self.end += bytes.len();
    }

    #[inline(always)]
    fn byte(&mut self, byte: u8) {
        self.buffer[self.end] = byte;
        self.end += 1;
    }

    #[inline(always)]
    fn digest(&mut self, digest: &Digest) {
        self.buffer[self.end..self.end + 32].copy_from_slice(&digest.0);
        self.end += 32;
    }
}

impl Line {
    /// Hashes what stands from `start` on.
    #[inline(always)]
    fn hash(&mut self, start: usize, suite: Suite) -> Digest {
        let len = self.end - start;
        match suite {
            Suite::Blake3 => suite.digest(&self.buffer[start..self.end]),
            Suite::Sha2_256 => {
                let blocks = (len + 9).div_ceil(64);
                let message = &mut self.buffer[start..start + len + PADDING.len()];
                message[len..].copy_from_slice(&PADDING);
                message[64 * blocks - 8..64 * blocks].copy_from_slice(&(8 * len as u64).to_be_bytes());
                let mut state = SHA256_START;
                compress256(&mut state, &message.as_chunks().0[..blocks]);
                // All words at once: bytes that are written four by four make whoever reads them sixteen at a time wait.
                let words = state.map(u32::to_be_bytes);
                Digest(words.as_flattened().try_into().expect("eight words are 32 bytes"))
            }
        }
    }

    /// Writes a tag and a varint of at most three bytes so that they end where the path starts. Where they start.
    #[inline(always)]
    fn head(&mut self, tag: u8, value: u32) -> usize {
        let head = &mut self.buffer[..HEAD];
        match value {
            ..0x80 => {
                head[2..].copy_from_slice(&[tag, value as u8]);
                2
            }
            0x80..0x4000 => {
                head[1..].copy_from_slice(&[tag, value as u8 | 0x80, (value >> 7) as u8]);
                1
            }
            _ => {
                head.copy_from_slice(&[tag, value as u8 | 0x80, (value >> 7) as u8 | 0x80, (value >> 14) as u8]);
                0
            }
        }
    }
}

/// Copies a few bytes without a call. Labels, prefixes and targets are short, and a proof has dozens of them.
#[inline(always)]
pub fn copy(to: &mut [u8], from: &[u8]) {
    #[inline(always)]
    fn ends<const N: usize>(to: &mut [u8], from: &[u8]) {
        let last = from.len() - N;
        let (head, tail): ([u8; N], [u8; N]) = (
            from[..N].try_into().expect("the length was looked at"),
            from[last..].try_into().expect("the length was looked at"),
        );
        to[..N].copy_from_slice(&head);
        to[last..last + N].copy_from_slice(&tail);
    }
    match from.len() {
        0 => {}
        1..=3 => {
            let middle = from.len() / 2;
            let last = from.len() - 1;
            (to[0], to[middle], to[last]) = (from[0], from[middle], from[last]);
        }
        4..=7 => ends::<4>(to, from),
        8..=16 => ends::<8>(to, from),
        17..=32 => ends::<16>(to, from),
        33..=64 => ends::<32>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// What stands behind a message in SHA-256, before its length (FIPS 180-4, section 5.1.1).
const PADDING: [u8; 72] = {
    let mut padding = [0; 72];
    padding[0] = 0x80;
    padding
};

/// The first hash value of SHA-256 (FIPS 180-4, section 5.3.3).
const SHA256_START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Makes node encodings around the path that leads to the node, and hashes them there.
///
/// The path's bytes are part of every encoding of a map on that path. So they stand in the buffer where the encodings
/// need them, and are not copied for each. An encoding spoils the path from its node's `bit` on, which is done with
/// when the node is hashed.
pub struct Encoder {
    suite: Suite,
    line: Line,
}

impl Encoder {
    pub fn new(suite: Suite) -> Self {
        let mut buffer = Vec::with_capacity(512);
        buffer.resize(448, 0);
        Self { suite, line: Line { buffer, end: 0 } }
    }

    /// Makes room for a path of so many bytes, and all that an encoding puts behind it.
    #[inline(always)]
    fn reach(&mut self, bytes: usize) {
        if self.line.buffer.len() < HEAD + bytes + BEHIND {
            self.line.buffer.resize(2 * bytes + HEAD + BEHIND, 0);
        }
    }

    /// Puts `own` into the path: the bits from `floor` on, which start at byte `floor / 8`.
    #[inline(always)]
    pub fn put(&mut self, floor: u32, own: &[u8]) {
        let from = (floor / 8) as usize;
        self.reach(from + own.len() + 1);
        path::put(&mut self.line.buffer[HEAD..], floor, own);
    }

    /// Puts in the label of an inner node, and the bit that leads to its left side.
    #[inline(always)]
    pub fn descend(&mut self, floor: u32, label: &[u8], bit: u32) {
        self.reach(bit as usize / 8 + 1);
        let path = &mut self.line.buffer[HEAD..];
        path::put(path, floor, label);
        path::turn(path, bit, false);
    }

    /// Puts in the one bit that leads to a child.
    #[inline(always)]
    pub fn turn(&mut self, bit: u32, side: Side) {
        self.reach(bit as usize / 8 + 1);
        path::turn(&mut self.line.buffer[HEAD..], bit, side == Side::Right);
    }

    /// The first `len` bytes of the path.
    #[inline]
    pub fn path(&mut self, len: usize) -> &[u8] {
        self.reach(len);
        &self.line.buffer[HEAD..HEAD + len]
    }

    pub fn map_empty(&mut self) -> Digest {
        self.digest(|line| line.byte(0x00))
    }

    pub fn list_empty(&mut self) -> Digest {
        self.digest(|line| line.byte(0x10))
    }

    /// Of the leaf whose key is the first `len` bytes of the path.
    #[inline]
    pub fn map_leaf(&mut self, len: usize, target: &[u8]) -> Digest {
        self.reach(len);
        let start = self.line.head(0x01, len as u32);
        self.line.end = HEAD + len;
        self.line.varint(target.len() as u64);
        self.line.bytes(target);
        self.line.hash(start, self.suite)
    }

    /// Of the inner node whose prefix is the first `bit` bits of the path.
    #[inline(always)]
    pub fn map_inner(&mut self, bit: u32, left: &Summary, right: &Summary) -> Digest {
        let end = HEAD + bit.div_ceil(8) as usize;
        self.reach(end - HEAD);
        let start = self.line.head(0x02, bit);
        if !bit.is_multiple_of(8) {
            self.line.buffer[end - 1] &= top_bits(bit % 8);
        }
        self.line.end = end;
        for child in [left, right] {
            self.line.varint(child.count);
            self.line.digest(&child.digest);
        }
        self.line.hash(start, self.suite)
    }

    #[inline]
    pub fn list_leaf(&mut self, measure: u64, target: &[u8]) -> Digest {
        self.digest(|line| ListLeaf { measure, target }.write(line))
    }

    #[inline]
    pub fn list_inner(&mut self, left: &Summary, right: &Summary) -> Digest {
        self.digest(|line| ListInner { children: [left, right] }.write(line))
    }

    #[inline(always)]
    fn digest(&mut self, write: impl FnOnce(&mut Line)) -> Digest {
        self.line.end = 0;
        write(&mut self.line);
        self.line.hash(0, self.suite)
    }
}

/// The bytes of an encoding.
pub fn bytes(encoding: &impl Encoding) -> Vec<u8> {
    let mut out = Vec::new();
    encoding.write(&mut out);
    out
}

/// An encoding of protocol section 3.
pub trait Encoding {
    fn write(&self, out: &mut impl Out);
}

pub struct Tag(pub u8);

impl Encoding for Tag {
    fn write(&self, out: &mut impl Out) {
        out.byte(self.0);
    }
}

pub struct MapLeaf<'a> {
    pub key: &'a [u8],
    pub target: &'a [u8],
}

impl Encoding for MapLeaf<'_> {
    #[inline]
    fn write(&self, out: &mut impl Out) {
        out.byte(0x01);
        out.varint(self.key.len() as u64);
        out.bytes(self.key);
        out.varint(self.target.len() as u64);
        out.bytes(self.target);
    }
}

pub struct MapInner<'a> {
    pub bit: u32,
    pub path: &'a [u8],
    pub children: [&'a Summary; 2],
}

impl Encoding for MapInner<'_> {
    #[inline]
    fn write(&self, out: &mut impl Out) {
        out.byte(0x02);
        out.varint(self.bit.into());
        match self.path.split_last() {
            Some((last, whole)) if !self.bit.is_multiple_of(8) => {
                out.bytes(whole);
                out.byte(last & top_bits(self.bit % 8));
            }
            _ => out.bytes(self.path),
        }
        for child in self.children {
            out.varint(child.count);
            out.digest(&child.digest);
        }
    }
}

pub struct ListLeaf<'a> {
    pub measure: u64,
    pub target: &'a [u8],
}

impl Encoding for ListLeaf<'_> {
    #[inline]
    fn write(&self, out: &mut impl Out) {
        out.byte(0x11);
        out.varint(self.measure);
        out.varint(self.target.len() as u64);
        out.bytes(self.target);
    }
}

pub struct ListInner<'a> {
    pub children: [&'a Summary; 2],
}

impl Encoding for ListInner<'_> {
    #[inline]
    fn write(&self, out: &mut impl Out) {
        out.byte(0x12);
        for child in self.children {
            out.varint(child.count);
            out.varint(child.measure);
            out.digest(&child.digest);
        }
    }
}

/// The number of elements on the left side of a list of `n` > 1: the largest power of two below `n`.
#[inline]
pub fn left_count(n: u64) -> u64 {
    1 << (63 - (n - 1).leading_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_made_in_place_are_the_encodings_and_have_their_digests() {
        let sum = |count, byte| Summary { count, measure: count, digest: Digest([byte; 32]) };
        let [left, right] = [sum(1, 3), sum(SUM_LIMIT - 1, 5)];
        let key: Vec<u8> = (0..path::MAX_KEY).map(|i| i as u8 | 1).collect();
        for suite in Suite::ALL {
            let mut encoder = Encoder::new(suite);
            for len in (0..400).chain([path::MAX_KEY]).rev() {
                let (key, target) = (&key[..len], vec![9; 1 + len % MAX_LEN]);
                encoder.put(0, key);
                assert_eq!(encoder.path(len), key);
                let leaf = bytes(&MapLeaf { key, target: &target });
                assert_eq!(encoder.map_leaf(len, &target), suite.digest(&leaf), "{len}");
                for bit in (8 * len as u32).saturating_sub(8)..8 * len as u32 {
                    encoder.put(0, key);
                    let inner =
                        bytes(&MapInner { bit, path: &key[..bit.div_ceil(8) as usize], children: [&left, &right] });
                    assert_eq!(encoder.map_inner(bit, &left, &right), suite.digest(&inner), "{bit}");
                }
            }
            let list = bytes(&ListInner { children: [&left, &right] });
            assert_eq!(encoder.list_inner(&left, &right), suite.digest(&list));
            assert_eq!(encoder.map_empty(), suite.digest(&[0]));
        }
    }

    #[test]
    fn copy_copies_every_length() {
        let from: Vec<u8> = (0..200).collect();
        for n in 0..200 {
            let mut to = vec![0xff; n];
            copy(&mut to, &from[..n]);
            assert_eq!(to, from[..n]);
        }
    }
}
