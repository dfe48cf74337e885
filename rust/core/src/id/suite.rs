//! Hash functions of trees and their digests (protocol section 1).

use std::fmt;

use sha2::Digest as _;

use crate::error::{Error, InputCode, Result};
use crate::id::function::Function;

/// A 32-byte digest of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub(crate) const ZERO: Self = Self([0; 32]);

    /// Reads 64 characters of `0-9a-f`; None of any other text.
    pub fn from_hex(text: &str) -> Option<Self> {
        let value = |digit| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let pairs: &[[u8; 2]; 32] = pairs.try_into().ok().filter(|_| rest.is_empty())?;
        let mut digest = [0; 32];
        for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
            *byte = value(*high)? << 4 | value(*low)?;
        }
        Some(Self(digest))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// The hash function of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Suite {
    /// SHA2-256, the default.
    #[default]
    Sha2_256,
    /// BLAKE3 with 256 bits.
    Blake3,
}

impl Suite {
    /// All suites, ordered by id.
    pub const ALL: [Self; 2] = [Self::Sha2_256, Self::Blake3];

    /// The suite's id, the last byte of a root's codec.
    pub fn id(self) -> u64 {
        match self {
            Self::Sha2_256 => 0x10,
            Self::Blake3 => 0x11,
        }
    }

    /// The suite with this id, or `None` if the id is unknown.
    pub fn from_id(id: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.id() == id)
    }

    /// The suite's hash function.
    pub fn function(self) -> Function {
        match self {
            Self::Sha2_256 => Function::Sha2_256,
            Self::Blake3 => Function::Blake3,
        }
    }

    /// The suite's name in requests and results.
    pub fn name(self) -> &'static str {
        self.function().name()
    }

    /// Returns the suite with this name.
    ///
    /// # Errors
    /// [`InputCode::InvalidRequest`] if no suite has this name.
    pub fn from_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name).ok_or_else(|| {
            Error::input(InputCode::InvalidRequest, format!("suite {name:?} is unknown; use sha2-256 or blake3"))
        })
    }

    /// Hashes `bytes`.
    #[inline]
    pub fn digest(self, bytes: &[u8]) -> Digest {
        match self {
            Self::Sha2_256 => Digest(sha2::Sha256::digest(bytes).into()),
            Self::Blake3 => Digest(*blake3::hash(bytes).as_bytes()),
        }
    }
}
