//! Parts of a text that are skipped when it is read, and read later.

use serde::de::{DeserializeSeed, Error as _};
use serde_json::value::RawValue;

/// Reads a part of `whole` that was kept as text. Errors name the place in `whole`. O(bytes).
pub(crate) fn read_part<'a, S: DeserializeSeed<'a>>(
    whole: &[u8],
    part: &'a RawValue,
    seed: S,
) -> serde_json::Result<S::Value> {
    let mut reader = serde_json::Deserializer::from_str(part.get());
    let value = seed.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| moved(whole, part.get(), &error))
}

/// An error in `part`, with its place in `whole`.
fn moved(whole: &[u8], part: &str, error: &serde_json::Error) -> serde_json::Error {
    let text = error.to_string();
    let what = text.strip_suffix(&format!(" at line {} column {}", error.line(), error.column())).unwrap_or(&text);
    let start = part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
    let before = whole.get(..start).unwrap_or_default();
    let lines = memchr::memchr_iter(b'\n', before).count();
    let column = match error.line() {
        1 => before.len() - memchr::memrchr(b'\n', before).map_or(0, |at| at + 1) + error.column(),
        _ => error.column(),
    };
    // serde_json takes the place from the end of the text.
    serde_json::Error::custom(format!("{what} at line {} column {column}", lines + error.line()))
}

#[cfg(test)]
#[path = "../../tests/unit/json_part.rs"]
mod tests;
