//! Operations on a store of pages, with caches and budgets of all sizes, compared with trees in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use coregw_core::{Arcs, Cid, Error, Key, Kind, Missing, Page, RootCid, Snapshot, Suite, verify};
use coregw_ops::{
    Need, Operation, Progress, ReadOutcome, verify_map_proof, verify_read, verify_resolve, verify_scan,
    verify_transition,
};
use proptest::prelude::*;
use serde_json::{Value, json};

#[path = "support/store.rs"]
mod store;

use store::{Store, payload, root_of};

fn many(n: u64) -> BTreeMap<String, Cid> {
    (0..n).map(|i| (format!("users/{:06}/profile", i * 7919 % 1_000_000), payload(i))).collect()
}

#[test]
fn every_key_resolves_cold_and_warm() {
    for (cache, budget) in [(0, 3), (40_000, 1_000), (64 << 20, u64::MAX)] {
        let mut store = Store::new(cache, budget);
        let arcs = many(3000);
        let root = store.build(Suite::Sha2_256, &arcs);
        for (path, target) in arcs.iter().step_by(37) {
            let segments: Vec<_> = path.split('/').collect();
            let (request, result) = store.resolve(&root, &segments).expect("a target");
            assert_eq!(verify_resolve(request.as_bytes(), result.as_bytes()), Ok(*target));
        }
        let absent = store.resolve(&root, &["users", "nobody"]);
        assert!(matches!(absent, Err(Error::NotFound { missing: Missing::Path, .. })), "{absent:?}");
    }
}

#[test]
fn a_missing_or_damaged_page_is_named() {
    let mut store = Store::new(0, 1000);
    let root = store.build(Suite::Blake3, &many(3000));
    let pages = store.pages.clone();
    store.pages.clear();
    let missing = store.resolve(&root, &["users", "000000", "profile"]);
    assert!(matches!(&missing, Err(Error::Damaged { what }) if what.contains("missing")), "{missing:?}");
    store.pages = pages;
    for page in store.pages.values_mut() {
        let last = page.len() - 40;
        page[last] ^= 1;
    }
    let damaged = store.resolve(&root, &["users", "000000", "profile"]);
    assert!(matches!(damaged, Err(Error::Damaged { .. })), "{damaged:?}");
}

#[test]
fn resolve_backtracks_from_the_longest_arc_and_skips_roots_not_held() {
    let mut store = Store::new(1 << 20, 100);
    let text = |cid: Cid| cid.text();
    let inner =
        store.build(Suite::Sha2_256, &[("c".to_owned(), payload(1)), ("@payload".to_owned(), payload(2))].into());
    let other = Snapshot::list(Suite::Sha2_256, &[(payload(9), 5)]).expect("a list").root();
    let arcs = [("a/b".to_owned(), other.cid()), ("a".to_owned(), inner.cid()), ("x".to_owned(), payload(3))];
    let root = store.build(Suite::Blake3, &arcs.into());
    // "a/b" leads to a root that is not held, so its branch fails; "a" leads to a map without "b".
    assert!(store.resolve(&root, &["a", "b", "0"]).is_err());
    let (request, result) = store.resolve(&root, &["a", "c"]).expect("a target");
    assert_eq!(verify_resolve(request.as_bytes(), result.as_bytes()), Ok(payload(1)));
    let (request, result) = store.resolve(&root, &["a", "@payload"]).expect("a target");
    assert_eq!(verify_resolve(request.as_bytes(), result.as_bytes()), Ok(payload(2)));
    assert!(result.contains("payload_binding"));
    // The list itself is a target that needs not be held.
    let (_, result) = store.resolve(&root, &["a", "b"]).expect("a target");
    assert!(result.contains(&text(other.cid())));
    assert!(store.resolve(&root, &["x", "y"]).is_err());
    // The error distinguishes a root that is not held from a path that does not resolve.
    let unknown = store.resolve(&other, &["0"]);
    assert!(matches!(unknown, Err(Error::NotFound { missing: Missing::Root, .. })));
}

/// A map that has each run of fewer than 2,000 segments `a`.
fn all_prefixes(store: &mut Store) -> RootCid {
    store.build(Suite::Sha2_256, &(1..2000).map(|len| (vec!["a"; len].join("/"), payload(0))).collect())
}

