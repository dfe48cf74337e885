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

#[cfg(test)]
#[path = "../../tests/unit/id_varint.rs"]
mod tests;
