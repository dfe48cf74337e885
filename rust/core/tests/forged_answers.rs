//! Forged answers: proofs that decode, but do not prove what is claimed of a root that its owner made honestly.

mod support;

use coregw_core::{
    Cid, Error, FixedSizes, Key, Keys, ListChange, ListChanges, MapChange, MapChanges, Result, RootCid, Snapshot,
    Suite, Window, verify,
};
use support::model::{Arcmap, Path, Query, prove_diff};
use support::target;

const LIMIT: usize = verify::WIDE_PROOF_LIMIT;

fn path(text: &str) -> Path {
    text.split('/').map(str::to_owned).collect()
}

fn key(text: &str) -> Key {
    Key::from_text(text).expect("a path")
}

fn arcs() -> Arcmap {
    ["a/b", "a/c", "a/d/e", "b", "c/x"].into_iter().zip(0..).map(|(text, n)| (path(text), target(n))).collect()
}

fn map() -> Snapshot {
    support::map(Suite::Sha2_256, &arcs())
}

fn list() -> Snapshot {
    support::list(Suite::Sha2_256, &(0..9).map(|n| (target(n), 1 + u64::from(n % 3))).collect::<Vec<_>>())
}

fn proof(tree: &Snapshot, query: &Query) -> Vec<u8> {
    let (answer, proof) = query.prove(tree).expect("an answer");
    assert_eq!(query.verify(&tree.root(), &proof), Ok(answer));
    proof
}

/// Asserts that `outcome` is a proof error whose failed check contains `why`.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(outcome: Result<T>, why: &str) {
    assert!(matches!(&outcome, Err(Error::Proof { check, .. }) if check.contains(why)), "{why}: {outcome:?}");
}

/// A query of every kind on one of the trees.
fn queries() -> Vec<(Snapshot, Query)> {
    let removal = MapChange { key: key("a/c"), before: Some(target(1)), after: None };
    let replacement = ListChange { index: 4, before: Some((target(4), None)), after: Some((target(40), 2)) };
    let on_map = [
        Query::Key(path("a/c")),
        Query::Key(path("a/z")),
        Query::Keys(vec![path("b"), path("a/c"), path("q")]),
        Query::Scan(path("a"), None, 2),
        Query::ChangeMap(vec![removal]),
    ];
    let on_list = [Query::Index(4), Query::Range(5, Some(9)), Query::ChangeList(vec![replacement], None)];
    on_map.map(|query| (map(), query)).into_iter().chain(on_list.map(|query| (list(), query))).collect()
}

/// The proof of the empty answer: the top node alone, or a stub.
fn stub(tree: &Snapshot) -> Vec<u8> {
    let mut out = vec![if tree.root().kind == coregw_core::Kind::Map { 3 } else { 0x13 }, tree.count() as u8];
    if out[0] == 0x13 {
        out.push(tree.measure() as u8);
    }
    [&out[..], &tree.root().digest.0].concat()
}

#[test]
fn withheld_node_is_refused() {
    for (tree, query) in queries() {
        // The stub of the whole tree has the digest of the root, but shows nothing.
        assert_refused(query.verify(&tree.root(), &stub(&tree)), "a node that the proof does not show");
    }
    // Every proof of another query that shows less.
    let less = proof(&map(), &Query::Scan(path("a"), None, 1));
    assert_refused(Query::Scan(path("a"), None, 3).verify(&map().root(), &less), "does not show");
    let less = proof(&list(), &Query::Range(5, Some(6)));
    assert_refused(Query::Range(5, Some(9)).verify(&list().root(), &less), "does not show");
}

#[test]
fn superfluous_node_is_refused() {
    let whole_map = proof(&map(), &Query::Scan(Vec::new(), None, 9));
    let whole_list = proof(&list(), &Query::Range(0, None));
    for (tree, query) in queries() {
        let whole = if tree.root() == map().root() { &whole_map } else { &whole_list };
        let refused = query.verify(&tree.root(), whole).expect_err("more than the query needs").to_string();
        let is_known = ["more than the query needs", "more leaves than the query can visit"];
        assert!(is_known.iter().any(|why| refused.contains(why)), "{refused}");
    }
}

#[test]
fn proof_of_another_root_is_refused() {
    for (tree, query) in queries() {
        let honest = proof(&tree, &query);
        let root = tree.root();
        let digest = root.suite.digest(b"another tree");
        assert_refused(query.verify(&RootCid { digest, ..root }, &honest), "not the root's");
        assert_refused(query.verify(&RootCid { suite: Suite::Blake3, ..root }, &honest), "not the root's");
    }
    let mut other = arcs();
    other.insert(path("zz"), target(7));
    let newer = support::map(Suite::Sha2_256, &other);
    let query = Query::Key(path("a/c"));
    assert_refused(query.verify(&newer.root(), &proof(&map(), &query)), "not the root's");
}

