//! Batches of payloads, to store or to look up (protocol section 5, *batches*).

use std::borrow::Cow;
use std::fmt;

use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_core::{Cid, Error, InputCode, Result, SUM_LIMIT};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use super::error::BatchError;
use crate::json::{Text, array, decode_base64, objects};
use crate::message::{self, shown};

const PUT: &str = "cas.put-batch/v0alpha1";
const HAS: &str = "cas.has-batch/v0alpha1";
const GET: &str = "cas.get-batch/v0alpha1";
/// The limit on the blocks, or CIDs, of one batch.
const MAX_BLOCKS: usize = 4096;
/// The limit on the payloads of one batch together, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// What a batch of payloads asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum CasBatch {
    /// To store these payloads under their CIDs.
    Put(Vec<(Cid, Vec<u8>)>),
    /// To tell which of these payloads are held.
    Has(Vec<Cid>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct CasBatchRequest<'a> {
    #[serde(borrow)]
    profile: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "blocks")]
    blocks: Option<Vec<Block<'a>>>,
    #[serde(borrow, default, deserialize_with = "cids")]
    cids: Option<Vec<TextMember<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct Block<'a> {
    #[serde(default)]
    codec: CodecMember,
    #[serde(borrow)]
    data: TextMember<'a>,
}

objects! {
    read: CasBatchRequest<'a>, Block<'a>;
}

/// A string, borrowed if it contains no escapes.
#[derive(Debug)]
struct TextMember<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for TextMember<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        de::DeserializeSeed::deserialize(Text, deserializer).map(Self)
    }
}

/// The codec of a block, by name or number; or why it is none.
#[derive(Debug)]
struct CodecMember(Result<Codec>);

impl Default for CodecMember {
    fn default() -> Self {
        Self(Ok(Codec::RAW))
    }
}

impl<'de> Deserialize<'de> for CodecMember {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrNumber;
        impl Visitor<'_> for NameOrNumber {
            type Value = CodecMember;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a codec: a string, or an integer from 0 to 2^53 - 1")
            }

            fn visit_str<E>(self, name: &str) -> Result<CodecMember, E> {
                Ok(CodecMember(Codec::parse(name)))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<CodecMember, E> {
                match number < SUM_LIMIT {
                    true => Ok(CodecMember(Codec::from_number(number))),
                    false => Err(E::invalid_value(de::Unexpected::Unsigned(number), &self)),
                }
            }
        }
        deserializer.deserialize_any(NameOrNumber)
    }
}

fn blocks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Block<'de>>>, D::Error> {
    array(deserializer, "blocks", MAX_BLOCKS, InputCode::TooLarge).map(Some)
}

fn cids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<TextMember<'de>>>, D::Error> {
    array(deserializer, "cids", MAX_BLOCKS, InputCode::TooLarge).map(Some)
}

impl CasBatch {
    /// Reads a batch, and hashes its payloads. O(bytes).
    ///
    /// # Errors
    /// [`Error::Input`] if the request is malformed, a payload has more than `max_payload` bytes, or it has more than
    /// 4,096 blocks or 64 MiB of payloads. It names the block or CID.
    pub fn read(body: &[u8], max_payload: usize) -> Result<Self, BatchError> {
        let request: CasBatchRequest<'_> = message::request(body)?;
        match (&*request.profile, request.blocks, request.cids) {
            (PUT, Some(blocks), None) => payloads(&blocks, max_payload).map(Self::Put),
            (HAS, None, Some(cids)) => parsed(&cids).map(Self::Has),
            (PUT, ..) => Err(Error::request(format!("a batch of profile {PUT} has the member \"blocks\"")).into()),
            (HAS, ..) => Err(Error::request(format!("a batch of profile {HAS} has the member \"cids\"")).into()),
            (other, ..) => {
                let what = format!("profile: {:?} is not that of a batch of payloads", shown(other));
                Err(Error::input(InputCode::UnknownProfile, what).into())
            }
        }
    }
}

/// Reads a request for the bytes of payloads, as a CAR.
///
/// # Errors
/// [`Error::Input`] if the request is malformed, names more than 4,096 CIDs, or names a root. It names the CID.
pub fn read_get_batch(body: &[u8]) -> Result<Vec<Cid>, BatchError> {
    let request: CasBatchRequest<'_> = message::request(body)?;
    match (&*request.profile, request.blocks, request.cids) {
        (GET, None, Some(cids)) => {
            let cids = parsed(&cids)?;
            if let Some(index) = cids.iter().position(|cid| cid.root().is_some()) {
                let error = Error::input(InputCode::KindMismatch, format!("{} is a root, not a payload", cids[index]));
                return Err(BatchError::of_item("cids", index, error));
            }
            Ok(cids)
        }
        (GET, ..) => Err(Error::request(format!("a request of profile {GET} has the member \"cids\"")).into()),
        (other, ..) => {
            let what = format!("profile: {:?} is not {GET:?}", shown(other));
            Err(Error::input(InputCode::UnknownProfile, what).into())
        }
    }
}

