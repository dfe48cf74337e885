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
mod tests {
    use coregw_core::{InputCode, Suite};

    use super::*;

    #[test]
    fn envelopes_are_split_without_a_change_of_the_texts() {
        let (request, result) = (r#"{ "a":1.50, "b": "\u0061" }"#, "[1,  2]");
        for body in [
            format!(r#"{{"request":{request},"result":{result}}}"#),
            format!(" {{ \"result\" : {result} ,\n\"request\": {request} }} "),
        ] {
            assert_eq!(envelope(body.as_bytes()), Ok((request, result)));
        }
        for body in [
            "",
            "null",
            "[1,2]",
            r#"{"request":1}"#,
            r#"{"request":1,"result":2,"more":3}"#,
            r#"{"request":1,"request":1,"result":2}"#,
            r#"{"request":1,"result":2}}"#,
        ] {
            let refused = envelope(body.as_bytes());
            assert!(
                matches!(&refused, Err(Error::Input { what, .. }) if what.starts_with("the body: ")),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn arcs_are_read_alone_and_with_their_suite() {
        let cid = "bafkqaaa";
        let members = format!(r#"{{"b/c":"{cid}","a\u002fd":"{cid}"}}"#);
        assert_eq!(arcs(members.as_bytes()).map(|arcs| arcs.len()), Ok(2));
        let read = create_root(format!(r#"{{"arcs":{members}}}"#).as_bytes()).map(|(arcs, suite)| (arcs.len(), suite));
        assert_eq!(read, Ok((2, Suite::default())));
        for suite in Suite::ALL {
            let request = format!(r#"{{"suite":"{}","arcs":{{}}}}"#, suite.name());
            assert_eq!(create_root(request.as_bytes()).map(|(arcs, suite)| (arcs.len(), suite)), Ok((0, suite)));
        }
        for twice in [r#"{"arcs":{},"arcs":{}}"#, r#"{"suite":"sha2-256","arcs":{},"suite":"blake3"}"#] {
            let refused = create_root(twice.as_bytes());
            assert!(
                matches!(&refused, Err(Error::Input { what, .. }) if what.contains("duplicate field")),
                "{refused:?}"
            );
        }
        for (body, code, why) in [
            (format!("{{\"a\":\"{cid}\",\n\"b\":\"no\"}}"), InputCode::InvalidCid, "arcs: arc \"b\": "),
            (format!(r#"{{"a//b":"{cid}"}}"#), InputCode::InvalidPath, "arcs: path \"a//b\": "),
            (r#"{"a":1}"#.to_owned(), InputCode::InvalidRequest, "a CID as a string"),
            ("[]".to_owned(), InputCode::InvalidRequest, "an object"),
        ] {
            let refused = arcs(body.as_bytes());
            let Err(Error::Input { code: found, what }) = &refused else { panic!("{body}: {refused:?}") };
            assert!(*found == code && what.contains(why) && what.contains("line "), "{body}: {found:?} {what}");
        }
    }
}
