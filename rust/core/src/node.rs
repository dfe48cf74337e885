//! Node encodings and their digests (protocol section 3).
//!
//! Nothing here knows where a node comes from; every digest of the crate is made by [`Encoder`].

use crate::path::top_bits;
use crate::suite::{Digest, Suite};
use crate::varint;

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

/// Makes node encodings in one buffer and hashes them.
pub(crate) struct Encoder {
    suite: Suite,
    buffer: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new(suite: Suite) -> Self {
        Self { suite, buffer: Vec::with_capacity(256) }
    }

    #[inline]
    fn start(&mut self, tag: u8) -> &mut Vec<u8> {
        self.buffer.clear();
        self.buffer.push(tag);
        &mut self.buffer
    }

    #[inline]
    fn digest(&self) -> Digest {
        self.suite.digest(&self.buffer)
    }

    pub(crate) fn map_empty(&mut self) -> Digest {
        self.start(0x00);
        self.digest()
    }

    pub(crate) fn list_empty(&mut self) -> Digest {
        self.start(0x10);
        self.digest()
    }

    #[inline]
    pub(crate) fn map_leaf(&mut self, key: &[u8], target: &[u8]) -> Digest {
        let out = self.start(0x01);
        varint::write(out, key.len() as u64);
        out.extend_from_slice(key);
        varint::write(out, target.len() as u64);
        out.extend_from_slice(target);
        self.digest()
    }

    /// `path` holds at least the bits before `bit`; the rest of it is ignored.
    #[inline]
    pub(crate) fn map_inner(&mut self, bit: u32, path: &[u8], left: &Summary, right: &Summary) -> Digest {
        let out = self.start(0x02);
        varint::write(out, u64::from(bit));
        out.extend_from_slice(&path[..bit.div_ceil(8) as usize]);
        if !bit.is_multiple_of(8)
            && let Some(last) = out.last_mut()
        {
            *last &= top_bits(bit % 8);
        }
        for side in [left, right] {
            varint::write(out, side.count);
            out.extend_from_slice(&side.digest.0);
        }
        self.digest()
    }

    #[inline]
    pub(crate) fn list_leaf(&mut self, measure: u64, target: &[u8]) -> Digest {
        let out = self.start(0x11);
        varint::write(out, measure);
        varint::write(out, target.len() as u64);
        out.extend_from_slice(target);
        self.digest()
    }

    #[inline]
    pub(crate) fn list_inner(&mut self, left: &Summary, right: &Summary) -> Digest {
        let out = self.start(0x12);
        for side in [left, right] {
            varint::write(out, side.count);
            varint::write(out, side.measure);
            out.extend_from_slice(&side.digest.0);
        }
        self.digest()
    }
}

/// The number of elements on the left side of a list of `n` > 1: the largest power of two below `n`.
#[inline]
pub(crate) fn left_count(n: u64) -> u64 {
    1 << (63 - (n - 1).leading_zeros())
}
