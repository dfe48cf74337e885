//! Payload CIDs: computing them, and checking bytes against them, at once or in chunks.

use sha2::Digest as _;

pub use crate::id::function::Function;

use crate::error::{Error, InputCode, Result};
use crate::id::cid::Cid;
use crate::id::codec::Codec;
use crate::id::function::MAX_IDENTITY_BYTES;

/// Computes the CID of a payload. O(bytes) hashing.
///
/// # Errors
/// [`InputCode::TooLarge`] for an identity CID of more than [`MAX_IDENTITY_BYTES`] bytes.
pub fn cid(bytes: &[u8], codec: Codec, function: Function) -> Result<Cid> {
    if function == Function::Identity {
        return identity_cid(bytes, codec, bytes.len() as u64);
    }
    let mut hasher = Hasher::new(codec, function);
    hasher.update(bytes);
    hasher.cid()
}

/// The identity CID of a payload with this length, of which `bytes` are the beginning.
fn identity_cid(bytes: &[u8], codec: Codec, len: u64) -> Result<Cid> {
    if len > MAX_IDENTITY_BYTES as u64 {
        let what = format!("an identity CID holds at most {MAX_IDENTITY_BYTES} bytes; the payload has {len}");
        return Err(Error::input(InputCode::TooLarge, what));
    }
    Ok(Cid::of_payload(codec.number(), Function::Identity, bytes))
}

/// A hash of bytes that arrive in chunks.
#[derive(Debug, Clone)]
enum Running {
    Sha2_256(sha2::Sha256),
    // Boxed, since they are several times as long.
    Sha2_512(Box<sha2::Sha512>),
    Sha3_256(Box<sha3::Sha3_256>),
    Blake2b256(Box<blake2::Blake2b256>),
    Blake3(Box<blake3::Hasher>),
}

impl Running {
    /// A hash of no bytes yet; `None` for `identity`.
    fn new(function: Function) -> Option<Self> {
        Some(match function {
            Function::Identity => return None,
            Function::Sha2_256 => Self::Sha2_256(Default::default()),
            Function::Sha2_512 => Self::Sha2_512(Default::default()),
            Function::Sha3_256 => Self::Sha3_256(Default::default()),
            Function::Blake2b256 => Self::Blake2b256(Default::default()),
            Function::Blake3 => Self::Blake3(Default::default()),
        })
    }

    fn function(&self) -> Function {
        match self {
            Self::Sha2_256(_) => Function::Sha2_256,
            Self::Sha2_512(_) => Function::Sha2_512,
            Self::Sha3_256(_) => Function::Sha3_256,
            Self::Blake2b256(_) => Function::Blake2b256,
            Self::Blake3(_) => Function::Blake3,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha2_256(state) => state.update(bytes),
            Self::Sha2_512(state) => state.update(bytes),
            Self::Sha3_256(state) => state.update(bytes),
            Self::Blake2b256(state) => state.update(bytes),
            Self::Blake3(state) => {
                state.update(bytes);
            }
        }
    }

    /// Passes the digest of all bytes to `use_digest`.
    fn finish<T>(self, use_digest: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Sha2_256(state) => use_digest(&state.finalize()),
            Self::Sha2_512(state) => use_digest(&state.finalize()),
            Self::Sha3_256(state) => use_digest(&state.finalize()),
            Self::Blake2b256(state) => use_digest(&state.finalize()),
            Self::Blake3(state) => use_digest(state.finalize().as_bytes()),
        }
    }
}

/// Incremental computation of a payload's CID.
#[derive(Debug, Clone)]
pub struct Hasher {
    codec: Codec,
    state: HashState,
}

#[derive(Debug, Clone)]
enum HashState {
    /// The payload as far as an identity CID can hold it, and its length so far.
    Identity(Vec<u8>, u64),
    Running(Running),
}

impl Hasher {
    /// Creates a hasher of the empty payload.
    pub fn new(codec: Codec, function: Function) -> Self {
        let state = Running::new(function).map_or(HashState::Identity(Vec::new(), 0), HashState::Running);
        Self { codec, state }
    }

    /// Appends the next chunk. O(bytes).
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            HashState::Running(state) => state.update(bytes),
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
        match &self.state {
            HashState::Identity(held, len) => identity_cid(held, self.codec, *len),
            HashState::Running(state) => {
                let function = state.function();
                Ok(state.clone().finish(|digest| Cid::of_payload(self.codec.number(), function, digest)))
            }
        }
    }
}

/// Incremental check of a payload against its CID.
pub struct Check {
    cid: Cid,
    state: Checking,
}

enum Checking {
    /// How many bytes came, all of them as in the CID; None: another byte came, or too many.
    Identity(Option<usize>),
    Running(Running),
}

impl Check {
    /// Creates a check of the empty payload.
    pub fn new(cid: &Cid) -> Self {
        let state = Running::new(cid.hash_function()).map_or(Checking::Identity(Some(0)), Checking::Running);
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
            Checking::Running(state) => state.update(bytes),
        }
    }

    /// The CID that the payload is checked against.
    pub fn cid(&self) -> &Cid {
        &self.cid
    }

    /// Whether the bytes so far are the whole payload.
    pub fn is_match(self) -> bool {
        let expected = self.cid.digest();
        match self.state {
            Checking::Identity(len) => len == Some(expected.len()),
            Checking::Running(state) => state.finish(|digest| digest == expected),
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
}
