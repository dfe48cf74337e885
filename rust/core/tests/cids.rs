//! CID tests: every valid combination is accepted, near misses are refused (protocol section 1).

use coregw_core::payload::Function;
use coregw_core::{Cid, Error, InputCode, Kind, RootCid, Suite, varint};

/// The hash functions that a CID may name: code, digest length in bytes, name.
const FUNCTIONS: [(u64, u64, &str); 5] = [
    (0x12, 32, "sha2-256"),
    (0x13, 64, "sha2-512"),
    (0x16, 32, "sha3-256"),
    (0xb220, 32, "blake2b-256"),
    (0x1e, 32, "blake3"),
];
const CODECS: [u64; 7] = [0x55, 0x70, 0x71, 0x7f, 0x80, 0x0200, (1 << 63) - 1];

fn cid(version: u64, codec: u64, function: u64, len: u64, digest: usize) -> Vec<u8> {
    let mut out = Vec::new();
    [version, codec, function, len].iter().for_each(|n| varint::write(&mut out, *n));
    out.extend((0..digest).map(|i| i as u8));
    out
}

#[track_caller]
fn assert_refused(bytes: &[u8]) {
    let refused = Cid::from_bytes(bytes);
    assert!(matches!(refused, Err(Error::Input { code: InputCode::InvalidCid, .. })), "{bytes:02x?}: {refused:?}");
}

#[test]
fn every_function_and_codec_is_accepted_and_truncated_or_extended_cids_are_refused() {
    for (function, len, name) in FUNCTIONS {
        for codec in CODECS {
            let bytes = cid(1, codec, function, len, len as usize);
            let read = Cid::from_bytes(&bytes).expect("a CID");
            assert_eq!(
                (read.as_bytes(), read.codec(), read.hash_function().multihash()),
                (&bytes[..], codec, function)
            );
            assert_eq!(
                (read.hash_function().name(), read.digest().len(), read.kind_name()),
                (name, len as usize, "cas")
            );
            assert_eq!(read.multihash(), &cid(1, codec, function, len, len as usize)[1 + varint::len(codec)..]);
            assert_eq!(Cid::from_text(&read.text()), Ok(read));
            assert_eq!(Cid::split(&[&bytes[..], b"rest"].concat()), Ok((read, &b"rest"[..])));
            (0..bytes.len()).for_each(|n| assert_refused(&bytes[..n]));
            (0..=255).for_each(|b| assert_refused(&[&bytes[..], &[b]].concat()));
        }
    }
}

#[test]
fn cids_are_equal_only_if_all_their_bytes_are() {
    let bytes = cid(1, 0x55, 0x12, 32, 32);
    let all: Vec<_> = (0..bytes.len())
        .filter_map(|at| {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            Cid::from_bytes(&changed).ok()
        })
        .collect();
    assert!(all.len() >= 32, "each byte of the digest may be another");
    let first = Cid::from_bytes(&bytes).expect("a CID");
    assert!(all.iter().all(|other| *other != first));
}

#[test]
fn identity_cids_hold_at_most_128_bytes_and_are_never_roots() {
    for codec in CODECS {
        for len in 0..=128 {
            let bytes = cid(1, codec, 0, len, len as usize);
            let read = Cid::from_bytes(&bytes).expect("an identity CID");
            assert_eq!((read.codec(), read.hash_function()), (codec, Function::Identity));
            assert_eq!((read.identity(), read.root(), read.kind_name()), (Some(read.digest()), None, "cas"));
            assert_eq!(Cid::from_text(&read.text()), Ok(read));
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(Cid::from_text(&format!("f{hex}")), Ok(read));
            // Some of these texts are as long as a CIDv0.
            for base in [multibase::Base::Base36Lower, multibase::Base::Base58Btc, multibase::Base::Base64] {
                assert_eq!(Cid::from_text(&multibase::encode(base, &bytes)), Ok(read));
            }
            assert_eq!((read.multihash(), read.digest().len()), (&bytes[1 + varint::len(codec)..], len as usize));
            assert_refused(&[&bytes[..], &[0]].concat());
            (0..bytes.len()).for_each(|n| assert_refused(&bytes[..n]));
        }
        for len in [129, 130, 255, 256, 1 << 40] {
            assert_refused(&cid(1, codec, 0, len, 129.min(len as usize)));
        }
    }
    for codec in [0x30_0000, 0x30_3110, 0x30_3211, 0x30_ffff] {
        assert_refused(&cid(1, codec, 0, 32, 32));
    }
    assert_refused(&[&[1, 0x55, 0x80, 0x00, 3][..], &[7; 3]].concat());
    assert_eq!(Cid::from_text("bafkqaaa").map(|cid| cid.identity().map(<[u8]>::len)), Ok(Some(0)));
}

