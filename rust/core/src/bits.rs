//! Bit strings in byte slices, most significant bit first: comparing keys with nodes, and assembling paths.
//!
//! A node repeats none of the bits above it. Its own bits, a *label* or a *tail*, start at bit `floor`, and their bytes
//! at byte `floor / 8`:
//!
//! ```text
//! byte        0          1          2
//!         ┌────────┐ ┌────────┐ ┌────────┐
//! path    pppppppp   pppppppp   pppppppp
//!                        └ floor = 12  └ bit = 22
//! label              0000llll   llllll00         the bits outside floor..bit are zero
//! ```

/// A side of an inner node; in a map, also the value of the node's bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first child; bit 0.
    Left,
    /// The second child; bit 1.
    Right,
}

impl Side {
    /// The side that a key with this bit is on.
    #[inline]
    pub fn of(bit: bool) -> Self {
        if bit { Self::Right } else { Self::Left }
    }
}

/// Where a key diverges from a node's own bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Divergence {
    /// At this bit.
    At(u32),
    /// Nowhere: the key continues below the inner node, or is the leaf's key.
    Never,
    /// Nowhere, but the key has ended: no tree of keys has such a node (protocol section 3).
    KeyEnds,
}

/// A node's own bits, from byte `floor / 8` on. Bits outside `floor..end` are unspecified.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Own<'a> {
    /// At most 32 bits from the start of that byte on.
    Word(u32),
    Bytes(&'a [u8]),
}

impl Own<'_> {
    /// Compares bits `floor` to `end - 1` with those of `key`.
    #[inline(always)]
    pub(crate) fn divergence(self, floor: u32, end: u32, key: &[u8]) -> Divergence {
        let own = match self {
            Self::Word(own) => own,
            Self::Bytes(own) => return divergence(own, floor, end, key),
        };
        let from = (floor / 8) as usize;
        let theirs = key.get(from..).unwrap_or_default();
        let theirs = match theirs.first_chunk() {
            Some(four) => u32::from_be_bytes(*four),
            None => theirs.iter().zip([24, 16, 8]).map(|(byte, shift)| u32::from(*byte) << shift).sum(),
        };
        let x = (own ^ theirs) & word_mask(floor, end);
        let at = if x == 0 { end } else { 8 * from as u32 + x.leading_zeros() };
        if at as usize >= 8 * key.len() {
            Divergence::KeyEnds
        } else if x == 0 {
            Divergence::Never
        } else {
            Divergence::At(at)
        }
    }
}

/// The number of bytes that hold a node's own bits, `floor` to `end - 1`.
#[inline(always)]
pub(crate) fn own_len(floor: u32, end: u32) -> u32 {
    if end <= floor { 0 } else { end.div_ceil(8) - floor / 8 }
}

/// A mask of bits `floor` to `end - 1`, in a word that starts at byte `floor / 8`.
#[inline(always)]
pub(crate) fn word_mask(floor: u32, end: u32) -> u32 {
    u32::MAX >> (floor % 8) & (u64::MAX << (32 + floor / 8 * 8 - end)) as u32
}

/// Compares bits `floor` to `end - 1`, which `own` holds from byte `floor / 8` on, with those of `key`.
#[inline(always)]
pub(crate) fn divergence(own: &[u8], floor: u32, end: u32, key: &[u8]) -> Divergence {
    if let Some((&first, rest)) = own.split_first() {
        let from = (floor / 8) as usize;
        let theirs = key.get(from..).unwrap_or_default();
        let Some((&their_first, their_rest)) = theirs.split_first() else {
            return Divergence::KeyEnds;
        };
        // The last byte may hold stray bits after the end, unless it is whole.
        let last = if end.is_multiple_of(8) { 0xff } else { top_bits(end % 8) };
        let x = (first ^ their_first) & !top_bits(floor % 8) & if rest.is_empty() { last } else { 0xff };
        if x != 0 {
            return Divergence::At(8 * from as u32 + x.leading_zeros());
        }
        if let Some((&ours, whole)) = rest.split_last() {
            let n = common_len(whole, their_rest);
            let x = match (whole.get(n), their_rest.get(n)) {
                (_, None) => return Divergence::KeyEnds,
                (Some(ours), Some(theirs)) => ours ^ theirs,
                (None, Some(theirs)) => (ours ^ theirs) & last,
            };
            if x != 0 {
                return Divergence::At(8 * (from + 1 + n) as u32 + x.leading_zeros());
            }
        }
    }
    if end as usize >= 8 * key.len() { Divergence::KeyEnds } else { Divergence::Never }
}

