//! Property tests of maps and lists against slow models: content, pages, queries and their proofs (protocol sections
//! 2 to 4).
//!
//! `PROPTEST_CASES` sets the number of cases per property. Forgeries of single checks are in `forgeries`, very long or
//! deep inputs in `limits`.

mod support;

use std::collections::BTreeSet;

use coregw_core::{ListChanges, MapChanges, Page, Snapshot, verify};
use proptest::prelude::*;
use proptest::sample::Index;
use support::query::{list_queries, map_queries, near};
use support::tamper::{Edit, edits, hostile_bytes, tamper};
use support::{
    Answer, Arcmap, Elements, Path, Query, config, pages, slow_get, slow_get_many, slow_index, slow_range, slow_scan,
    suites,
};

/// The maximum number of bytes below a page's top node.
const PAGE_LIMIT: usize = 8192;

/// One step in the history of a map: the arcs to remove, to retarget and to insert.
type MapStep = (Vec<Index>, Vec<(Index, u16)>, Arcmap);

fn map_steps() -> impl Strategy<Value = MapStep> {
    let some = |n| prop::collection::vec(any::<Index>(), 0..n);
    let other = prop::collection::vec((any::<Index>(), 400u16..500), 0..4);
    prop_oneof![
        3 => (some(4), other.clone(), support::arcmaps(4)),
        1 => (some(300), other.clone(), support::arcmaps(2)),
        1 => (some(2), other, support::large_arcmaps(400)),
    ]
}

fn next_map(arcs: &Arcmap, (removed, other, added): &MapStep) -> Arcmap {
    let mut next = arcs.clone();
    let all: Vec<_> = arcs.keys().collect();
    if !all.is_empty() {
        next.extend(other.iter().map(|(i, n)| ((*i.get(&all)).clone(), support::target(*n))));
        let removed: BTreeSet<_> = removed.iter().map(|i| *i.get(&all)).collect();
        next.retain(|path, _| !removed.contains(path));
    }
    next.extend(added.clone());
    next
}

/// Applies the changes from one content to the next; checks that root and pages equal those of a fresh build, and that
/// the transition proof verifies.
fn change_map(tree: &Snapshot, from: &Arcmap, to: &Arcmap) -> Result<Snapshot, TestCaseError> {
    let changes = support::map_changes(from, to);
    if changes.is_empty() {
        return Ok(tree.clone());
    }
    let changes = MapChanges::new(changes).expect("changes");
    let (changed, proof) = tree.change_map(changes.clone()).expect("the changes fit");
    let fresh = support::map(tree.root().suite, to);
    prop_assert_eq!(changed.root(), fresh.root());
    prop_assert_eq!(changed.count(), to.len() as u64);
    prop_assert!(pages(&changed) == pages(&fresh), "the pages depend on the history");
    let proven = verify::map_changes(&tree.root(), changes, &proof, verify::WIDE_PROOF_LIMIT);
    prop_assert_eq!(proven, Ok(fresh.root()));
    Ok(changed)
}

fn change_list(tree: &Snapshot, from: &Elements, to: &Elements) -> Result<Snapshot, TestCaseError> {
    let changes = support::list_changes(from, to);
    if changes.is_empty() {
        return Ok(tree.clone());
    }
    let changes = ListChanges::new(changes).expect("changes");
    let (changed, proof) = tree.change_list(changes.clone()).expect("the changes fit");
    let fresh = support::list(tree.root().suite, to);
    prop_assert_eq!(changed.root(), fresh.root());
    prop_assert_eq!((changed.count(), changed.measure()), (fresh.count(), fresh.measure()));
    prop_assert!(pages(&changed) == pages(&fresh), "the pages depend on the history");
    let proven = verify::list_changes(&tree.root(), changes, &proof, verify::WIDE_PROOF_LIMIT);
    prop_assert_eq!(proven, Ok(fresh.root()));
    Ok(changed)
}

/// One step in the history of a list: its next length, the elements to append if it grows, the elements to replace.
type ListStep = (usize, Elements, Vec<(Index, u16)>);

fn list_steps() -> impl Strategy<Value = ListStep> {
    (0usize..1200, support::elements(60), prop::collection::vec((any::<Index>(), 400u16..500), 0..5))
}

fn next_list(elements: &Elements, (len, added, other): &ListStep) -> Elements {
    let len = *len;
    let mut next: Elements = elements.iter().copied().take(len).collect();
    let kept = next.len();
    if len > kept {
        next.extend(added.iter().copied().cycle().take(if added.is_empty() { 0 } else { len - kept }));
    }
    if kept > 0 {
        other.iter().for_each(|(i, n)| next[i.index(kept)] = (support::target(*n), u64::from(*n)));
    }
    next
}

