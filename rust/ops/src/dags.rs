//! Blocks of DAG-CBOR and DAG-JSON that have no links: each is a whole DAG.
//!
//! Decoders differ in what they take, and one may follow a link that another does not see. So a block counts only if it
//! decodes in the strict form of its codec. What is decoded is not kept.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::json::Names;

/// The number of the codec DAG-CBOR.
const DAG_CBOR: u64 = 0x71;
/// The number of the codec DAG-JSON.
const DAG_JSON: u64 = 0x0129;

/// Whether a block is DAG-CBOR or DAG-JSON, by the number of its codec, decodes in its strict form, and has no links.
/// O(bytes log bytes).
///
/// Of DAG-JSON, the members of an object are distinct, and none is named `/`: that marks a link or bytes, and which of
/// them is not looked into.
pub fn is_linkless(codec: u64, block: &[u8]) -> bool {
    match codec {
        DAG_CBOR => {
            let mut reader = serde_ipld_dagcbor::de::Deserializer::from_slice(block);
            Linkless::Cbor.deserialize(&mut reader).and_then(|()| reader.end()).is_ok()
        }
        DAG_JSON => {
            let mut reader = serde_json::Deserializer::from_slice(block);
            Linkless::Json.deserialize(&mut reader).and_then(|()| reader.end()).is_ok()
        }
        _ => false,
    }
}

/// A value without links, by how it is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Linkless {
    Cbor,
    Json,
}

impl<'de> DeserializeSeed<'de> for Linkless {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Linkless {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value without links")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    /// Called for integers below those of 64 bits.
    fn visit_i128<E>(self, _: i128) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    /// The decoder of DAG-CBOR calls it for links.
    fn visit_newtype_struct<D: Deserializer<'de>>(self, _: D) -> Result<(), D::Error> {
        Err(de::Error::custom("a link"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut names = Names::default();
        while members.next_key_seed(&mut names)?.is_some() {
            if self == Self::Json && names.last() == Some("/") {
                return Err(de::Error::custom("a link or bytes"));
            }
            members.next_value_seed(self)?;
        }
        match names.repeated() {
            Some(_) => Err(de::Error::custom("a member twice")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "../tests/unit/dags.rs"]
mod tests;
