//! JSON that is refused whatever its shape (protocol section 5), and the arcs object, read straight from bytes.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize as _;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use coregw_core::Arcs;
use coregw_core::Cid;
use coregw_core::SUM_LIMIT;
use coregw_core::Suite;
use coregw_core::{Error, InputCode, Result};

/// How deep objects and arrays may nest; the outermost is 1.
const MAX_DEPTH: u32 = 32;

/// Which numbers a message may hold. Fractions and exponents are in none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Integers {
    /// 0 to 2^53 - 1, without a sign: all messages but the plant store's.
    Unsigned53,
    /// -2^63 to 2^63 - 1: the plant store's, whose ids are int64.
    Signed64,
}

/// Checks the rules that hold whatever the members are: duplicates, depth, numbers, text, one value. O(bytes).
///
/// # Errors
/// [`Error::Input`] that names line and column.
pub fn check(body: &[u8], integers: Integers) -> Result<()> {
    walk(body, integers).map_err(|error| Error::request(format!("the request: {error}")))
}

fn walk(body: &[u8], integers: Integers) -> serde_json::Result<()> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    Strict { depth: 0, integers }.deserialize(&mut reader).and_then(|()| reader.end())
}

/// Reads one value. All text is checked at once to be UTF-8, which is faster than string by string. O(bytes).
pub(crate) fn read<'a, T: de::Deserialize<'a>>(body: &'a [u8]) -> serde_json::Result<T> {
    match std::str::from_utf8(body) {
        Ok(text) => serde_json::from_str(text),
        // The walk ends at the broken text at the latest, and says where.
        Err(error) => walk(body, Integers::Unsigned53).and_then(|()| Err(de::Error::custom(error))),
    }
}

/// Reads structs from objects alone. The readers that serde derives take an array for a struct as well, its items for
/// the members in their order; that would be a second way to write every message.
pub(crate) struct ObjectsOnly<D>(pub(crate) D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ObjectsOnly<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, D::Error> {
        Err(de::Error::custom("it is not read as an object"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        members: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, members, ObjectVisitor(visitor))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct ObjectVisitor<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for ObjectVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(members)
    }
}

/// Implements `Deserialize` by [`ObjectsOnly`], and `Serialize`, for structs that serde derives as `remote = "Self"`.
macro_rules! objects {
    ($($way:ident: $($name:ident $(<$life:lifetime>)?),+;)+) => {
        $($(crate::json::object!($way $name $(<$life>)?);)+)+
    };
}

macro_rules! object {
    (read $name:ident $(<$life:lifetime>)?) => {
        impl<'de $(: $life, $life)?> serde::Deserialize<'de> for $name $(<$life>)? {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                Self::deserialize(crate::json::ObjectsOnly(deserializer))
            }
        }
    };
    (written $name:ident $(<$life:lifetime>)?) => {
        impl $(<$life>)? serde::Serialize for $name $(<$life>)? {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                Self::serialize(self, serializer)
            }
        }
    };
}

pub(crate) use {object, objects};

#[derive(Clone, Copy)]
struct Strict {
    depth: u32,
    integers: Integers,
}

impl Strict {
    fn deeper<E: de::Error>(&self) -> Result<Self, E> {
        match self.depth {
            MAX_DEPTH => Err(E::custom("it nests deeper than 32")),
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
            Integers::Signed64 => "JSON whose numbers are integers of 64 bits, without fractions or exponents",
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

    /// Negative integers: the reader gives the others to `visit_u64`, and those past 64 bits, and -0, to `visit_f64`.
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        match self.integers {
            Integers::Unsigned53 => Err(E::invalid_type(de::Unexpected::Signed(value), &self)),
            Integers::Signed64 => Ok(()),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let inner = self.deeper::<A::Error>()?;
        while items.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let inner = self.deeper::<A::Error>()?;
        let mut seen = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            members.next_value_seed(inner)?;
            if !seen.insert(name) {
                return Err(de::Error::custom("a member stands twice in one object"));
            }
        }
        Ok(())
    }
}

/// The arcs of a JSON object `{path: cid}`.
struct ArcsObject(Arcs);

impl<'de> de::Deserialize<'de> for ArcsObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Arcs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of paths and target CIDs")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Arcs, A::Error> {
                let mut arcs = Arcs::default();
                while let Some(path) = members.next_key_seed(Text)? {
                    members.next_value_seed(Target { path: &path, arcs: &mut arcs })?;
                }
                Ok(arcs)
            }
        }
        deserializer.deserialize_map(Object).map(Self)
    }
}

