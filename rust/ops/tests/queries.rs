//! Reads, listings and map proofs on a store of pages, and the blocks of their nodes.

use std::sync::Arc;

use coregw_core::{Arcs, Digest, Error, Key, Missing, RootCid, Snapshot, Suite};
use coregw_ops::{MapProofForm, MapProofOutcome, Operation, ReadOutcome, verify_map_proof, verify_read, verify_scan};
use data_encoding::BASE64;
use serde_json::{Value, json};

#[path = "support/store.rs"]
mod store;

use store::{Store, many, payload};

#[test]
fn reads_listings_and_map_proofs_verify_and_absences_are_proven() {
    for budget in [2, u64::MAX] {
        let mut store = Store::new(0, budget);
        let arcs = many(2500);
        let root = store.build(Suite::Sha2_256, &arcs);
        let cid = root.cid().text();

        let request = json!({"profile": "core.read/v0alpha1", "root": cid,
            "query": {"kind": "map_key", "segments": ["users", "no"]}});
        let op = Operation::read(Arc::clone(&store.cache), request.to_string().as_bytes()).expect("a request");
        let Err(Error::NotFound { missing: Missing::Path, details: Some(details), .. }) = store.serve(op) else {
            panic!("the key is absent");
        };
        let outcome = verify_read(request.to_string().as_bytes(), details.as_bytes());
        assert_eq!(outcome, Ok(ReadOutcome::Key(None)));

        let request = json!({"profile": "core.map-proof/v0alpha1", "root": cid, "key": ["users"]}).to_string();
        let op = Operation::map_proof(Arc::clone(&store.cache), request.as_bytes(), MapProofForm::Result)
            .expect("a request");
        let result = store.serve(op).expect("an absence is an answer here");
        assert_eq!(verify_map_proof(request.as_bytes(), result.as_bytes()), Ok(MapProofOutcome::Key(None)));

        let (mut after, mut listed) = (None::<Vec<String>>, Vec::new());
        loop {
            let mut request = json!({"profile": "core.scan/v0alpha1", "root": cid, "prefix": ["users"], "limit": 700});
            if let Some(after) = &after {
                request["after"] = json!(after);
            }
            let request = request.to_string();
            let op = Operation::scan(Arc::clone(&store.cache), request.as_bytes()).expect("a request");
            let result = store.serve(op).expect("a listing");
            let (listing, _) = verify_scan(request.as_bytes(), result.as_bytes()).expect("proven");
            listed.extend(listing.decoded());
            after = listed.last().map(|(path, _)| path.clone());
            if !listing.more {
                break;
            }
        }
        let expected: Vec<_> =
            arcs.iter().map(|(path, cid)| (path.split('/').map(str::to_owned).collect(), *cid)).collect();
        assert_eq!(listed, expected);
    }
}

#[test]
fn the_top_of_a_page_is_the_block_that_its_root_names() {
    for suite in Suite::ALL {
        let elements: Vec<_> = (0..1000).map(|i| (payload(i), 1 + i)).collect();
        let trees = [0, 1, 1000].map(|n| Snapshot::list(suite, &elements[..n]).expect("a list"));
        let maps = [0, 1, 3000].map(|n| {
            let mut all = Arcs::default();
            many(n).iter().for_each(|(path, cid)| all.push(&Key::from_text(path).expect("a path"), cid));
            Snapshot::map(suite, all).expect("a map")
        });
        for page in trees.iter().chain(&maps).flat_map(Snapshot::pages) {
            assert_eq!(suite.digest(&page.top_block()), page.digest());
        }
    }
}

