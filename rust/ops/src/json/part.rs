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
mod tests {
    use std::marker::PhantomData;

    use super::*;

    #[test]
    fn the_error_of_a_part_names_its_place_in_the_whole() {
        for whole in ["{\"a\":  [1,\n 2, x]}", "{\n\n \"a\":[1, x]}", "{\"a\":[1, x]}", "{\"a\":\n[1,\n x]}"] {
            let whole_fails = serde_json::from_str::<serde_json::Value>(whole).expect_err("no JSON");
            let start = whole.find('[').expect("an array");
            // Text that is no JSON cannot be kept as a part, so the reader of the part fails on what the error replaces.
            let part = &whole[start..whole.len() - 1];
            let part_fails = serde_json::from_str::<serde_json::Value>(part).expect_err("no JSON");
            assert_eq!(moved(whole.as_bytes(), part, &part_fails).to_string(), whole_fails.to_string());
        }
    }

    #[test]
    fn a_part_is_read_as_if_in_place() {
        let whole = "{\"a\":\n [1, 2, \"x\"]}";
        let parts: std::collections::BTreeMap<&str, &RawValue> = serde_json::from_str(whole).expect("JSON");
        let error = read_part(whole.as_bytes(), parts["a"], PhantomData::<Vec<u8>>).expect_err("a string");
        let expected = serde_json::from_str::<std::collections::BTreeMap<&str, Vec<u8>>>(whole).expect_err("a string");
        assert_eq!(error.to_string(), expected.to_string());
    }
}
