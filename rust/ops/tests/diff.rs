//! Diffs of stored maps against a plain model: complete, paged, proven, and cheap where little differs.

use std::collections::BTreeMap;
use std::sync::Arc;

use coregw_core::{Cid, Difference, Error, RootCid, Snapshot, Suite, Window};
use coregw_ops::{DiffRequest, Operation};
use proptest::prelude::*;

#[path = "support/store.rs"]
mod store;

use store::{Store, payload};

type Arcs = BTreeMap<String, Cid>;

fn segments(path: &str) -> Vec<String> {
    path.split('/').map(str::to_owned).collect()
}

/// All differences below `prefix` and after `after`, in the order of keys.
fn model(a: &Arcs, b: &Arcs, prefix: &[String], after: Option<&[String]>) -> Vec<Difference> {
    let mut paths: Vec<_> = a.keys().chain(b.keys()).map(|path| segments(path)).collect();
    paths.sort();
    paths.dedup();
    let inside = |path: &Vec<String>| path.starts_with(prefix) && after.is_none_or(|after| path.as_slice() > after);
    let differences = paths.into_iter().filter(inside).map(|path| {
        let text = path.join("/");
        Difference { segments: path, before: a.get(&text).copied(), after: b.get(&text).copied() }
    });
    differences.filter(|d| d.before != d.after).collect()
}

fn ask(store: &mut Store, roots: [RootCid; 2], request: &DiffRequest) -> String {
    let op = Operation::diff(Arc::clone(&store.cache), request.clone());
    store.serve(op).unwrap_or_else(|error| panic!("{error} for {roots:?}"))
}

/// Requests page after page, checks each proof, and returns all differences.
fn all_pages(store: &mut Store, roots: [RootCid; 2], prefix: &[String], limit: u64) -> Vec<Difference> {
    let (mut found, mut after) = (Vec::new(), None::<Vec<String>>);
    loop {
        let [a, b] = roots.map(|root| root.cid());
        let request = DiffRequest::new(&a, &b, window(prefix, after.as_deref()), limit).expect("a request");
        let response = ask(store, roots, &request);
        let page = request.verify(response.as_bytes()).unwrap_or_else(|error| panic!("{error}: {response}"));
        assert!(page.entries.len() as u64 <= limit);
        after = page.entries.last().map(|entry| entry.segments.clone());
        found.extend(page.entries);
        if !page.more {
            return found;
        }
    }
}

fn window(prefix: &[String], after: Option<&[String]>) -> Window {
    Window::new(prefix, after).expect("a window")
}

