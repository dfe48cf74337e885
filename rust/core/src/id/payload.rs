//! Payload CIDs: computing them, and checking bytes against them, at once or in chunks.
//!
//! New CIDs use sha2-256, blake3 or identity; a check supports every hash function of protocol section 1.

use sha2::Digest as _;

use crate::error::{Error, InputCode, Result};
use crate::id::cid::{Cid, MAX_IDENTITY_BYTES};
use crate::id::codec::Codec;
use crate::id::suite::{Digest, Suite};

/// A hash function for new payload CIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// The hash function of a suite.
    Hash(Suite),
    /// The CID holds the payload itself, at most [`MAX_IDENTITY_BYTES`].
    Identity,
}

impl Function {
    /// Looks a hash function up by its name.
    ///
    /// # Errors
    /// [`InputCode::InvalidRequest`] for any name but `sha2-256`, `blake3` and `identity`.
    pub fn from_name(name: &str) -> Result<Self> {
        if name == "identity" {
            return Ok(Self::Identity);
        }
        Suite::from_name(name).map(Self::Hash).map_err(|_| {
            let shown: String = name.chars().take(80).collect();
            let what = format!("hash {shown:?} is not supported for payloads; use sha2-256, blake3 or identity");
            Error::input(InputCode::InvalidRequest, what)
        })
    }
}

/// Computes the CID of a payload. O(bytes) hashing.
///
/// # Errors
/// [`InputCode::TooLarge`] for an identity CID of more than [`MAX_IDENTITY_BYTES`] bytes.
pub fn cid(bytes: &[u8], codec: Codec, function: Function) -> Result<Cid> {
    match function {
        Function::Hash(suite) => Ok(Cid::of_payload(codec.number(), suite, &suite.digest(bytes))),
        Function::Identity => Cid::of_identity(codec.number(), bytes).ok_or_else(|| too_long(bytes.len() as u64)),
    }
}

fn too_long(bytes: u64) -> Error {
    let what = format!("an identity CID holds at most {MAX_IDENTITY_BYTES} bytes; the payload has {bytes}");
    Error::input(InputCode::TooLarge, what)
}

/// Incremental computation of a payload's CID.
#[derive(Debug, Clone)]
pub struct Hasher {
    codec: Codec,
    state: HashState,
}

#[derive(Debug, Clone)]
enum HashState {
    Sha2_256(sha2::Sha256),
    // 2 KiB, so boxed.
    Blake3(Box<blake3::Hasher>),
    /// The payload as far as an identity CID can hold it, and its length so far.
    Identity(Vec<u8>, u64),
}

impl Hasher {
    /// Creates a hasher of the empty payload.
    pub fn new(codec: Codec, function: Function) -> Self {
        let state = match function {
            Function::Hash(Suite::Sha2_256) => HashState::Sha2_256(sha2::Sha256::new()),
            Function::Hash(Suite::Blake3) => HashState::Blake3(Box::default()),
            Function::Identity => HashState::Identity(Vec::new(), 0),
        };
        Self { codec, state }
    }

    /// Appends the next chunk. O(bytes).
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            HashState::Sha2_256(state) => state.update(bytes),
            HashState::Blake3(state) => {
                state.update(bytes);
            }
            HashState::Identity(held, len) => {
                let room = MAX_IDENTITY_BYTES - held.len();
                held.extend_from_slice(&bytes[..room.min(bytes.len())]);
                *len += bytes.len() as u64;
            }
        }
    }

    /// The CID of the bytes so far; more may follow. O(1).
    ///
    /// # Errors
    /// [`InputCode::TooLarge`] for an identity CID of more than [`MAX_IDENTITY_BYTES`] bytes.
    pub fn cid(&self) -> Result<Cid> {
        let (function, digest) = match &self.state {
            HashState::Sha2_256(state) => (Suite::Sha2_256, Digest(state.clone().finalize().into())),
            HashState::Blake3(state) => (Suite::Blake3, Digest(*state.finalize().as_bytes())),
            HashState::Identity(_, len) if *len > MAX_IDENTITY_BYTES as u64 => return Err(too_long(*len)),
            HashState::Identity(held, _) => return cid(held, self.codec, Function::Identity),
        };
        Ok(Cid::of_payload(self.codec.number(), function, &digest))
    }
}

