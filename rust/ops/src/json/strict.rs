//! Strict JSON: the rules of protocol section 5 that hold whatever the members of a message are.

use std::fmt;

use coregw_core::{Error, Result, SUM_LIMIT};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::text::shown;

/// The nesting limit of objects and arrays; the outermost is at depth 1.
const MAX_DEPTH: u32 = 32;

/// Which integers a message may contain. Fractions and exponents are always refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Integers {
    /// 0 to 2^53 - 1, without a sign: the protocol's own messages.
    Unsigned53,
    /// -2^63 to 2^63 - 1: messages of services whose ids are int64.
    Signed64,
}

/// Checks duplicates, nesting, numbers, text, and that exactly one value is present. O(bytes).
///
/// # Errors
/// [`Error::Input`] with line and column.
pub fn check(body: &[u8], integers: Integers) -> Result<()> {
    check_value(body, integers).map_err(|error| Error::request(format!("the request: {error}")))
}

fn check_value(body: &[u8], integers: Integers) -> serde_json::Result<()> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    Strict { depth: 0, integers }.deserialize(&mut reader).and_then(|()| reader.end())
}

/// Reads one value. The whole text is validated as UTF-8 at once, which is faster than string by string. O(bytes).
pub(crate) fn read<'a, T: de::Deserialize<'a>>(body: &'a [u8]) -> serde_json::Result<T> {
    match std::str::from_utf8(body) {
        Ok(text) => serde_json::from_str(text),
        // `check_value` fails at the invalid bytes at the latest, with their place.
        Err(error) => check_value(body, Integers::Unsigned53).and_then(|()| Err(de::Error::custom(error))),
    }
}

#[derive(Clone, Copy)]
struct Strict {
    depth: u32,
    integers: Integers,
}

impl Strict {
    fn nested<E: de::Error>(&self) -> Result<Self, E> {
        match self.depth {
            MAX_DEPTH => Err(E::custom("nesting deeper than 32")),
            depth => Ok(Self { depth: depth + 1, ..*self }),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.integers {
            Integers::Unsigned53 => "JSON without negative numbers, fractions or exponents",
            Integers::Signed64 => "JSON with 64-bit integers, without fractions or exponents",
        })
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        match self.integers {
            Integers::Unsigned53 if value >= SUM_LIMIT => Err(E::custom("an integer is past 2^53 - 1")),
            Integers::Signed64 if value > i64::MAX as u64 => Err(E::custom("an integer is past 2^63 - 1")),
            _ => Ok(()),
        }
    }

    /// Called for negative integers only. serde_json passes the others to `visit_u64`, and -0 and integers past 64 bits
    /// to `visit_f64`, which refuses them.
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        match self.integers {
            Integers::Unsigned53 => Err(E::invalid_type(de::Unexpected::Signed(value), &self)),
            Integers::Signed64 => Ok(()),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let inner = self.nested::<A::Error>()?;
        while items.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let inner = self.nested::<A::Error>()?;
        let mut names = Names::default();
        while members.next_key_seed(&mut names)?.is_some() {
            members.next_value_seed(inner)?;
        }
        match names.repeated() {
            Some(name) => Err(de::Error::custom(format!("an object has the member {:?} twice", shown(name)))),
            None => Ok(()),
        }
    }
}

/// The names of an object's members, in one string: an object may have millions of short ones.
#[derive(Default)]
pub(crate) struct Names {
    text: String,
    /// Where each name ends.
    ends: Vec<usize>,
}

impl Names {
    /// The last name.
    pub(crate) fn last(&self) -> Option<&str> {
        let (&to, before) = self.ends.split_last()?;
        Some(&self.text[before.last().copied().unwrap_or(0)..to])
    }