#[test]
fn substituted_target_is_refused() {
    for (tree, query) in queries() {
        let honest = proof(&tree, &query);
        let digest = tree.root().digest;
        for n in 0..9 {
            let (there, other) = (target(n), target(n + 8));
            let (there, other) = (there.as_bytes(), other.as_bytes());
            for at in (0..honest.len()).filter(|at| honest[*at..].starts_with(there) && there.len() == other.len()) {
                let forged = [&honest[..at], other, &honest[at + there.len()..]].concat();
                assert_ne!(digest, Suite::Sha2_256.digest(&forged));
                assert_refused(query.verify(&tree.root(), &forged), "not the root's");
            }
        }
    }
}

#[test]
fn changed_count_or_measure_of_a_pruned_subtree_is_refused() {
    let honest = proof(&list(), &Query::Index(8));
    // The eight elements before the last: 13, count, measure.
    assert_eq!(honest[..3], [0x12, 0x13, 8]);
    for at in [2, 3] {
        let mut forged = honest.clone();
        forged[at] += if at == 2 { 8 } else { 1 };
        let refused = Query::Index(8).verify(&list().root(), &forged);
        assert!(matches!(refused, Err(Error::Proof { .. })), "{refused:?}");
    }
    let honest = proof(&map(), &Query::Key(path("c/x")));
    let at = honest.iter().position(|byte| *byte == 3).expect("a stub") + 1;
    let mut forged = honest.clone();
    forged[at] += 1;
    assert_refused(Query::Key(path("c/x")).verify(&map().root(), &forged), "not the root's");
}

#[test]
fn proof_of_another_query_is_refused() {
    let all = queries();
    for (i, (tree, query)) in all.iter().enumerate() {
        for (other_tree, other) in all.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, other)| other) {
            let shown = proof(other_tree, other);
            if tree.root() == other_tree.root() && shown != proof(tree, query) {
                let refused = query.verify(&tree.root(), &shown);
                assert!(
                    matches!(refused, Err(Error::Proof { .. })),
                    "{query:?} with the proof of {other:?}: {refused:?}"
                );
            }
        }
    }
}

#[test]
fn claimed_absence_of_a_present_key_is_refused() {
    let tree = map();
    for text in ["a/b", "a/c", "a/d/e", "b", "c/x"] {
        for absent in ["a", "a/z", "a/d", "z", "a/d/f", "\0"] {
            let absence = proof(&tree, &Query::Key(path(absent)));
            let verdict = verify::key(&tree.root(), &key(text), &absence, LIMIT);
            assert!(verdict != Ok(None), "{text} is proven absent by the proof of {absent}");
        }
    }
    let shorter = proof(&list(), &Query::Index(99));
    assert_refused(verify::index(&list().root(), 8, &shorter, LIMIT), "does not show");
}

#[test]
fn multiproof_of_other_keys_is_refused() {
    let (tree, asked) = (map(), Query::Keys(vec![path("a/c"), path("b"), path("q")]));
    for other in [&["a/c", "b"][..], &["a/c", "q"], &["b", "q"], &["a/b", "b", "q"], &["a/c", "b", "c/x"], &["a/c"]] {
        let shown = proof(&tree, &Query::Keys(other.iter().map(|text| path(text)).collect()));
        let whole = proof(&tree, &asked);
        let refused = asked.verify(&tree.root(), &shown);
        assert!(shown == whole || matches!(refused, Err(Error::Proof { .. })), "{other:?}: {refused:?}");
    }
    let everything = proof(&tree, &Query::Scan(Vec::new(), None, 9));
    assert_refused(asked.verify(&tree.root(), &everything), "more than the query needs");
}

#[test]
fn listing_with_a_gap_is_refused() {
    let (tree, whole) = (map(), Query::Scan(path("a"), None, 3));
    // Listings of fewer entries, from later on, and of the descendants alone.
    for other in [
        Query::Scan(path("a"), None, 1),
        Query::Scan(path("a"), None, 2),
        Query::Scan(path("a"), Some(path("a/c")), 3),
        Query::Scan(path("a/d"), None, 3),
        Query::Scan(path("b"), None, 3),
    ] {
        let forged = proof(&tree, &other);
        let refused = whole.verify(&tree.root(), &forged);
        assert!(matches!(refused, Err(Error::Proof { .. })), "{other:?}: {refused:?}");
    }
    // The last entry withheld: the tree that does not have it is another.
    let mut fewer = arcs();
    fewer.remove(&path("a/d/e"));
    let forged = proof(&support::map(Suite::Sha2_256, &fewer), &whole);
    assert_refused(whole.verify(&tree.root(), &forged), "not the root's");
}

