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
mod tests {
    use super::*;
    use crate::tree::node::{ListInner, ListLeaf, MapInner, MapLeaf, bytes};

    fn sum(count: u64, measure: u64) -> Summary {
        Summary { count, measure, digest: Digest([7; 32]) }
    }

    fn target() -> Vec<u8> {
        [&[1, 0x55, 0x12, 32][..], &[9; 32]].concat()
    }

    #[test]
    fn encodings_decode_and_truncated_or_extended_ones_do_not() {
        let (key, target) = (b"docs\0\x01readme\0\0", target());
        let (l, r) = (sum(2, 2), sum(1, 1));
        let inner = MapInner { bit: 11, path: &[0xff, 0xff], children: [&l, &r] };
        let nodes = [
            (Kind::Map, vec![0]),
            (Kind::List, vec![0x10]),
            (Kind::Map, bytes(&MapLeaf { key, target: &target })),
            (Kind::Map, bytes(&inner)),
            (Kind::List, bytes(&ListLeaf { measure: 300, target: &target })),
            (Kind::List, bytes(&ListInner { children: [&sum(2, 9), &sum(1, 1 << 40)] })),
        ];
        for (kind, node) in nodes {
            assert!(Block::read(kind, &node).is_ok(), "{node:?}");
            for cut in 0..node.len() {
                assert!(Block::read(kind, &node[..cut]).is_err(), "{node:?} cut at {cut}");
            }
            assert!(Block::read(kind, &[&node[..], &[0]].concat()).is_err());
            let other = if kind == Kind::Map { Kind::List } else { Kind::Map };
            assert!(Block::read(other, &node).is_err());
        }
        let read = bytes(&inner);
        let Ok(Block::Inner { bit: 11, prefix: &[0xff, 0xe0], children }) = Block::read(Kind::Map, &read) else {
            panic!("another node was read");
        };
        assert_eq!(children, [l, r]);
    }

    #[test]
    fn amounts_and_path_follow_from_the_encoding() {
        let (key, target, children) = (&b"a\0\0"[..], &target(), [sum(3, 40), sum(2, 5)]);
        let leaf = Block::Leaf { key, measure: 7, target };
        let inner = Block::Inner { bit: 11, prefix: &[0xff, 0xe0], children };
        assert_eq!([Block::Empty, leaf, inner].map(|block| block.amounts()), [(0, 0), (1, 7), (5, 45)]);
        assert_eq!([leaf, inner].map(|block| block.own()), [(key, 24), (&[0xff, 0xe0], 11)]);
        assert_eq!(Block::Empty.own(), (&[][..], 0));
    }

    #[test]
    fn nodes_that_cannot_occur_in_a_tree_are_rejected() {
        let target = target();
        let list = |l, r| bytes(&ListInner { children: [&l, &r] });
        let refused = [
            (Kind::List, list(sum(1, 1), sum(2, 2)), "another shape"),
            (Kind::List, list(sum(0, 1), sum(1, 1)), "of 0"),
            (Kind::List, list(sum(1, 1), sum(1, 0)), "of 0"),
            (Kind::List, list(sum(1 << 52, 1), sum(1 << 52, 1)), "sum to 2^53"),
            (Kind::List, list(sum(1, 1 << 52), sum(1, 1 << 52)), "sum to 2^53"),
            (Kind::Map, [&[1, 0x83, 0x40], &[b'a'; MAX_KEY + 1][..]].concat(), "longer than 8,194 bytes"),
            (Kind::List, [&[0x11, 1, 0xc8, 1], &[9; 200][..]].concat(), "longer than any CID"),
            (Kind::List, bytes(&ListLeaf { measure: 1 << 53, target: &target }), "2^53"),
            (Kind::List, bytes(&ListLeaf { measure: 1, target: &target[..35] }), "not a valid CID"),
            (Kind::Map, bytes(&MapLeaf { key: b"a/b\0\0", target: &target }), "'/'"),
            (Kind::Map, bytes(&MapInner { bit: MAX_BITS, path: &[0; MAX_KEY], children: [&sum(1, 1); 2] }), "longest"),
            (Kind::Map, [&[2, 1, 0x40, 1], &[7; 32][..], &[1], &[7; 32]].concat(), "stray"),
            (Kind::Map, vec![3], "not a node"),
        ];
        for (kind, node, why) in refused {
            let error = Block::read(kind, &node).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
    }
}
