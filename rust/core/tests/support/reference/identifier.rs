//! Varints, CIDs and keys (protocol sections 1 and 2).

use super::Verdict;

/// Reads a varint: minimal, at most 9 bytes. Returns it and what follows.
pub fn read_number(bytes: &[u8]) -> Verdict<(u64, &[u8])> {
    let last = bytes.iter().position(|byte| byte & 0x80 == 0).ok_or("a varint without an end")?;
    if last > 8 {
        return Err("a varint of more than 9 bytes");
    }
    if last > 0 && bytes[last] == 0 {
        return Err("a varint with a superfluous byte");
    }
    let value = bytes[..=last].iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
    Ok((value, &bytes[last + 1..]))
}

pub(super) fn write_number(out: &mut Vec<u8>, value: u64) {
    let groups = (64 - value.leading_zeros()).div_ceil(7).max(1);
    let more = |group| if group + 1 < groups { 0x80 } else { 0 };
    out.extend((0..groups).map(|group| (value >> (7 * group)) as u8 & 0x7f | more(group)));
}

/// Whether bytes are a CID of section 1.
pub fn is_cid(bytes: &[u8]) -> bool {
    fn parts(bytes: &[u8]) -> Verdict<(u64, u64, u64, u64, &[u8])> {
        let (version, rest) = read_number(bytes)?;
        let (codec, rest) = read_number(rest)?;
        let (function, rest) = read_number(rest)?;
        let (length, digest) = read_number(rest)?;
        Ok((version, codec, function, length, digest))
    }
    let Ok((1, codec, function, length, digest)) = parts(bytes) else { return false };
    let fits = match function {
        0x12 | 0x16 | 0xb220 | 0x1e => length == 32,
        0x13 => length == 64,
        0x00 => length <= 128,
        _ => false,
    };
    let is_payload = !(0x30_0000..0x31_0000).contains(&codec);
    let is_root = match codec {
        0x30_3110 | 0x30_3210 => function == 0x12,
        0x30_3111 | 0x30_3211 => function == 0x1e,
        _ => false,
    };
    fits && digest.len() as u64 == length && (is_payload || is_root)
}

/// The segments of a path, escaped and joined: its key without the ending.
pub fn escape(path: &[String]) -> Vec<u8> {
    let one = |segment: &String| {
        let byte = |byte: u8| if byte == 0 { vec![0, 0xff] } else { vec![byte] };
        segment.bytes().flat_map(byte).collect::<Vec<_>>()
    };
    path.iter().map(one).collect::<Vec<_>>().join(&[0, 1][..])
}

/// The path of a key.
pub(super) fn segments(key: &[u8]) -> Vec<String> {
    let segments = parse_key(key).expect("the decoder checked it");
    segments.into_iter().map(|segment| String::from_utf8(segment).expect("the decoder checked it")).collect()
}

/// Whether bytes are the key of a path.
pub fn is_key(key: &[u8]) -> bool {
    let is_segment =
        |bytes: &Vec<u8>| !bytes.is_empty() && std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('/'));
    parse_key(key).is_some_and(|segments| segments.iter().all(is_segment) && segments.join(&b'/').len() <= 4096)
}

/// The segments of a key; None if an escape is broken, or the ending is missing or not at the end.
fn parse_key(key: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut segments, mut segment, mut rest) = (Vec::new(), Vec::new(), key);
    loop {
        rest = match rest {
            [0, 0] => {
                segments.push(segment);
                return Some(segments);
            }
            [0, 0xff, after @ ..] => {
                segment.push(0);
                after
            }
            [0, 1, after @ ..] => {
                segments.push(std::mem::take(&mut segment));
                after
            }
            [0, ..] | [] => return None,
            [byte, after @ ..] => {
                segment.push(*byte);
                after
            }
        }
    }
}
