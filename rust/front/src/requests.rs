//! Heads of requests: query parameters, and the media types and codings of bodies.
//!
//! Messages show what a client sent as Python writes strings.

use std::fmt::Write;

use crate::media::MediaType;
use crate::routes::unescaped;

/// The most query parameters of a request.
const MAX_PARAMETERS: usize = 16;
/// The length of what messages show of parameters, and of fields.
const SHOWN: usize = 100;
const SHOWN_OF_FIELD: usize = 200;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// A code of errors.
    pub code: &'static str,
    /// One sentence for a person.
    pub message: String,
}

fn refused<T>(code: &'static str, message: String) -> Result<T, Refused> {
    Err(Refused { code, message })
}

fn invalid<T>(message: impl Into<String>) -> Result<T, Refused> {
    refused("invalid_request", message.into())
}

/// The query parameters of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Parses a query string, without its question mark, of a route that has the parameters `allowed`. O(bytes).
    ///
    /// # Errors
    /// If a parameter is unknown or repeated, or the query is not percent-encoded UTF-8.
    pub fn parse(query: &str, allowed: &[&str]) -> Result<Self, Refused> {
        let mut found: Vec<(String, String)> = Vec::new();
        if query.is_empty() {
            return Ok(Self(found));
        }
        if !query.is_ascii() || !is_percent_encoded(query.as_bytes()) {
            return invalid("query string: not percent-encoded");
        }
        let pairs: Option<Vec<_>> = query.split('&').take(MAX_PARAMETERS + 1).map(pair).collect();
        let Some(pairs) = pairs.filter(|pairs| pairs.len() <= MAX_PARAMETERS) else {
            return invalid("query string: not a list of name=value pairs in percent-encoded UTF-8");
        };
        for (name, value) in pairs {
            if !allowed.contains(&name.as_str()) {
                let expected = match allowed {
                    [] => "this route has none".to_owned(),
                    _ => format!("expected {}", allowed.join(" or ")),
                };
                return invalid(format!("unknown query parameter {}; {expected}", quoted(&name, SHOWN)));
            }
            if found.iter().any(|(known, _)| *known == name) {
                return invalid(format!("query parameter {} is repeated", quoted(&name, usize::MAX)));
            }
            found.push((name, value));
        }
        Ok(Self(found))
    }

    /// The value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter that is an integer from 0 to 10^16 - 1, whose bounds the operation checks.
    ///
    /// # Errors
    /// If it is not written as plain digits.
    pub fn integer(&self, name: &str) -> Result<Option<u64>, Refused> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let is_plain = text == "0" || (!text.starts_with('0') && (1..=16).contains(&text.len()));
        match text.parse() {
            Ok(number) if is_plain && text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Some(number)),
            _ => invalid(format!(
                "query parameter {} is {}, expected an integer from 0 to 2^53 - 1",
                quoted(name, usize::MAX),
                quoted(text, SHOWN)
            )),
        }
    }

    /// The names of the parameters that were given, in order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }
}

fn is_percent_encoded(query: &[u8]) -> bool {
    let digits = |at: usize| query.get(at + 1..at + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    memchr::memchr_iter(b'%', query).all(digits)
}

fn pair(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let decode = |text: &str| String::from_utf8(unescaped(text.as_bytes(), true)).ok();
    Some((decode(name)?, decode(value)?))
}

/// Checks that a body is `application/json` in UTF-8, or has no type, and is not compressed.
///
/// # Errors
/// `unsupported_media_type` otherwise.
pub fn check_json(content_type: Option<&[u8]>, content_encoding: Option<&[u8]>) -> Result<(), Refused> {
    if let Some(given) = content_type.filter(|given| !given.is_empty() && *given != b"application/json")
        && !is_json(given)
    {
        let shown = quoted(&latin(given), SHOWN_OF_FIELD);
        return refused("unsupported_media_type", format!("Content-Type is {shown}, expected application/json"));
    }
    check_coding(content_encoding)
}

/// Whether a Content-Type says that a body is JSON in UTF-8.
pub fn is_json(content_type: &[u8]) -> bool {
    let offer = MediaType::parse(b"application/json; charset=utf-8");
    match (MediaType::parse(content_type), offer) {
        (Some(given), Some(offer)) => given.is_one_of(&[offer]),
        _ => false,
    }
}

/// Checks that a body is a payload of any type, as it is: not compressed, and not the parts of a form.
///
/// # Errors
/// `unsupported_media_type` otherwise.
pub fn check_payload(content_type: Option<&[u8]>, content_encoding: Option<&[u8]>) -> Result<(), Refused> {
    let given = latin(content_type.unwrap_or_default());
    if given.trim_start().to_lowercase().starts_with("multipart/") {
        let shown = quoted(&given, SHOWN_OF_FIELD);
        let message = format!("Content-Type is {shown}; a payload is sent as it is, not as a part of a form");
        return refused("unsupported_media_type", message);
    }
    check_coding(content_encoding)
}

fn check_coding(content_encoding: Option<&[u8]>) -> Result<(), Refused> {
    let given = latin(content_encoding.unwrap_or_default());
    match given.trim().to_lowercase().as_str() {
        "" | "identity" => Ok(()),
        _ => {
            let shown = quoted(&given, SHOWN_OF_FIELD);
            refused("unsupported_media_type", format!("Content-Encoding is {shown}, expected none"))
        }
    }
}

/// The text of a field's value, a character a byte.
fn latin(value: &[u8]) -> String {
    value.iter().copied().map(char::from).collect()
}

/// Whether a character is printable. The standard library keeps the table to itself, but tells by how it escapes; marks that
/// combine with others are shown only after one.
fn is_printable(character: char) -> bool {
    format!("a{character}").escape_debug().count() == 2
}

/// Text in quotes as Python writes it, cut after `most` characters.
pub fn quoted(text: &str, most: usize) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for character in text.chars() {
        let code = u32::from(character);
        let _ = match character {
            '\\' => write!(out, "\\\\"),
            '\n' => write!(out, "\\n"),
            '\r' => write!(out, "\\r"),
            '\t' => write!(out, "\\t"),
            _ if character == quote => write!(out, "\\{quote}"),
            ' '..='~' => write!(out, "{character}"),
            _ if code > 0xa0 && is_printable(character) => write!(out, "{character}"),
            _ if code < 0x100 => write!(out, "\\x{code:02x}"),
            _ if code < 0x1_0000 => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        }; // a string takes everything
    }
    out.push(quote);
    match out.char_indices().nth(most) {
        Some((end, _)) => out[..end].to_owned(),
        None => out,
    }
}