#[test]
fn digest_of_another_length_than_its_functions_is_refused() {
    for (function, len, _) in FUNCTIONS {
        for wrong in (0..=65).filter(|wrong| *wrong != len) {
            assert_refused(&cid(1, 0x55, function, wrong, wrong as usize));
            assert_refused(&cid(1, 0x55, function, wrong, len as usize));
            assert_refused(&cid(1, 0x55, function, len, wrong as usize));
        }
    }
}

#[test]
fn the_reason_of_a_refusal_is_that_of_the_first_wrong_part() {
    // The short way for CIDs of one-byte codecs must not take the first byte of a longer one.
    assert_refused(&[&[1, 0x80, 0x12, 32][..], &[7; 32]].concat());
    let reasons = [
        (cid(1, 0x55, 0, 129, 129), "its identity digest is longer than 128 bytes"),
        (cid(1, 0x55, 0x13, 65, 65), "its digest does not have the full length of its hash function"),
        (cid(1, 0x55, 0x1e, 31, 31), "its digest does not have the full length of its hash function"),
    ];
    for (bytes, why) in reasons {
        assert!(Cid::from_bytes(&bytes).is_err_and(|error| error.to_string().contains(why)), "{why}");
    }
    assert_eq!([Kind::Map, Kind::List].map(Kind::name), ["map", "list"]);
    // 34 bytes, of which the first two are 12 1e and 12 22.
    for text in ["Qm".to_owned() + &"1".repeat(44), "Qm".to_owned() + &"z".repeat(44)] {
        assert!(Cid::from_text(&text).is_err_and(|error| error.to_string().contains("it is not a CIDv0")));
    }
}

#[test]
fn hashes_of_other_cids_are_others() {
    use std::hash::{BuildHasher, RandomState};
    let state = RandomState::new();
    let hashes: std::collections::HashSet<u64> = CODECS
        .iter()
        .map(|codec| state.hash_one(Cid::from_bytes(&cid(1, *codec, 0x12, 32, 32)).expect("a CID")))
        .collect();
    assert_eq!(hashes.len(), CODECS.len());
}

#[test]
fn unknown_versions_and_functions_and_non_minimal_varints_are_refused() {
    for version in (0..200).filter(|version| *version != 1) {
        assert_refused(&cid(version, 0x55, 0x12, 32, 32));
    }
    for function in (0..0x200).filter(|function| *function != 0 && FUNCTIONS.iter().all(|known| known.0 != *function)) {
        assert_refused(&cid(1, 0x55, function, 32, 32));
    }
    // sha1, and a digest truncated to 20 bytes.
    assert_refused(&cid(1, 0x55, 0x11, 20, 20));
    assert_refused(&cid(1, 0x55, 0x12, 20, 20));
    let digest = [7; 32];
    for head in [
        &[1, 0x81, 0x12, 32][..],      // a two-byte codec, then an unknown function
        &[1, 0xd5, 0x00, 0x12, 32],    // a codec in non-minimal form
        &[1, 0x55, 0x92, 0x00, 32],    // a function in non-minimal form
        &[1, 0x55, 0x12, 0xa0, 0x00],  // a length in non-minimal form
        &[0x81, 0x00, 0x55, 0x12, 32], // a version in non-minimal form
    ] {
        assert_refused(&[head, &digest].concat());
    }
    // A codec of ten bytes.
    assert_refused(&[&[1][..], &[0xff; 9], &[1, 0x12, 32], &digest].concat());
}