#[test]
fn requests_with_members_of_other_queries_or_numbers_past_2_to_the_53_are_refused() {
    let cache = Store::new(0, 0).cache;
    let list = Snapshot::list(Suite::Sha2_256, &[(payload(1), 1)]).expect("a list").root().cid().text();
    let map = Snapshot::map(Suite::Sha2_256, Arcs::default()).expect("a map").root().cid().text();
    let read = |query: &str| {
        let root = if query.contains("map_key") { &map } else { &list };
        let request = format!("{{\"profile\":\"core.read/v0alpha1\",\"root\":\"{root}\",\"query\":{query}}}");
        Operation::read(Arc::clone(&cache), request.as_bytes()).map(drop)
    };
    for query in [
        r#"{"kind":"map_key","segments":["a"]}"#,
        r#"{"kind":"list_index","index":9007199254740991}"#,
        r#"{"kind":"list_range","start":0}"#,
        r#"{"kind":"list_range","start":0,"end":9007199254740991}"#,
    ] {
        assert_eq!(read(query), Ok(()), "{query}");
    }
    for (query, why) in [
        (r#"{"kind":"map_key","segments":["a"],"index":0}"#, "has no member \"index\""),
        (r#"{"kind":"list_index","index":0,"start":0}"#, "has no member \"start\""),
        (r#"{"kind":"list_index","index":0,"segments":["a"]}"#, "has no member \"segments\""),
        (r#"{"kind":"list_range","start":0,"index":0}"#, "has no member \"index\""),
        (r#"{"kind":"list_index","index":9007199254740992}"#, "an integer from 0 to 2^53 - 1"),
        (r#"{"kind":"list_index","index":-1}"#, "an integer from 0 to 2^53 - 1"),
        (r#"{"kind":"list_index","index":1.0}"#, "an integer from 0 to 2^53 - 1"),
        (r#"{"kind":"map_key","segments":[]}"#, "query"),
    ] {
        let refused = read(query);
        assert!(matches!(&refused, Err(Error::Input { what, .. }) if what.contains(why)), "{query}: {refused:?}");
    }
}

#[test]
fn a_listing_whose_entries_have_other_paths_is_refused() {
    let mut store = Store::new(0, u64::MAX);
    let root = store.build(Suite::Sha2_256, &many(50));
    let request =
        json!({"profile": "core.scan/v0alpha1", "root": root.cid().text(), "prefix": [], "limit": 3}).to_string();
    let operation = Operation::scan(Arc::clone(&store.cache), request.as_bytes()).expect("a request");
    let result = store.serve(operation).expect("a listing");
    let mut forged: Value = serde_json::from_str(&result).expect("JSON");
    let honest = forged["entries"][1]["segments"].take();
    for other in [json!([]), json!(["other"]), json!([honest[0], honest[1], "x"])] {
        forged["entries"][1]["segments"] = other;
        let refused = verify_scan(request.as_bytes(), forged.to_string().as_bytes());
        assert!(matches!(&refused, Err(Error::Proof { .. })), "{refused:?}");
    }
    forged["entries"][1]["segments"] = honest;
    verify_scan(request.as_bytes(), forged.to_string().as_bytes()).expect("the honest listing");
}

#[test]
fn the_step_of_several_keys_names_them_and_their_targets() {
    let mut store = Store::new(0, u64::MAX);
    let (path, target) = many(50).pop_first().expect("an arc");
    let root = store.build(Suite::Sha2_256, &many(50));
    let keys = json!([["no"], path.split('/').collect::<Vec<_>>()]);
    let request = json!({"profile": "core.map-proof/v0alpha1", "root": root.cid().text(), "keys": keys}).to_string();
    let operation =
        Operation::map_proof(Arc::clone(&store.cache), request.as_bytes(), MapProofForm::Result).expect("a request");
    let result = store.serve(operation).expect("a proof");
    let step = &serde_json::from_str::<Value>(&result).expect("JSON")["prooflist"]["steps"][0];
    assert_eq!((&step["kind"], &step["keys"]), (&json!("map_keys"), &json!(["no", path])), "{step}");
    assert_eq!(step["targets"], json!([null, {"/": target.text()}]));
    let proven = verify_map_proof(request.as_bytes(), result.as_bytes());
    assert_eq!(proven, Ok(MapProofOutcome::Keys(vec![None, Some(target)])));
}

#[test]
fn a_bare_proof_is_that_of_the_result() {
    let mut store = Store::new(0, 100);
    let arcs = many(300);
    let root = store.build(Suite::Sha2_256, &arcs);
    let segments = |path: &String| path.split('/').map(str::to_owned).collect::<Vec<_>>();
    let keys: Vec<_> = arcs.keys().step_by(7).map(segments).chain([vec!["no".to_owned()]]).collect();
    for (member, asked) in [("keys", json!(keys)), ("key", json!(keys[1])), ("key", json!(["no"]))] {
        let request =
            json!({"profile": "core.map-proof/v0alpha1", "root": root.cid().text(), member: asked}).to_string();
        let mut answer = |form| {
            let operation =
                Operation::map_proof(Arc::clone(&store.cache), request.as_bytes(), form).expect("a request");
            store.serve_bytes(operation).expect("an answer")
        };
        let bare = answer(MapProofForm::Proof);
        let result: Value = serde_json::from_slice(&answer(MapProofForm::Result)).expect("JSON");
        assert_eq!(result["prooflist"]["steps"][0]["proof"], BASE64.encode(&bare), "{request}");
    }
    let other = RootCid { digest: Digest([7; 32]), ..root }.cid().text();
    let request = json!({"profile": "core.map-proof/v0alpha1", "root": other, "key": ["a"]}).to_string();
    let operation = Operation::map_proof(Arc::clone(&store.cache), request.as_bytes(), MapProofForm::Proof);
    let refused = store.serve_bytes(operation.expect("a request"));
    assert!(matches!(&refused, Err(Error::NotFound { missing: Missing::Root, .. })), "{refused:?}");
}
