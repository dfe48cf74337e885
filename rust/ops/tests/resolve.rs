//! Resolve on a store of pages, with caches and budgets of all sizes.

use std::collections::BTreeMap;
use std::sync::Arc;

use coregw_core::{Cid, Error, InputCode, Key, Missing, RootCid, Snapshot, Suite, Window};
use coregw_ops::{DiffRequest, Lookahead, MapProofForm, Need, Operation, Progress, verify_resolve};
use serde_json::json;

#[path = "support/store.rs"]
mod store;

use store::{Store, many, payload};

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

/// The least limit of nodes with which a request is answered, by a result or by an error of another kind.
fn least_nodes(store: &mut Store, start: impl Fn(&Store) -> Operation) -> u64 {
    let (mut too_few, mut enough) = (0, 1 << 30);
    while enough - too_few > 1 {
        let nodes = u64::midpoint(too_few, enough);
        let operation = start(store);
        operation.limit_nodes(nodes);
        match store.serve(operation) {
            Err(Error::Input { code: InputCode::TooLarge, what }) => {
                assert!(what.contains(&format!("more than {nodes} tree nodes")), "{what}");
                too_few = nodes;
            }
            _ => enough = nodes,
        }
    }
    enough
}

#[test]
fn only_the_longest_arc_and_those_that_exist_are_looked_up() {
    let mut store = Store::new(1 << 20, u64::MAX);
    let mut target = payload(0);
    for _ in 0..8 {
        target = store.build(Suite::Blake3, &[("a".to_owned(), target)].into()).cid();
    }
    let request = |len| json!({"profile": "core.resolve/v0alpha1", "root": target.text(), "segments": vec!["a"; len]});
    let mut nodes_for = |len: usize| {
        let request = request(len).to_string();
        let start =
            |store: &Store| Operation::resolve(Arc::clone(&store.cache), request.as_bytes()).expect("a request");
        let operation = start(&store);
        match store.serve(operation) {
            Ok(_) => assert_eq!(len, 8),
            Err(error) => assert!(matches!(error, Error::NotFound { .. }) && len != 8, "{len}: {error}"),
        }
        least_nodes(&mut store, start)
    };
    // A lookup of a map with one arc is 34 nodes: one that is visited, and the rest for starting it.
    assert_eq!(nodes_for(8) / 34, 15);
    assert_eq!(nodes_for(9) / 34, 16);
    // Finding out that a map has none of 2,000 arcs is less work than looking up each.
    assert!(nodes_for(2048) < 5_000);
}

#[test]
fn a_query_that_visits_too_many_nodes_is_refused() {
    let mut store = Store::new(1 << 26, u64::MAX);
    let root = all_prefixes(&mut store);
    let resolve = json!({"profile": "core.resolve/v0alpha1", "root": root.cid().text(), "segments": vec!["a"; 2000]});
    let resolve = resolve.to_string();
    let start = |store: &Store| Operation::resolve(Arc::clone(&store.cache), resolve.as_bytes()).expect("a request");
    // 2,000 lookups, each of which visits 1,000 nodes in the mean.
    let nodes = least_nodes(&mut store, start);
    assert!((2_000_000..2_200_000).contains(&nodes), "{nodes}");
    let operation = start(&store);
    operation.limit_nodes(nodes);
    assert!(matches!(store.serve(operation), Err(Error::NotFound { .. })));

    let keys: Vec<_> = (1..2000).map(|len| vec!["a"; len]).collect();
    let map_proof = json!({"profile": "core.map-proof/v0alpha1", "root": root.cid().text(), "keys": keys}).to_string();
    let scan = json!({"profile": "core.scan/v0alpha1", "root": root.cid().text(), "prefix": []}).to_string();
    let empty = store.build(Suite::Sha2_256, &BTreeMap::new());
    let window = || Window::new::<String, String>(&[], None).expect("a window");
    let nodes = [
        least_nodes(&mut store, |store| {
            Operation::map_proof(Arc::clone(&store.cache), map_proof.as_bytes(), MapProofForm::Result)
                .expect("a request")
        }),
        least_nodes(&mut store, |store| Operation::scan(Arc::clone(&store.cache), scan.as_bytes()).expect("a request")),
        least_nodes(&mut store, |store| {
            let request = DiffRequest::new(&root.cid(), &empty.cid(), window(), 1000).expect("two maps");
            Operation::diff(Arc::clone(&store.cache), request)
        }),
    ];
    // They visit the tree once, and write some bytes for each leaf.
    assert!(nodes.iter().all(|nodes| (2_000..500_000).contains(nodes)), "{nodes:?}");
}