/// A string, borrowed where it has no escapes.
pub(crate) struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = std::borrow::Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = std::borrow::Cow<'de, str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(text.into())
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(text.to_owned().into())
            }
        }
        deserializer.deserialize_str(Either)
    }
}

struct Target<'a> {
    path: &'a str,
    arcs: &'a mut Arcs,
}

impl<'de> DeserializeSeed<'de> for Target<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

/// The mark that tells our own words from the JSON reader's: the code, then the sentence.
const CODED: [(&str, InputCode); 2] =
    [("\u{1}path\u{1}", InputCode::InvalidPath), ("\u{1}cid\u{1}", InputCode::InvalidCid)];

impl<'de> Visitor<'de> for Target<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a CID as a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        let shown: String = self.path.chars().take(80).collect();
        let target =
            Cid::from_text(text).map_err(|error| E::custom(format!("{}arc {shown:?}: {error}", CODED[1].0)))?;
        let added = self.arcs.push_text(self.path, &target);
        added.map_err(|why| E::custom(format!("{}path {shown:?}: {why}", CODED[0].0)))
    }
}

fn arcs_error(error: &serde_json::Error) -> Error {
    let text = error.to_string();
    let place = format!("line {} column {}", error.line(), error.column());
    for (mark, code) in CODED {
        if let Some(sentence) = text.strip_prefix(mark) {
            let sentence = sentence.strip_suffix(&format!(" at {place}")).unwrap_or(sentence);
            return Error::input(code, format!("arcs: {sentence} ({place})"));
        }
    }
    Error::request(format!("the request: {text}"))
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct CreateRoot {
    arcs: ArcsObject,
    #[serde(default, deserialize_with = "suite")]
    suite: Suite,
}

objects! {
    read: CreateRoot, Envelope<'a>;
}

fn suite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Suite, D::Error> {
    let name = String::deserialize(deserializer)?;
    Suite::from_name(&name).map_err(de::Error::custom)
}

/// Reads `{"arcs": {path: cid}, "suite"?}`. Doubles are found when the arcs are sorted.
///
/// # Errors
/// [`Error::Input`] that names the arc, or line and column.
pub fn create_root(body: &[u8]) -> Result<(Arcs, Suite)> {
    let request: CreateRoot = serde_json::from_slice(body).map_err(|error| arcs_error(&error))?;
    Ok((request.arcs.0, request.suite))
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct Envelope<'a> {
    #[serde(borrow)]
    request: &'a RawValue,
    #[serde(borrow)]
    result: &'a RawValue,
}

/// The texts of the members of `{"request", "result"}`, exactly as written: each is judged by who reads it.
///
/// # Errors
/// [`Error::Input`] if the body is no object of exactly these members.
pub fn envelope(body: &[u8]) -> Result<(&str, &str)> {
    let envelope: Envelope<'_> =
        serde_json::from_slice(body).map_err(|error| Error::request(format!("the body: {error}")))?;
    Ok((envelope.request.get(), envelope.result.get()))
}

/// Reads a bare `{path: cid}`. Doubles are found when the arcs are sorted.
///
/// # Errors
/// [`Error::Input`] that names the arc, or line and column.
pub fn arcs(body: &[u8]) -> Result<Arcs> {
    serde_json::from_slice(body).map(|ArcsObject(arcs)| arcs).map_err(|error| arcs_error(&error))
}