fn diff(roots: [&RootCid; 2], limit: usize, proofs: [&[u8]; 2]) -> Result<coregw_core::Differences> {
    verify::diff(roots, &Window::new::<&str, &str>(&[], None).expect("a window"), limit, proofs, LIMIT)
}

#[test]
fn diff_that_withholds_a_difference_is_refused() {
    let mut changed = arcs();
    changed.insert(path("a/c"), target(20));
    changed.remove(&path("b"));
    let trees = [map(), support::map(Suite::Sha2_256, &changed)];
    let roots = [trees[0].root(), trees[1].root()];
    let window = || Window::new::<&str, &str>(&[], None).expect("a window");
    let (found, [a, b]) = prove_diff([&trees[0], &trees[1]], window(), 9);
    assert_eq!(diff([&roots[0], &roots[1]], 9, [&a, &b]), Ok(found));
    // The first difference alone, and none.
    let (_, [one, other]) = prove_diff([&trees[0], &trees[1]], window(), 1);
    assert_refused(diff([&roots[0], &roots[1]], 9, [&one, &other]), "does not show");
    let (_, [same, _]) = prove_diff([&trees[0], &trees[0]], window(), 9);
    assert_refused(diff([&roots[0], &roots[1]], 9, [&same, &same]), "not the root's");
    let whole = proof(&trees[0], &Query::Scan(Vec::new(), None, 9));
    assert_refused(diff([&roots[0], &roots[1]], 9, [&whole, &b]), "more than the query needs");
}

#[test]
fn diff_of_swapped_maps_is_refused_and_names_the_map() {
    let mut changed = arcs();
    changed.insert(path("q"), target(20));
    let trees = [map(), support::map(Suite::Sha2_256, &changed)];
    let roots = [trees[0].root(), trees[1].root()];
    let window = Window::new::<&str, &str>(&[], None).expect("a window");
    let (_, [a, b]) = prove_diff([&trees[0], &trees[1]], window, 9);
    for (roots, proofs, map) in [
        ([&roots[1], &roots[0]], [&a[..], &b[..]], 0),
        ([&roots[0], &roots[1]], [&b, &a], 0),
        ([&roots[0], &roots[1]], [&a, &a], 1),
    ] {
        let refused = diff(roots, 9, proofs);
        assert!(matches!(refused, Err(Error::Proof { step: Some(step), .. }) if step == map), "{refused:?}");
    }
}

#[test]
fn changes_that_do_not_fit_the_map_are_refused() {
    let tree = map();
    let change = |text: &str, before: Option<Cid>, after: Option<Cid>| MapChange { key: key(text), before, after };
    let (there, other) = (Some(target(1)), Some(target(30)));
    for (text, before, after) in
        [("a/c", other, None), ("a/c", None, other), ("a/z", there, other), ("a/z", there, None)]
    {
        // What the query visits is the same as for the change that fits.
        let fitting = if text == "a/c" { change(text, there, Some(target(9))) } else { change(text, None, other) };
        let shown = proof(&tree, &Query::ChangeMap(vec![fitting]));
        let changes = MapChanges::new(vec![change(text, before, after)]).expect("changes");
        assert_refused(verify::map_changes(&tree.root(), changes, &shown, LIMIT), "the current target is");
    }
    let once = change("a/c", there, other);
    assert!(MapChanges::new(vec![once.clone(), once]).is_err() && MapChanges::new(Vec::new()).is_err());
    assert!(MapChanges::new(vec![change("a/c", there, there)]).is_err());
}

#[test]
fn changes_that_do_not_fit_the_list_are_refused() {
    let tree = list();
    let change = |index, before: Option<(u16, Option<u64>)>, after: Option<(u16, u64)>| ListChange {
        index,
        before: before.map(|(n, size)| (target(n), size)),
        after: after.map(|(n, size)| (target(n), size)),
    };
    let verify = |shown: &[ListChange], claimed: Vec<ListChange>| {
        let shown = proof(&tree, &Query::ChangeList(shown.to_vec(), None));
        verify::list_changes(&tree.root(), ListChanges::new(claimed).expect("changes"), &shown, LIMIT)
    };
    let replaced = [change(4, Some((4, None)), Some((40, 2)))];
    for before in [Some((5, None)), Some((4, Some(9))), None] {
        assert_refused(verify(&replaced, vec![change(4, before, Some((40, 2)))]), "the current target is");
    }
    assert_refused(verify(&replaced, vec![change(4, Some((4, None)), Some((4, 2)))]), "nothing changes");
    assert_refused(verify(&replaced, vec![change(4, Some((4, None)), None)]), "not the end of the list");
    let appended = [change(9, None, Some((40, 2)))];
    assert_refused(verify(&appended, vec![change(10, None, Some((40, 2)))]), "leaves a gap");
    assert_refused(verify(&appended, vec![change(9, Some((1, None)), Some((40, 2)))]), "the current target is nothing");
    let last = change(8, Some((8, None)), None);
    let both = vec![last.clone(), change(9, None, Some((40, 2)))];
    assert_refused(verify(&[last], both), "appends and removals together");
}

