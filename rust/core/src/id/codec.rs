//! Multicodecs of payload CIDs (protocol section 1).
//!
//! A [`Codec`] is always the codec of a payload, never of a root. `codecs.txt` holds the names and codes of the official
//! multicodec table, sorted by name. Any number below 2^63 is allowed, whether or not the table names it.

use std::fmt;
use std::sync::LazyLock;

use crate::error::{Error, InputCode, Result};
use crate::id::cid::ROOT_CODECS;

/// Codecs are below this number: they are encoded as varints, which hold 63 bits.
const LIMIT: u64 = 1 << 63;

/// Names and codes, sorted by the bytes of the names.
static TABLE: LazyLock<Vec<(&'static str, u64)>> = LazyLock::new(|| {
    let line = |line: &'static str| {
        let (name, code) = line.split_once(' ')?;
        Some((name, u64::from_str_radix(code.strip_prefix("0x")?, 16).ok()?))
    };
    include_str!("codecs.txt").lines().filter_map(line).collect()
});

/// The codec of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Codec(u64);

impl Codec {
    /// Bytes without a declared structure; the default.
    pub const RAW: Self = Self(0x55);

    /// Parses a name (`dag-cbor`), a decimal number (`85`) or a hexadecimal number (`0x55`) in O(log n) comparisons.
    ///
    /// # Errors
    /// [`InputCode::InvalidCodec`] for an unknown name, a number in another form or above 2^63 - 1, and the codecs of
    /// roots.
    pub fn parse(text: &str) -> Result<Self> {
        if let Ok(at) = TABLE.binary_search_by(|entry| entry.0.cmp(text)) {
            return Self::from_number(TABLE[at].1);
        }
        let number = match text.strip_prefix("0x") {
            Some(digits) if is_digits(digits, 16) => u64::from_str_radix(digits, 16),
            // A leading zero is refused because the caller may mean an octal number.
            None if is_digits(text, 10) && (text == "0" || !text.starts_with('0')) => text.parse(),
            _ => return Err(refuse(text, "neither a name of the multicodec table nor a number such as 85 or 0x55")),
        };
        number.map_err(|_| refuse(text, TOO_BIG)).and_then(Self::from_number)
    }

    /// Returns the codec with this number.
    ///
    /// # Errors
    /// [`InputCode::InvalidCodec`] for a number above 2^63 - 1 and for the codecs of roots.
    pub fn from_number(number: u64) -> Result<Self> {
        if number >= LIMIT {
            return Err(refuse(&number.to_string(), TOO_BIG));
        }
        if ROOT_CODECS.contains(&number) {
            return Err(refuse(&format!("{number:#x}"), "the codecs 0x300000 to 0x30ffff are for roots, not payloads"));
        }
        Ok(Self(number))
    }

    /// The codec's number in the multicodec table.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl Default for Codec {
    fn default() -> Self {
        Self::RAW
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

const TOO_BIG: &str = "a codec is at most 2^63 - 1";

/// Guards `from_str_radix`, which would also accept a sign.
fn is_digits(text: &str, radix: u32) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_digit(radix))
}

fn refuse(text: &str, why: &str) -> Error {
    let shown: String = text.chars().take(80).collect();
    Error::input(InputCode::InvalidCodec, format!("codec {shown:?}: {why}"))
}

#[cfg(test)]
#[path = "../../tests/unit/id_codec.rs"]
mod tests;