/// Compares a leaf's tail, which starts at byte `floor / 8` of its key of `len` bytes, with `key`.
#[inline(always)]
pub(crate) fn leaf_divergence(tail: &[u8], floor: u32, len: usize, key: &[u8]) -> Divergence {
    match divergence(tail, floor, 8 * len as u32, key) {
        Divergence::KeyEnds if len == key.len() => Divergence::Never,
        Divergence::Never => Divergence::KeyEnds,
        other => other,
    }
}

/// Bit `i` of a key; false after its end.
#[inline]
pub(crate) fn bit(key: &[u8], i: u32) -> bool {
    key.get(i as usize / 8).is_some_and(|b| b >> (7 - i % 8) & 1 == 1)
}

/// The first bit in which two keys differ; None if one is a prefix of the other.
#[inline]
pub(crate) fn first_difference(a: &[u8], b: &[u8]) -> Option<u32> {
    let at = common_len(a, b);
    Some(8 * at as u32 + (a.get(at)? ^ b.get(at)?).leading_zeros())
}

/// The length of the longest common prefix, in bytes.
#[inline(always)]
pub fn common_len(a: &[u8], b: &[u8]) -> usize {
    let (words, others) = (a.as_chunks::<8>().0.iter(), b.as_chunks::<8>().0.iter());
    let whole = 8 * words.zip(others).take_while(|(a, b)| a == b).count();
    whole + a[whole..].iter().zip(&b[whole..]).take_while(|(a, b)| a == b).count()
}

/// The eight bytes of a key from this one on, as a number that compares as they do; zeros follow its end.
#[inline(always)]
pub fn lead(key: &[u8], from: usize) -> u64 {
    let rest = key.get(from..).unwrap_or_default();
    match rest.first_chunk() {
        Some(whole) => u64::from_be_bytes(*whole),
        None => rest.iter().rev().fold(0, |lead, &byte| lead >> 8 | u64::from(byte) << 56),
    }
}

/// Whether the first `n` bits of both are the same.
///
/// # Panics
/// If one has fewer bits.
pub fn same_bits(a: &[u8], b: &[u8], n: u32) -> bool {
    let whole = n as usize / 8;
    let rest = top_bits(n % 8);
    a[..whole] == b[..whole] && (rest == 0 || (a[whole] ^ b[whole]) & rest == 0)
}

/// Writes `own`, the bits from `floor` on, into `path`; the bits before `floor` stay.
#[inline(always)]
pub(crate) fn put(path: &mut [u8], floor: u32, own: &[u8]) {
    let from = (floor / 8) as usize;
    let Some((&first, rest)) = own.split_first() else {
        return;
    };
    let keep = top_bits(floor % 8);
    path[from] = path[from] & keep | first & !keep;
    path[from + 1..from + own.len()].copy_from_slice(rest);
}

/// Writes the bit that leads to a child into `path`, and zeros after it in its byte.
#[inline(always)]
pub(crate) fn put_turn(path: &mut [u8], bit: u32, side: Side) {
    let at = (bit / 8) as usize;
    path[at] = path[at] & top_bits(bit % 8) | u8::from(side == Side::Right) << (7 - bit % 8);
}

/// A byte whose first `n` bits are set; `n` is below 8.
#[inline]
pub(crate) fn top_bits(n: u32) -> u8 {
    !(0xff >> n)
}

/// The path from the top to a node: its bits before the node's `floor` are valid, later bytes are leftovers.
#[derive(Debug, Default)]
pub struct PathBuffer(pub Vec<u8>);

impl PathBuffer {
    #[inline]
    fn reach(&mut self, bytes: usize) {
        if self.0.len() < bytes {
            self.0.resize(bytes, 0);
        }
    }

    /// Writes `own`, the bits from `floor` on, whose first byte is byte `floor / 8` of the path.
    #[inline]
    pub fn put(&mut self, floor: u32, own: &[u8]) {
        self.reach((floor / 8) as usize + own.len());
        put(&mut self.0, floor, own);
    }

    /// Writes the bit that leads to a child.
    #[inline]
    pub fn turn(&mut self, bit: u32, side: Side) {
        self.reach((bit / 8) as usize + 1);
        put_turn(&mut self.0, bit, side);
    }
}

#[cfg(test)]
#[path = "../tests/unit/bits.rs"]
mod tests;
