//! The test vectors of `tests/vectors/` (protocol section 6).

use std::collections::HashMap;
use std::path::PathBuf;

use coregw_core::codec::Codec;
use coregw_core::{
    Arcs, Cid, Digest, Key, Keys, Kind, ListChange, ListChanges, MapChange, MapChanges, Page, Result, RootCid,
    Snapshot, Suite, Window, payload, verify,
};
use serde_json::Value;

fn cases(name: &str) -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
    let text = std::fs::read_to_string(&path).expect("the vectors are in the repository");
    let file: Value = serde_json::from_str(&text).expect("vectors are JSON");
    file["cases"].as_array().expect("cases").clone()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().expect("an array").iter().map(|s| text(s).to_owned()).collect()
}

fn suite(case: &Value) -> Suite {
    Suite::from_name(text(&case["suite"])).expect("a known suite")
}

fn cid(value: &Value) -> Cid {
    Cid::from_text(text(value)).expect("a CID")
}

fn maybe_cid(value: &Value) -> Option<Cid> {
    (!value.is_null()).then(|| cid(value))
}

fn root(value: &Value) -> Option<RootCid> {
    Cid::from_text(text(value)).ok().and_then(|cid| cid.root())
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(text(value)).expect("hex")
}

fn build_map(suite: Suite, arcs: &Value) -> Snapshot {
    let mut all = Arcs::default();
    for (path, target) in arcs.as_object().expect("arcs") {
        all.push(&Key::from_text(path).expect("a path"), &cid(target));
    }
    Snapshot::map(suite, all).expect("arcs make a map")
}

fn build_list(suite: Suite, elements: &Value) -> Snapshot {
    let elements: Vec<_> = elements
        .as_array()
        .expect("elements")
        .iter()
        .map(|e| (cid(&e["target"]), e["size"].as_u64().expect("a size")))
        .collect();
    Snapshot::list(suite, &elements).expect("elements make a list")
}

#[test]
fn keys_match_the_vectors() {
    for case in cases("keys.json") {
        let key = Key::from_segments(&strings(&case["segments"])).expect("a path");
        assert_eq!(hex::encode(key.as_bytes()), text(&case["key"]), "{case}");
    }
}

#[test]
fn payload_cids_match_the_vectors() {
    for case in cases("payloads.json") {
        let data = bytes(&case["bytes"]);
        let codec = Codec::parse(text(&case["codec"])).expect("a codec");
        let function = payload::Function::from_name(text(&case["hash"])).expect("a hash function");
        let expected = cid(&case["cid"]);
        assert_eq!(payload::cid(&data, codec, function), Ok(expected), "{case}");
        let mut hasher = payload::Hasher::new(codec, function);
        data.chunks(7).for_each(|chunk| hasher.update(chunk));
        assert_eq!(hasher.cid(), Ok(expected), "{case}");
        assert!(payload::matches(&expected, &data), "{case}");
        assert!(!payload::matches(&expected, &[&data[..], b"x"].concat()), "{case}");
    }
}

#[test]
fn roots_match_the_vectors() {
    for case in cases("roots.json") {
        let tree = match text(&case["kind"]) {
            "map" => build_map(suite(&case), &case["arcs"]),
            _ => build_list(suite(&case), &case["elements"]),
        };
        assert_eq!(tree.root().cid().text(), text(&case["root"]), "{case}");
        assert_eq!(tree.count(), case["count"].as_u64().expect("a count"));
        if let Some(measure) = case.get("measure") {
            assert_eq!(tree.measure(), measure.as_u64().expect("a measure"));
        }
    }
}

fn keys(case: &Value) -> Result<Keys> {
    let key = |segments| Key::from_segments(&strings(segments)).expect("a path");
    Keys::new(case["keys"].as_array().expect("keys").iter().map(key).collect())
}

#[test]
fn multiproofs_match_the_vectors() {
    let all = cases("roots.json");
    let maps: HashMap<_, _> =
        all.iter().filter(|case| case["kind"] == "map").map(|case| (text(&case["root"]), case)).collect();
    let mut proved = 0;
    for case in cases("multiproofs.json") {
        let (root, proof) = (root(&case["root"]).expect("a root"), bytes(&case["proof"]));
        let proven = keys(&case).and_then(|keys| verify::keys(&root, &keys, &proof, verify::WIDE_PROOF_LIMIT));
        if case["valid"] == true {
            let targets: Vec<_> = case["targets"].as_array().expect("targets").iter().map(maybe_cid).collect();
            assert_eq!(proven, Ok(targets), "{case}");
        } else {
            assert!(proven.is_err(), "{case}");
        }
        if let (Some(map), true) = (maps.get(text(&case["root"])), case["valid"] == true) {
            let map = build_map(suite(&case), &map["arcs"]);
            let (_, made) = map.keys(keys(&case).expect("distinct keys")).expect("a map");
            assert_eq!(hex::encode(made()), text(&case["proof"]), "{case}");
            proved += 1;
        }
    }
    assert!(proved >= 10, "{proved}");
}