    /// A name that occurs twice. O(n log n).
    pub(crate) fn repeated(&self) -> Option<&str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let mut spans: Vec<_> = starts.zip(self.ends.iter().copied()).collect();
        let name = |(start, end): (usize, usize)| &self.text[start..end];
        spans.sort_unstable_by(|a, b| name(*a).cmp(name(*b)));
        spans.windows(2).find(|pair| name(pair[0]) == name(pair[1])).map(|pair| name(pair[0]))
    }
}

impl<'de> DeserializeSeed<'de> for &mut Names {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for &mut Names {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, name: &str) -> Result<(), E> {
        self.text.push_str(name);
        self.ends.push(self.text.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_refused(text: &str, integers: Integers, why: &str) {
        let refused = check(text.as_bytes(), integers);
        assert!(matches!(&refused, Err(Error::Input { what, .. }) if what.contains(why)), "{text:.80}: {refused:?}");
    }

    #[test]
    fn integers_are_of_the_range_that_was_asked_for() {
        let (own, wide) = (Integers::Unsigned53, Integers::Signed64);
        for (text, integers) in [
            ("0", own),
            ("[9007199254740991]", own),
            ("9007199254740992", wide),
            ("9223372036854775807", wide),
            ("-1", wide),
            ("-9223372036854775808", wide),
        ] {
            assert_eq!(check(text.as_bytes(), integers), Ok(()), "{text}");
        }
        assert_refused("9007199254740992", own, "past 2^53 - 1");
        assert_refused("{\"a\": [18446744073709551615]}", own, "past 2^53 - 1");
        assert_refused("-1", own, "without negative numbers");
        assert_refused("9223372036854775808", wide, "past 2^63 - 1");
        for text in ["1.0", "1e3", "-0", "-9223372036854775809", "18446744073709551616"] {
            assert_refused(text, own, "without negative numbers, fractions or exponents");
            assert_refused(text, wide, "without fractions or exponents");
        }
    }

    #[test]
    fn objects_and_arrays_are_nested_to_depth_32() {
        for (open, close, levels) in [("[", "]", 31), ("{\"a\":", "}", 31), ("[0,{\"a\":", "}]", 15)] {
            let nested = |inner: &str| format!("{}{inner}{}", open.repeat(levels), close.repeat(levels));
            let deepest = if levels == 31 { "[]" } else { "[{}]" };
            assert_eq!(check(nested(deepest).as_bytes(), Integers::Unsigned53), Ok(()), "{open}");
            for inner in ["[", "{\"b\":"] {
                let deeper = nested(&format!("{inner}{deepest}{}", if inner == "[" { "]" } else { "}" }));
                assert_refused(&deeper, Integers::Unsigned53, "nesting deeper than 32");
            }
        }
        let siblings = format!("[{}[]]", "[],{},".repeat(100));
        assert_eq!(check(siblings.as_bytes(), Integers::Unsigned53), Ok(()));
    }

    #[test]
    fn one_value_is_present_whose_members_are_distinct() {
        for text in
            ["[true, false, null, \"x\"]", "{\"\": 1, \"a\": {\"a\": 1}, \"ab\": [{\"a\": 1}, {\"a\": 2}], \"b\": 2}"]
        {
            assert_eq!(check(text.as_bytes(), Integers::Unsigned53), Ok(()), "{text}");
        }
        for (text, why) in [
            ("{\"a\": 1, \"b\": 2, \"a\": 3}", "the member \"a\" twice"),
            ("{\"a\": 1, \"\\u0061\": 3}", "the member \"a\" twice"),
            ("[{\"x\": {\"\": 1, \"\": 1}}]", "the member \"\" twice"),
            ("1 2", "trailing characters"),
            ("", "EOF"),
            ("[1,]", "trailing comma"),
            ("{1: 2}", "key must be a string"),
        ] {
            assert_refused(text, Integers::Unsigned53, why);
        }
    }

    #[test]
    fn text_that_is_not_utf_8_is_refused_with_its_place() {
        let error = read::<Vec<String>>(b"[\n\"a\", \"\xff\"]").expect_err("not UTF-8");
        assert_eq!(error.line(), 2, "{error}");
    }
}
