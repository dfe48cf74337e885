//! Strict, bounds-checked reader for the bytes of pruned trees (protocol section 4).

use std::hint::select_unpredictable;

use crate::bits::{own_len, top_bits};
use crate::id::cid::Cid;
use crate::id::varint;
use crate::interrupt::Fault;
use crate::key::{MAX_BITS, MAX_KEY};
use crate::tree::node::SUM_LIMIT;

/// A cursor over the bytes of a pruned tree.
pub(crate) struct PrunedReader<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

/// A stub of a map as the reader has found it.
#[derive(Clone, Copy)]
pub(crate) struct StubPlace {
    pub(crate) count: u64,
    /// The offset of its digest.
    pub(crate) digest: u32,
}

impl StubPlace {
    const NONE: Self = Self { count: 1, digest: 0 };

    /// The offset of what follows it.
    #[inline(always)]
    pub(crate) fn end(self) -> usize {
        self.digest as usize + 32
    }

    /// The first one if `is_first`, otherwise the second. No branch depends on it.
    #[inline(always)]
    pub(crate) fn select(is_first: bool, first: Self, second: Self) -> Self {
        Self {
            count: select_unpredictable(is_first, first.count, second.count),
            digest: select_unpredictable(is_first, first.digest, second.digest),
        }
    }
}

/// A stub of a map.
#[derive(Clone, Copy)]
pub(crate) struct StubBytes<'a> {
    pub(crate) count: u64,
    pub(crate) digest: &'a [u8; 32],
}

impl<'a> PrunedReader<'a> {
    #[inline(always)]
    pub(crate) fn fail<T>(&self, why: &'static str) -> Result<T, Fault> {
        Err(Fault { why, at: self.at })
    }

    #[inline(always)]
    pub(crate) fn varint(&mut self) -> Result<u64, Fault> {
        if let Some(&byte) = self.bytes.get(self.at)
            && byte < 0x80
        {
            self.at += 1;
            return Ok(byte.into());
        }
        self.long_varint()
    }

    #[inline(always)]
    fn long_varint(&mut self) -> Result<u64, Fault> {
        let (value, n) = varint::read(&self.bytes[self.at..]).or_else(|why| self.fail(why))?;
        self.at += n;
        Ok(value)
    }

    #[inline(always)]
    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], Fault> {
        match self.bytes.get(self.at..).and_then(|rest| rest.get(..n)) {
            Some(bytes) => {
                self.at += n;
                Ok(bytes)
            }
            None => self.fail("the bytes end inside a node"),
        }
    }

    /// Reads a count or measure: at least 1 and below 2^53.
    #[inline(always)]
    pub(crate) fn amount(&mut self, zero: &'static str, over: &'static str) -> Result<u64, Fault> {
        let at = self.at;
        match self.varint()? {
            0 => Err(Fault { why: zero, at }),
            n if n >= SUM_LIMIT => Err(Fault { why: over, at }),
            n => Ok(n),
        }
    }

    /// Reads a target and returns its offset and length.
    #[inline(always)]
    pub(crate) fn target(&mut self) -> Result<(u32, u8), Fault> {
        let len = self.varint()?;
        let at = self.at;
        let bytes = self.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        match Cid::check(bytes) {
            Ok(()) => Ok((at as u32, len as u8)),
            Err(_) => Err(Fault { why: "a shown target is not a valid CID", at }),
        }
    }

    /// Reads an inner node of a map after its tag: its bit and its label.
    #[inline(always)]
    pub(crate) fn map_inner(&mut self, floor: u32) -> Result<(u32, &'a [u8]), Fault> {
        let at = self.at;
        let gap = self.varint()?;
        let bit = match u32::try_from(gap).ok().and_then(|gap| gap.checked_add(floor)) {
            Some(bit) if bit < MAX_BITS => bit,
            _ => return Err(Fault { why: "a bit past the longest key", at: at - 1 }),
        };
        let at = self.at;
        let label = self.take(own_len(floor, bit) as usize)?;
        if let (Some(first), Some(last)) = (label.first(), label.last()) {
            let stray_end = if bit.is_multiple_of(8) { 0 } else { last & !top_bits(bit % 8) };
            if first & top_bits(floor % 8) != 0 || stray_end != 0 {
                return Err(Fault { why: "a stray bit in a label", at });
            }
        }
        Ok((bit, label))
    }

    /// Reads the tail of a map leaf after its tag: its offset, the length of the whole key, and the tail.
    #[inline(always)]
    pub(crate) fn map_tail(&mut self, floor: u32) -> Result<(usize, usize, &'a [u8]), Fault> {
        let n = self.varint()?;
        let at = self.at;
        let from = (floor / 8) as usize;
        if n > (MAX_KEY - from.min(MAX_KEY)) as u64 {
            return Err(Fault { why: "a key is longer than 8,194 bytes", at });
        }
        let len = from + n as usize;
        if 8 * len < floor as usize {
            return Err(Fault { why: "a tail shorter than the path above it", at });
        }
        let tail = self.take(n as usize)?;
        if tail.first().is_some_and(|first| first & top_bits(floor % 8) != 0) {
            return Err(Fault { why: "a stray bit in a tail", at });
        }
        Ok((at, len, tail))
    }

    /// Reads a stub of a map after its tag: its count, and the offset of its digest.
    #[inline(always)]
    pub(crate) fn map_stub(&mut self) -> Result<(u64, u32), Fault> {
        let count = self.count()?;
        let at = self.at;
        self.take(32)?;
        Ok((count, at as u32))
    }

    /// Where the stub of a map is that comes next, and whether one does.
    #[inline(always)]
    pub(crate) fn peek_stub(&self) -> (StubPlace, bool) {
        let mut ahead = Self { bytes: self.bytes, at: self.at + 1 };
        match self.bytes.get(self.at).filter(|&&tag| tag == 0x03).map(|_| ahead.place_stub()) {
            Some(Ok(stub)) => (stub, true),
            _ => (StubPlace::NONE, false),
        }
    }

    /// The stub of a map that comes next, of which only the tag was read.
    #[inline(always)]
    pub(crate) fn place_stub(&mut self) -> Result<StubPlace, Fault> {
        let (count, digest) = self.map_stub()?;
        Ok(StubPlace { count, digest })
    }

    /// The bytes of a stub that a caller has read.
    #[inline(always)]
    pub(crate) fn stub_at(&self, place: StubPlace) -> StubBytes<'a> {
        let digest = self.bytes.get(place.digest as usize..).and_then(|rest| rest.first_chunk());
        let digest = digest.expect("the digest was read");
        StubBytes { count: place.count, digest }
    }

    /// Reads the count of a stub.
    #[inline(always)]
    pub(crate) fn count(&mut self) -> Result<u64, Fault> {
        self.amount("a stub of count 0", "a count of 2^53 or more")
    }
}

#[cfg(test)]
#[path = "../../tests/unit/tree_reader.rs"]
mod tests;