/// Checks that every page is stored under its digest, round-trips, is within the size limit, and is reachable from the
/// root page.
fn check_pages(tree: &Snapshot) -> Result<(), TestCaseError> {
    let stored = pages(tree);
    let root = tree.root();
    let mut rest = vec![root.digest];
    let mut reached = BTreeSet::new();
    while let Some(digest) = rest.pop() {
        let bytes = stored.get(&digest).expect("every stub names a page");
        prop_assert!(bytes.len() - support::top_len(bytes) <= PAGE_LIMIT, "{} bytes", bytes.len());
        let page = Page::parse(bytes, root.kind, root.suite, &digest).expect("a page parses");
        prop_assert_eq!(&page.to_bytes(), bytes);
        if reached.insert(digest) {
            rest.extend(page.stubs());
        }
    }
    prop_assert_eq!(reached.len(), stored.len());
    Ok(())
}

/// Checks that the answer is the model's and that its proof verifies to the same answer; returns the proof.
fn check_query(tree: &Snapshot, query: &Query, slow: &Answer) -> Result<Vec<u8>, TestCaseError> {
    let (answer, proof) = query.prove(tree).expect("an answer");
    prop_assert_eq!(&answer, slow);
    prop_assert_eq!(query.verify(&tree.root(), &proof), Ok(answer));
    Ok(proof)
}

/// Checks that no query accepts the proof of another, unless both proofs have the same bytes.
fn check_proofs_are_not_interchangeable(tree: &Snapshot, queries: &[Query]) -> Result<(), TestCaseError> {
    let proven: Vec<_> = queries.iter().map(|query| query.prove(tree).expect("an answer")).collect();
    for (query, (answer, own)) in queries.iter().zip(&proven) {
        for (_, proof) in &proven {
            match query.verify(&tree.root(), proof) {
                Ok(given) => prop_assert!(proof == own && given == *answer, "{:?}", query),
                Err(_) => prop_assert!(proof != own),
            }
        }
    }
    Ok(())
}

