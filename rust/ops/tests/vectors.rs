//! The test vectors of whole operations (protocol section 6).

use std::path::PathBuf;

use coregw_ops::{verify_map_proof, verify_read, verify_resolve, verify_scan};
use serde_json::Value;

fn cases(name: &str) -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
    let text = std::fs::read_to_string(&path).expect("the vectors are in the project");
    let file: Value = serde_json::from_str(&text).expect("vectors are JSON");
    file["cases"].as_array().expect("cases").clone()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn check_operation(case: &Value) {
    let text_or = |name: &str, value: &Value| match case.get(name) {
        Some(text) => text.as_str().expect("a text").as_bytes().to_vec(),
        None => value.to_string().into_bytes(),
    };
    let (request, result) = (text_or("request_text", &case["request"]), text_or("result_text", &case["result"]));
    let proven = match text(&case["operation"]) {
        "resolve" => verify_resolve(&request, &result).map(|_| ()),
        "read" => verify_read(&request, &result).map(|_| ()),
        "map_proof" => verify_map_proof(&request, &result).map(|_| ()),
        "scan" => verify_scan(&request, &result).map(|_| ()),
        other => panic!("unknown operation {other}"),
    };
    assert_eq!(proven.is_ok(), case["valid"].as_bool().expect("valid"), "{proven:?}: {case}");
}

#[test]
fn operations() {
    cases("operations.json").iter().for_each(check_operation);
}

#[test]
fn hostile_operations() {
    let cases = cases("hostile.json");
    let operations = cases.iter().filter(|case| !["proof", "changes"].contains(&text(&case["operation"])));
    assert_eq!(operations.map(check_operation).count(), 146);
}
