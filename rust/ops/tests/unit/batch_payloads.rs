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
