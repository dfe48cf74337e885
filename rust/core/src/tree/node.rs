//! Node encodings and their digests (protocol section 3). Digests are computed by `encoder` and `pending`.
//!
//! ```text
//! map leaf    01 || varint(len key) || key || varint(len target) || target
//! map inner   02 || varint(bit) || prefix || varint(count) || digest || varint(count) || digest
//! list leaf   11 || varint(measure) || varint(len target) || target
//! list inner  12 || varint(count) || varint(measure) || digest || varint(count) || varint(measure) || digest
//! ```

use crate::bits::top_bits;
use crate::id::suite::Digest;

/// The exclusive upper bound of counts, measures and their sums.
pub const SUM_LIMIT: u64 = 1 << 53;

/// The totals and the digest of a subtree: what its parent hashes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Number of leaves; 0 in the empty node only.
    pub count: u64,
    /// Sum of the measures of a list's elements; in a map, the count.
    pub measure: u64,
    /// Digest of the top node.
    pub digest: Digest,
}

impl Summary {
    /// The summary of a node that has not been loaded.
    pub const UNKNOWN: Self = Self { count: 0, measure: 0, digest: Digest::ZERO };
}

/// A sink for encodings.
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

/// Encodes a node.
pub fn bytes(encoding: &impl Encoding) -> Vec<u8> {
    let mut out = Vec::new();
    encoding.write(&mut out);
    out
}

/// A node encoding of protocol section 3.
pub trait Encoding {
    fn write(&self, out: &mut impl Out);
}

/// The empty node: its tag alone.
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

/// The number of elements in the left subtree of a list of `n` > 1: the largest power of two below `n`.
#[inline]
pub fn left_count(n: u64) -> u64 {
    1 << (63 - (n - 1).leading_zeros())
}
