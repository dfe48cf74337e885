use serde_json::{Value, json};

use super::*;

fn read(body: &Value) -> Result<Vec<Digest>, BatchError> {
    read_get_pages(body.to_string().as_bytes())
}

#[track_caller]
fn assert_refused(body: &Value, code: InputCode, index: Option<usize>, why: &str) {
    let refused = read(body).expect_err("it is refused");
    assert_eq!(refused.index, index, "{why}: {}", refused.error);
    let Error::Input { code: found, what } = &refused.error else { panic!("{}", refused.error) };
    assert!(*found == code && what.contains(why), "{why}: {found:?} {what}");
}

#[test]
fn digests_are_read_in_order_and_the_first_that_is_none_is_named() {
    let digests = [Digest([0xa5; 32]), Digest([0; 32]), Digest([0xa5; 32])];
    let texts = digests.map(|digest| digest.to_string());
    assert_eq!(read(&json!({"profile": GET, "pages": texts})).ok().as_deref(), Some(&digests[..]));
    assert_eq!(read(&json!({"profile": GET, "pages": []})).ok(), Some(vec![]));
    for bad in [String::new(), texts[0].to_uppercase(), format!("{}0", texts[1]), "0".repeat(63), "é".repeat(32)] {
        let body = json!({"profile": GET, "pages": [texts[0], bad, "x"]});
        assert_refused(&body, InputCode::InvalidRequest, Some(1), "pages[1]");
    }
}

#[test]
fn other_profiles_and_members_and_too_many_pages_are_refused() {
    let page = Digest([1; 32]).to_string();
    let other = json!({"profile": "cas.get-batch/v0alpha1", "pages": [page]});
    assert_refused(&other, InputCode::UnknownProfile, None, "cas.get-batch");
    for (body, why) in [
        (json!({"profile": GET}), "pages"),
        (json!({"pages": [page]}), "profile"),
        (json!({"profile": GET, "pages": page}), "an array"),
        (json!({"profile": GET, "pages": [page, 1]}), "pages[1]"),
        (json!({"profile": GET, "pages": [], "cids": []}), "cids"),
    ] {
        assert_refused(&body, InputCode::InvalidRequest, None, why);
    }
    assert_eq!(read(&json!({"profile": GET, "pages": vec![&page; 1024]})).map_or(0, |found| found.len()), 1024);
    assert_refused(&json!({"profile": GET, "pages": vec![&page; 1025]}), InputCode::TooLarge, None, "1024");
}
