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

/// The number of bytes in which [`short_value`] and [`short_bytes`] hold a varint.
pub const SHORT_LEN: usize = 8;

const CONTINUES: u64 = 0x8080_8080_8080_8080;

/// The length of the varint at the start of `bytes`, and whether it is one in minimal form, of at most [`SHORT_LEN`] bytes
/// and not zero. Without branches: those of random lengths cannot be predicted.
#[inline(always)]
pub fn short_len(bytes: [u8; SHORT_LEN]) -> (usize, bool) {
    let word = u64::from_le_bytes(bytes);
    let ends = !word & CONTINUES;
    let last_bit = (ends | 1 << 63).trailing_zeros();
    let last_byte = (word >> (last_bit - 7)) as u8;
    (last_bit as usize / 8 + 1, (ends != 0) & (last_byte != 0))
}

/// The value of the varint in the first `len` bytes, from 1 to [`SHORT_LEN`]. Without branches.
#[inline(always)]
pub fn short_value(bytes: [u8; SHORT_LEN], len: usize) -> u64 {
    let sevens = u64::from_le_bytes(bytes) & !CONTINUES & (u64::MAX >> (64 - 8 * len));
    let pairs = sevens & 0x007f_007f_007f_007f | (sevens & 0x7f00_7f00_7f00_7f00) >> 1;
    let quads = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    quads & 0x0fff_ffff | (quads & 0x0fff_ffff_0000_0000) >> 4
}

/// The minimal encoding of a value below 2^56 and its length, without branches that depend on it; zeros follow it.
///
/// # Panics
/// If the value is larger. Counts, measures and lengths are below 2^53.
#[inline(always)]
pub fn short_bytes(value: u64) -> ([u8; SHORT_LEN], usize) {
    assert!(value < 1 << 56, "a varint of eight bytes holds 56 bits");
    let quads = value & 0x0fff_ffff | (value & 0x00ff_ffff_f000_0000) << 4;
    let pairs = quads & 0x0000_3fff_0000_3fff | (quads & 0x0fff_c000_0fff_c000) << 2;
    let sevens = pairs & 0x007f_007f_007f_007f | (pairs & 0x3f80_3f80_3f80_3f80) << 1;
    let len = len(value);
    let continues = CONTINUES & !(u64::MAX << (8 * (len - 1)));
    ((sevens | continues).to_le_bytes(), len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip_and_len_is_the_encoded_length() {
        for v in [0, 1, 127, 128, 300, 16_383, 16_384, (1 << 53) - 1, 1 << 62, (1 << 63) - 1] {
            let mut out = Vec::new();
            write(&mut out, v);
            assert_eq!(out.len(), len(v));
            assert_eq!(read(&out), Ok((v, out.len())));
        }
    }

    #[test]
    fn overlong_truncated_and_non_minimal_forms_are_refused() {
        let ends = Err("the bytes end inside a varint");
        assert_eq!([read(&[]), read(&[0x80]), read(&[0xff; 8])], [ends; 3]);
        assert_eq!(read(&[0x80, 0x00]), Err("a varint is not in minimal form"));
        assert_eq!([read(&[0xff; 9]), read(&[0xff; 10])], [Err("a varint is longer than 9 bytes"); 2]);
        assert!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).is_err());
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), Ok(((1 << 63) - 1, 9)));
    }

    #[test]
    fn short_varints_are_those_of_any_length() {
        let around =
            |bits: u32| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1, 0x5555_5555_5555_5555 & ((1 << bits) - 1)];
        for value in (0..=56).flat_map(around).filter(|value| value >> 56 == 0) {
            let mut out = Vec::new();
            write(&mut out, value);
            let (bytes, len) = short_bytes(value);
            assert_eq!((&bytes[..len], &bytes[len..]), (&out[..], &[0; SHORT_LEN][len..]), "{value}");
            for rest in [0x00, 0x01, 0x80, 0xff] {
                let mut padded = [rest; SHORT_LEN];
                padded[..len].copy_from_slice(&out);
                assert_eq!(short_len(padded), (len, value != 0), "{value}, then {rest}");
                assert_eq!(short_value(padded, len), value, "{value}, then {rest}");
            }
        }
        for malformed in [[0x80, 0, 1, 1, 1, 1, 1, 1], [0xff; 8], [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0]] {
            let (len, is_valid) = short_len(malformed);
            assert!(!is_valid && len <= SHORT_LEN, "{malformed:?}");
        }
    }
}
