//! Node encodings and their digests (protocol section 3).
//!
//! Nothing here knows where a node comes from; every digest of the crate is made by [`Encoder`].

use sha2::block_api::compress256;

use crate::path::top_bits;
use crate::suite::{Digest, Suite};

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
    pub(crate) const UNKNOWN: Self = Self { count: 0, measure: 0, digest: Digest::ZERO };
}

/// Where an encoding is written.
pub(crate) trait Out {
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

/// Bytes of an encoding that are hashed without touching the heap. Nearly all encodings are shorter.
const SHORT: usize = 248;

/// An encoding of at most [`SHORT`] bytes, with room for the padding of SHA-256 behind it.
struct Short {
    buffer: [u8; 320],
    len: usize,
}

impl Out for Short {
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        copy(&mut self.buffer[self.len..self.len + bytes.len()], bytes);
        self.len += bytes.len();
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.buffer[self.len] = byte;
        self.len += 1;
    }

    #[inline]
    fn digest(&mut self, digest: &Digest) {
        self.buffer[self.len..self.len + 32].copy_from_slice(&digest.0);
        self.len += 32;
    }
}

impl Short {
    #[inline]
    fn hash(&mut self, suite: Suite) -> Digest {
        match suite {
            Suite::Blake3 => suite.digest(&self.buffer[..self.len]),
            Suite::Sha2_256 => {
                let blocks = (self.len + 9).div_ceil(64);
                self.buffer[self.len..self.len + 65].copy_from_slice(&PADDING);
                let bits = 8 * self.len as u64;
                self.buffer[64 * blocks - 8..64 * blocks].copy_from_slice(&bits.to_be_bytes());
                let mut state = SHA256_START;
                compress256(&mut state, &self.buffer.as_chunks().0[..blocks]);
                // All words at once: bytes that are written four by four make whoever reads them sixteen at a time wait.
                let words = state.map(u32::to_be_bytes);
                Digest(words.as_flattened().try_into().expect("eight words are 32 bytes"))
            }
        }
    }
}

/// What stands behind a message in SHA-256, before its length (FIPS 180-4, section 5.1.1).
const PADDING: [u8; 65] = {
    let mut padding = [0; 65];
    padding[0] = 0x80;
    padding
};

/// The first hash value of SHA-256 (FIPS 180-4, section 5.3.3).
const SHA256_START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Copies a few bytes without a call. Labels, prefixes and targets are short, and a proof has dozens of them.
#[inline(always)]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
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

/// Makes node encodings in one buffer and hashes them.
pub(crate) struct Encoder {
    suite: Suite,
    short: Short,
    long: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new(suite: Suite) -> Self {
        Self { suite, short: Short { buffer: [0; 320], len: 0 }, long: Vec::new() }
    }

    /// Writes an encoding of at most `most` bytes and hashes it.
    #[inline]
    fn digest(&mut self, most: usize, encoding: impl Encoding) -> Digest {
        if most <= SHORT {
            self.short.len = 0;
            encoding.write(&mut self.short);
            self.short.hash(self.suite)
        } else {
            self.long.clear();
            encoding.write(&mut self.long);
            self.suite.digest(&self.long)
        }
    }

    pub(crate) fn map_empty(&mut self) -> Digest {
        self.digest(1, Tag(0x00))
    }

    pub(crate) fn list_empty(&mut self) -> Digest {
        self.digest(1, Tag(0x10))
    }

    #[inline]
    pub(crate) fn map_leaf(&mut self, key: &[u8], target: &[u8]) -> Digest {
        self.digest(8 + key.len() + target.len(), MapLeaf { key, target })
    }

    /// `path` holds at least the bits before `bit`; the rest of it is ignored.
    #[inline]
    pub(crate) fn map_inner(&mut self, bit: u32, path: &[u8], left: &Summary, right: &Summary) -> Digest {
        let path = &path[..bit.div_ceil(8) as usize];
        self.digest(4 + path.len() + 80, MapInner { bit, path, children: [left, right] })
    }

    #[inline]
    pub(crate) fn list_leaf(&mut self, measure: u64, target: &[u8]) -> Digest {
        self.digest(18 + target.len(), ListLeaf { measure, target })
    }

    #[inline]
    pub(crate) fn list_inner(&mut self, left: &Summary, right: &Summary) -> Digest {
        self.digest(100, ListInner { children: [left, right] })
    }
}

/// The bytes of an encoding.
pub(crate) fn bytes(encoding: &impl Encoding) -> Vec<u8> {
    let mut out = Vec::new();
    encoding.write(&mut out);
    out
}

/// An encoding of protocol section 3.
pub(crate) trait Encoding {
    fn write(&self, out: &mut impl Out);
}

pub(crate) struct Tag(pub(crate) u8);

impl Encoding for Tag {
    fn write(&self, out: &mut impl Out) {
        out.byte(self.0);
    }
}

pub(crate) struct MapLeaf<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) target: &'a [u8],
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

pub(crate) struct MapInner<'a> {
    pub(crate) bit: u32,
    pub(crate) path: &'a [u8],
    pub(crate) children: [&'a Summary; 2],
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

pub(crate) struct ListLeaf<'a> {
    pub(crate) measure: u64,
    pub(crate) target: &'a [u8],
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

pub(crate) struct ListInner<'a> {
    pub(crate) children: [&'a Summary; 2],
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
pub(crate) fn left_count(n: u64) -> u64 {
    1 << (63 - (n - 1).leading_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_encodings_have_the_digests_of_the_whole_bytes() {
        for suite in Suite::ALL {
            let mut encoder = Encoder::new(suite);
            for key_len in 0..400 {
                let (key, target) = (vec![7; key_len], vec![9; 36]);
                let mut bytes = vec![1];
                crate::varint::write(&mut bytes, key_len as u64);
                bytes.extend_from_slice(&key);
                bytes.push(36);
                bytes.extend_from_slice(&target);
                assert_eq!(encoder.map_leaf(&key, &target), suite.digest(&bytes), "{key_len}");
            }
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