#[test]
fn sizes_that_are_not_those_of_a_fixed_list_are_refused() {
    let sizes =
        |all: &[u64]| support::list(Suite::Sha2_256, &all.iter().map(|size| (target(1), *size)).collect::<Vec<_>>());
    let verify = |tree: &Snapshot, index: u64, before: u64, after: u64, fixed: (u64, u64)| {
        let side = |n: u16, size| Some((target(n), size));
        let before = (before > 0).then(|| (target(1), Some(before)));
        let changes = ListChanges::new(vec![ListChange { index, before, after: side(2, after) }]).expect("changes");
        let (_, shown) = tree.change_list(changes.clone()).expect("the changes fit");
        let sizes = FixedSizes::new(fixed.0, fixed.1).expect("a size");
        verify::list_changes(&tree.root(), changes.into_fixed(sizes), &shown, LIMIT)
    };
    let fixed = FixedSizes::new(11, 4).expect("a size");
    assert_eq!((fixed.count(), fixed.size(), FixedSizes::new(11, 0)), (3, 4, None));
    assert_eq!([0, 1, 2, 3].map(|index| fixed.size_of(index)), [Some(4), Some(4), Some(3), None]);
    assert!(verify(&sizes(&[4, 4, 3]), 0, 4, 4, (11, 4)).is_ok());
    assert!(verify(&sizes(&[4, 4]), 2, 0, 3, (11, 4)).is_ok());
    assert_refused(verify(&sizes(&[4, 4, 3]), 0, 4, 4, (15, 4)), "the list has 3 elements; the fixed list has 4");
    assert_refused(verify(&sizes(&[4, 4, 3]), 0, 4, 4, (12, 4)), "element 2 has size 3");
    assert_refused(verify(&sizes(&[4, 4, 3]), 0, 4, 5, (11, 4)), "element 0 has size 5");
    assert_refused(verify(&sizes(&[4, 2, 5]), 0, 4, 4, (11, 4)), "element 1 has size 2");
    assert_refused(verify(&sizes(&[4, 4, 2, 4, 6]), 0, 4, 4, (20, 4)), "elements 2 to 3 have size 6 together");
}

#[test]
fn proof_longer_than_the_limit_is_refused() {
    assert_eq!((verify::PROOF_LIMIT, verify::WIDE_PROOF_LIMIT), (2_892_588, 16 << 20));
    // Offsets in a proof have 32 bits, whatever the caller's limit. These zeros are not touched.
    let long = vec![0; u32::MAX as usize / 2 + 1];
    assert_refused(verify::key(&map().root(), &key("a"), &long, usize::MAX), "the limit is 2147483647");
    for (tree, query) in queries() {
        let (root, shown) = (tree.root(), proof(&tree, &query));
        let limited = |limit: usize| match &query {
            Query::Key(path) => verify::key(&root, &support::key(path), &shown, limit).err(),
            Query::Keys(paths) => {
                let keys = Keys::new(paths.iter().map(support::key).collect()).expect("keys");
                verify::keys(&root, &keys, &shown, limit).err()
            }
            Query::Scan(prefix, _, n) => {
                verify::scan(&root, Window::new::<_, &str>(prefix, None).expect("a window"), *n, &shown, limit).err()
            }
            Query::Index(index) => verify::index(&root, *index, &shown, limit).err(),
            Query::Range(start, end) => verify::range(&root, *start, *end, &shown, limit).err(),
            Query::ChangeMap(changes) => {
                verify::map_changes(&root, MapChanges::new(changes.clone()).expect("changes"), &shown, limit).err()
            }
            Query::ChangeList(changes, _) => {
                verify::list_changes(&root, ListChanges::new(changes.clone()).expect("changes"), &shown, limit).err()
            }
        };
        assert_eq!(limited(shown.len()), None);
        assert_refused(limited(shown.len() - 1).map_or(Ok(()), Err), "the limit is");
    }
}