#[test]
fn root_with_an_unknown_version_kind_or_suite_or_another_function_is_refused() {
    let mut roots = 0;
    for codec in 0x30_0000..=0x30_ffff {
        for function in [0x12, 0x1e] {
            let (kind, suite) = match (codec, function) {
                (0x30_3110, 0x12) => (Kind::Map, Suite::Sha2_256),
                (0x30_3111, 0x1e) => (Kind::Map, Suite::Blake3),
                (0x30_3210, 0x12) => (Kind::List, Suite::Sha2_256),
                (0x30_3211, 0x1e) => (Kind::List, Suite::Blake3),
                _ => {
                    assert_refused(&cid(1, codec, function, 32, 32));
                    continue;
                }
            };
            let read = Cid::from_bytes(&cid(1, codec, function, 32, 32)).expect("a root");
            let root = read.root().expect("a root");
            assert_eq!((root.kind, root.suite, root.cid(), read.kind_name()), (kind, suite, read, kind.name()));
            let other = if kind == Kind::Map { Kind::List } else { Kind::Map };
            assert_eq!(RootCid::of(&read, kind), Ok(root));
            let mismatch = RootCid::of(&read, other);
            assert!(matches!(mismatch, Err(Error::Input { code: InputCode::KindMismatch, .. })), "{mismatch:?}");
            roots += 1;
        }
        for (function, len, _) in FUNCTIONS.iter().filter(|known| ![0x12, 0x1e].contains(&known.0)) {
            assert_refused(&cid(1, codec, *function, *len, *len as usize));
        }
    }
    assert_eq!(roots, 4);
    for codec in [0x2f_ffff, 0x31_0000] {
        assert_eq!(Cid::from_bytes(&cid(1, codec, 0x12, 32, 32)).expect("a payload").root(), None);
    }
    let payload = Cid::from_bytes(&cid(1, 0x55, 0x12, 32, 32)).expect("a payload");
    assert!(RootCid::of(&payload, Kind::Map).is_err());
}

#[test]
fn altered_texts_of_cids_are_refused() {
    let read = Cid::from_bytes(&cid(1, 0x55, 0x12, 32, 32)).expect("a CID");
    let text = read.text();
    (0..text.len()).for_each(|n| assert!(Cid::from_text(&text[..n]).is_err(), "{n} characters"));
    for other in ["=", "a", "A", " ", "\0", "0", "b", "\u{e9}"] {
        assert!(Cid::from_text(&format!("{text}{other}")).is_err(), "{other:?} appended");
        assert!(Cid::from_text(&format!("{other}{text}")).is_err(), "{other:?} prepended");
    }
    assert!(Cid::from_text(&"b".repeat(1 << 20)).is_err());
    // 36 bytes take 58 characters, which leaves two padding bits; they must be zero.
    let alphabet = "abcdefghijklmnopqrstuvwxyz234567";
    let last = alphabet.find(&text[text.len() - 1..]).expect("a letter of base32");
    assert_eq!(last % 4, 0);
    for stray in [last + 1, last + 2, last + 3] {
        let text = format!("{}{}", &text[..text.len() - 1], &alphabet[stray..=stray]);
        assert!(Cid::from_text(&text).is_err(), "{text}");
    }
    let v0 = "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG";
    let v1 = Cid::from_text(v0).expect("a CIDv0");
    assert_eq!((v1.codec(), v1.hash_function(), v1.text().as_bytes()[0]), (0x70, Function::Sha2_256, b'b'));
    assert!(Cid::from_text(&v0[..45]).is_err());
    assert!(Cid::from_text(&format!("{v0}1")).is_err());
    assert!(Cid::from_text(&format!("z{v0}")).is_err());
}