#[test]
fn only_the_longest_arc_and_those_that_exist_are_looked_up() {
    let mut store = Store::new(1 << 20, u64::MAX);
    let mut target = payload(0);
    for _ in 0..8 {
        target = store.build(Suite::Blake3, &[("a".to_owned(), target)].into()).cid();
    }
    let request = |len| json!({"profile": "core.resolve/v0alpha1", "root": target.text(), "segments": vec!["a"; len]});
    for (len, lookups, is_found) in [(2048, 16, false), (9, 16, false), (8, 15, true)] {
        let request = request(len).to_string();
        let op = Operation::resolve(Arc::clone(&store.cache), request.as_bytes(), lookups).expect("a request");
        match store.serve(op) {
            Ok(_) => assert!(is_found),
            Err(error) => assert!(matches!(error, Error::NotFound { .. }) && !is_found, "{len}: {error}"),
        }
        let op = Operation::resolve(Arc::clone(&store.cache), request.as_bytes(), lookups - 1).expect("a request");
        assert!(matches!(store.serve(op), Err(Error::Input { .. })), "{len}");
    }
}

#[test]
fn a_path_that_needs_too_many_look_ups_is_refused() {
    let mut store = Store::new(1 << 20, u64::MAX);
    let root = all_prefixes(&mut store);
    let segments = vec!["a"; 2000];
    let request =
        json!({"profile": "core.resolve/v0alpha1", "root": root.cid().text(), "segments": segments}).to_string();
    let op = Operation::resolve(Arc::clone(&store.cache), request.as_bytes(), 100).expect("a request");
    let refused = store.serve(op);
    assert!(matches!(&refused, Err(Error::Input { what, .. }) if what.contains("look-ups")), "{refused:?}");
    let op = Operation::resolve(Arc::clone(&store.cache), request.as_bytes(), 10_000).expect("a request");
    assert!(matches!(store.serve(op), Err(Error::NotFound { .. })));
}

#[test]
fn all_lookups_of_one_path_share_the_budget() {
    let mut store = Store::new(1 << 26, u64::MAX);
    let root = all_prefixes(&mut store);
    assert!(store.resolve(&root, &vec!["a"; 1999]).is_ok());
    assert!(store.resolve(&root, &vec!["a"; 2000]).is_err(), "all pages are in the cache now");
    let request = json!({"profile": "core.resolve/v0alpha1", "root": root.cid().text(), "segments": vec!["a"; 2000]});
    let request = request.to_string();
    let mut op = Operation::resolve(Arc::clone(&store.cache), request.as_bytes(), 10_000).expect("a request");
    assert_eq!(op.poll(1000), Ok(Progress::Needs(Need::Roots(vec![root]))));
    op.supply_roots(vec![true]).expect("one answer");
    let mut pauses = 0;
    let end = loop {
        match op.poll(1000) {
            Ok(progress) => assert_eq!(progress, Progress::Needs(Need::Budget)),
            Err(error) => break error,
        }
        pauses += 1;
    };
    assert!(matches!(end, Error::NotFound { .. }), "{end}");
    // 2,000 look-ups, each of which visits 1,000 nodes in the mean.
    assert!((1500..=3000).contains(&pauses), "{pauses}");
}

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
        assert_eq!(verify_map_proof(request.as_bytes(), result.as_bytes()), Ok(None));

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
fn a_cold_look_up_loads_few_pages() {
    let mut store = Store::new(0, u64::MAX);
    let arcs = many(20_000);
    let root = store.build(Suite::Sha2_256, &arcs);
    for path in arcs.keys().step_by(1999) {
        store.loads = 0;
        store.resolve(&root, &path.split('/').collect::<Vec<_>>()).expect("a target");
        assert!(store.loads <= 3, "{} pages", store.loads);
    }
}

fn chunk(i: u64) -> Value {
    json!({"index": i, "after": {"target": payload(i).text(), "size": 100 + i % 7}})
}

