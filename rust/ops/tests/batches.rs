//! Batches of payloads: what is accepted, and which item a refusal names.

use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_core::{Cid, Digest, Error, InputCode, Kind, RootCid, Suite};
use coregw_ops::{BatchError, CasBatch, read_get_batch};
use serde_json::{Value, json};

const PUT: &str = "cas.put-batch/v0alpha1";
const HAS: &str = "cas.has-batch/v0alpha1";
const GET: &str = "cas.get-batch/v0alpha1";
const MAX_BLOCKS: usize = 4096;

fn cid(data: &[u8], codec: Codec) -> Cid {
    payload::cid(data, codec, Function::Sha2_256).expect("a hash takes any length")
}

fn read(body: &Value, max_payload: usize) -> Result<CasBatch, BatchError> {
    CasBatch::read(body.to_string().as_bytes(), max_payload)
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
        (json!({"profile": HAS, "blocks": block, "cids": text}), InputCode::InvalidRequest, "has the member \"cids\""),
        (json!({"profile": GET, "cids": text}), InputCode::UnknownProfile, "not that of a batch of payloads"),
        (json!({"profile": PUT, "blocks": [[null, "YQ=="]]}), InputCode::InvalidRequest, "blocks[0]"),
        (json!({"profile": HAS, "cids": ["x", 1]}), InputCode::InvalidRequest, "cids[1]"),
        (json!({"profile": PUT, "blocks": {}}), InputCode::InvalidRequest, "an array"),
    ] {
        assert_refused(read(&body, 1), code, None, why);
    }
    for (body, code, why) in [
        (json!({"profile": GET, "blocks": block}), InputCode::InvalidRequest, "has the member \"cids\""),
        (json!({"profile": GET, "blocks": block, "cids": text}), InputCode::InvalidRequest, "has the member \"cids\""),
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
