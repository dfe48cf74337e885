//! The writer of all messages.
//!
//! A proof is most of a message. It is encoded as base64 straight into the output: no intermediate string is made, and
//! none is searched for characters to escape.

use std::io;
use std::mem::MaybeUninit;

use base64_simd::{AsOut, STANDARD as BASE64};
use coregw_core::spare;
use serde::ser::Serialize;
use serde_json::ser::Formatter;

/// The capacity for members besides proofs. The answer to a lookup in a map of millions is not longer, so it is not moved
/// while it is written.
const CAPACITY_BYTES: usize = 2048;
/// Bytes that are encoded at once; a multiple of three, so that only the last chunk is padded.
const CHUNK_BYTES: usize = 3 * 4096;

/// JSON without whitespace, and byte arrays as base64.
struct Compact;

impl Formatter for Compact {
    fn write_byte_array<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: &[u8]) -> io::Result<()> {
        // Clearing it would take longer than encoding a short proof.
        let mut text = [MaybeUninit::<u8>::uninit(); CHUNK_BYTES / 3 * 4];
        writer.write_all(b"\"")?;
        for chunk in value.chunks(CHUNK_BYTES) {
            writer.write_all(BASE64.encode(chunk, text.as_mut_slice().as_out()))?;
        }
        writer.write_all(b"\"")
    }
}

/// Writes a message.
pub(crate) fn write(message: &impl Serialize) -> Vec<u8> {
    write_long(message, 0)
}

/// Writes a message that is expected to be some `bytes` long, besides a few members.
pub(crate) fn write_long(message: &impl Serialize, bytes: usize) -> Vec<u8> {
    let mut text = spare::take(CAPACITY_BYTES + bytes);
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, Compact);
    message.serialize(&mut serializer).expect("messages have string keys and finite numbers");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::decode_base64;

    struct Bytes(Vec<u8>);

    impl Serialize for Bytes {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&self.0)
        }
    }

    #[test]
    fn bytes_are_written_as_canonical_base64() {
        for n in [0, 1, 2, 3, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES + 2] {
            let bytes: Vec<u8> = (0..n).map(|i| (i * 7 % 251) as u8).collect();
            let text = String::from_utf8(write(&Bytes(bytes.clone()))).expect("JSON is UTF-8");
            assert_eq!(text, format!("\"{}\"", data_encoding::BASE64.encode(&bytes)));
            assert_eq!(decode_base64(text.trim_matches('"')).as_ref(), Ok(&bytes));
        }
    }

    #[test]
    fn base64_that_is_not_canonical_is_refused() {
        for text in
            ["AB==", "AA=", "AA", "A A=", "AA==\n", "AA==AA==", "AA==AAAA", "AAA=AAAA", "AA=A", "A===", "====", "_-8="]
        {
            assert!(decode_base64(text).is_err(), "{text:?}");
        }
    }
}
