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
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_in_their_shortest_form_only() {
        for number in [0, 23, 24, 255, 256, 65_535, 65_536, u64::from(u32::MAX), 1 << 32, u64::MAX] {
            let mut head = Vec::new();
            write_head(&mut head, ARRAY, number);
            head.push(7);
            assert_eq!(split_head(&head), Some((ARRAY, number, &[7][..])));
            for cut in 0..head.len() - 1 {
                assert_eq!(split_head(&head[..cut]), None);
            }
        }
        let long = [&[0x98, 23][..], &[0x99, 0, 255], &[0x9a, 0, 0, 255, 255], &[0x9b, 0, 0, 0, 0, 255, 255, 255, 255]];
        for head in long.into_iter().chain([&[0x9f][..], &[0x9c], &[0x9d], &[0x9e], &[]]) {
            assert_eq!(split_head(head), None, "{head:?}");
        }
    }
}
