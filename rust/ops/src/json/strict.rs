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
#[path = "../../tests/unit/json_strict.rs"]
mod tests;