/// Verifies the proof of a case; returns what it proves as the members of a vector, or why the proof is refused.
fn proven(case: &Value) -> Result<Value, String> {
    let query = &case["query"];
    let root = root(&case["root"]).ok_or("the root is not a root CID")?;
    let proof = bytes(&case["proof"]);
    let show = |cid: Option<Cid>| cid.map_or(Value::Null, |cid| Value::String(cid.text()));
    match text(&query["kind"]) {
        "map_key" => {
            let key = Key::from_segments(&strings(&query["segments"])).map_err(|e| e.to_string())?;
            let found = verify::key(&root, &key, &proof, verify::PROOF_LIMIT);
            // The proof of one key is a multiproof of it, and what is refused as one is refused as the other.
            let several =
                |keys| Keys::new(keys).and_then(|keys| verify::keys(&root, &keys, &proof, verify::PROOF_LIMIT));
            assert_eq!(
                several([key.clone()].into_iter().collect()).ok(),
                found.clone().ok().map(|target| vec![target]),
                "{case}"
            );
            if case["why"].as_str().is_some_and(|why| why.contains("empty node inside")) {
                for other in ["\u{1}", "a", "z", "\u{f0}", "\u{10ffff}"] {
                    let other = Key::from_text(other).expect("a path"); // one of them leads to the empty node
                    assert!(several([key.clone(), other].into_iter().collect()).is_err(), "{case}");
                }
            }
            let target = found.map_err(|e| e.to_string())?;
            Ok(serde_json::json!({"present": target.is_some(), "target": show(target)}))
        }
        "list_index" => {
            let index = query["index"].as_u64().expect("an index");
            let found = verify::index(&root, index, &proof, verify::PROOF_LIMIT).map_err(|e| e.to_string())?;
            let present = found.target.is_some();
            Ok(serde_json::json!({"present": present, "target": show(found.target), "length": found.length}))
        }
        _ => {
            let (start, end) = (query["start"].as_u64().expect("a start"), query["end"].as_u64());
            let found =
                verify::range(&root, start, end, &proof, verify::WIDE_PROOF_LIMIT).map_err(|e| e.to_string())?;
            let segments: Vec<_> = found.segments.iter().map(Cid::text).collect();
            Ok(serde_json::json!({"segments": segments, "sizes": found.sizes, "offset": found.offset,
                "length": found.length, "total_size": found.total_size}))
        }
    }
}

fn check_proof(case: &Value) {
    let proven = proven(case);
    if case["valid"] != Value::Bool(true) {
        assert!(proven.is_err(), "must be refused: {case}");
        return;
    }
    let proven = proven.unwrap_or_else(|why| panic!("{why}: {case}"));
    for (name, value) in proven.as_object().expect("members") {
        if let Some(expected) = case.get(name) {
            assert_eq!(value, expected, "{name} of {case}");
        }
    }
}

#[test]
fn proofs_of_the_vectors_are_accepted_or_refused_as_recorded() {
    cases("proofs.json").iter().for_each(check_proof);
}

#[test]
fn listings_and_their_proofs_match_the_vectors() {
    for case in cases("scans.json") {
        let map = build_map(suite(&case), &case["arcs"]);
        let prefix = strings(&case["prefix"]);
        let after = (!case["after"].is_null()).then(|| strings(&case["after"]));
        let window = Window::new(&prefix, after.as_deref()).expect("a window");
        let limit = case["limit"].as_u64().expect("a limit") as usize;
        let (listing, proof) = map.scan(window.clone(), limit).expect("a listing");
        assert_eq!(hex::encode(proof()), text(&case["proof"]), "{case}");
        let proven = verify::scan(&map.root(), window, limit, &bytes(&case["proof"]), verify::WIDE_PROOF_LIMIT);
        assert_eq!(proven.as_ref(), Ok(&listing));
        let expected: Vec<_> = case["entries"].as_array().expect("entries").iter().map(entry).collect();
        assert_eq!(listing.entries, expected);
        assert_eq!(listing.more, case["more"].as_bool().expect("more"));
    }
}

fn entry(value: &Value) -> (Key, Cid) {
    match value {
        Value::Array(pair) => (Key::from_segments(&strings(&pair[0])).expect("a path"), cid(&pair[1])),
        other => (Key::from_segments(&strings(&other["segments"])).expect("a path"), cid(&other["target"])),
    }
}

