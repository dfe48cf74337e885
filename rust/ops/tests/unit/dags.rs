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
    for block in [r#"{"a": [1, -1, 1.5, "/", null, true, {}]}"#, r#""\/""#, r#"{"//": 1, "": {"a": {}, "b": {}}}"#] {
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
