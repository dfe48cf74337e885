//! The hash functions that a CID may name (protocol section 1).

use crate::error::{Error, InputCode, Result};

/// The length of the longest payload that an identity CID can hold, in bytes.
pub const MAX_IDENTITY_BYTES: usize = 128;

/// A hash function of payload CIDs (protocol section 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// The CID holds the payload itself, at most [`MAX_IDENTITY_BYTES`].
    Identity,
    /// SHA2-256.
    Sha2_256,
    /// SHA2-512.
    Sha2_512,
    /// SHA3-256.
    Sha3_256,
    /// BLAKE2b with 256 bits.
    Blake2b256,
    /// BLAKE3 with 256 bits.
    Blake3,
}

impl Function {
    /// All functions.
    pub const ALL: [Self; 6] =
        [Self::Identity, Self::Sha2_256, Self::Sha2_512, Self::Sha3_256, Self::Blake2b256, Self::Blake3];

    /// The function's name in requests and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Sha2_256 => "sha2-256",
            Self::Sha2_512 => "sha2-512",
            Self::Sha3_256 => "sha3-256",
            Self::Blake2b256 => "blake2b-256",
            Self::Blake3 => "blake3",
        }
    }

    /// The function's multihash code.
    pub fn multihash(self) -> u64 {
        match self {
            Self::Identity => 0x00,
            Self::Sha2_256 => 0x12,
            Self::Sha2_512 => 0x13,
            Self::Sha3_256 => 0x16,
            Self::Blake2b256 => 0xb220,
            Self::Blake3 => 0x1e,
        }
    }

    /// The length of the function's digests in bytes; of `identity`, the maximum.
    pub fn digest_bytes(self) -> usize {
        match self {
            Self::Identity => MAX_IDENTITY_BYTES,
            Self::Sha2_512 => 64,
            _ => 32,
        }
    }

    /// The function with this multihash code, or `None` if the code is unknown.
    pub fn from_multihash(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|function| function.multihash() == code)
    }

    /// Looks a hash function up by its name.
    ///
    /// # Errors
    /// [`InputCode::InvalidRequest`] for an unknown name.
    pub fn from_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|function| function.name() == name).ok_or_else(|| {
            let shown: String = name.chars().take(80).collect();
            let known = Self::ALL.map(Self::name).join(", ");
            Error::input(InputCode::InvalidRequest, format!("hash {shown:?} is not one of {known}"))
        })
    }
}
