//! JSON text: strict readers (protocol section 5) and the one writer.
//!
//! Knows the syntax of messages and what is refused whatever their members are; the members are in `message`.

mod arcs;
mod array;
mod lines;
mod object;
mod part;
mod refusal;
mod strict;
mod text;
mod writer;

pub use arcs::{arcs, create_root};
pub use lines::{ArcLines, LineFormat, MAX_LINE_BYTES, write_line};
pub use strict::{Integers, check};

pub(crate) use array::{Items, array};
pub(crate) use object::{ObjectsOnly, object, objects};
pub(crate) use part::read_part;
pub(crate) use refusal::request_error;
pub(crate) use strict::{Names, read};
pub(crate) use text::{MessageText, Text, decode_base64, shown};
pub use writer::write_string;
pub(crate) use writer::{write, write_long};

use serde_json::value::RawValue;

use coregw_core::{Error, Result};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct Envelope<'a> {
    #[serde(borrow)]
    request: &'a RawValue,
    #[serde(borrow)]
    result: &'a RawValue,
}

objects! {
    read: Envelope<'a>;
}

/// Splits `{"request": ..., "result": ...}` into the texts of its members, exactly as written. O(bytes).
///
/// # Errors
/// [`Error::Input`] if the body is not an object with exactly these members.
pub fn envelope(body: &[u8]) -> Result<(&str, &str)> {
    let envelope: Envelope<'_> =
        serde_json::from_slice(body).map_err(|error| Error::request(format!("the body: {error}")))?;
    Ok((envelope.request.get(), envelope.result.get()))
}

#[cfg(test)]
#[path = "../../tests/unit/json.rs"]
mod tests;
