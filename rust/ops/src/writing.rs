//! How messages become JSON: one writer for all of them, and the proofs in them.
//!
//! A proof is most of a message. It is written as base64 straight from its bytes: no text of it is made, and none is
//! searched for characters to escape. What messages hold is said in `messages`.

use std::borrow::Cow;
use std::io;

use data_encoding::{BASE64, DecodeError, DecodeKind};
use serde::de::{Deserialize, DeserializeSeed, Deserializer};
use serde::ser::{Serialize, Serializer};
use serde_json::ser::Formatter;

use crate::json::Text;
use coregw_core::{Error, Result};

/// The answer to a look-up in a map of millions is not longer, so its text is not moved while it is written.
const USUAL_BYTES: usize = 2048;
/// Bytes that become base64 at once. Whole groups of three, so that only the last piece is padded.
const PIECE: usize = 3 * 256;

/// The proof of a step: base64 in messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Proof<'a> {
    /// As it was sent, whatever it is.
    Text(Cow<'a, str>),
    /// As it was made or replayed.
    Bytes(Vec<u8>),
}

impl Proof<'_> {
    /// The proof itself.
    ///
    /// # Errors
    /// [`Error::Proof`] for text that is not canonical base64.
    pub(crate) fn decode(&self) -> Result<Vec<u8>> {
        match self {
            Self::Text(text) => {
                decode(text).map_err(|error| Error::proof(format!("member \"proof\" is not canonical base64: {error}")))
            }
            Self::Bytes(bytes) => Ok(bytes.clone()),
        }
    }
}

/// Reads canonical base64. The library alone would take several texts, each with its padding, one behind the other.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, DecodeError> {
    let text = text.as_bytes();
    match memchr::memchr(b'=', &text[..text.len().saturating_sub(2)]) {
        Some(position) => Err(DecodeError { position, kind: DecodeKind::Padding }),
        None => BASE64.decode(text),
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Proof<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Text.deserialize(deserializer).map(Self::Text)
    }
}

impl Serialize for Proof<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Bytes(bytes) => serializer.serialize_bytes(bytes),
        }
    }
}

/// JSON without spaces, and bytes as base64.
struct Compact;

impl Formatter for Compact {
    fn write_byte_array<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: &[u8]) -> io::Result<()> {
        let mut text = [0; PIECE / 3 * 4];
        writer.write_all(b"\"")?;
        for piece in value.chunks(PIECE) {
            let text = &mut text[..BASE64.encode_len(piece.len())];
            BASE64.encode_mut(piece, text);
            writer.write_all(text)?;
        }
        writer.write_all(b"\"")
    }
}

/// Writes a message; those of this crate hold nothing that JSON cannot.
pub(crate) fn json(message: &impl Serialize) -> String {
    let mut text = Vec::with_capacity(USUAL_BYTES);
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, Compact);
    message.serialize(&mut serializer).expect("messages have string keys and finite numbers");
    String::from_utf8(text).expect("JSON is UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_the_base64_that_is_read() {
        for n in [0, 1, 2, 3, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 2] {
            let bytes: Vec<u8> = (0..n).map(|i| (i * 7 % 251) as u8).collect();
            let text = json(&Proof::Bytes(bytes.clone()));
            assert_eq!(text, format!("\"{}\"", BASE64.encode(&bytes)));
            let sent: Proof<'_> = serde_json::from_str(&text).expect("a string");
            assert_eq!(sent.decode().expect("base64"), bytes);
            assert_eq!(json(&sent), text);
        }
    }

    #[test]
    fn text_that_is_no_canonical_base64_is_refused() {
        for text in
            ["AB==", "AA=", "AA", "A A=", "AA==\n", "AA==AA==", "AA==AAAA", "AAA=AAAA", "AA=A", "A===", "====", "_-8="]
        {
            assert!(Proof::Text(text.into()).decode().is_err(), "{text:?}");
        }
    }
}