/// Checks that a proof is refused after every bit flip, truncation and appended byte, and after random edits.
fn check_edits(tree: &Snapshot, query: &Query, edits: Vec<Edit>) -> Result<(), TestCaseError> {
    let (answer, proof) = query.prove(tree).expect("an answer");
    let root = tree.root();
    prop_assert_eq!(query.verify(&root, &proof), Ok(answer));
    let mut edited = proof.clone();
    for i in 0..8 * proof.len() {
        edited[i / 8] ^= 1 << (i % 8);
        prop_assert!(query.verify(&root, &edited).is_err(), "bit {} flipped", i);
        edited[i / 8] ^= 1 << (i % 8);
    }
    for n in 0..proof.len() {
        prop_assert!(query.verify(&root, &proof[..n]).is_err(), "truncated to {} bytes", n);
    }
    for b in 0..=255 {
        prop_assert!(query.verify(&root, &[&proof[..], &[b]].concat()).is_err(), "{:#04x} appended", b);
    }
    prop_assert!(query.verify(&root, &[&proof[..], &proof[..]].concat()).is_err());
    let edited = tamper(&proof, &edits);
    prop_assert!(edited == proof || query.verify(&root, &edited).is_err());
    Ok(())
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn map_root_matches_its_definition_for_any_insertion_order(
        suite in suites(), arcs in support::arcmaps(40).prop_flat_map(|arcs| {
            let order: Vec<_> = arcs.clone().into_iter().collect();
            (Just(arcs), Just(order).prop_shuffle())
        }),
    ) {
        let (arcs, order) = arcs;
        let tree = support::map(suite, &arcs);
        let shuffled = support::map_in_order(suite, order.iter().map(|(path, target)| (path, target)));
        prop_assert_eq!(tree.root().digest, support::slow_map(suite, &arcs));
        prop_assert_eq!((tree.count(), tree.measure()), (arcs.len() as u64, arcs.len() as u64));
        prop_assert_eq!(tree.root(), shuffled.root());
        prop_assert!(pages(&tree) == pages(&shuffled));
    }

    #[test]
    fn list_root_matches_its_definition(suite in suites(), elements in support::elements(70)) {
        let tree = support::list(suite, &elements);
        prop_assert_eq!(tree.root().digest, support::slow_list(suite, &elements));
        prop_assert_eq!(tree.count(), elements.len() as u64);
        prop_assert_eq!(tree.measure(), elements.iter().map(|e| e.1).sum::<u64>());
        check_pages(&tree)?;
    }

    #[test]
    fn every_query_of_a_map_gets_a_valid_proof(
        suite in suites(),
        arcs in support::arcmaps(40),
        more in prop::collection::vec((any::<Index>(), any::<Index>(), support::paths()), 8),
        turn in any::<Index>(),
    ) {
        let tree = support::map(suite, &arcs);
        let others = more.into_iter().map(|(pick, cut, other)| near(&arcs, pick, cut, other));
        let paths: BTreeSet<Path> = arcs.keys().cloned().chain(others).collect();
        let mut paths: Vec<Path> = paths.into_iter().collect();
        let queries: Vec<_> = paths.iter().cloned().map(Query::Key).collect();
        for query in &queries {
            let Query::Key(path) = query else { unreachable!() };
            let proof = check_query(&tree, query, &slow_get(&arcs, path))?;
            let one = vec![path.clone()];
            prop_assert_eq!(check_query(&tree, &Query::Keys(one.clone()), &slow_get_many(&arcs, &one))?, proof);
        }
        let turn = turn.index(paths.len());
        paths.rotate_left(turn);
        for count in [paths.len(), paths.len().div_ceil(2)] {
            check_query(&tree, &Query::Keys(paths[..count].to_vec()), &slow_get_many(&arcs, &paths[..count]))?;
        }
        check_proofs_are_not_interchangeable(&tree, &queries)?;
    }

    #[test]
    fn every_query_of_a_list_gets_a_valid_proof(
        suite in suites(),
        elements in support::elements(40),
        edges in prop::collection::vec((any::<Index>(), any::<Index>()), 12),
    ) {
        let tree = support::list(suite, &elements);
        let n = elements.len() as u64;
        let mut queries: Vec<_> = (0..n + 2).chain([u64::MAX]).map(Query::Index).collect();
        let total = tree.measure();
        let place = |index: &Index| index.index(total as usize + 3) as u64;
        let edges = edges.iter().map(|(a, b)| (place(a), Some(place(b))));
        let edges = edges.chain([(0, None), (0, Some(u64::MAX)), (u64::MAX, None), (total, None), (total / 2, None)]);
        queries.extend(edges.map(|(start, end)| Query::Range(start, end)));
        for query in &queries {
            let slow = match query {
                Query::Index(i) => slow_index(&elements, *i),
                Query::Range(start, end) => slow_range(&elements, *start, *end),
                _ => unreachable!(),
            };
            check_query(&tree, query, &slow)?;
        }
        check_proofs_are_not_interchangeable(&tree, &queries)?;
    }

    #[test]
    fn paging_through_a_listing_yields_exactly_its_entries(
        suite in suites(),
        arcs in support::arcmaps(40),
        pick in any::<(Index, Index, Index)>(),
        limit in 1usize..7,
        other in support::paths(),
    ) {
        let tree = support::map(suite, &arcs);
        let path = near(&arcs, pick.0, pick.1, other);
        let prefix: Path = path[..pick.2.index(path.len() + 1)].to_vec();
        let (mut after, mut all, mut queries) = (None, Vec::new(), Vec::new());
        loop {
            let query = Query::Scan(prefix.clone(), after.clone(), limit);
            let slow = slow_scan(&arcs, &prefix, after.as_ref(), limit);
            check_query(&tree, &query, &Answer::Listing(slow.clone()))?;
            queries.push(query);
            all.extend(slow.decoded());
            after = all.last().map(|(path, _)| path.clone());
            if !slow.more {
                break;
            }
        }
        let expected = arcs.into_iter().filter(|(path, _)| path.starts_with(&prefix));
        prop_assert_eq!(all, expected.collect::<Vec<_>>());
        queries.push(Query::Scan(prefix.clone(), None, limit + 1));
        queries.push(Query::Scan(path[..1].to_vec(), None, limit));
        check_proofs_are_not_interchangeable(&tree, &queries)?;
    }

    #[test]
    fn edited_proof_of_a_map_is_refused((arcs, query) in map_queries(24), suite in suites(), edits in edits()) {
        check_edits(&support::map(suite, &arcs), &query, edits)?;
    }

    #[test]
    fn edited_proof_of_a_list_is_refused((elements, query) in list_queries(40), suite in suites(), edits in edits()) {
        check_edits(&support::list(suite, &elements), &query, edits)?;
    }

    #[test]
    fn random_bytes_are_refused_as_proofs_and_as_pages(
        (arcs, map_query) in map_queries(5), (elements, list_query) in list_queries(5), bytes in hostile_bytes(),
    ) {
        let suite = coregw_core::Suite::Sha2_256;
        for (tree, query) in [(support::map(suite, &arcs), map_query), (support::list(suite, &elements), list_query)] {
            let (root, (_, proof)) = (tree.root(), query.prove(&tree).expect("an answer"));
            prop_assert!(bytes == proof || query.verify(&root, &bytes).is_err());
            let stored = &pages(&tree)[&root.digest];
            prop_assert!(bytes == *stored || Page::parse(&bytes, root.kind, root.suite, &root.digest).is_err());
        }
    }
}

