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
#[derive(Debug, Clone)]
pub struct Check {
    cid: Cid,
    state: Checking,
}

#[derive(Debug, Clone)]
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
#[path = "../../tests/unit/id_payload.rs"]
mod tests;