#[test]
fn the_paths_of_a_batch_share_the_nodes_that_they_may_visit() {
    let mut store = Store::new(1 << 26, u64::MAX);
    let root = all_prefixes(&mut store);
    let batch = |store: &Store, count: usize| {
        let paths = vec![vec!["a"; 400]; count];
        let request = json!({"root": root.cid().text(), "paths": paths}).to_string();
        let one_thread: fn(usize, &(dyn Fn(usize) + Sync)) = |count, work| (0..count).for_each(work);
        Operation::resolve_batch(Arc::clone(&store.cache), request.as_bytes(), 1 << 26, one_thread).expect("a batch")
    };
    let [one, hundred] = [1, 100].map(|count| least_nodes(&mut store, |store| batch(store, count)));
    assert!((400..1000).contains(&one), "{one}");
    assert_eq!(hundred, 100 * one);
}

#[test]
fn all_lookups_of_one_path_share_the_budget() {
    let mut store = Store::new(1 << 26, u64::MAX);
    let root = all_prefixes(&mut store);
    assert!(store.resolve(&root, &vec!["a"; 1999]).is_ok());
    assert!(store.resolve(&root, &vec!["a"; 2000]).is_err(), "all pages are in the cache now");
    let request = json!({"profile": "core.resolve/v0alpha1", "root": root.cid().text(), "segments": vec!["a"; 2000]});
    let request = request.to_string();
    let mut op = Operation::resolve(Arc::clone(&store.cache), request.as_bytes()).expect("a request");
    assert_eq!(op.poll(1000), Ok(Progress::Needs(Need::Roots(vec![root]))));
    let longest = Key::from_segments(&vec!["a"; 2000]).expect("a key").as_bytes().to_vec();
    assert_eq!(op.lookahead(), [Lookahead { root, keys: vec![longest] }], "what it looks for first");
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
    // 2,000 lookups, each of which visits 1,000 nodes in the mean.
    assert!((1500..=3000).contains(&pauses), "{pauses}");
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

#[test]
fn only_canonical_indices_are_segments_of_a_list() {
    let mut store = Store::new(1 << 20, u64::MAX);
    let empty = store.build(Suite::Sha2_256, &BTreeMap::new());
    let changes: Vec<_> = (0..12).map(store::chunk).collect();
    let receipt = store.mutate(&empty, &json!({"deltas": [{"kind": "list", "changes": changes}]})).expect("a list");
    let list = store::root_of(&receipt["new_root"]);
    let root = store.build(Suite::Sha2_256, &[("list".to_owned(), list.cid())].into());
    for index in [0, 4, 10] {
        let (request, result) = store.resolve(&root, &["list", &index.to_string()]).expect("an element");
        assert_eq!(verify_resolve(request.as_bytes(), result.as_bytes()), Ok(payload(index)));
    }
    let (_, honest) = store.resolve(&root, &["list", "4"]).expect("an element");
    for segment in ["04", "00", "+4", "-4", "4a", " 4", "\u{664}", "9007199254740992", "18446744073709551620"] {
        let absent = store.resolve(&root, &["list", segment]);
        assert!(matches!(absent, Err(Error::NotFound { missing: Missing::Path, .. })), "{segment}: {absent:?}");
        let forged = honest.replace("\"list/4\"", &format!("\"list/{segment}\""));
        let request =
            json!({"profile": "core.resolve/v0alpha1", "root": root.cid().text(), "segments": ["list", segment]});
        let refused = verify_resolve(request.to_string().as_bytes(), forged.as_bytes()).map_err(|e| e.to_string());
        assert!(refused.as_ref().is_err_and(|why| why.contains("is not an index of a list")), "{segment}: {refused:?}");
    }
    // Steps after the path, and a step of another coordinate.
    let (request, _) = store.resolve(&root, &["list"]).expect("the list");
    let refused = verify_resolve(request.as_bytes(), honest.replace("\"list/4\"", "\"list\"").as_bytes());
    assert!(refused.as_ref().is_err_and(|e| e.to_string().contains("continue after the path")), "{refused:?}");
    let (request, result) = store.resolve(&root, &["list"]).expect("the list");
    let refused =
        verify_resolve(request.as_bytes(), result.replace("\"path\":\"list\"", "\"path\":\"lost\"").as_bytes());
    assert!(refused.as_ref().is_err_and(|e| e.to_string().contains("is not what follows")), "{refused:?}");
    // The empty path is that of the root.
    let (request, result) = store.resolve(&root, &[]).expect("the root");
    assert_eq!(verify_resolve(request.as_bytes(), result.as_bytes()), Ok(root.cid()));
}
