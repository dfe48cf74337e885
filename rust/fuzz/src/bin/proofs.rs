//! Fuzz target: any bytes as a proof, under the root that they hash to. The verifier accepts what the reference accepts, with
//! the same answers, and the answers to all queries agree.
#![no_main]

use coregw_core::{Cid, Digest, Error, Key, Kind, ListChange, MapChange, RootCid, Suite, Window, verify};
use coregw_fuzz::agree::agree;
use coregw_fuzz::model::Query;
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 1 << 20;

/// Extracts the actual digest from a mismatch error, so that the input passes the comparison with the root.
fn digest_of(refused: &Error) -> Option<Digest> {
    let text = refused.to_string();
    let (_, rest) = text.split_once("digest is ")?;
    let hex = rest.get(..64)?;
    let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok();
    let bytes: Option<Vec<_>> = (0..32).map(byte).collect();
    Some(Digest(bytes?.try_into().ok()?))
}

fn target(n: u8) -> Cid {
    Cid::from_bytes(&[&[1, 0x55, 0x12, 32][..], &[n; 32]].concat()).expect("a CID")
}

/// Derives a path of short segments over a small alphabet.
fn path(bytes: &[u8]) -> Vec<String> {
    let letter = |b: &u8| char::from(b"ab\0z"[usize::from(b % 4)]);
    let segments = bytes.chunks(2).map(|chunk| chunk.iter().map(letter).collect());
    Some(segments.collect::<Vec<_>>()).filter(|path| !path.is_empty()).unwrap_or_else(|| vec!["a".into()])
}

fn maps(suite: Suite, query: &[u8], proof: &[u8]) {
    let unknown = RootCid { kind: Kind::Map, suite, digest: Digest([0; 32]) };
    let (head, tail) = query.split_at(query.len() / 2);
    let (path, other) = (path(head), path(tail));
    let key = Key::from_segments(&path).expect("a path");
    let Some(digest) = verify::key(&unknown, &key, proof, LIMIT).err().and_then(|refused| digest_of(&refused)) else {
        return;
    };
    let root = RootCid { digest, ..unknown };
    let found = verify::key(&root, &key, proof, LIMIT);
    agree(&root, &Query::Key(path.clone()), proof);
    let limit = usize::from(query[0] % 5) + 1;
    for (prefix, after) in [(&path[..], None), (&[][..], None), (&path[..1], Some(&path[..])), (&[], Some(&other[..]))]
    {
        agree(&root, &Query::Scan(prefix.to_vec(), after.map(<[_]>::to_vec), limit), proof);
        let window = Window::new(prefix, after).expect("a window");
        let Ok(listing) = verify::scan(&root, window, limit, proof, LIMIT) else {
            continue;
        };
        let entries = listing.decoded();
        assert!(entries.len() <= limit && (!listing.more || entries.len() == limit));
        assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
        assert!(entries.iter().all(|entry| entry.0.starts_with(prefix)));
        assert!(after.is_none_or(|after| entries.iter().all(|entry| entry.0[..] > *after)));
        if let (Ok(found), None, true) = (&found, after, prefix == path) {
            let listed = entries.first().filter(|entry| entry.0 == path).map(|entry| entry.1);
            assert_eq!(*found, listed, "a lookup contradicts a listing");
        }
    }
    let change = |before, after| MapChange { key: key.clone(), before, after };
    let present = found.ok().flatten();
    for change in [change(present, Some(target(9))), change(Some(target(1)), None), change(None, Some(target(2)))] {
        agree(&root, &Query::ChangeMap(vec![change]), proof);
    }
}

fn lists(suite: Suite, query: &[u8], proof: &[u8]) {
    let unknown = RootCid { kind: Kind::List, suite, digest: Digest([0; 32]) };
    let index = query.iter().fold(0, |n, b| n << 4 | u64::from(b & 15));
    let Some(digest) = verify::index(&unknown, index, proof, LIMIT).err().and_then(|refused| digest_of(&refused))
    else {
        return;
    };
    let root = RootCid { digest, ..unknown };
    let found = verify::index(&root, index, proof, LIMIT);
    agree(&root, &Query::Index(index), proof);
    if let Ok(found) = &found {
        assert_eq!(found.target.is_some(), index < found.length);
    }
    let end = index.saturating_add(u64::from(query[0]));
    for (start, end) in [(index, Some(end)), (0, None), (index, None), (end, Some(index))] {
        agree(&root, &Query::Range(start, end), proof);
        let Ok(span) = verify::range(&root, start, end, proof, LIMIT) else {
            continue;
        };
        assert_eq!(span.segments.len(), span.sizes.len());
        let (from, size) = (span.offset.unwrap_or(0), span.sizes.iter().sum::<u64>());
        let end = end.unwrap_or(u64::MAX).min(span.total_size);
        assert!(span.segments.is_empty() == (start >= end) && from <= start.max(from));
        assert!(span.segments.is_empty() || (from <= start && from + size >= end));
    }
    let present = found.ok().and_then(|found| Some((found.target?, found.size)));
    let changes = [(index, present, Some((target(3), 5))), (0, None, Some((target(3), 1))), (index, present, None)];
    for (index, before, after) in changes {
        agree(&root, &Query::ChangeList(vec![ListChange { index, before, after }], None), proof);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[how, ref query @ ..], proof)) = data.split_first_chunk::<9>() else {
        return;
    };
    let suite = Suite::ALL[usize::from(how & 1)];
    match how & 2 {
        0 => maps(suite, query, proof),
        _ => lists(suite, query, proof),
    }
});