#[test]
fn a_file_becomes_a_list_through_a_mutation_of_the_empty_map() {
    let mut store = Store::new(0, 50);
    let base = store.build(Suite::Sha2_256, &BTreeMap::new());
    let changes: Vec<_> = (0..5000).map(chunk).collect();
    let receipt = store.mutate(&base, &json!({"deltas": [{"kind": "list", "changes": changes}]})).expect("a list");
    let list = root_of(&receipt["new_root"]);
    let elements: Vec<_> = (0..5000).map(|i| (payload(i), 100 + i % 7)).collect();
    assert_eq!(list, Snapshot::list(Suite::Sha2_256, &elements).expect("a list").root());
    assert_eq!(receipt["base_root"], json!(base.cid().text()));
    assert_eq!((&receipt["delta_count"], &receipt["arc_count"]), (&json!(1), &json!(5000)));

    let more: Vec<_> = (5000..5100).map(chunk).collect();
    let request = json!({"deltas": [{"kind": "list", "object": list.cid().text(), "changes": more}]});
    let receipt = store.mutate(&base, &request).expect("a longer list");
    let longer = root_of(&receipt["new_root"]);
    let elements: Vec<_> = (0..5100).map(|i| (payload(i), 100 + i % 7)).collect();
    assert_eq!(longer, Snapshot::list(Suite::Sha2_256, &elements).expect("a list").root());

    for (list, n) in [(list, 5000), (longer, 5100)] {
        let request = json!({"profile": "core.read/v0alpha1", "root": list.cid().text(),
            "query": {"kind": "list_range", "start": 100_000, "end": 400_000}});
        let op = Operation::read(Arc::clone(&store.cache), request.to_string().as_bytes()).expect("a request");
        let result = store.serve(op).expect("a range");
        let outcome = verify_read(request.to_string().as_bytes(), result.as_bytes());
        let Ok(ReadOutcome::Range { span, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(span.length, n);
        assert!(span.segments.len() > 2900);
    }
}

#[test]
fn deltas_build_on_each_other_and_apply_atomically() {
    let mut store = Store::new(0, 7);
    let arcs = many(800);
    let base = store.build(Suite::Sha2_256, &arcs);
    let (first, old) = arcs.iter().next().expect("arcs");
    let deltas = json!([
        {"kind": "list", "changes": [chunk(0), chunk(1)]},
        {"kind": "map", "changes": [{"path": "new/file", "after": {"target": payload(7).text(), "target_kind": "cas"}}]},
        {"kind": "map", "changes": [{"path": first, "before": {"target": old.text()}}]},
    ]);
    let receipt = store.mutate(&base, &json!({"deltas": deltas, "prove": true})).expect("they fit");
    let mut expected = arcs.clone();
    expected.insert("new/file".into(), payload(7));
    expected.remove(first);
    let mut all = Arcs::default();
    expected.iter().for_each(|(path, cid)| all.push(&Key::from_text(path).expect("a path"), cid));
    let rebuilt = Snapshot::map(Suite::Sha2_256, all).expect("a map");
    assert_eq!(root_of(&receipt["new_root"]), rebuilt.root());
    assert!(receipt["deltas"][2]["proof"].is_string());
    assert!(rebuilt.pages().all(|page| store.pages.contains_key(&page.digest())), "equal trees are equal pages");

    let before = store.pages.len();
    let mut broken = deltas.clone();
    broken[2]["changes"][0]["before"]["target"] = json!(payload(12345).text());
    let refused = store.mutate(&base, &json!({"deltas": broken}));
    let Err(Error::Conflict { what, .. }) = refused else { panic!("{refused:?}") };
    assert!(what.contains("delta 2") && what.contains(first.as_str()), "{what}");
    assert_eq!(store.pages.len(), before);
}

#[test]
fn invalid_mutations_are_refused_by_delta_and_coordinate() {
    let mut store = Store::new(1 << 20, u64::MAX);
    let base = store.build(Suite::Sha2_256, &many(10));
    let list = json!({"kind": "list", "changes": [chunk(0), chunk(1), chunk(2)]});
    let receipt = store.mutate(&base, &json!({"deltas": [list]})).expect("a list");
    let object = receipt["new_root"].clone();
    let side = |i: u64| json!({"target": payload(i).text()});
    let cases = [
        (json!({"kind": "list", "object": object, "changes": [{"index": 4, "after": side(1)}]}), "gap"),
        (json!({"kind": "list", "object": object, "changes": [{"index": 0, "before": side(0)}]}), "not the end"),
        (
            json!({"kind": "list", "object": object, "changes": [{"index": 2, "before": side(2)}, {"index": 3, "after": side(1)}]}),
            "together",
        ),
        (
            json!({"kind": "list", "object": object, "changes": [{"index": 0, "before": side(1), "after": side(2)}]}),
            "the current target is",
        ),
        (json!({"kind": "map", "changes": [{"path": "a", "before": side(1), "after": side(1)}]}), "nothing"),
        (
            json!({"kind": "map", "changes": [{"path": "a", "after": side(1)}, {"path": "a", "after": side(2)}]}),
            "twice",
        ),
        (
            json!({"kind": "map", "changes": [{"path": "a", "after": side(1)}], "expected_root": base.cid().text()}),
            "expected",
        ),
        (
            json!({"kind": "list", "changes": [{"index": 0, "after": {"target": payload(0).text(), "size": 3}}],
            "commit": {"fixed_list": {"total_size": 10, "chunk_size": 4}}}),
            "is 4, not 3",
        ),
        (
            json!({"kind": "list", "changes": [{"index": 0, "after": side(0)}],
            "commit": {"fixed_list": {"total_size": 10, "chunk_size": 4}}}),
            "elements",
        ),
    ];
    for (delta, word) in cases {
        let refused = store.mutate(&base, &json!({"deltas": [delta]}));
        let Err(Error::Conflict { what, .. }) = refused else { panic!("{word}: {refused:?}") };
        assert!(what.contains("delta 0") && what.contains(word), "{word}: {what}");
    }
    let fixed = json!({"kind": "list", "changes": (0..3).map(|i| json!({"index": i, "after": side(i)})).collect::<Vec<_>>(),
        "commit": {"fixed_list": {"total_size": 10, "chunk_size": 4}}});
    let receipt = store.mutate(&base, &json!({"deltas": [fixed]})).expect("sizes follow");
    let elements = [(payload(0), 4), (payload(1), 4), (payload(2), 2)];
    assert_eq!(root_of(&receipt["new_root"]), Snapshot::list(Suite::Sha2_256, &elements).expect("a list").root());
    let kind = json!({"kind": "map", "changes": [{"path": "a", "after": {"target": payload(0).text(), "target_kind": "map"}}]});
    assert!(matches!(store.mutate(&base, &json!({"deltas": [kind]})), Err(Error::Input { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// A path resolves through a prefix of it exactly if the map has that prefix, whatever else the map has.
    #[test]
    fn every_arc_that_exists_is_tried(
        paths in prop::collection::btree_set(prop::collection::vec("[ab\0\u{1}]{1,2}", 1..6), 0..40),
        path in prop::collection::vec("[ab\0\u{1}]{1,2}", 1..8),
        prefixes in prop::collection::btree_set(1usize..8, 0..8),
    ) {
        let mut store = Store::new(1 << 20, u64::MAX);
        let inner = store.build(Suite::Sha2_256, &[("end".to_owned(), payload(1))].into()).cid();
        let mut arcs: BTreeMap<_, _> = paths.iter().map(|path| (path.join("/"), inner)).collect();
        let prefixes = prefixes.into_iter().filter(|&len| len <= path.len());
        arcs.extend(prefixes.map(|len| (path[..len].join("/"), inner)));
        let root = store.build(Suite::Sha2_256, &arcs);
        for len in 1..=path.len() {
            let segments: Vec<_> = path[..len].iter().map(String::as_str).chain(["end"]).collect();
            prop_assert_eq!(store.resolve(&root, &segments).is_ok(), arcs.contains_key(&path[..len].join("/")));
        }
    }

    /// Random changes of stored maps: the stored result is page for page the map that is built from its content.
    #[test]
    fn stored_changes_equal_rebuilding(
        start in 0u64..600,
        batches in prop::collection::vec(prop::collection::btree_map(0u64..1200, prop::option::of(0u64..9), 1..60), 1..4),
        cache in prop_oneof![Just(0u64), Just(100_000), Just(1 << 26)],
        budget in prop_oneof![Just(1u64), Just(64), Just(u64::MAX)],
    ) {
        let mut store = Store::new(cache, budget);
        let name = |i: u64| format!("d{}/f{:03}", i % 5, i);
        let mut model: BTreeMap<String, Cid> = (0..start).map(|i| (name(i), payload(i))).collect();
        let mut root = store.build(Suite::Sha2_256, &model);
        for batch in batches {
            let mut changes = Vec::new();
            for (i, after) in batch {
                let before = model.get(&name(i)).copied();
                let after = after.map(|n| payload(10_000 + n));
                if before == after {
                    continue;
                }
                let mut change = json!({"path": name(i)});
                if let Some(before) = before { change["before"] = json!({"target": before.text()}); }
                if let Some(after) = after { change["after"] = json!({"target": after.text()}); }
                changes.push(change);
                match after {
                    Some(after) => model.insert(name(i), after),
                    None => model.remove(&name(i)),
                };
            }
            if changes.is_empty() {
                continue;
            }
            let receipt = store.mutate(&root, &json!({"deltas": [{"kind": "map", "changes": changes}]})).expect("they fit");
            root = root_of(&receipt["new_root"]);
        }
        let mut all = Arcs::default();
        model.iter().for_each(|(path, cid)| all.push(&Key::from_text(path).expect("a path"), cid));
        let rebuilt = Snapshot::map(Suite::Sha2_256, all).expect("a map");
        prop_assert_eq!(root, rebuilt.root());
        for page in rebuilt.pages() {
            let stored = store.pages.get(&page.digest());
            prop_assert_eq!(stored, Some(&page.to_bytes()));
            prop_assert!(Page::parse(&page.to_bytes(), Kind::Map, Suite::Sha2_256, &page.digest()).is_ok());
        }
        for (path, target) in model.iter().step_by(17) {
            let key = Key::from_text(path).expect("a path");
            let (_, proof) = rebuilt.key(&key).expect("a map");
            prop_assert_eq!(verify::key(&root, &key, &proof(), verify::PROOF_LIMIT), Ok(Some(*target)));
        }
    }
}

/// A mutation of several deltas, its request with the base root, and its receipt with proofs.
fn proven_mutation() -> (Value, Value) {
    let mut store = Store::new(0, u64::MAX);
    let arcs = many(500);
    let base = store.build(Suite::Sha2_256, &arcs);
    let (first, old) = arcs.iter().next().expect("arcs");
    let deltas = json!([
        {"kind": "list", "changes": [chunk(0), chunk(1), chunk(2)]},
        {"kind": "map", "changes": [{"path": "new", "after": {"target": payload(7).text()}}]},
        {"kind": "map", "changes": [{"path": first, "before": {"target": old.text()}}]},
    ]);
    let receipt = store.mutate(&base, &json!({"deltas": deltas, "prove": true})).expect("they fit");
    (json!({"root": base.cid().text(), "deltas": deltas}), receipt)
}

fn transition(request: &Value, receipt: &Value) -> Result<Cid, Error> {
    verify_transition(request.to_string().as_bytes(), receipt.to_string().as_bytes())
}

#[test]
fn a_client_derives_the_new_root_from_its_own_changes() {
    let (request, receipt) = proven_mutation();
    assert_eq!(
        transition(&request, &receipt).map(|cid| cid.text()),
        Ok(receipt["new_root"].as_str().expect("a CID").into())
    );
}

#[test]
fn forged_receipts_are_refused() {
    let (request, receipt) = proven_mutation();
    let other = Snapshot::map(Suite::Sha2_256, Arcs::default()).expect("a map").root().cid().text();
    type Forge = fn(&mut Value, &mut Value, &str);
    let forgeries: [(&str, Forge); 13] = [
        ("another new root", |_, receipt, other| receipt["new_root"] = json!(other)),
        ("another result", |_, receipt, other| receipt["deltas"][1]["result"] = json!(other)),
        ("another base in the receipt", |_, receipt, other| receipt["base_root"] = json!(other)),
        ("another base in the request", |request, _, other| request["root"] = json!(other)),
        ("another object", |_, receipt, other| receipt["deltas"][1]["object"] = json!(other)),
        ("a change that was not requested", |request, _, _| {
            request["deltas"][1]["changes"][0]["path"] = json!("newer");
        }),
        ("a change left out", |request, _, _| {
            request["deltas"][0]["changes"].as_array_mut().expect("changes").pop();
        }),
        ("a delta left out", |_, receipt, _| {
            receipt["deltas"].as_array_mut().expect("deltas").pop();
        }),
        ("a before that lies", |request, _, _| {
            request["deltas"][2]["changes"][0]["before"]["target"] = json!(payload(99_999).text());
        }),
        ("no proof", |_, receipt, _| {
            receipt["deltas"][2].as_object_mut().expect("a delta").remove("proof");
        }),
        ("a proof of fewer changes", |_, receipt, _| {
            receipt["deltas"][2]["proof"] = receipt["deltas"][0]["proof"].clone()
        }),
        ("another count", |_, receipt, _| receipt["arc_count"] = json!(4)),
        ("an unknown member", |_, receipt, _| receipt["note"] = json!("trust me")),
    ];
    for (name, forge) in forgeries {
        let (mut request, mut receipt) = (request.clone(), receipt.clone());
        forge(&mut request, &mut receipt, &other);
        let refused = transition(&request, &receipt);
        assert!(matches!(refused, Err(Error::Proof { .. })), "{name}: {refused:?}");
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
