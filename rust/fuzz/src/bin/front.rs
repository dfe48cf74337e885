//! Fuzz target: any bytes as what a client sends: as a connection of HTTP/1, in pieces of any size; as method and path; and
//! as the fields and parameters that the front judges. What passes does not depend on how it arrives, a path means the same
//! in every spelling, and no panic.
#![no_main]

use std::fmt::Write;

use coregw_front::conditions::{EntityBytes, Precondition, Selection, entity_bytes, evaluate, select};
use coregw_front::framing::Limits;
use coregw_front::media::{MediaType, negotiate};
use coregw_front::origins::{Origins, Source};
use coregw_front::requests::{Parameters, check_json, check_payload};
use coregw_front::routes::{Route, decoded, find, normalized};
use coregw_fuzz::input::Input;
use coregw_fuzz::pieces::{Passed, passed};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { head_bytes: 512, fields: 8 };
const ETAG: &[u8] = b"\"tag\"";

fn framing(step: usize, sent: &[u8]) {
    // Which of two faults is noticed first may depend on the pieces.
    let parts = |(bytes, requests, part, fault): Passed| (bytes, requests, part, fault.is_some());
    let whole = parts(passed(LIMITS, [sent]));
    assert!(sent.starts_with(&whole.0));
    assert_eq!(parts(passed(LIMITS, sent.chunks(step))), whole);
}

/// The same path, with all of its parameter percent-encoded and an empty segment more.
fn spelled(route: &Route) -> String {
    let template = route.hot.template();
    let fixed = template.rsplit_once('{').map_or(template, |(fixed, _)| fixed);
    let mut path = format!("/{fixed}");
    for byte in route.parameter.bytes() {
        let _ = write!(path, "%{byte:02x}"); // a string takes everything
    }
    path
}

fn routes(method: &str, path: &str) {
    let normal = normalized(path);
    assert_eq!(normalized(&normal), normal);
    assert!(!normal.contains("//"));
    let _ = decoded(path);
    if let Some(route) = find(method, path) {
        assert_eq!(route.hot.is_by_url(), method != "POST");
        assert_eq!(find(method, &spelled(&route)).as_ref(), Some(&route));
    }
}

fn conditions(one: &[u8], other: &[u8], size: u64) {
    let _ = evaluate(ETAG, Some(one), Some(other));
    assert!(evaluate(ETAG, Some(ETAG), None) == Precondition::Met);
    if evaluate(ETAG, Some(one), None) == Precondition::Met {
        assert_eq!(evaluate(ETAG, None, Some(one)), Precondition::NotModified, "a strong match is a weak one");
    }
    if let Selection::Part(range) = select(Some(one), None, ETAG, size) {
        assert!(range.start < range.end && range.end <= size);
    }
    assert_eq!(select(Some(one), Some(b"W/\"tag\""), ETAG, size), Selection::Whole);
    if let Ok(text) = str::from_utf8(one)
        && let EntityBytes::Part(range) = entity_bytes(text, Some(size))
    {
        assert!(range.start <= range.end && range.end <= size);
    }
}

fn media(one: &[u8], other: &[u8]) {
    let offers: Vec<MediaType> = [one, b"application/json"].into_iter().filter_map(MediaType::parse).collect();
    assert!(offers.iter().all(|each| each.is_one_of(&offers)));
    assert!(negotiate(other, &offers).is_none_or(|chosen| chosen < offers.len()));
    let _ = (check_json(Some(one), Some(other)), check_payload(Some(one), Some(other)));
}

fn origins(one: &[u8], other: &[u8], is_write: bool) {
    let origins = Origins::new("example.org", "https://app.example.org", "127.0.0.1").expect("names of hosts");
    let method: &[u8] = if is_write { b"POST" } else { b"GET" };
    let refused = |host: &[u8]| origins.refusal(&Source { method, host: Some(host), origin: Some(other), site: None });
    assert_eq!(refused(one).is_some(), refused(&one.to_ascii_uppercase()).is_some());
    let site = origins.refusal(&Source { method, host: None, origin: None, site: Some(other) });
    assert!(is_write || site.is_none(), "reading is allowed");
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (kind, number, at) = (input.byte(), input.number(), input.below(64));
    let (one, other) = input.0.split_at(at.min(input.0.len()));
    match kind % 6 {
        0 => framing(1 + at, input.0),
        1 => conditions(one, other, number),
        2 => media(one, other),
        3 => origins(one, other, number % 2 == 0),
        4 => {
            let Ok(query) = str::from_utf8(input.0) else { return };
            if let Ok(found) = Parameters::parse(query, &["path", "index"]) {
                assert!(found.names().len() <= 2);
                let _ = (found.get("path"), found.integer("index"));
            }
        }
        _ => {
            let method = ["GET", "HEAD", "POST", "PUT"][at % 4];
            let Ok(path) = str::from_utf8(input.0) else { return };
            routes(method, path);
        }
    }
});