fn name(i: u64) -> String {
    match i % 4 {
        0 => format!("d{}/f{i}", i % 7),
        1 => format!("d{}/deep/er/f{i}", i % 5),
        2 => format!("f{i}"),
        _ => format!("d{}", i % 40),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn diffs_equal_those_of_the_model(
        a in prop::collection::btree_map(0u64..400, 0u64..6, 0..250),
        changes in prop::collection::btree_map(0u64..400, prop::option::of(0u64..6), 0..60),
        prefix in prop_oneof![Just(vec![]), (0u64..8).prop_map(|i| vec![format!("d{i}")]), Just(vec!["d1".into(), "deep".into()])],
        limit in prop_oneof![Just(1u64), Just(7), Just(1000)],
        budget in prop_oneof![Just(1u64), Just(u64::MAX)],
    ) {
        let before: Arcs = a.into_iter().map(|(i, n)| (name(i), payload(n))).collect();
        let mut after = before.clone();
        for (i, change) in changes {
            match change {
                Some(n) => { after.insert(name(i), payload(n)); }
                None => { after.remove(&name(i)); }
            }
        }
        let mut store = Store::new(0, budget);
        let roots = [&before, &after].map(|arcs| store.build(Suite::Sha2_256, arcs));
        prop_assert_eq!(all_pages(&mut store, roots, &prefix, limit), model(&before, &after, &prefix, None));
    }
}

fn pair(n: u64) -> (Arcs, Arcs) {
    let before: Arcs = (0..n).map(|i| (format!("users/{i:06}/profile"), payload(i))).collect();
    let mut after = before.clone();
    after.insert("users/000007/profile".into(), payload(n + 1));
    after.remove("users/000400/profile");
    after.insert("zebra".into(), payload(n + 2));
    (before, after)
}

#[test]
fn the_cost_follows_the_difference() {
    let (before, after) = pair(20_000);
    let mut store = Store::new(0, u64::MAX);
    let roots = [&before, &after].map(|arcs| store.build(Suite::Blake3, arcs));
    store.loads = 0;
    assert_eq!(all_pages(&mut store, roots, &[], 1000), model(&before, &after, &[], None));
    assert!(store.loads <= 20, "{} pages for three differences", store.loads);
    store.loads = 0;
    assert_eq!(all_pages(&mut store, [roots[0], roots[0]], &[], 1000), []);
    assert!(store.loads <= 2, "{} pages for none", store.loads);
}

#[test]
fn pages_of_a_level_are_read_together() {
    let before: Arcs = (0..100_000).map(|i| (format!("{:03}/{i}", i % 1000), payload(i))).collect();
    let mut after = before.clone();
    after.extend((0..100_000).step_by(101).map(|i| (format!("{:03}/{i}", i % 1000), payload(i + 1))));
    let mut store = Store::new(0, u64::MAX);
    let roots = [&before, &after].map(|arcs| store.build(Suite::Sha2_256, arcs));
    let changed: std::collections::HashSet<_> = store.pages.keys().copied().collect();
    for (prefix, differences, max_rounds) in [(vec![], 991, 20), (vec!["007".to_owned()], 1, 4)] {
        (store.loads, store.rounds) = (0, 0);
        let found = all_pages(&mut store, roots, &prefix, 1000);
        assert_eq!(found.len(), differences);
        assert!(store.rounds <= max_rounds, "{} round trips for {} pages", store.rounds, store.loads);
        assert!(store.loads <= changed.len() as u64, "no page is read twice or in vain");
    }
}

#[test]
fn forged_diffs_are_refused() {
    let (before, after) = pair(500);
    let mut store = Store::new(1 << 20, u64::MAX);
    let roots = [&before, &after].map(|arcs| store.build(Suite::Sha2_256, arcs));
    let request =
        |limit| DiffRequest::new(&roots[0].cid(), &roots[1].cid(), window(&[], None), limit).expect("a request");
    let response = ask(&mut store, roots, &request(2));
    assert!(request(2).verify(response.as_bytes()).is_ok());
    let forged = |forge: &dyn Fn(&mut serde_json::Value)| {
        let mut value = serde_json::from_str(&response).expect("JSON");
        forge(&mut value);
        request(2).verify(value.to_string().as_bytes())
    };
    type Forge = fn(&mut serde_json::Value);
    let forgeries: [(&str, Forge); 7] = [
        ("an entry left out", |v| drop(v["entries"].as_array_mut().expect("entries").pop())),
        ("an entry twice", |v| {
            let entry = v["entries"][0].clone();
            v["entries"].as_array_mut().expect("entries").push(entry);
        }),
        ("another target", |v| v["entries"][0]["before"] = v["entries"][0]["after"].clone()),
        ("more denied", |v| v["more"] = false.into()),
        ("swapped proofs", |v| {
            let a = v["proofs"]["a"].clone();
            v["proofs"]["a"] = v["proofs"]["b"].clone();
            v["proofs"]["b"] = a;
        }),
        ("a proof of another tree", |v| v["proofs"]["a"] = "AA==".into()),
        ("an unknown member", |v| v["note"] = "trust me".into()),
    ];
    for (name, forge) in forgeries {
        assert!(matches!(forged(&forge), Err(Error::Proof { .. })), "{name}");
    }
    // A page with another number of entries is not valid for another limit.
    assert!(request(1).verify(response.as_bytes()).is_err());
    assert!(request(3).verify(response.as_bytes()).is_err());
}

#[test]
fn roots_that_cannot_be_compared_are_refused() {
    let mut store = Store::new(1 << 20, u64::MAX);
    let a = store.build(Suite::Sha2_256, &pair(3).0).cid();
    let b = store.build(Suite::Blake3, &pair(3).0).cid();
    let all = || window(&[], None);
    assert!(matches!(DiffRequest::new(&a, &b, all(), 1000), Err(Error::Input { .. })));
    assert!(matches!(DiffRequest::new(&a, &payload(1), all(), 1000), Err(Error::Input { .. })));
    assert!(matches!(DiffRequest::new(&a, &a, all(), 0), Err(Error::Input { .. })));
    assert!(matches!(DiffRequest::new(&a, &a, all(), 1001), Err(Error::Input { .. })));
    let unknown = Snapshot::map(Suite::Sha2_256, coregw_core::Arcs::default()).expect("a map").root().cid();
    let op = Operation::diff(Arc::clone(&store.cache), DiffRequest::new(&a, &unknown, all(), 1000).expect("a request"));
    assert!(matches!(store.serve(op), Err(Error::NotFound { .. })));
}
