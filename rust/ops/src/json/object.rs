//! Structs that are read from JSON objects only, never from arrays.

use std::fmt;

use serde::de::{self, Deserializer, MapAccess, Visitor};

/// A deserializer that accepts an object where a struct is expected.
///
/// The deserializers that serde derives also accept an array of the members' values in declaration order. That would be a
/// second encoding of every message.
pub(crate) struct ObjectsOnly<D>(pub(crate) D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ObjectsOnly<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, D::Error> {
        Err(de::Error::custom("only structs are read as objects"))
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

/// Implements `Deserialize` through [`ObjectsOnly`], and `Serialize`, for structs that derive serde's `remote = "Self"`.
macro_rules! objects {
    ($($direction:ident: $($name:ident $(<$life:lifetime>)?),+;)+) => {
        $($(crate::json::object!($direction $name $(<$life>)?);)+)+
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
