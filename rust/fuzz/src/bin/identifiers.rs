//! Fuzz target: any bytes as varints, CIDs, keys, paths and windows, and as payloads in chunks. All of them are read as the
//! reference reads them. Any bytes as a record of attributes, too: what is accepted has no other encoding.
#![no_main]

use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_core::{Cid, Key, PathKeys, Window, varint};
use coregw_fuzz::reference::identifier::{escape, is_cid, read_number};
use coregw_folders::Attributes;
use libfuzzer_sys::fuzz_target;

/// The binary form of a CID in text, whatever it is.
fn binary(text: &str) -> Option<Vec<u8>> {
    if text.len() == 46 && text.starts_with("Qm") {
        let (_, hash) = multibase::decode(format!("z{text}")).ok()?;
        return hash.starts_with(&[0x12, 32]).then(|| [&[1, 0x70], &hash[..]].concat());
    }
    // The library reads digits in either case, and takes an upper-case prefix for another encoding.
    let decoded = match text.chars().next()? {
        'b' | 'f' | 'k' | 'z' | 'm' | 'u' => multibase::decode(text),
        'B' | 'F' | 'K' => multibase::decode(text.to_ascii_lowercase()),
        _ => return None,
    };
    decoded.ok().map(|(_, bytes)| bytes)
}

fn cids(data: &[u8]) {
    assert_eq!(varint::read(data).ok().map(|(n, len)| (n, &data[len..])), read_number(data).ok());
    let cid = Cid::from_bytes(data);
    assert_eq!(cid.is_ok(), is_cid(data), "{data:02x?}");
    if let Ok(cid) = cid {
        assert_eq!(cid.as_bytes(), data);
        assert_eq!(Cid::from_text(&cid.text()), Ok(cid));
        assert_eq!(cid.root().map(|root| root.cid()), cid.root().map(|_| cid));
        assert!(cid.identity().is_none_or(|held| payload::matches(&cid, held)));
        assert_eq!(Cid::split(data), Ok((cid, &[][..])));
    }
    if let Ok((cid, rest)) = Cid::split(data) {
        assert_eq!([cid.as_bytes(), rest].concat(), data);
    }
}

fn texts(text: &str) {
    let cid = Cid::from_text(text);
    if text.len() < 300 {
        let slow = binary(text).filter(|bytes| is_cid(bytes));
        assert_eq!(cid.as_ref().ok().map(|cid| cid.as_bytes().to_vec()), slow, "{text:?}");
    }
    if let Ok(codec) = Codec::parse(text) {
        assert_eq!(Codec::parse(&codec.to_string()), Ok(codec));
        assert!(!(0x30_0000..0x31_0000).contains(&codec.number()));
    }
    let segments: Vec<String> = text.split('/').map(str::to_owned).collect();
    let is_path = text.len() <= 4096 && segments.iter().all(|segment| !segment.is_empty());
    let key = Key::from_text(text);
    assert_eq!(key.is_ok(), is_path, "{text:?}");
    assert_eq!(Key::from_segments(&segments).ok(), key.as_ref().ok().cloned());
    let Ok(key) = key else { return };
    assert_eq!(key.as_bytes(), [&escape(&segments)[..], &[0, 0]].concat());
    assert_eq!(key.text(), text);
    parts(&segments);
}

fn parts(path: &[String]) {
    let keys = PathKeys::new(path).expect("a path");
    for first in 0..path.len().min(6) {
        let longest = keys.key(first, path.len() - first);
        for len in 1..=(path.len() - first).min(6) {
            let key = keys.key(first, len);
            assert_eq!(Key::from_segments(&path[first..first + len]), Ok(key.clone()));
            if key != longest {
                let bit = keys.differing_bit(first, len) as usize;
                let at = |key: &Key, bit: usize| key.as_bytes()[bit / 8] >> (7 - bit % 8) & 1;
                assert!((0..bit).all(|i| at(&key, i) == at(&longest, i)) && at(&key, bit) != at(&longest, bit));
            }
            let after = &path[..(first + len).min(path.len())];
            let is_inside = after.starts_with(&path[first..first + len]);
            assert_eq!(Window::new(&path[first..first + len], Some(after)).is_ok(), is_inside);
        }
    }
}

fn payloads(data: &[u8]) {
    let size = 1 + usize::from(data.first().copied().unwrap_or_default());
    let fits = |function: &Function| *function != Function::Identity || data.len() <= 128;
    for function in Function::ALL.into_iter().filter(fits) {
        let whole = payload::cid(data, Codec::RAW, function).expect("a payload");
        let (mut hasher, mut check) = (payload::Hasher::new(Codec::RAW, function), payload::Check::new(&whole));
        for chunk in data.chunks(size) {
            hasher.update(chunk);
            check.update(chunk);
        }
        assert_eq!(hasher.cid(), Ok(whole));
        assert!(check.is_match() && payload::matches(&whole, data) && is_cid(whole.as_bytes()));
    }
}

fn attributes(data: &[u8]) {
    if let Ok(attributes) = Attributes::decode(data) {
        let record = attributes.record().expect("what is read can be written");
        assert_eq!(record.bytes, data);
        assert_eq!(Attributes::of_record(&record.target, Some(data)), Ok(attributes));
    }
}

fuzz_target!(|data: &[u8]| {
    cids(data);
    attributes(data);
    payloads(data);
    if let Ok(text) = std::str::from_utf8(data) {
        texts(text);
    }
});
