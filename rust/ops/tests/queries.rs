//! Reads, listings and map proofs on a store of pages, and the blocks of their nodes.

use std::sync::Arc;

use coregw_core::{Arcs, Error, Key, Missing, Snapshot, Suite};
use coregw_ops::{MapProofOutcome, Operation, ReadOutcome, verify_map_proof, verify_read, verify_scan};
use serde_json::json;

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
        let op = Operation::map_proof(Arc::clone(&store.cache), request.as_bytes()).expect("a request");
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
            after = listing.entries.last().map(|entry| entry.0.clone());
            listed.extend(listing.entries);
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
