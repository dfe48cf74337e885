//! Payloads: the CIDs of bytes, made at once or piece by piece, and the check of bytes against a CID.
//!
//! New CIDs use one of the two functions of the suites; a check takes any of the five of protocol section 1. Nothing
//! here stores or streams.

use sha2::Digest as _;

use crate::error::{Error, InputCode, Result};
use crate::id::cid::Cid;
use crate::id::codec::Codec;
use crate::id::suite::{Digest, Suite};

/// The hash function of a payload's CID, by its name.
///
/// # Errors
/// [`InputCode::InvalidRequest`] for any name but `sha2-256` and `blake3`.
pub fn function(name: &str) -> Result<Suite> {
    Suite::from_name(name).map_err(|_| {
        let shown: String = name.chars().take(80).collect();
        let what = format!("hash {shown:?} is not one that payloads are stored under; use sha2-256 or blake3");
        Error::input(InputCode::InvalidRequest, what)
    })
}

/// The CID of `bytes`. O(bytes) hashing.
pub fn cid(bytes: &[u8], codec: Codec, function: Suite) -> Cid {
    Cid::of_payload(codec.number(), function, &function.digest(bytes))
}

/// Makes the CID of bytes that come in pieces.
#[derive(Debug, Clone)]
pub struct Hasher {
    codec: Codec,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    Sha2_256(sha2::Sha256),
    // 2 KiB, so not in line.
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    /// A hasher that has seen no bytes.
    pub fn new(codec: Codec, function: Suite) -> Self {
        let state = match function {
            Suite::Sha2_256 => State::Sha2_256(sha2::Sha256::new()),
            Suite::Blake3 => State::Blake3(Box::default()),
        };
        Self { codec, state }
    }

    /// Adds the next bytes. O(bytes).
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Sha2_256(state) => state.update(bytes),
            State::Blake3(state) => {
                state.update(bytes);
            }
        }
    }

    /// The CID of the bytes so far; more may follow. O(1).
    pub fn cid(&self) -> Cid {
        let (function, digest) = match &self.state {
            State::Sha2_256(state) => (Suite::Sha2_256, Digest(state.clone().finalize().into())),
            State::Blake3(state) => (Suite::Blake3, Digest(*state.finalize().as_bytes())),
        };
        Cid::of_payload(self.codec.number(), function, &digest)
    }
}

/// The check of bytes that come in pieces against a CID, by any of the five functions.
pub struct Check {
    cid: Cid,
    state: Checking,
}

// What is hashed is megabytes; the size of the states does not matter.
#[allow(clippy::large_enum_variant)]
enum Checking {
    Sha2_256(sha2::Sha256),
    Sha2_512(sha2::Sha512),
    Sha3_256(sha3::Sha3_256),
    Blake2b(blake2::Blake2b256),
    Blake3(Box<blake3::Hasher>),
}

impl Check {
    /// A check that has seen no bytes.
    pub fn new(cid: &Cid) -> Self {
        let state = match cid.function_name() {
            "sha2-256" => Checking::Sha2_256(Default::default()),
            "sha2-512" => Checking::Sha2_512(Default::default()),
            "sha3-256" => Checking::Sha3_256(Default::default()),
            "blake2b-256" => Checking::Blake2b(Default::default()),
            _ => Checking::Blake3(Box::default()),
        };
        Self { cid: *cid, state }
    }

    /// Adds the next bytes. O(bytes).
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            Checking::Sha2_256(state) => state.update(bytes),
            Checking::Sha2_512(state) => state.update(bytes),
            Checking::Sha3_256(state) => state.update(bytes),
            Checking::Blake2b(state) => state.update(bytes),
            Checking::Blake3(state) => {
                state.update(bytes);
            }
        }
    }

    /// Ends the bytes; the error is the CID, if it names others.
    pub fn end(self) -> Result<(), Cid> {
        let digest = self.cid.digest();
        let same = match self.state {
            Checking::Sha2_256(state) => state.finalize()[..] == *digest,
            Checking::Sha2_512(state) => state.finalize()[..] == *digest,
            Checking::Sha3_256(state) => state.finalize()[..] == *digest,
            Checking::Blake2b(state) => state.finalize()[..] == *digest,
            Checking::Blake3(state) => state.finalize().as_bytes()[..] == *digest,
        };
        if same { Ok(()) } else { Err(self.cid) }
    }
}

/// Whether `bytes` have the digest that `cid` names. Of a root, `bytes` are the encoding of its top node. O(bytes).
pub fn matches(cid: &Cid, bytes: &[u8]) -> bool {
    let mut check = Check::new(cid);
    check.update(bytes);
    check.end().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digests of "abc" from the functions' own standards.
    const ABC: [(&str, &str); 5] = [
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
    fn bytes_match_by_all_five_functions_and_others_do_not() {
        for (multihash, digest) in ABC {
            let cid = named(multihash, digest);
            assert!(matches(&cid, b"abc"), "{multihash}");
            assert!(!matches(&cid, b"abd"), "{multihash}");
            assert!(!matches(&cid, b""), "{multihash}");
        }
    }

    #[test]
    fn pieces_give_the_cid_of_the_whole() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7 % 251) as u8).collect();
        for function in Suite::ALL {
            for size in [1, 63, 64, 65, 1024, 4999] {
                let mut hasher = Hasher::new(Codec::RAW, function);
                for piece in bytes.chunks(size) {
                    let _ = hasher.cid();
                    hasher.update(piece);
                }
                let whole = cid(&bytes, Codec::RAW, function);
                assert_eq!(hasher.cid(), whole);
                assert!(matches(&whole, &bytes));
            }
        }
        assert_eq!(Hasher::new(Codec::RAW, Suite::Blake3).cid(), cid(b"", Codec::RAW, Suite::Blake3));
    }

    #[test]
    fn other_functions_are_refused_by_name() {
        assert_eq!(function("blake3"), Ok(Suite::Blake3));
        let refused = function("sha2-512").expect_err("no function of new payloads");
        assert!(refused.to_string().contains("sha2-512"));
    }
}