fn map_changes(changes: &Value) -> Result<MapChanges> {
    let one = |c: &Value| MapChange {
        key: Key::from_text(text(&c["path"])).expect("a path"),
        before: maybe_cid(&c["before"]),
        after: maybe_cid(&c["after"]),
    };
    MapChanges::new(changes.as_array().expect("changes").iter().map(one).collect())
}

fn list_changes(changes: &Value) -> ListChanges {
    let one = |c: &Value| ListChange {
        index: c["index"].as_u64().expect("an index"),
        before: maybe_cid(&c["before"]).map(|cid| (cid, None)),
        after: maybe_cid(&c["after"]).map(|cid| (cid, c["size"].as_u64().unwrap_or(1))),
    };
    ListChanges::new(changes.as_array().expect("changes").iter().map(one).collect()).expect("changes")
}

#[test]
fn transitions_and_their_proofs_match_the_vectors() {
    for case in cases("transitions.json") {
        let limit = verify::WIDE_PROOF_LIMIT;
        let proof = bytes(&case["proof"]);
        let (base, changed, made, proven) = match text(&case["kind"]) {
            "map" => {
                let base = build_map(suite(&case), &case["arcs"]);
                let changes = map_changes(&case["changes"]).expect("changes");
                let (changed, made) = base.change_map(changes.clone()).expect("the changes fit");
                let proven = verify::map_changes(&base.root(), changes, &proof, limit);
                (base, changed, made, proven)
            }
            _ => {
                let base = build_list(suite(&case), &case["elements"]);
                let changes = list_changes(&case["changes"]);
                let (changed, made) = base.change_list(changes.clone()).expect("the changes fit");
                let proven = verify::list_changes(&base.root(), changes, &proof, limit);
                (base, changed, made, proven)
            }
        };
        assert_eq!(base.root().cid().text(), text(&case["base_root"]));
        assert_eq!(changed.root().cid().text(), text(&case["new_root"]), "{case}");
        assert_eq!(hex::encode(made), text(&case["proof"]), "{case}");
        assert_eq!(proven, Ok(changed.root()));
    }
}

#[test]
fn hostile_proofs_and_changes_are_refused_as_recorded() {
    let mut seen = 0;
    for case in cases("hostile.json") {
        match text(&case["operation"]) {
            "proof" => check_proof(&case),
            "changes" => {
                let root = root(&case["root"]).expect("a root");
                let proven = map_changes(&case["changes"]).and_then(|changes| {
                    verify::map_changes(&root, changes, &bytes(&case["proof"]), verify::PROOF_LIMIT)
                });
                assert_eq!(proven.is_ok(), case["valid"].as_bool().expect("valid"), "{case}");
            }
            _ => continue,
        }
        seen += 1;
    }
    assert_eq!(seen, 142);
}

#[test]
fn pages() {
    let mut kinds = HashMap::<String, usize>::new();
    for case in cases("pages.json") {
        *kinds.entry(text(&case["kind"]).to_owned()).or_default() += 1;
        let tree = match text(&case["kind"]) {
            "map" => build_map(suite(&case), &case["arcs"]),
            "list" => {
                let elements = case["elements"].as_array().expect("elements").iter();
                let elements: Vec<_> = elements.map(|e| (cid(&e[0]), e[1].as_u64().expect("a size"))).collect();
                Snapshot::list(suite(&case), &elements).expect("elements make a list")
            }
            kind => {
                let digest = Digest(bytes(&case["digest"]).try_into().expect("a digest"));
                let page = Page::parse(&bytes(&case["page"]), Kind::Map, Suite::Sha2_256, &digest);
                assert_eq!(page.is_ok(), kind == "accepted", "{}", case["why"]);
                continue;
            }
        };
        assert_eq!(Some(tree.root()), root(&case["root"]));
        let made: HashMap<_, _> = tree.pages().map(|page| (page.digest().to_string(), page.to_bytes())).collect();
        let expected = case["pages"].as_object().expect("pages");
        assert_eq!(made, expected.iter().map(|(digest, page)| (digest.clone(), bytes(page))).collect());
    }
    assert_eq!(
        kinds,
        [("map", 10), ("list", 6), ("refused", 13), ("accepted", 1)].map(|(k, n)| (k.to_owned(), n)).into()
    );
}

#[test]
fn cids_in_text() {
    let mut accepted = 0;
    for case in cases("cids.json") {
        let read = Cid::from_text(text(&case["text"]));
        let expected = (!case["cid"].is_null()).then(|| text(&case["cid"]).to_owned());
        assert_eq!(read.as_ref().ok().map(Cid::text), expected, "{}: {read:?}", case["why"]);
        accepted += usize::from(read.is_ok());
    }
    assert!(accepted > 100);
}
