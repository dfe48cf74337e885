//! The rules of HTTP that the gateway's routes follow, as pure functions on the values of header fields.
//!
//! | module | rules |
//! |---|---|
//! | [`conditions`] | preconditions and ranges: RFC 9110 sections 13 and 14, and `entity-bytes` of trustless gateways |
//! | [`framing`] | heads, bodies and chunks of HTTP/1, as strictly as smuggling demands: RFC 9112 |
//! | [`guard`] | the bytes of a connection: framing and deadlines, which hyper leaves open |
//! | [`media`] | media types, Accept and its weights: RFC 9110 sections 8.3 and 12.5.1 |
//! | [`origins`] | Host and Origin: which names a gateway answers to, and which web pages may write |
//!
//! A value is the bytes of a field; if a request has several lines of it, they are joined with commas (RFC 9110 section
//! 5.3). Malformed values are no errors: each function says what they stand for. All work is linear in the value's length.
#![forbid(unsafe_code)]

pub mod conditions;
pub mod framing;
pub mod guard;
pub mod media;
pub mod origins;

/// `text` without optional whitespace (RFC 9110 section 5.6.3) at both ends.
fn trimmed(text: &[u8]) -> &[u8] {
    let is_visible = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let start = text.iter().position(is_visible).unwrap_or(text.len());
    let end = text.iter().rposition(is_visible).map_or(start, |last| last + 1);
    &text[start..end]
}
