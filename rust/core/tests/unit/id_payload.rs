use super::*;

/// Digests of "abc" from the functions' own standards.
const ABC: [(&str, &str); 6] = [
    ("0003", "616263"),
    ("1220", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    (
        "1340",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
    ),
    ("1620", "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532"),
    ("a0e40220", "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"),
    ("1e20", "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
];

fn named(multihash: &str, digest: &str) -> Cid {
    Cid::from_bytes(&hex::decode(format!("0155{multihash}{digest}")).expect("hex")).expect("a CID")
}

#[test]
fn every_hash_function_accepts_its_payload_and_rejects_others() {
    for (multihash, digest) in ABC {
        let cid = named(multihash, digest);
        assert!(matches(&cid, b"abc"), "{multihash}");
        assert!(!matches(&cid, b"abd"), "{multihash}");
        assert!(!matches(&cid, b"ab"), "{multihash}");
        assert!(!matches(&cid, b"abca"), "{multihash}");
        assert!(!matches(&cid, b""), "{multihash}");
        let mut check = Check::new(&cid);
        [&b"a"[..], b"", b"bc"].iter().for_each(|chunk| check.update(chunk));
        assert!(check.is_match(), "{multihash}");
        assert_eq!(super::cid(b"abc", Codec::RAW, cid.hash_function()), Ok(cid), "{multihash}");
    }
}

#[test]
fn chunks_give_the_cid_of_the_whole() {
    let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7 % 251) as u8).collect();
    for function in Function::ALL.into_iter().filter(|&function| function != Function::Identity) {
        for size in [1, 63, 64, 65, 1024, 4999] {
            let mut hasher = Hasher::new(Codec::RAW, function);
            for piece in bytes.chunks(size) {
                hasher.cid().expect("a hash takes any length");
                hasher.update(piece);
            }
            let whole = cid(&bytes, Codec::RAW, function).expect("a hash takes any length");
            assert_eq!(hasher.cid(), Ok(whole));
            assert!(matches(&whole, &bytes));
        }
    }
    for function in Function::ALL {
        assert_eq!(Hasher::new(Codec::RAW, function).cid(), cid(b"", Codec::RAW, function));
    }
}

#[test]
fn identity_cids_hold_payloads_of_at_most_128_bytes() {
    let bytes: Vec<u8> = (0..130).collect();
    for len in 0..=bytes.len() {
        let bytes = &bytes[..len];
        let whole = cid(bytes, Codec::RAW, Function::Identity);
        for size in [1, 64, 127, 130] {
            let mut hasher = Hasher::new(Codec::RAW, Function::Identity);
            bytes.chunks(size).for_each(|chunk| hasher.update(chunk));
            assert_eq!(hasher.cid(), whole, "{len} bytes");
            assert!(matches!(&hasher.state, HashState::Identity(held, _) if held.len() <= MAX_IDENTITY_BYTES));
        }
        match whole {
            Ok(cid) => assert_eq!(cid.identity(), Some(bytes)),
            Err(Error::Input { code, .. }) => assert_eq!((code, len > 128), (InputCode::TooLarge, true)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(cid(b"", Codec::RAW, Function::Identity).map(|cid| cid.text()), Ok("bafkqaaa".to_owned()));
}

#[test]
fn hash_functions_have_names_and_others_are_rejected() {
    for function in Function::ALL {
        assert_eq!(Function::from_name(function.name()), Ok(function));
    }
    let refused = Function::from_name("sha1").expect_err("not a function of the protocol");
    assert!(refused.to_string().contains("sha1"));
}
