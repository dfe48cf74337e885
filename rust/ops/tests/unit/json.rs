use coregw_core::{InputCode, Suite};

use super::*;

#[test]
fn envelopes_are_split_without_a_change_of_the_texts() {
    let (request, result) = (r#"{ "a":1.50, "b": "\u0061" }"#, "[1,  2]");
    for body in [
        format!(r#"{{"request":{request},"result":{result}}}"#),
        format!(" {{ \"result\" : {result} ,\n\"request\": {request} }} "),
    ] {
        assert_eq!(envelope(body.as_bytes()), Ok((request, result)));
    }
    for body in [
        "",
        "null",
        "[1,2]",
        r#"{"request":1}"#,
        r#"{"request":1,"result":2,"more":3}"#,
        r#"{"request":1,"request":1,"result":2}"#,
        r#"{"request":1,"result":2}}"#,
    ] {
        let refused = envelope(body.as_bytes());
        assert!(matches!(&refused, Err(Error::Input { what, .. }) if what.starts_with("the body: ")), "{refused:?}");
    }
}

#[test]
fn arcs_are_read_alone_and_with_their_suite() {
    let cid = "bafkqaaa";
    let members = format!(r#"{{"b/c":"{cid}","a\u002fd":"{cid}"}}"#);
    assert_eq!(arcs(members.as_bytes()).map(|arcs| arcs.len()), Ok(2));
    let read = create_root(format!(r#"{{"arcs":{members}}}"#).as_bytes()).map(|(arcs, suite)| (arcs.len(), suite));
    assert_eq!(read, Ok((2, Suite::default())));
    for suite in Suite::ALL {
        let request = format!(r#"{{"suite":"{}","arcs":{{}}}}"#, suite.name());
        assert_eq!(create_root(request.as_bytes()).map(|(arcs, suite)| (arcs.len(), suite)), Ok((0, suite)));
    }
    for twice in [r#"{"arcs":{},"arcs":{}}"#, r#"{"suite":"sha2-256","arcs":{},"suite":"blake3"}"#] {
        let refused = create_root(twice.as_bytes());
        assert!(matches!(&refused, Err(Error::Input { what, .. }) if what.contains("duplicate field")), "{refused:?}");
    }
    for (body, code, why) in [
        (format!("{{\"a\":\"{cid}\",\n\"b\":\"no\"}}"), InputCode::InvalidCid, "arcs: arc \"b\": "),
        (format!(r#"{{"a//b":"{cid}"}}"#), InputCode::InvalidPath, "arcs: path \"a//b\": "),
        (r#"{"a":1}"#.to_owned(), InputCode::InvalidRequest, "a CID as a string"),
        ("[]".to_owned(), InputCode::InvalidRequest, "an object"),
    ] {
        let refused = arcs(body.as_bytes());
        let Err(Error::Input { code: found, what }) = &refused else { panic!("{body}: {refused:?}") };
        assert!(*found == code && what.contains(why) && what.contains("line "), "{body}: {found:?} {what}");
    }
}
