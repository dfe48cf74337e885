use std::marker::PhantomData;

use super::*;

#[test]
fn the_error_of_a_part_names_its_place_in_the_whole() {
    for whole in ["{\"a\":  [1,\n 2, x]}", "{\n\n \"a\":[1, x]}", "{\"a\":[1, x]}", "{\"a\":\n[1,\n x]}"] {
        let whole_fails = serde_json::from_str::<serde_json::Value>(whole).expect_err("no JSON");
        let start = whole.find('[').expect("an array");
        // Text that is no JSON cannot be kept as a part, so the reader of the part fails on what the error replaces.
        let part = &whole[start..whole.len() - 1];
        let part_fails = serde_json::from_str::<serde_json::Value>(part).expect_err("no JSON");
        assert_eq!(moved(whole.as_bytes(), part, &part_fails).to_string(), whole_fails.to_string());
    }
}

#[test]
fn a_part_is_read_as_if_in_place() {
    let whole = "{\"a\":\n [1, 2, \"x\"]}";
    let parts: std::collections::BTreeMap<&str, &RawValue> = serde_json::from_str(whole).expect("JSON");
    let error = read_part(whole.as_bytes(), parts["a"], PhantomData::<Vec<u8>>).expect_err("a string");
    let expected = serde_json::from_str::<std::collections::BTreeMap<&str, Vec<u8>>>(whole).expect_err("a string");
    assert_eq!(error.to_string(), expected.to_string());
}
