//! Unsigned varints as in multiformats (protocol section 1): LEB128 in minimal form, at most 9 bytes, below 2^63.

/// The maximum length of an encoding, in bytes.
pub const MAX_LEN: usize = 9;

/// Appends the minimal encoding of `value`.
///
/// `value` must be below 2^63, as every count, measure, length and code of the protocol is.
#[inline]
pub fn write(out: &mut Vec<u8>, mut value: u64) {
    debug_assert!(value < 1 << 63, "a varint holds 63 bits");
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The number of bytes that [`write()`] appends for `value`.
#[inline]
pub fn len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Reads one varint from the start of `bytes`; returns its value and its length in bytes.
///
/// # Errors
/// A description of the fault if the varint is truncated, not minimal, or longer than [`MAX_LEN`].
#[inline]
pub fn read(bytes: &[u8]) -> Result<(u64, usize), &'static str> {
    match bytes.first() {
        None => return Err("the bytes end inside a varint"),
        Some(&b) if b < 0x80 => return Ok((u64::from(b), 1)),
        Some(_) => {}
    }
    let mut value = 0u64;
    for (i, &b) in bytes.iter().take(MAX_LEN).enumerate() {
        value |= u64::from(b & 0x7f) << (7 * i);
        if b < 0x80 {
            return if b == 0 { Err("a varint is not in minimal form") } else { Ok((value, i + 1)) };
        }
    }
    Err(if bytes.len() < MAX_LEN { "the bytes end inside a varint" } else { "a varint is longer than 9 bytes" })
}

/// The number of bytes of a short varint at most.
pub const SHORT_LEN: usize = 8;

const CONTINUES: u64 = 0x8080_8080_8080_8080;

/// A value below 2^56 in groups of seven bits, one in each byte, as a varint of at most [`SHORT_LEN`] bytes has them. Nothing
/// here branches on lengths: random ones cannot be predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sevens(u64);

impl Sevens {
    /// The groups of a value.
    ///
    /// # Panics
    /// If it is 2^56 or more. Counts, measures and lengths are below 2^53.
    #[inline(always)]
    pub const fn of(value: u64) -> Self {
        assert!(value < 1 << 56, "eight groups of seven bits");
        let quads = value & 0x0fff_ffff | (value & 0x00ff_ffff_f000_0000) << 4;
        let pairs = quads & 0x0000_3fff_0000_3fff | (quads & 0x0fff_c000_0fff_c000) << 2;
        Self(pairs & 0x007f_007f_007f_007f | (pairs & 0x3f80_3f80_3f80_3f80) << 1)
    }

    /// The value.
    #[inline(always)]
    pub const fn value(self) -> u64 {
        let pairs = self.0 & 0x007f_007f_007f_007f | (self.0 & 0x7f00_7f00_7f00_7f00) >> 1;
        let quads = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
        quads & 0x0fff_ffff | (quads & 0x0fff_ffff_0000_0000) >> 4
    }

    /// The length of the varint at the start of `word`, whose first byte is the lowest one, and whether it is one in minimal
    /// form, of at most [`SHORT_LEN`] bytes and not zero.
    #[inline(always)]
    pub fn len_in(word: u64) -> (usize, bool) {
        let ends = !word & CONTINUES;
        let last_bit = (ends | 1 << 63).trailing_zeros();
        let last_byte = (word >> (last_bit & !7)) as u8;
        (last_bit as usize / 8 + 1, (ends != 0) & (last_byte != 0))
    }

    /// The varint of `len` bytes, from 1 to [`SHORT_LEN`], at the start of `word`.
    #[inline(always)]
    pub fn first(word: u64, len: usize) -> Self {
        Self(word & !CONTINUES & (u64::MAX >> ((64 - 8 * len) & 63)))
    }

    /// The minimal encoding in the lowest bytes of a word, and its length; zeros follow it.
    #[inline(always)]
    pub fn varint(self) -> (u64, usize) {
        let last = (63 - (self.0 | 1).leading_zeros()) / 8;
        let before_last = (1 << (8 * last)) - 1;
        (self.0 | CONTINUES & before_last, last as usize + 1)
    }

    /// The sum of two values below 2^55. A carry passes the bit between two groups because it is set.
    #[inline(always)]
    pub fn plus(self, other: Self) -> Self {
        Self((self.0 | CONTINUES).wrapping_add(other.0) & !CONTINUES)
    }
}

#[cfg(test)]
#[path = "../../tests/unit/id_varint.rs"]
mod tests;
