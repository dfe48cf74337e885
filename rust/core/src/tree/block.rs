//! Tree nodes as stand-alone blocks: a decoder for the encodings of protocol section 3.
//!
//! What a block claims about its children is unverified: the code that assembles a tree from blocks compares the two.

use crate::bits::top_bits;
use crate::id::cid::{Cid, Kind};
use crate::id::suite::Digest;
use crate::id::varint;
use crate::key::{self, MAX_BITS, MAX_KEY};
use crate::tree::node::{SUM_LIMIT, Summary, left_count};

/// The maximum length of a node encoding, in bytes: tag, `bit`, the longest prefix, two counts and digests.
pub const MAX_BLOCK: usize = 1 + 3 + MAX_KEY + 2 * (8 + 32);

/// A decoded node. In a list, `key` and `prefix` are empty and `bit` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block<'a> {
    /// The empty node.
    Empty,
    /// A leaf.
    Leaf { key: &'a [u8], measure: u64, target: &'a [u8] },
    /// An inner node.
    Inner { bit: u32, prefix: &'a [u8], children: [Summary; 2] },
}

impl<'a> Block<'a> {
    /// The count and measure that follow from the encoding.
    pub fn amounts(&self) -> (u64, u64) {
        match self {
            Self::Empty => (0, 0),
            Self::Leaf { measure, .. } => (1, *measure),
            Self::Inner { children: [l, r], .. } => (l.count + r.count, l.measure + r.measure),
        }
    }

    /// The path bits that the node determines, and their number.
    pub fn own(&self) -> (&'a [u8], u32) {
        match *self {
            Self::Empty => (&[], 0),
            Self::Leaf { key, .. } => (key, 8 * key.len() as u32),
            Self::Inner { bit, prefix, .. } => (prefix, bit),
        }
    }

    /// Decodes a node of a tree of this kind from the whole of `bytes`; the error says what is wrong.
    pub fn read(kind: Kind, bytes: &'a [u8]) -> Result<Self, &'static str> {
        let mut reader = BlockReader(bytes);
        let block = match (kind, reader.take(1)?[0]) {
            (Kind::Map, 0x00) | (Kind::List, 0x10) => Self::Empty,
            (Kind::Map, 0x01) => {
                let key = reader.counted(MAX_KEY, "a key is longer than 8,194 bytes")?;
                key::check(key)?;
                Self::Leaf { key, measure: 1, target: reader.target()? }
            }
            (Kind::List, 0x11) => Self::Leaf { key: &[], measure: reader.amount()?, target: reader.target()? },
            (Kind::Map, 0x02) => {
                let bit = u32::try_from(reader.varint()?).ok().filter(|&bit| bit < MAX_BITS);
                let bit = bit.ok_or("an inner node's bit is past the longest key")?;
                let prefix = reader.take(bit.div_ceil(8) as usize)?;
                if !bit.is_multiple_of(8) && prefix.last().is_some_and(|last| last & !top_bits(bit % 8) != 0) {
                    return Err("a stray bit in a prefix");
                }
                Self::Inner { bit, prefix, children: reader.children(kind)? }
            }
            (Kind::List, 0x12) => {
                let children = reader.children(kind)?;
                if children[0].count != left_count(children[0].count + children[1].count) {
                    return Err("a list of another shape than its count");
                }
                Self::Inner { bit: 0, prefix: &[], children }
            }
            _ => return Err("not a node of its kind of tree"),
        };
        if reader.0.is_empty() { Ok(block) } else { Err("bytes follow the node") }
    }
}

struct BlockReader<'a>(&'a [u8]);

impl<'a> BlockReader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or("the bytes end inside the node")?;
        self.0 = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, &'static str> {
        let (value, n) = varint::read(self.0)?;
        self.0 = &self.0[n..];
        Ok(value)
    }

    /// Reads a length of at most `most`, and as many bytes.
    fn counted(&mut self, most: usize, over: &'static str) -> Result<&'a [u8], &'static str> {
        match usize::try_from(self.varint()?) {
            Ok(n) if n <= most => self.take(n),
            _ => Err(over),
        }
    }

    fn target(&mut self) -> Result<&'a [u8], &'static str> {
        let target = self.counted(crate::id::cid::MAX_LEN, "a target is longer than any CID")?;
        Cid::check(target).map_err(|_| "a target is not a valid CID")?;
        Ok(target)
    }

    /// Reads a count or measure.
    fn amount(&mut self) -> Result<u64, &'static str> {
        match self.varint()? {
            0 => Err("a count or measure of 0"),
            n if n >= SUM_LIMIT => Err("a count or measure of 2^53 or more"),
            n => Ok(n),
        }
    }

    fn children(&mut self, kind: Kind) -> Result<[Summary; 2], &'static str> {
        let mut child = || -> Result<Summary, &'static str> {
            let count = self.amount()?;
            let measure = if kind == Kind::List { self.amount()? } else { count };
            let mut digest = Digest::ZERO;
            digest.0.copy_from_slice(self.take(32)?);
            Ok(Summary { count, measure, digest })
        };
        let [l, r] = [child()?, child()?];
        if l.count + r.count >= SUM_LIMIT || l.measure + r.measure >= SUM_LIMIT {
            return Err("counts or measures that sum to 2^53 or more");
        }
        Ok([l, r])
    }
}

#[cfg(test)]
#[path = "../../tests/unit/tree_block.rs"]
mod tests;