proptest! {
    #![proptest_config(config(10))]

    #[test]
    fn pages_of_a_map_do_not_depend_on_its_history(
        suite in suites(),
        start in support::large_arcmaps(1500),
        steps in prop::collection::vec(map_steps(), 1..6),
        cuts in any::<[Index; 2]>(),
    ) {
        let mut tree = support::map(suite, &start);
        check_pages(&tree)?;
        let mut arcs = start;
        for step in &steps {
            let next = next_map(&arcs, step);
            tree = change_map(&tree, &arcs, &next)?;
            check_pages(&tree)?;
            arcs = next;
        }
        // Shrink to empty in a few batches, then grow again.
        let all = arcs.clone();
        let mut down: Vec<_> = cuts.iter().map(|cut| cut.index(all.len() + 1)).chain([0]).collect();
        down.sort_unstable_by(|a, b| b.cmp(a));
        for n in down.iter().copied().chain(down.iter().rev().copied()).chain([all.len()]) {
            let kept = all.iter().enumerate().filter(|(i, _)| i * 7919 % all.len() < n);
            let next: Arcmap = kept.map(|(_, (path, target))| (path.clone(), *target)).collect();
            tree = change_map(&tree, &arcs, &next)?;
            arcs = next;
        }
    }

    #[test]
    fn pages_of_a_list_do_not_depend_on_its_history(
        suite in suites(),
        start in support::elements(1200),
        steps in prop::collection::vec(list_steps(), 1..6),
    ) {
        let mut tree = support::list(suite, &start);
        let mut elements = start;
        let to_empty_and_back = [(0, Vec::new(), Vec::new()), (700, vec![(support::target(1), 1)], Vec::new())];
        for step in steps.into_iter().chain(to_empty_and_back) {
            let next = next_list(&elements, &step);
            tree = change_list(&tree, &elements, &next)?;
            check_pages(&tree)?;
            elements = next;
        }
    }

    #[test]
    fn pages_after_single_changes_equal_those_of_a_fresh_build(
        suite in suites(),
        start in support::large_arcmaps(900),
        picks in prop::collection::vec((any::<Index>(), any::<Index>(), support::paths(), any::<u16>()), 12),
    ) {
        let mut tree = support::map(suite, &start);
        let mut arcs = start;
        for (pick, cut, other, n) in picks {
            let mut next = arcs.clone();
            let path = near(&arcs, pick, cut, other);
            if n % 2 == 0 || next.remove(&path).is_none() {
                next.insert(path, support::target(n));
            }
            tree = change_map(&tree, &arcs, &next)?;
            arcs = next;
        }
        check_pages(&tree)?;
    }

    #[test]
    fn queries_on_many_pages_get_valid_proofs(
        suite in suites(),
        arcs in support::large_arcmaps(1500),
        picks in prop::collection::vec((any::<Index>(), any::<Index>(), support::paths()), 20),
        limit in 1usize..900,
    ) {
        let tree = support::map(suite, &arcs);
        let paths = picks.iter().cloned().map(|(pick, cut, other)| near(&arcs, pick, cut, other));
        let mut paths: Vec<_> = paths.collect::<BTreeSet<_>>().into_iter().collect();
        paths.reverse();
        check_query(&tree, &Query::Keys(paths.clone()), &slow_get_many(&arcs, &paths))?;
        for (pick, cut, other) in picks {
            let path = near(&arcs, pick, cut, other);
            check_query(&tree, &Query::Key(path.clone()), &slow_get(&arcs, &path))?;
            let prefix: Path = path[..cut.index(path.len() + 1)].to_vec();
            for after in [None, Some(path)] {
                let slow = slow_scan(&arcs, &prefix, after.as_ref(), limit);
                check_query(&tree, &Query::Scan(prefix.clone(), after, limit), &Answer::Listing(slow))?;
            }
        }
    }
}
