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
mod tests {
    use super::*;

    #[test]
    fn table_is_complete_sorted_and_without_root_codecs() {
        assert_eq!(TABLE.len(), include_str!("codecs.txt").lines().count());
        assert!(TABLE.is_sorted_by(|a, b| a.0 < b.0));
        for (name, code) in TABLE.iter() {
            assert_eq!(Codec::parse(name).map(Codec::number), Ok(*code), "{name}");
            assert!(!name.starts_with(|c: char| c.is_ascii_digit()), "{name} could be a number");
        }
    }

    #[test]
    fn name_and_decimal_and_hexadecimal_forms_parse_to_the_same_codec() {
        let forms =
            [("raw", "85", "0x55"), ("dag-pb", "112", "0x70"), ("dag-cbor", "113", "0x71"), ("json", "512", "0x0200")];
        for (name, decimal, hexadecimal) in forms {
            assert_eq!(Codec::parse(name), Codec::parse(decimal));
            assert_eq!(Codec::parse(name), Codec::parse(hexadecimal));
        }
        assert_eq!(Codec::parse("0").map(Codec::number), Ok(0));
        assert_eq!(Codec::parse("9223372036854775807").map(Codec::number), Ok(LIMIT - 1));
        assert_eq!(Codec::parse("3145727").map(Codec::number), Ok(0x2f_ffff));
    }

    #[test]
    fn unknown_names_malformed_numbers_and_root_codecs_are_refused() {
        for text in
            ["", " raw", "RAW", "no-such", "0x", "0X55", "0xg", "+85", "-1", "0x+5", "085", "1e3", "85 ", "\u{665}"]
        {
            assert!(Codec::parse(text).is_err(), "{text:?}");
        }
        for text in
            ["9223372036854775808", "0xffffffffffffffff", "0x1ffffffffffffffff", "3145728", "0x303110", "0x30ffff"]
        {
            assert!(Codec::parse(text).is_err(), "{text:?}");
        }
        assert!(Codec::parse("0x310000").is_ok());
    }
}
