//! The writer of all messages.
//!
//! A proof is most of a message. It is encoded as base64 straight into the output: no intermediate string is made, and
//! none is searched for characters to escape.

use std::io;
use std::mem::MaybeUninit;

use base64_simd::{AsOut, STANDARD as BASE64};
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

/// Appends a string.
pub fn write_string(out: &mut String, text: &str) {
    out.push_str(&serde_json::to_string(text).expect("every string can be written"));
}

/// Writes a message.
pub(crate) fn write(message: &impl Serialize) -> Vec<u8> {
    write_long(message, 0)
}

/// Writes a message that is expected to be some `bytes` long, besides a few members.
pub(crate) fn write_long(message: &impl Serialize, bytes: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(CAPACITY_BYTES + bytes);
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, Compact);
    message.serialize(&mut serializer).expect("messages have string keys and finite numbers");
    text
}

#[cfg(test)]
#[path = "../../tests/unit/json_writer.rs"]
mod tests;
