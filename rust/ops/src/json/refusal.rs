//! Error codes that pass through the errors of serde, which hold text only.

use coregw_core::{Error, InputCode};
use serde::de;

/// What encloses a code at the start of a text. No text of serde starts with it, whatever a request contains.
const MARK: char = '\u{1}';

const CODES: [InputCode; 3] = [InputCode::InvalidCid, InputCode::InvalidPath, InputCode::TooLarge];

/// An error with a code, for a deserializer to return.
pub(crate) fn refuse<E: de::Error>(code: InputCode, what: &str) -> E {
    E::custom(format!("{MARK}{}{MARK}{what}", code.as_str()))
}

/// Splits the text of an error into the code that [`refuse`] put there, or `invalid_request`, and the rest.
pub(crate) fn split_code(text: &str) -> (InputCode, &str) {
    let rest = |code: &InputCode| text.strip_prefix(MARK)?.strip_prefix(code.as_str())?.strip_prefix(MARK);
    let found = CODES.iter().find_map(|code| Some((*code, rest(code)?)));
    found.unwrap_or((InputCode::InvalidRequest, text))
}

/// The error of a request.
pub(crate) fn request_error(error: &serde_json::Error) -> Error {
    let text = error.to_string();
    let (code, what) = split_code(&text);
    Error::input(code, format!("the request: {what}"))
}
