//! Strings of messages: borrowed where possible, and canonical base64.

use std::borrow::Cow;
use std::fmt;

use data_encoding::{BASE64, DecodeError, DecodeKind};
use serde::de::{DeserializeSeed, Deserializer, Visitor};

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

/// Decodes canonical base64.
///
/// The library alone would accept the concatenation of several padded texts, so padding before the end is refused here.
pub(crate) fn decode_base64(text: &str) -> Result<Vec<u8>, DecodeError> {
    let text = text.as_bytes();
    match memchr::memchr(b'=', &text[..text.len().saturating_sub(2)]) {
        Some(position) => Err(DecodeError { position, kind: DecodeKind::Padding }),
        None => BASE64.decode(text),
    }
}
