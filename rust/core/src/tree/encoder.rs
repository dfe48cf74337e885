//! Encodings of the nodes on a path, and their digests.

use coregw_lanes as lanes;

use crate::bits::{self, Side};
use crate::id::cid::MAX_LEN;
use crate::id::suite::{Digest, Suite};
use crate::tree::node::{Encoding, ListInner, ListLeaf, Out, Summary};
use crate::tree::reader::StubBytes;

/// Space before the path: a tag and the varint of a bit or of a key's length.
const HEAD: usize = 4;
/// Space after the path: a target and its length (longer than two counts and digests), and the padding of SHA-256.
const TAIL: usize = 2 + MAX_LEN + lanes::PADDING_BYTES;

/// The buffer in which encodings are assembled. That of an [`Encoder`]:
///
/// ```text
/// | HEAD: tag, varint | path ........ | rest of the encoding | padding |
///        └ start                                             └ end
/// ```
#[derive(Default)]
pub(crate) struct Line {
    /// The path of an encoder starts at [`HEAD`].
    pub(crate) buffer: Vec<u8>,
    pub(crate) start: usize,
    /// End of the encoding so far.
    pub(crate) end: usize,
}

impl Out for Line {
    #[inline(always)]
    fn bytes(&mut self, bytes: &[u8]) {
        self.buffer[self.end..self.end + bytes.len()].copy_from_slice(bytes);
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
    /// Hashes the encoding.
    #[inline(always)]
    fn hash(&mut self, suite: Suite) -> Digest {
        match suite {
            Suite::Blake3 => suite.digest(&self.buffer[self.start..self.end]),
            Suite::Sha2_256 => Digest(lanes::hash_one(self.padded())),
        }
    }

    /// The encoding, padded for SHA-256.
    #[inline(always)]
    pub(crate) fn padded(&mut self) -> &[[u8; lanes::BLOCK_BYTES]] {
        lanes::pad(&mut self.buffer[self.start..], self.end - self.start)
    }

    /// Writes a tag and a varint of at most three bytes just before the path, and returns where they start.
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

/// Computes node digests, sharing one path buffer.
///
/// The bytes of the path are part of the encoding of every map node on it. So encodings are assembled around the path,
/// in place. Assembling one overwrites the path from the node's `bit` on, which no node above needs.
pub struct Encoder {
    suite: Suite,
    line: Line,
}

impl Encoder {
    pub fn new(suite: Suite) -> Self {
        let mut buffer = Vec::with_capacity(512);
        buffer.resize(448, 0);
        Self { suite, line: Line { buffer, start: 0, end: 0 } }
    }

    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Ensures capacity for a path of so many bytes and the rest of an encoding.
    #[inline(always)]
    fn reach(&mut self, bytes: usize) {
        if self.line.buffer.len() < HEAD + bytes + TAIL {
            self.line.buffer.resize(2 * bytes + HEAD + TAIL, 0);
        }
    }

    /// Writes `own`, the bits from `floor` on, into the path.
    #[inline(always)]
    pub fn put(&mut self, floor: u32, own: &[u8]) {
        let from = (floor / 8) as usize;
        self.reach(from + own.len() + 1);
        bits::put(&mut self.line.buffer[HEAD..], floor, own);
    }

    /// Writes the label of an inner node, and the bit that leads to its left child.
    #[inline(always)]
    pub fn descend(&mut self, floor: u32, label: &[u8], bit: u32) {
        self.reach(bit as usize / 8 + 1);
        let path = &mut self.line.buffer[HEAD..];
        bits::put(path, floor, label);
        bits::put_turn(path, bit, Side::Left);
    }

    /// Writes the bit that leads to a child.
    #[inline(always)]
    pub fn turn(&mut self, bit: u32, side: Side) {
        self.reach(bit as usize / 8 + 1);
        bits::put_turn(&mut self.line.buffer[HEAD..], bit, side);
    }

    /// The first `len` bytes of the path.
    #[inline]
    pub fn path(&mut self, len: usize) -> &[u8] {
        self.reach(len);
        &self.line.buffer[HEAD..HEAD + len]
    }

    pub fn map_empty(&mut self) -> Digest {
        self.write_map_empty();
        self.hash()
    }

    /// Assembles the encoding of the empty map.
    pub fn write_map_empty(&mut self) {
        self.write(|line| line.byte(0x00));
    }

    pub fn list_empty(&mut self) -> Digest {
        self.digest(|line| line.byte(0x10))
    }

    /// The digest of the leaf whose key is the first `len` bytes of the path.
    #[inline]
    pub fn map_leaf(&mut self, len: usize, target: &[u8]) -> Digest {
        self.write_map_leaf(len, target);
        self.hash()
    }

    /// The digest of the inner node whose prefix is the first `bit` bits of the path.
    #[inline(always)]
    pub fn map_inner(&mut self, bit: u32, left: &Summary, right: &Summary) -> Digest {
        self.write_map_inner(bit, left, right);
        self.hash()
    }

    /// Assembles the encoding of [`Self::map_leaf`].
    #[inline(always)]
    pub fn write_map_leaf(&mut self, len: usize, target: &[u8]) {
        self.reach(len);
        self.line.start = self.line.head(0x01, len as u32);
        self.line.end = HEAD + len;
        self.line.varint(target.len() as u64);
        self.line.bytes(target);
    }

    /// Assembles the encoding of [`Self::map_inner`].
    #[inline(always)]
    pub fn write_map_inner(&mut self, bit: u32, left: &Summary, right: &Summary) {
        self.line.end = self.write_map_prefix(bit);
        for child in [left, right] {
            self.line.varint(child.count);
            self.line.digest(&child.digest);
        }
    }

    /// Assembles the encoding of [`Self::map_inner`] from a child on `side` and its sibling as a proof shows it.
    #[inline(always)]
    pub(crate) fn write_map_inner_of(&mut self, bit: u32, side: Side, own: StubBytes<'_>, sibling: StubBytes<'_>) {
        self.line.end = self.write_map_prefix(bit);
        for child in if side == Side::Left { [own, sibling] } else { [sibling, own] } {
            self.line.varint(child.count);
            self.line.bytes(child.digest);
        }
    }

    /// Assembles the encoding of an inner node up to its children, and returns where they start.
    #[inline(always)]
    fn write_map_prefix(&mut self, bit: u32) -> usize {
        let end = HEAD + bit.div_ceil(8) as usize;
        self.reach(end - HEAD);
        self.line.start = self.line.head(0x02, bit);
        // The last byte of the path; if it is whole, all its bits stay. The path of no bits ends before the path.
        self.line.buffer[end - 1] &= 0xff << (bit.wrapping_neg() % 8);
        end
    }

    #[inline]
    pub fn list_leaf(&mut self, measure: u64, target: &[u8]) -> Digest {
        self.write_list_leaf(measure, target);
        self.hash()
    }

    #[inline]
    pub fn list_inner(&mut self, left: &Summary, right: &Summary) -> Digest {
        self.write_list_inner(left, right);
        self.hash()
    }

    /// Assembles the encoding of [`Self::list_leaf`].
    #[inline]
    pub fn write_list_leaf(&mut self, measure: u64, target: &[u8]) {
        self.write(|line| ListLeaf { measure, target }.write(line));
    }

    /// Assembles the encoding of [`Self::list_inner`].
    #[inline]
    pub fn write_list_inner(&mut self, left: &Summary, right: &Summary) {
        self.write(|line| ListInner { children: [left, right] }.write(line));
    }

    #[inline(always)]
    fn digest(&mut self, write: impl FnOnce(&mut Line)) -> Digest {
        self.write(write);
        self.hash()
    }

    #[inline(always)]
    fn write(&mut self, write: impl FnOnce(&mut Line)) {
        (self.line.start, self.line.end) = (0, 0);
        write(&mut self.line);
    }

    /// The encoding that was assembled last.
    #[inline(always)]
    pub fn encoding(&self) -> &[u8] {
        &self.line.buffer[self.line.start..self.line.end]
    }

    /// The encoding that was assembled last, padded for SHA-256.
    #[inline(always)]
    pub fn padded(&mut self) -> &[[u8; lanes::BLOCK_BYTES]] {
        self.line.padded()
    }

    /// Hashes the encoding that was assembled last.
    #[inline(always)]
    pub fn hash(&mut self) -> Digest {
        self.line.hash(self.suite)
    }

    /// Hashes the encodings that encoders of one suite have assembled last, at most [`lanes::LANES`].
    #[inline]
    pub fn hash_many<'a>(suite: Suite, encoders: impl Iterator<Item = &'a mut Self>, digests: &mut [lanes::Digest]) {
        match suite {
            Suite::Blake3 => encoders.zip(digests).for_each(|(encoder, digest)| *digest = encoder.hash().0),
            Suite::Sha2_256 => {
                let (mut messages, mut count): ([&[_]; lanes::LANES], _) = ([&[]; lanes::LANES], 0);
                for (encoder, message) in encoders.zip(&mut messages) {
                    *message = encoder.padded();
                    count += 1;
                }
                lanes::hash_padded(&messages[..count], &mut digests[..count]);
            }
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/tree_encoder.rs"]
mod tests;
