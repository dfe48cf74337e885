//! The arcs of a new map, read straight into their compact form.

use std::fmt;

use coregw_core::{Arcs, Cid, Error, InputCode, Result, Suite};
use serde::Deserialize as _;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::refusal::{refuse, split_code};
use crate::json::{Text, objects};

/// Reads `{"arcs": {path: cid}, "suite"?: name}`. Two arcs with one path are found when the arcs are sorted. O(bytes).
///
/// # Errors
/// [`Error::Input`], naming the arc, or line and column.
pub fn create_root(body: &[u8]) -> Result<(Arcs, Suite)> {
    let request: CreateRoot = serde_json::from_slice(body).map_err(|error| arcs_error(&error))?;
    Ok((request.arcs.0, request.suite))
}

/// Reads a bare `{path: cid}`. Two arcs with one path are found when the arcs are sorted. O(bytes).
///
/// # Errors
/// [`Error::Input`], naming the arc, or line and column.
pub fn arcs(body: &[u8]) -> Result<Arcs> {
    serde_json::from_slice(body).map(|ArcsObject(arcs)| arcs).map_err(|error| arcs_error(&error))
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct CreateRoot {
    arcs: ArcsObject,
    #[serde(default, deserialize_with = "suite")]
    suite: Suite,
}

objects! {
    read: CreateRoot;
}

fn suite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Suite, D::Error> {
    let name = String::deserialize(deserializer)?;
    Suite::from_name(&name).map_err(de::Error::custom)
}

/// The arcs of a JSON object `{path: cid}`.
struct ArcsObject(Arcs);

impl<'de> de::Deserialize<'de> for ArcsObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ArcsVisitor;
        impl<'de> Visitor<'de> for ArcsVisitor {
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
        deserializer.deserialize_map(ArcsVisitor).map(Self)
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
        let shown: String = self.path.chars().take(80).collect();
        let target = Cid::from_text(text)
            .map_err(|error| refuse::<E>(InputCode::InvalidCid, &format!("arc {shown:?}: {error}")))?;
        let added = self.arcs.push_text(self.path, &target);
        added.map_err(|why| refuse(InputCode::InvalidPath, &format!("path {shown:?}: {why}")))
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
