//! Resolve on a store of pages, with caches and budgets of all sizes.

use std::sync::Arc;

use coregw_core::{Cid, Error, Missing, RootCid, Snapshot, Suite};
use coregw_ops::{Need, Operation, Progress, verify_resolve};
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
