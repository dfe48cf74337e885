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
    use data_encoding::BASE64;

    use super::*;

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
}
