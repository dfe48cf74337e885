//! Heads of CBOR values in the one form that DAG-CBOR allows: the shortest.

/// The major type of unsigned numbers.
pub const UNSIGNED: u8 = 0;
/// The major type of negative numbers; the number `n` stands for `-1 - n`.
pub const NEGATIVE: u8 = 1;
/// The major type of strings of bytes.
pub const BYTES: u8 = 2;
/// The major type of texts.
pub const TEXT: u8 = 3;
/// The major type of arrays.
pub const ARRAY: u8 = 4;
/// The major type of maps.
pub const MAP: u8 = 5;
/// The value `true`.
pub const TRUE: u8 = 0xf5;

/// Appends the head of a value: its major type and its number.
pub fn write_head(out: &mut Vec<u8>, major: u8, number: u64) {
    let major = major << 5;
    match number {
        0..=23 => out.push(major | number as u8),
        24..=0xff => out.extend_from_slice(&[major | 24, number as u8]),
        0x100..=0xffff => {
            out.push(major | 25);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(major | 26);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// Splits off the head of a value: its major type and its number. None if there is none, or not in the shortest form.
pub fn split_head(bytes: &[u8]) -> Option<(u8, u64, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let (len, least) = match first & 0x1f {
        n @ 0..=23 => return Some((first >> 5, n.into(), rest)),
        24 => (1, 24),
        25 => (2, 0x100),
        26 => (4, 0x1_0000),
        27 => (8, 0x1_0000_0000),
        _ => return None,
    };
    let (number, rest) = rest.split_at_checked(len)?;
    let number = number.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
    (number >= least).then_some((first >> 5, number, rest))
}

#[cfg(test)]
#[path = "../tests/unit/cbor.rs"]
mod tests;