fn parsed(cids: &[TextMember<'_>]) -> Result<Vec<Cid>, BatchError> {
    let cid = |(index, TextMember(text)): (usize, &TextMember<'_>)| {
        Cid::from_text(text).map_err(|error| BatchError::of_item("cids", index, error))
    };
    cids.iter().enumerate().map(cid).collect()
}

fn payloads(blocks: &[Block<'_>], max_payload: usize) -> Result<Vec<(Cid, Vec<u8>)>, BatchError> {
    let mut payloads = Vec::with_capacity(blocks.len());
    let mut total = 0;
    for (index, block) in blocks.iter().enumerate() {
        let (cid, data) =
            payload_of(block, max_payload).map_err(|error| BatchError::of_item("blocks", index, error))?;
        total += data.len();
        if total > MAX_BYTES {
            let what =
                format!("the payloads up to blocks[{index}] have {total} bytes together; the limit is {MAX_BYTES}");
            return Err(Error::input(InputCode::TooLarge, what).into());
        }
        payloads.push((cid, data));
    }
    Ok(payloads)
}

fn payload_of(block: &Block<'_>, max_payload: usize) -> Result<(Cid, Vec<u8>)> {
    let TextMember(text) = &block.data;
    let data = decode_base64(text)
        .map_err(|error| Error::request(format!("data is not canonical base64 (RFC 4648 section 4): {error}")))?;
    if data.len() > max_payload {
        let what = format!("the payload has {} bytes; the limit is {max_payload}", data.len());
        return Err(Error::input(InputCode::TooLarge, what));
    }
    let cid = payload::cid(&data, block.codec.0.clone()?, Function::Sha2_256)?;
    Ok((cid, data))
}

#[cfg(test)]
mod tests {
    use coregw_core::{Digest, Kind, RootCid, Suite};
    use data_encoding::BASE64;
    use serde_json::{Value, json};

    use super::*;

    fn cid(data: &[u8], codec: Codec) -> Cid {
        payload::cid(data, codec, Function::Sha2_256).expect("a hash takes any length")
    }

    fn read(body: &Value, max_payload: usize) -> Result<CasBatch, BatchError> {
        CasBatch::read(body.to_string().as_bytes(), max_payload)
    }

    #[test]
    fn payloads_are_accepted_up_to_64_mib_together() {
        let block = |text| Block { codec: CodecMember::default(), data: TextMember(Cow::Borrowed(text)) };
        let text = BASE64.encode(&vec![0; MAX_BYTES / 8]);
        let mut blocks: Vec<_> = (0..8).map(|_| block(&text[..])).chain([block("")]).collect();
        assert_eq!(payloads(&blocks, MAX_BYTES / 8).ok().map(|payloads| payloads.len()), Some(9));
        blocks.push(block("YQ=="));
        let refused = payloads(&blocks, MAX_BYTES / 8).expect_err("a byte more");
        let why = "the payloads up to blocks[9] have 67108865 bytes together";
        assert!(refused.index.is_none() && refused.error.to_string().contains(why), "{}", refused.error);
    }

    #[track_caller]
    fn assert_refused<T>(outcome: Result<T, BatchError>, code: InputCode, index: Option<usize>, why: &str) {
        let refused = outcome.err().expect("it is refused");
        assert_eq!(refused.index, index, "{why}: {}", refused.error);
        let Error::Input { code: found, what } = &refused.error else { panic!("{}", refused.error) };
        assert!(*found == code && what.contains(why), "{why}: {found:?} {what}");
    }

    #[test]
    fn batches_are_what_their_profile_says() {
        let put = json!({"profile": PUT, "blocks": [{"data": "YQ=="}, {"codec": "dag-cbor", "data": "9g=="}, {"codec": 113, "data": ""}]});
        let cbor = Codec::parse("dag-cbor").expect("a codec");
        let expected = [(&b"a"[..], Codec::RAW), (b"\xf6", cbor), (b"", cbor)];
        let expected = expected.map(|(data, codec)| (cid(data, codec), data.to_vec()));
        assert_eq!(read(&put, 1).ok(), Some(CasBatch::Put(expected.to_vec())));
        assert_refused(read(&put, 0), InputCode::TooLarge, Some(0), "blocks[0]: the payload has 1 bytes");

        let cids = [cid(b"a", Codec::RAW), cid(b"b", cbor)];
        let texts = cids.map(|cid| cid.text());
        let has = json!({"profile": HAS, "cids": texts});
        assert_eq!(read(&has, 0).ok(), Some(CasBatch::Has(cids.to_vec())));
        let get = |cids: &[String]| read_get_batch(json!({"profile": GET, "cids": cids}).to_string().as_bytes());
        assert_eq!(get(&texts).ok().as_deref(), Some(&cids[..]));

        let root = RootCid { kind: Kind::Map, suite: Suite::Sha2_256, digest: Digest([1; 32]) }.cid().text();
        let with_root = [texts[0].clone(), root];
        assert_refused(get(&with_root), InputCode::KindMismatch, Some(1), "is a root");
        let not_a_cid = [texts[0].clone(), texts[1].clone(), "x".to_owned()];
        assert_refused(get(&not_a_cid), InputCode::InvalidCid, Some(2), "cids[2]");
        assert_refused(read(&json!({"profile": HAS, "cids": not_a_cid}), 0), InputCode::InvalidCid, Some(2), "cids[2]");
    }

    #[test]
    fn members_and_profiles_of_other_batches_are_refused() {
        let (block, text) = (json!([{"data": "YQ=="}]), json!([cid(b"a", Codec::RAW).text()]));
        for (body, code, why) in [
            (json!({"profile": PUT, "cids": text}), InputCode::InvalidRequest, "has the member \"blocks\""),
            (
                json!({"profile": PUT, "blocks": block, "cids": text}),
                InputCode::InvalidRequest,
                "has the member \"blocks\"",
            ),
            (json!({"profile": HAS, "blocks": block}), InputCode::InvalidRequest, "has the member \"cids\""),
            (
                json!({"profile": HAS, "blocks": block, "cids": text}),
                InputCode::InvalidRequest,
                "has the member \"cids\"",
            ),
            (json!({"profile": GET, "cids": text}), InputCode::UnknownProfile, "not that of a batch of payloads"),
            (json!({"profile": PUT, "blocks": [[null, "YQ=="]]}), InputCode::InvalidRequest, "blocks[0]"),
            (json!({"profile": HAS, "cids": ["x", 1]}), InputCode::InvalidRequest, "cids[1]"),
            (json!({"profile": PUT, "blocks": {}}), InputCode::InvalidRequest, "an array"),
        ] {
            assert_refused(read(&body, 1), code, None, why);
        }
        for (body, code, why) in [
            (json!({"profile": GET, "blocks": block}), InputCode::InvalidRequest, "has the member \"cids\""),
            (
                json!({"profile": GET, "blocks": block, "cids": text}),
                InputCode::InvalidRequest,
                "has the member \"cids\"",
            ),
            (json!({"profile": HAS, "cids": text}), InputCode::UnknownProfile, "is not \"cas.get-batch"),
        ] {
            assert_refused(read_get_batch(body.to_string().as_bytes()), code, None, why);
        }
        for (codec, place, why) in [
            (json!("no-such"), Some(1), "blocks[1]"),
            (json!(9_007_199_254_740_992_u64), None, "an integer from 0 to 2^53 - 1"),
            (json!(true), None, "a codec: a string"),
        ] {
            let body = json!({"profile": PUT, "blocks": [{"data": ""}, {"codec": codec, "data": ""}]});
            let refused = read(&body, 1).expect_err("not a codec of payloads");
            assert_eq!(refused.index, place, "{codec}: {}", refused.error);
            assert!(refused.error.to_string().contains(why), "{codec}: {}", refused.error);
        }
        let largest = json!({"profile": PUT, "blocks": [{"codec": 9_007_199_254_740_991_u64, "data": ""}]});
        assert!(matches!(read(&largest, 0), Ok(CasBatch::Put(blocks)) if blocks.len() == 1));
        for data in ["YQ", "YR==", "YQ==\n", "Y-=="] {
            let body = json!({"profile": PUT, "blocks": [{"data": data}]});
            assert_refused(read(&body, 1), InputCode::InvalidRequest, Some(0), "not canonical base64");
        }
    }

    #[test]
    fn batches_are_accepted_up_to_their_limits() {
        let text = cid(b"", Codec::RAW).text();
        for (count, fits) in [(MAX_BLOCKS, true), (MAX_BLOCKS + 1, false)] {
            let put = read(&json!({"profile": PUT, "blocks": vec![json!({"data": ""}); count]}), 0);
            let has = read(&json!({"profile": HAS, "cids": vec![&text; count]}), 0);
            match fits {
                true => {
                    assert!(matches!(put, Ok(CasBatch::Put(blocks)) if blocks.len() == count));
                    assert!(matches!(has, Ok(CasBatch::Has(cids)) if cids.len() == count));
                }
                false => {
                    assert_refused(put, InputCode::TooLarge, None, "blocks: more than 4096 items");
                    assert_refused(has, InputCode::TooLarge, None, "cids: more than 4096 items");
                }
            }
        }
    }
}
