use super::*;

fn assert_refused(text: &str, integers: Integers, why: &str) {
    let refused = check(text.as_bytes(), integers);
    assert!(matches!(&refused, Err(Error::Input { what, .. }) if what.contains(why)), "{text:.80}: {refused:?}");
}

#[test]
fn integers_are_of_the_range_that_was_asked_for() {
    let (own, wide) = (Integers::Unsigned53, Integers::Signed64);
    for (text, integers) in [
        ("0", own),
        ("[9007199254740991]", own),
        ("9007199254740992", wide),
        ("9223372036854775807", wide),
        ("-1", wide),
        ("-9223372036854775808", wide),
    ] {
        assert_eq!(check(text.as_bytes(), integers), Ok(()), "{text}");
    }
    assert_refused("9007199254740992", own, "past 2^53 - 1");
    assert_refused("{\"a\": [18446744073709551615]}", own, "past 2^53 - 1");
    assert_refused("-1", own, "without negative numbers");
    assert_refused("9223372036854775808", wide, "past 2^63 - 1");
    for text in ["1.0", "1e3", "-0", "-9223372036854775809", "18446744073709551616"] {
        assert_refused(text, own, "without negative numbers, fractions or exponents");
        assert_refused(text, wide, "without fractions or exponents");
    }
}

#[test]
fn objects_and_arrays_are_nested_to_depth_32() {
    for (open, close, levels) in [("[", "]", 31), ("{\"a\":", "}", 31), ("[0,{\"a\":", "}]", 15)] {
        let nested = |inner: &str| format!("{}{inner}{}", open.repeat(levels), close.repeat(levels));
        let deepest = if levels == 31 { "[]" } else { "[{}]" };
        assert_eq!(check(nested(deepest).as_bytes(), Integers::Unsigned53), Ok(()), "{open}");
        for inner in ["[", "{\"b\":"] {
            let deeper = nested(&format!("{inner}{deepest}{}", if inner == "[" { "]" } else { "}" }));
            assert_refused(&deeper, Integers::Unsigned53, "nesting deeper than 32");
        }
    }
    let siblings = format!("[{}[]]", "[],{},".repeat(100));
    assert_eq!(check(siblings.as_bytes(), Integers::Unsigned53), Ok(()));
}

#[test]
fn one_value_is_present_whose_members_are_distinct() {
    for text in
        ["[true, false, null, \"x\"]", "{\"\": 1, \"a\": {\"a\": 1}, \"ab\": [{\"a\": 1}, {\"a\": 2}], \"b\": 2}"]
    {
        assert_eq!(check(text.as_bytes(), Integers::Unsigned53), Ok(()), "{text}");
    }
    for (text, why) in [
        ("{\"a\": 1, \"b\": 2, \"a\": 3}", "the member \"a\" twice"),
        ("{\"a\": 1, \"\\u0061\": 3}", "the member \"a\" twice"),
        ("[{\"x\": {\"\": 1, \"\": 1}}]", "the member \"\" twice"),
        ("1 2", "trailing characters"),
        ("", "EOF"),
        ("[1,]", "trailing comma"),
        ("{1: 2}", "key must be a string"),
    ] {
        assert_refused(text, Integers::Unsigned53, why);
    }
}

#[test]
fn text_that_is_not_utf_8_is_refused_with_its_place() {
    let error = read::<Vec<String>>(b"[\n\"a\", \"\xff\"]").expect_err("not UTF-8");
    assert_eq!(error.line(), 2, "{error}");
}
