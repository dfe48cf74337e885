use super::*;
use crate::json::decode_base64;

struct Bytes(Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

#[test]
fn bytes_are_written_as_canonical_base64() {
    for n in [0, 1, 2, 3, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES + 2] {
        let bytes: Vec<u8> = (0..n).map(|i| (i * 7 % 251) as u8).collect();
        let text = String::from_utf8(write(&Bytes(bytes.clone()))).expect("JSON is UTF-8");
        assert_eq!(text, format!("\"{}\"", data_encoding::BASE64.encode(&bytes)));
        assert_eq!(decode_base64(text.trim_matches('"')).as_ref(), Ok(&bytes));
    }
}

#[test]
fn base64_that_is_not_canonical_is_refused() {
    for text in
        ["AB==", "AA=", "AA", "A A=", "AA==\n", "AA==AA==", "AA==AAAA", "AAA=AAAA", "AA=A", "A===", "====", "_-8="]
    {
        assert!(decode_base64(text).is_err(), "{text:?}");
    }
}
