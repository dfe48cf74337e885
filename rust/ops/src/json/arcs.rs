//! The arcs of a new map, read straight into their compact form.

use std::fmt;

use coregw_core::{ArcFault, Arcs, Error, InputCode, Result, Suite};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::refusal::{refuse, split_code};
use crate::json::Text;
use crate::json::text::shown;

/// Reads `{"arcs": {path: cid}, "suite"?: name}`. Two arcs with one path are found when the arcs are sorted. O(bytes).
///
/// # Errors
/// [`Error::Input`], naming the arc, or line and column.
pub fn create_root(body: &[u8]) -> Result<(Arcs, Suite)> {
    read(body, CreateRoot(ArcsObject { max_bytes: body.len() }))
}

/// Reads a bare `{path: cid}`. Two arcs with one path are found when the arcs are sorted. O(bytes).
///
/// # Errors
/// [`Error::Input`], naming the arc, or line and column.
pub fn arcs(body: &[u8]) -> Result<Arcs> {
    read(body, ArcsObject { max_bytes: body.len() })
}

fn read<'de, S: DeserializeSeed<'de>>(body: &'de [u8], seed: S) -> Result<S::Value> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = seed.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| arcs_error(&error))
}

/// The members of a request for a new map.
struct CreateRoot(ArcsObject);

const MEMBERS: [&str; 2] = ["arcs", "suite"];

impl<'de> DeserializeSeed<'de> for CreateRoot {
    type Value = (Arcs, Suite);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for CreateRoot {
    type Value = (Arcs, Suite);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (mut arcs, mut suite) = (None, None);
        while let Some(member) = members.next_key_seed(Text)? {
            match &*member {
                "arcs" if arcs.is_some() => return Err(de::Error::duplicate_field("arcs")),
                "arcs" => arcs = Some(members.next_value_seed(self.0)?),
                "suite" if suite.is_some() => return Err(de::Error::duplicate_field("suite")),
                "suite" => {
                    let name = members.next_value_seed(Text)?;
                    suite = Some(Suite::from_name(&name).map_err(de::Error::custom)?);
                }
                other => return Err(de::Error::unknown_field(other, &MEMBERS)),
            }
        }
        Ok((arcs.ok_or_else(|| de::Error::missing_field("arcs"))?, suite.unwrap_or_default()))
    }
}

/// The arcs of a JSON object `{path: cid}`.
#[derive(Clone, Copy)]
struct ArcsObject {
    /// The length of the text.
    max_bytes: usize,
}

/// The least bytes of text that an arc takes, typically: a short path, and a CID of 32 bytes of digest.
const MIN_ARC_TEXT: usize = 72;

impl<'de> DeserializeSeed<'de> for ArcsObject {
    type Value = Arcs;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Arcs, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ArcsObject {
    type Value = Arcs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of paths and target CIDs")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Arcs, A::Error> {
        let mut arcs = Arcs::default();
        // Memory that is not written to takes none; growing it would copy what was read, to new memory each time. What
        // cannot be reserved at once grows.
        let _ = arcs.try_reserve(self.max_bytes / MIN_ARC_TEXT, self.max_bytes);
        while let Some(path) = members.next_key_seed(Text)? {
            members.next_value_seed(Target { path: &path, arcs: &mut arcs })?;
        }
        Ok(arcs)
    }
}

/// Reads the target of one arc, and adds the arc.
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

impl<'de> Visitor<'de> for Target<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a CID as a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.arcs.push_text(self.path, text).map_err(|fault| match fault {
            ArcFault::Target(error) => refuse(InputCode::InvalidCid, &format!("arc {:?}: {error}", shown(self.path))),
            ArcFault::Path(why) => refuse(InputCode::InvalidPath, &format!("path {:?}: {why}", shown(self.path))),
        })
    }
}

fn arcs_error(error: &serde_json::Error) -> Error {
    let text = error.to_string();
    let place = format!("line {} column {}", error.line(), error.column());
    match split_code(&text) {
        (InputCode::InvalidRequest, what) => Error::request(format!("the request: {what}")),
        (code, what) => {
            let what = what.strip_suffix(&format!(" at {place}")).unwrap_or(what);
            Error::input(code, format!("arcs: {what} ({place})"))
        }
    }
}
