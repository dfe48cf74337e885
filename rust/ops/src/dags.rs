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
mod tests {
    use super::*;

    /// Tag 42 and the CID `bafkqaaa`, after the number of bytes that the head of the tag has.
    fn link(tag: &[u8]) -> Vec<u8> {
        [tag, &[0x45, 0, 1, 0x55, 0, 0]].concat()
    }

    #[test]
    fn strict_dag_cbor_without_links_is_a_whole_dag() {
        let whole: [&[u8]; 16] = [
            b"\xa0",
            b"\x80",
            b"\x00",
            b"\x18\x18",
            b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x20",
            b"\x3b\x7f\xff\xff\xff\xff\xff\xff\xff",
            b"\x3b\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x42\xd8\x2a",
            b"\x64\xf0\x9f\x98\x80",
            b"\xfb\x3f\xf0\x00\x00\x00\x00\x00\x00",
            b"\x83\xf4\xf5\xf6",
            b"\xa2\x61b\x01\x62aa\x81\xa0",
            b"\xa2\x60\x01\x61/\x02",
            b"\x58\x18abcdefghijklmnopqrstuvwx",
            b"\xa1\x61/\x68bafkqaaa",
        ];
        for block in whole {
            assert!(is_linkless(DAG_CBOR, block), "{block:02x?}");
        }
    }

    #[test]
    fn dag_cbor_that_has_links_or_is_not_strict_is_no_whole_dag() {
        let tags: [&[u8]; 4] = [b"\xd8\x2a", b"\xd9\x00\x2a", b"\xda\0\0\0\x2a", b"\xdb\0\0\0\0\0\0\0\x2a"];
        for tag in tags {
            assert!(!is_linkless(DAG_CBOR, &link(tag)), "{tag:02x?}");
            assert!(!is_linkless(DAG_CBOR, &[b"\x82\x01", &link(tag)[..]].concat()), "{tag:02x?}");
            assert!(!is_linkless(DAG_CBOR, &[b"\xa1\x61a", &link(tag)[..]].concat()), "{tag:02x?}");
        }
        let refused: [&[u8]; 27] = [
            b"",
            b"\xa0\xa0",     // bytes follow
            b"\x18\x17",     // longer heads
            b"\x19\x00\xff", //
            b"\x38\x17",     //
            b"\x1b\0\0\0\0\xff\xff\xff\xff",
            b"\x58\x01a",                //
            b"\x78\x01a",                //
            b"\x98\x01\x00",             //
            b"\xb8\x01\x61a\x00",        //
            b"\xa1\x78\x01a\x00",        //
            b"\xa2\x61a\x01\x61a\x02",   // a key twice
            b"\xa2\x61b\x01\x61a\x02",   // keys in another order
            b"\xa2\x62aa\x01\x61b\x02",  //
            b"\xa1\x01\x02",             // a key that is no text
            b"\xfa\x3f\x80\x00\x00",     // a float of 32 bits
            b"\xf9\x3c\x00",             // of 16 bits
            b"\xfb\x7f\xf0\0\0\0\0\0\0", // infinity
            b"\xfb\x7f\xf8\0\0\0\0\0\0", // no number
            b"\xfb\x80\0\0\0\0\0\0\0",   // the other zero
            b"\xf7",                     // undefined
            b"\xf8\x20",                 // another simple value
            b"\xc2\x41\x01",             // another tag
            b"\x9f\x00\xff",             // indefinite lengths
            b"\xbf\xff",                 //
            b"\x61\xff",                 // text that is not UTF-8
            b"\x82\x00",                 // cut short
        ];
        for block in refused {
            assert!(!is_linkless(DAG_CBOR, block), "{block:02x?}");
        }
        let deep = [&[0x81; 100_000][..], &[0x80]].concat();
        assert!(!is_linkless(DAG_CBOR, &deep), "deeper than the decoder goes");
    }

    #[test]
    fn dag_json_is_a_whole_dag_if_no_member_is_a_slash_however_it_is_written() {
        for block in [r#"{"a": [1, -1, 1.5, "/", null, true, {}]}"#, r#""\/""#, r#"{"//": 1, "": {"a": {}, "b": {}}}"#]
        {
            assert!(is_linkless(DAG_JSON, block.as_bytes()), "{block}");
        }
        for block in [
            r#"{"/": "bafkqaaa"}"#,
            r#"{"\/": "bafkqaaa"}"#,
            r#"{"\u002f": "bafkqaaa"}"#,
            r#"[{"a": {"\u002F": "bafkqaaa"}}]"#,
            r#"{"a": 1, "/": "bafkqaaa"}"#,
            r#"{"/": {"bytes": "AA"}}"#,
            r#"{"a": 1, "a": 2}"#,
            r#"{"a": 1, "\u0061": 2}"#,
            r#"{"a": 1"#,
            "1 2",
            "",
            r#"{"a": 01}"#,
            r#""\ud800""#,
        ] {
            assert!(!is_linkless(DAG_JSON, block.as_bytes()), "{block}");
        }
        assert!(!is_linkless(DAG_JSON, b"\"\xff\""), "text that is not UTF-8");
        assert!(!is_linkless(DAG_JSON, &vec![b'['; 1 << 20]), "deeper than the decoder goes");
    }

    #[test]
    fn nothing_is_known_of_other_codecs() {
        assert!(!is_linkless(0x70, b"\xa0"));
    }
}
