//! Heads of requests by vectors: which are hot, their parameters, and the types of their bodies.

use coregw_front::requests::{Parameters, Refused, check_json, check_payload, is_json};
use coregw_front::routes::{Hot, find};
use serde_json::{Value, json};

fn vectors(section: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("vectors/requests.json")).expect("JSON");
    let found = file[section].as_array().expect("a list of vectors").clone();
    assert!(found.len() > 30, "{section}");
    found
}

/// A field of a vector, whose characters are bytes.
fn bytes(vector: &Value, name: &str) -> Option<Vec<u8>> {
    vector[name].as_str().map(|text| text.chars().map(|byte| u32::from(byte) as u8).collect())
}

#[test]
fn paths_lead_to_hot_routes() {
    for vector in vectors("paths") {
        let text = |name: &str| vector[name].as_str().expect("text");
        let found = find(text("method"), text("target"));
        let found = found.map_or(json!(null), |route| json!([route.hot.template(), route.parameter]));
        assert_eq!(vector["route"], found, "{vector}");
    }
}

#[test]
fn templates_lead_to_themselves() {
    for (index, hot) in Hot::ALL.into_iter().enumerate() {
        assert_eq!(hot.index(), index);
        let method = if hot.is_by_url() { "HEAD" } else { "POST" };
        assert_eq!(find(method, hot.template()).map(|route| route.hot), Some(hot));
    }
}

#[test]
fn queries_have_known_parameters_once() {
    for vector in vectors("queries") {
        let allowed: Vec<&str> =
            vector["allowed"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
        match Parameters::parse(vector["query"].as_str().expect("text"), &allowed) {
            Ok(found) => {
                let expected = vector["found"].as_object().unwrap_or_else(|| panic!("accepted: {vector}"));
                let mut names: Vec<&str> = expected.keys().map(String::as_str).collect();
                names.sort_unstable();
                assert_eq!(found.names(), names, "{vector}");
                names.iter().for_each(|name| assert_eq!(found.get(name), expected[*name].as_str(), "{vector}"));
            }
            Err(Refused { code, message }) => {
                assert_eq!((vector["code"].as_str(), vector["message"].as_str()), (Some(code), Some(&*message)));
            }
        }
    }
}

#[test]
fn integers_are_plain_digits() {
    for (text, expected) in [
        ("0", Some(0)),
        ("10", Some(10)),
        ("9999999999999999", Some(9_999_999_999_999_999)),
        ("10000000000000000", None),
        ("01", None),
        ("00", None),
        ("-1", None),
        ("%2B1", None),
        ("1.0", None),
        ("", None),
        ("%D9%A1", None),
    ] {
        let found = Parameters::parse(&format!("limit={text}"), &["limit"]).expect("a query").integer("limit");
        assert_eq!(found.ok().flatten(), expected, "{text}");
    }
    assert_eq!(Parameters::default().integer("limit"), Ok(None));
    let refused =
        Parameters::parse("limit=x%27", &["limit"]).expect("a query").integer("limit").expect_err("no number");
    assert_eq!(refused.message, "query parameter 'limit' is \"x'\", expected an integer from 0 to 2^53 - 1");
}

#[test]
fn bodies_have_types() {
    for vector in vectors("types") {
        let (kind, coding) = (bytes(&vector, "type"), bytes(&vector, "coding"));
        let outcome = |result: Result<(), Refused>| match result {
            Ok(()) => json!(null),
            Err(Refused { code, message }) => json!([code, message]),
        };
        assert_eq!(vector["json"], outcome(check_json(kind.as_deref(), coding.as_deref())), "{vector}");
        assert_eq!(vector["payload"], outcome(check_payload(kind.as_deref(), coding.as_deref())), "{vector}");
        assert_eq!(vector["is_json"], json!(kind.is_some_and(|kind| is_json(&kind))), "{vector}");
    }
}