/// Incremental check of a payload against its CID, whatever the hash function.
pub struct Check {
    cid: Cid,
    state: Checking,
}

// One value exists per payload of up to megabytes, so its own size does not matter.
#[allow(clippy::large_enum_variant)]
enum Checking {
    /// How many bytes came, all of them as in the CID; None: another byte came, or too many.
    Identity(Option<usize>),
    Sha2_256(sha2::Sha256),
    Sha2_512(sha2::Sha512),
    Sha3_256(sha3::Sha3_256),
    Blake2b(blake2::Blake2b256),
    Blake3(Box<blake3::Hasher>),
}

impl Check {
    /// Creates a check of the empty payload.
    pub fn new(cid: &Cid) -> Self {
        let state = match cid.function_name() {
            "sha2-256" => Checking::Sha2_256(Default::default()),
            "sha2-512" => Checking::Sha2_512(Default::default()),
            "sha3-256" => Checking::Sha3_256(Default::default()),
            "blake2b-256" => Checking::Blake2b(Default::default()),
            "identity" => Checking::Identity(Some(0)),
            _ => Checking::Blake3(Box::default()),
        };
        Self { cid: *cid, state }
    }

    /// Appends the next chunk. O(bytes).
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            Checking::Identity(len) => {
                let rest = len.and_then(|len| self.cid.digest().get(len..));
                let agrees = rest.is_some_and(|rest| rest.starts_with(bytes));
                *len = len.filter(|_| agrees).map(|len| len + bytes.len());
            }
            Checking::Sha2_256(state) => state.update(bytes),
            Checking::Sha2_512(state) => state.update(bytes),
            Checking::Sha3_256(state) => state.update(bytes),
            Checking::Blake2b(state) => state.update(bytes),
            Checking::Blake3(state) => {
                state.update(bytes);
            }
        }
    }

    /// The CID that the payload is checked against.
    pub fn cid(&self) -> &Cid {
        &self.cid
    }

    /// Whether the bytes so far are the whole payload.
    pub fn is_match(self) -> bool {
        let digest = self.cid.digest();
        match self.state {
            Checking::Identity(len) => len == Some(digest.len()),
            Checking::Sha2_256(state) => state.finalize()[..] == *digest,
            Checking::Sha2_512(state) => state.finalize()[..] == *digest,
            Checking::Sha3_256(state) => state.finalize()[..] == *digest,
            Checking::Blake2b(state) => state.finalize()[..] == *digest,
            Checking::Blake3(state) => state.finalize().as_bytes()[..] == *digest,
        }
    }
}

/// Whether `bytes` match `cid`. For a root CID, `bytes` are the encoding of its top node. O(bytes).
pub fn matches(cid: &Cid, bytes: &[u8]) -> bool {
    let mut check = Check::new(cid);
    check.update(bytes);
    check.is_match()
}

#[cfg(test)]
mod tests {
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
        }
    }

    #[test]
    fn chunks_give_the_cid_of_the_whole() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7 % 251) as u8).collect();
        for function in Suite::ALL.map(Function::Hash) {
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
        let blake3 = Function::Hash(Suite::Blake3);
        assert_eq!(Hasher::new(Codec::RAW, blake3).cid(), cid(b"", Codec::RAW, blake3));
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
    fn unsupported_hash_functions_are_rejected_and_named() {
        assert_eq!(Function::from_name("blake3"), Ok(Function::Hash(Suite::Blake3)));
        assert_eq!(Function::from_name("identity"), Ok(Function::Identity));
        let refused = Function::from_name("sha2-512").expect_err("not for new payloads");
        assert!(refused.to_string().contains("sha2-512"));
    }
}
