//! The rules of HTTP by vectors. Tests of the routes show that the gateway asks them.

use coregw_front::conditions::{EntityBytes, Precondition, Selection, entity_bytes, evaluate, select};
use coregw_front::media::{MediaType, negotiate};
use coregw_front::origins::{Origins, Refusal, Source};
use serde_json::{Value, json};

fn vectors(section: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("vectors/http.json")).expect("JSON");
    let found = file[section].as_array().expect("a list of vectors").clone();
    assert!(found.len() > 10, "{section}");
    found
}

fn field<'a>(vector: &'a Value, name: &str) -> Option<&'a [u8]> {
    vector[name].as_str().map(str::as_bytes)
}

fn offers(vector: &Value) -> Vec<MediaType> {
    let texts = vector["offers"].as_array().expect("a list");
    texts.iter().map(|text| MediaType::parse(text.as_str().expect("text").as_bytes()).expect("an offer")).collect()
}

#[test]
fn preconditions_decide_in_order() {
    for vector in vectors("preconditions") {
        let etag = field(&vector, "etag").expect("a tag");
        let status = match evaluate(etag, field(&vector, "if_match"), field(&vector, "if_none_match")) {
            Precondition::Met => 200,
            Precondition::NotModified => 304,
            Precondition::Failed => 412,
        };
        assert_eq!(vector["status"], json!(status), "{vector}");
    }
}

#[test]
fn ranges_select_bytes() {
    for vector in vectors("ranges") {
        let size = vector["size"].as_u64().expect("a size");
        let selected = match select(field(&vector, "range"), field(&vector, "if_range"), b"\"a\"", size) {
            Selection::Whole => json!(null),
            Selection::Part(part) => json!([part.start, part.end]),
            Selection::Unsatisfiable => json!("unsatisfiable"),
        };
        assert_eq!(vector["selected"], selected, "{vector}");
    }
}

#[test]
fn ranges_agree_with_a_model_of_single_bytes() {
    let selected = |range: &str, size| select(Some(range.as_bytes()), None, b"", size);
    let part = |wanted: Vec<u64>| match (wanted.first(), wanted.last()) {
        (Some(first), Some(last)) => Selection::Part(*first..last + 1),
        _ => Selection::Unsatisfiable,
    };
    for size in 0..5 {
        for first in 0..7 {
            for last in first..7 {
                let wanted = (0..size).filter(|place| (first..=last).contains(place)).collect();
                assert_eq!(selected(&format!("bytes={first}-{last}"), size), part(wanted));
            }
            assert_eq!(selected(&format!("bytes={first}-"), size), part((first..size).collect()));
            let suffix = if size == 0 && first > 0 {
                Selection::Whole
            } else {
                part((0..size).filter(|place| place + first >= size).collect())
            };
            assert_eq!(selected(&format!("bytes=-{first}"), size), suffix);
        }
    }
}

#[test]
fn entity_bytes_name_parts_of_entities() {
    for vector in vectors("entity_bytes") {
        let found = match entity_bytes(vector["text"].as_str().expect("text"), vector["size"].as_u64()) {
            EntityBytes::Part(part) => json!([part.start, part.end]),
            EntityBytes::Unknown => json!(null),
            EntityBytes::Malformed => json!("malformed"),
            EntityBytes::Outside => json!("outside"),
        };
        assert_eq!(vector["found"], found, "{vector}");
    }
}

#[test]
fn content_types_are_parsed() {
    for vector in vectors("content_types") {
        let given = MediaType::parse(field(&vector, "value").expect("a value"));
        let is_offered = given.is_some_and(|given| given.is_one_of(&offers(&vector)));
        assert_eq!(vector["is_offered"], json!(is_offered), "{vector}");
    }
}

#[test]
fn accept_chooses_by_specificity_weight_and_order() {
    for vector in vectors("accept") {
        let chosen = negotiate(field(&vector, "accept").expect("a value"), &offers(&vector));
        assert_eq!(vector["chosen"], json!(chosen), "{vector}");
    }
}

#[test]
fn hosts_and_pages_are_allowed_by_the_policy() {
    for vector in vectors("origins") {
        let text = |name: &str| vector[name].as_str().expect("text");
        let policy = Origins::new(text("hosts"), text("allowed"), text("listens_on")).expect("hosts");
        let method = text("method").as_bytes();
        let [host, origin, site] = ["host", "origin", "site"].map(|name| field(&vector, name));
        let code = policy.refusal(&Source { method, host, origin, site }).map(|refusal| match refusal {
            Refusal::Host(_) => "misdirected_request",
            Refusal::Page(_) => "forbidden_origin",
        });
        assert_eq!(vector["code"], json!(code), "{vector}");
    }
}

#[test]
fn a_malformed_host_of_a_policy_is_refused() {
    for text in ["https://example.org", "example.org:80", "a b", "example.org,", ".example.org", "", "\u{e9}.org"] {
        assert!(Origins::new(text, "none", "::1").is_err(), "{text:?}");
    }
}

#[test]
fn a_refusal_shows_what_is_visible_of_a_header() {
    let shown = Refusal::Host(b"a'\\\x1b\xff".to_vec()).to_string();
    assert!(shown.starts_with(r"'a\'\\\x1b\xff' is not a host"), "{shown}");
    assert!(Refusal::Page(Some(vec![b'x'; 1 << 20])).to_string().len() < 300);
}
