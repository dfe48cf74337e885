//! Mutations of stored trees, compared with trees in memory, and their refusals.

use std::collections::BTreeMap;
use std::sync::Arc;

use coregw_core::{Arcs, Cid, Error, InputCode, Key, Kind, Page, Snapshot, Suite, verify};
use coregw_ops::{Operation, ReadOutcome, verify_read};
use proptest::prelude::*;
use serde_json::json;

#[path = "support/store.rs"]
mod store;

use store::{Store, chunk, many, payload, root_of};

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

/// The pages that a change has made are in the cache, as they would be read: all that follows is as if it had read them.
#[test]
fn the_next_change_of_a_result_reads_none_of_the_pages_that_the_last_one_has_made() {
    let (mut cached, mut uncached) = (Store::new(64 << 20, u64::MAX), Store::new(0, u64::MAX));
    let mut arcs = many(20_000);
    let paths: Vec<_> = arcs.keys().step_by(997).cloned().collect();
    let mut root = cached.build(Suite::Sha2_256, &arcs);
    assert_eq!(uncached.build(Suite::Sha2_256, &arcs), root);
    for n in 0..200 {
        let path = paths[n * 7 % paths.len()].as_str();
        let (old, new) = (arcs.get(path).cloned(), payload(100_000 + n as u64));
        let new = (n % 5 != 4 || old.is_none()).then_some(new);
        let target = |cid: &Option<Cid>| cid.as_ref().map(|cid| json!({"target": cid.text()}));
        let mut change = json!({"path": path});
        for (side, cid) in [("before", &old), ("after", &new)] {
            target(cid).into_iter().for_each(|target| change[side] = target);
        }
        let request = json!({"deltas": [{"kind": "map", "changes": [change]}], "prove": true});
        cached.loads = 0;
        let receipt = cached.mutate(&root, &request).expect("a change");
        assert!(n < paths.len() || cached.loads == 0, "change {n} read {} pages", cached.loads);
        assert_eq!(receipt, uncached.mutate(&root, &request).expect("a change"));
        root = root_of(&receipt["new_root"]);
        match new {
            Some(cid) => arcs.insert(path.to_owned(), cid),
            None => arcs.remove(path),
        };
    }
    assert_eq!(cached.pages, uncached.pages);
    assert_eq!(cached.build(Suite::Sha2_256, &arcs), root);
}

/// Pages that a mutation has made are stored when there are many; until it succeeds, no root has them.
#[test]
fn a_mutation_of_many_pages_stores_them_as_it_goes() {
    let mut store = Store::new(0, 100_000);
    let mut arcs = many(30_000);
    let base = store.build(Suite::Blake3, &arcs);
    let before = store.pages.len();
    let mut delta = |n: usize| {
        let change = |(path, old): (&String, &mut Cid)| {
            let new = payload(n as u64 + 90_000);
            let change = json!({"path": path, "before": {"target": old.text()}, "after": {"target": new.text()}});
            *old = new;
            change
        };
        json!({"kind": "map", "changes": arcs.iter_mut().skip(n).step_by(90).map(change).collect::<Vec<_>>()})
    };
    let deltas: Vec<_> = (0..6).map(&mut delta).collect();
    let mut broken = deltas.clone();
    broken.push(
        json!({"kind": "map", "changes": [{"path": "users/000000/profile", "after": {"target": payload(1).text()}}]}),
    );
    let (held, recorded) = (store.roots.len(), store.recorded.len());
    let refused = store.mutate(&base, &json!({"deltas": broken}));
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
    assert!(store.pages.len() > before + 500, "{} pages, {before} before", store.pages.len());
    assert_eq!((store.roots.len(), store.recorded.len()), (held, recorded));

    let receipt = store.mutate(&base, &json!({"deltas": deltas})).expect("they fit");
    let mut all = Arcs::default();
    arcs.iter().for_each(|(path, cid)| all.push(&Key::from_text(path).expect("a path"), cid));
    let rebuilt = Snapshot::map(Suite::Blake3, all).expect("a map");
    assert_eq!(root_of(&receipt["new_root"]), rebuilt.root());
    assert!(rebuilt.pages().all(|page| store.pages.get(&page.digest()) == Some(&page.to_bytes())));
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
    for after in
        [json!({"target": payload(0).text(), "target_kind": "map"}), json!({"target": payload(0).text(), "size": 1})]
    {
        let delta = json!({"kind": "map", "changes": [{"path": "a", "after": after}]});
        assert!(matches!(store.mutate(&base, &json!({"deltas": [delta]})), Err(Error::Input { .. })));
    }
    let given = json!({"kind": "list", "changes": [{"index": 0, "after": {"target": payload(0).text(), "size": 3}}],
        "commit": {"fixed_list": {"total_size": 3, "chunk_size": 4}},
        "expected_root": Snapshot::list(Suite::Sha2_256, &[(payload(0), 3)]).expect("a list").root().cid().text()});
    store.mutate(&base, &json!({"deltas": [given]})).expect("the size and the root that follow");
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

#[test]
fn a_change_whose_proof_is_too_long_is_refused_unless_made_without_proof() {
    let mut store = Store::new(0, u64::MAX);
    let paths: Vec<_> = (0..4200).map(|i| format!("{i:04}{}", "x".repeat(4092))).collect();
    let arcs = paths.iter().map(|path| (path.clone(), payload(1))).collect();
    let base = store.build(Suite::Sha2_256, &arcs);
    let change = |path: &String| json!({"path": path, "before": {"target": payload(1).text()}, "after": {"target": payload(2).text()}});
    let deltas = |paths: &[String]| json!([{"kind": "map", "changes": paths.iter().map(change).collect::<Vec<_>>()}]);
    let kept = store.pages.len();
    let refused = store.mutate(&base, &json!({"deltas": deltas(&paths), "prove": true}));
    let Err(Error::Input { code: InputCode::TooLarge, what }) = &refused else { panic!("{refused:?}") };
    assert!(what.starts_with("delta 0: the proof is "), "{what}");
    assert_eq!(store.pages.len(), kept);
    store.mutate(&base, &json!({"deltas": deltas(&paths)})).expect("it fits");
    let fewer = json!({"root": base.cid().text(), "deltas": deltas(&paths[..4000]), "prove": true});
    let receipt = store.mutate(&base, &json!({"deltas": fewer["deltas"], "prove": true})).expect("it fits");
    coregw_ops::verify_transition(fewer.to_string().as_bytes(), receipt.to_string().as_bytes()).expect("a proof");
}
