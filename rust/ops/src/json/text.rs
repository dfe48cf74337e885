//! Strings of messages: borrowed where possible, and canonical base64.

use std::borrow::Cow;
use std::fmt;

use data_encoding::{BASE64, DecodeError, DecodeKind};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// Characters of a caller's text that an error message repeats.
const SHOWN_CHARS: usize = 80;

/// The beginning of a caller's text, for error messages.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

/// Reads a string, borrowed if it contains no escapes.
pub(crate) struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(text.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(text.to_owned().into())
    }
}

/// A string of a message, borrowed if it contains no escapes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MessageText<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for MessageText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Text.deserialize(deserializer).map(Self)
    }
}

impl Serialize for MessageText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Decodes canonical base64: padded, without whitespace, and without unused bits that are set.
///
/// # Errors
/// What is wrong, and at which character.
pub(crate) fn decode_base64(text: &str) -> Result<Vec<u8>, DecodeError> {
    base64_simd::STANDARD.decode_to_vec(text).map_err(|_| base64_error(text.as_bytes()))
}

/// Why text is not canonical base64; the decoder with SIMD says only that it is not.
#[cold]
fn base64_error(text: &[u8]) -> DecodeError {
    // `data_encoding` accepts the concatenation of several padded texts, so what else is wrong is padding inside.
    let position = memchr::memchr(b'=', text).unwrap_or(text.len());
    BASE64.decode(text).err().unwrap_or(DecodeError { position, kind: DecodeKind::Padding })
}
