//! Requests that name payloads in JSON (protocol section 5, *payloads in one answer*, *which payloads are held*).

use std::borrow::Cow;

use coregw_core::{Cid, Error, InputCode};
use serde::Deserialize;
use serde::de::{self, Deserializer};

use super::error::BatchError;
use crate::json::{Text, array, objects};
use crate::message::{self, shown};

const HAS: &str = "cas.has-batch/v0alpha1";
const GET: &str = "cas.get-batch/v0alpha1";
/// The limit on the CIDs of one request.
const MAX_CIDS: usize = 4096;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct CidsRequest<'a> {
    #[serde(borrow)]
    profile: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "cids")]
    cids: Vec<TextMember<'a>>,
}

objects! {
    read: CidsRequest<'a>;
}

/// A string, borrowed if it contains no escapes.
#[derive(Debug)]
struct TextMember<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for TextMember<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        de::DeserializeSeed::deserialize(Text, deserializer).map(Self)
    }
}

fn cids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<TextMember<'de>>, D::Error> {
    array(deserializer, "cids", MAX_CIDS, InputCode::TooLarge)
}

/// Reads the JSON body of `POST /v1/cas/has`. O(bytes).
///
/// # Errors
/// [`Error::Input`] if the request is malformed, or names more than 4,096 CIDs. It names the CID.
pub fn read_has_batch(body: &[u8]) -> Result<Vec<Cid>, BatchError> {
    read(body, HAS)
}

/// Reads a request for the bytes of payloads, as a CAR. O(bytes).
///
/// # Errors
/// [`Error::Input`] if the request is malformed, names more than 4,096 CIDs, or names a root. It names the CID.
pub fn read_get_batch(body: &[u8]) -> Result<Vec<Cid>, BatchError> {
    let cids = read(body, GET)?;
    if let Some(index) = cids.iter().position(|cid| cid.root().is_some()) {
        let error = Error::input(InputCode::KindMismatch, format!("{} is a root, not a payload", cids[index]));
        return Err(BatchError::of_item("cids", index, error));
    }
    Ok(cids)
}

fn read(body: &[u8], profile: &str) -> Result<Vec<Cid>, BatchError> {
    let request: CidsRequest<'_> = message::request(body)?;
    if request.profile != profile {
        let what = format!("profile: {:?} is not {profile:?}", shown(&request.profile));
        return Err(Error::input(InputCode::UnknownProfile, what).into());
    }
    let cid = |(index, TextMember(text)): (usize, &TextMember<'_>)| {
        Cid::from_text(text).map_err(|error| BatchError::of_item("cids", index, error))
    };
    request.cids.iter().enumerate().map(cid).collect()
}

#[cfg(test)]
mod tests {
    use coregw_core::codec::Codec;
    use coregw_core::payload::{self, Function};
    use coregw_core::{Digest, Kind, RootCid, Suite};
    use serde_json::{Value, json};

    use super::*;

    type Reader = fn(&[u8]) -> Result<Vec<Cid>, BatchError>;

    /// The readers, each with its profile and that of the other.
    const READERS: [(Reader, &str, &str); 2] = [(read_has_batch, HAS, GET), (read_get_batch, GET, HAS)];

    fn cid(data: &[u8], codec: &str) -> Cid {
        let codec = Codec::parse(codec).expect("a codec");
        payload::cid(data, codec, Function::Sha2_256).expect("a hash takes any length")
    }

    #[track_caller]
    fn assert_refused(reader: Reader, body: &Value, code: InputCode, index: Option<usize>, why: &str) {
        let refused = reader(body.to_string().as_bytes()).expect_err("it is refused");
        assert_eq!(refused.index, index, "{why}: {}", refused.error);
        let Error::Input { code: found, what } = &refused.error else { panic!("{}", refused.error) };
        assert!(*found == code && what.contains(why), "{why}: {found:?} {what}");
    }

    #[test]
    fn cids_are_read_in_order_and_the_first_that_is_none_is_named() {
        let cids = [cid(b"a", "raw"), cid(b"b", "dag-cbor"), cid(b"a", "raw")];
        let texts = cids.map(|cid| cid.text());
        for (reader, profile, _) in READERS {
            let read = |cids: &[String]| reader(json!({"profile": profile, "cids": cids}).to_string().as_bytes());
            assert_eq!(read(&texts).ok().as_deref(), Some(&cids[..]));
            assert_eq!(read(&[]).ok(), Some(vec![]));
            let not_a_cid = json!({"profile": profile, "cids": [texts[0], texts[1], "x", "y"]});
            assert_refused(reader, &not_a_cid, InputCode::InvalidCid, Some(2), "cids[2]");
        }
    }

    #[test]
    fn roots_may_be_looked_up_but_have_no_bytes() {
        let root = RootCid { kind: Kind::Map, suite: Suite::Sha2_256, digest: Digest([1; 32]) }.cid();
        let cids = json!([cid(b"a", "raw").text(), root.text()]);
        let asked = json!({"profile": HAS, "cids": cids}).to_string();
        assert_eq!(read_has_batch(asked.as_bytes()).ok(), Some(vec![cid(b"a", "raw"), root]));
        let requested = json!({"profile": GET, "cids": cids});
        assert_refused(read_get_batch, &requested, InputCode::KindMismatch, Some(1), "is a root");
    }

    #[test]
    fn other_profiles_and_members_are_refused() {
        for (reader, profile, other) in READERS {
            let cids = json!([cid(b"a", "raw").text()]);
            let why = format!("profile: {other:?} is not {profile:?}");
            assert_refused(reader, &json!({"profile": other, "cids": cids}), InputCode::UnknownProfile, None, &why);
            for (body, why) in [
                (json!({"profile": profile}), "cids"),
                (json!({"cids": cids}), "profile"),
                (json!({"profile": profile, "cids": null}), "an array"),
                (json!({"profile": profile, "cids": {}}), "an array"),
                (json!({"profile": profile, "cids": ["x", 1]}), "cids[1]"),
                (json!({"profile": profile, "cids": cids, "blocks": []}), "blocks"),
            ] {
                assert_refused(reader, &body, InputCode::InvalidRequest, None, why);
            }
        }
    }

    #[test]
    fn at_most_4096_cids_are_accepted() {
        let text = cid(b"", "raw").text();
        for (reader, profile, _) in READERS {
            let body = |count| json!({"profile": profile, "cids": vec![&text; count]});
            let read = reader(body(MAX_CIDS).to_string().as_bytes());
            assert_eq!(read.map(|cids| cids.len()).ok(), Some(MAX_CIDS));
            let why = "cids: more than 4096 items";
            assert_refused(reader, &body(MAX_CIDS + 1), InputCode::TooLarge, None, why);
        }
    }
}
