//! That a walk on pages and a visit of a tree are the same: answers, proofs, and where they stop on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use crate::error::Result;
use crate::id::cid::{Cid, Kind, RootCid};
use crate::id::suite::{Digest, Suite};
use crate::key::Key;
use crate::page::{NodeSource, Page};
use crate::proof::prove::{Answer, Ask, Progress, Query};
use crate::proof::pruned::{self, Form};
use crate::proof::verify;
use crate::snapshot::Snapshot;
use crate::tree::arcs::Arcs;
use crate::tree::arena::Arena;

type Stored = BTreeMap<Digest, Arc<Page>>;

/// A source that has these pages at hand.
struct Shelf(Stored);

impl NodeSource for Shelf {
    fn page(&self, digest: &Digest) -> Option<Arc<Page>> {
        self.0.get(digest).map(Arc::clone)
    }
}

/// Where a query stopped on the way, what it left of each budget, and how it ended; None: a page is missing.
type Course = (Vec<(Progress, u64)>, Option<Result<(Answer, Vec<u8>)>>);

fn course(mut query: Query, stored: &Stored, budget: u64) -> Course {
    let mut stops = Vec::new();
    loop {
        let progress = match query.run(budget) {
            Ok(progress) => progress,
            Err(error) => return (stops, Some(Err(error))),
        };
        stops.push((progress.clone(), query.budget_left()));
        match progress {
            Progress::Done => return (stops, query.answer().map(|answer| Ok((answer, query.proof())))),
            Progress::Budget => {}
            Progress::Pages(wanted) => {
                let pages: Vec<_> = wanted.iter().filter_map(|digest| stored.get(digest).map(Arc::clone)).collect();
                if pages.len() < wanted.len() {
                    return (stops, None);
                }
                query.supply(pages);
            }
        }
    }
}

/// How the walk goes, which is how the visit goes, whichever pages are at hand and whatever the budget is.
fn both(root: &RootCid, stored: &Stored, ask: impl Fn() -> Ask) -> Option<Result<(Answer, Vec<u8>)>> {
    let mut end = None;
    for (shelf, budget) in
        [(stored.clone(), u64::MAX), (Stored::new(), u64::MAX), (Stored::new(), 1), (stored.clone(), 3)]
    {
        let shelf: Arc<dyn NodeSource> = Arc::new(Shelf(shelf));
        let walked = course(Query::open(root, Arc::clone(&shelf), ask()), stored, budget);
        let visited = course(Query::visiting(root, shelf, ask()), stored, budget);
        assert_eq!(walked, visited);
        end = walked.1;
    }
    end
}

/// The pages as a store gives them: they don't hold on to each other.
fn stored(tree: &Snapshot) -> Stored {
    let read = |page: Arc<Page>| Page::parse(&page.to_bytes(), page.kind, page.suite, &page.digest()).expect("a page");
    tree.pages().map(|page| (page.digest(), Arc::new(read(page)))).collect()
}

fn target(n: usize) -> Cid {
    let bytes = [&[1, 0x55, 0x12, 32][..], &Suite::Sha2_256.digest(&n.to_be_bytes()).0].concat();
    Cid::from_bytes(&bytes).expect("a CID")
}

fn map(paths: &BTreeSet<String>) -> Snapshot {
    let mut arcs = Arcs::default();
    paths.iter().enumerate().for_each(|(i, path)| arcs.push(&Key::from_text(path).expect("a path"), &target(i)));
    Snapshot::map(Suite::Sha2_256, arcs).expect("a map")
}

/// Few letters and long repeats, so that keys part early, late, and inside bytes.
fn paths() -> impl Strategy<Value = BTreeSet<String>> {
    let segment = prop_oneof![
        4 => "[a-cq]{1,4}",
        2 => "[0-9a-f]{24}",
        1 => (1usize..300).prop_map(|n| "x".repeat(n)),
    ];
    let path = prop::collection::vec(segment, 1..5).prop_map(|segments| segments.join("/"));
    prop_oneof![prop::collection::btree_set(path.clone(), 0..4), prop::collection::btree_set(path, 0..400)]
}

/// Compares the look-up of a key, in memory and in a store, with the visit of a tree.
fn check_key(tree: &Snapshot, stored: &Stored, path: &str, there: bool) {
    let key = Key::from_text(path).expect("a path");
    let (found, proof) = tree.key(&key).expect("a map");
    let proof = proof();
    assert_eq!(found.is_some(), there);
    assert_eq!(verify::key(&tree.root(), &key, &proof, verify::PROOF_LIMIT), Ok(found));
    let end = both(&tree.root(), stored, || Ask::Key(key.clone())).expect("all pages are there");
    assert_eq!(end, Ok((Answer::Key(found), proof)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_key_is_walked_to_as_it_is_visited(paths in paths(), others in paths()) {
        let tree = map(&paths);
        let stored = stored(&tree);
        let longer = paths.iter().map(|path| format!("{path}/a"));
        for path in paths.iter().cloned().chain(others).chain(longer).take(300) {
            check_key(&tree, &stored, &path, paths.contains(&path));
        }
    }

    #[test]
    fn an_index_is_walked_to_as_it_is_visited(sizes in prop::collection::vec(1u64..1 << 40, 0..700)) {
        let elements: Vec<_> = sizes.iter().enumerate().map(|(i, &size)| (target(i), size)).collect();
        let tree = Snapshot::list(Suite::Blake3, &elements).expect("a list");
        let stored = stored(&tree);
        let len = sizes.len() as u64;
        for index in (0..len).step_by(7).chain([len.saturating_sub(1), len, len + 1, u64::MAX]) {
            let (element, proof) = tree.index(index).expect("a list");
            let proof = proof();
            let proven = verify::index(&tree.root(), index, &proof, verify::PROOF_LIMIT);
            prop_assert_eq!(proven.as_ref(), Ok(&element));
            prop_assert_eq!(element.target, elements.get(index as usize).map(|element| element.0));
            let end = both(&tree.root(), &stored, || Ask::Index(index)).expect("all pages are there");
            prop_assert_eq!(end, Ok((Answer::Element(element), proof)));
        }
    }
}

#[test]
fn keys_over_many_pages_are_walked_to_as_they_are_visited() {
    let hex = |i: usize| Suite::Blake3.digest(&i.to_be_bytes()).to_string()[..24].to_owned();
    let paths: BTreeSet<_> = (0..20_000).map(hex).collect();
    let tree = map(&paths);
    let stored = stored(&tree);
    assert!(stored.len() > 100);
    for i in (0..20_400).step_by(97) {
        check_key(&tree, &stored, &hex(i), i < 20_000);
    }
}

#[test]
fn a_missing_page_stops_both_at_the_same_place() {
    let paths: BTreeSet<_> = (0..600).map(|i| format!("{i:05}")).collect();
    let tree = map(&paths);
    let mut stored = stored(&tree);
    let key = Key::from_text("00300").expect("a path");
    let mut missed = 0;
    for digest in stored.keys().copied().collect::<Vec<_>>() {
        let page = stored.remove(&digest).expect("a page");
        missed += u32::from(both(&tree.root(), &stored, || Ask::Key(key.clone())).is_none());
        stored.insert(digest, page);
    }
    assert!(missed >= 2, "the walk passes {missed} pages");
}

#[test]
fn a_page_of_another_kind_or_suite_is_refused_by_both() {
    let paths: BTreeSet<_> = (0..600).map(|i| format!("{i:05}")).collect();
    let tree = map(&paths);
    let key = Key::from_text("00300").expect("a path");
    let good = stored(&tree);
    let mut refused = 0;
    for (digest, page) in &good {
        for (kind, suite) in [(Kind::List, page.suite), (page.kind, Suite::Blake3)] {
            let mut other = Page::parse(&page.to_bytes(), page.kind, page.suite, digest).expect("a page");
            (other.kind, other.suite) = (kind, suite);
            let mut stored = good.clone();
            stored.insert(*digest, Arc::new(other));
            if let Some(Err(error)) = both(&tree.root(), &stored, || Ask::Key(key.clone())) {
                assert!(error.to_string().contains("another kind or suite"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused >= 4);
}

#[test]
fn a_node_below_a_whole_key_is_refused_by_both() {
    // An inner node with the label "a", its end, and more: no key may go on behind that.
    let label = b"a\0\0xxxxx";
    let stub = [&[3, 1][..], &[7; 32], &[0, 0, 0]].concat();
    let bytes = [&[2, 64][..], label, &stub, &stub].concat();
    let mut arena = Arena::default();
    pruned::decode(&mut arena, &bytes, Kind::Map, Suite::Sha2_256, Form::Page).expect("a pruned tree");
    let page = Arc::new(Page { kind: Kind::Map, suite: Suite::Sha2_256, arena, next: Vec::new() });
    let root = RootCid { kind: Kind::Map, suite: Suite::Sha2_256, digest: page.digest() };
    let stored = Stored::from([(page.digest(), page)]);
    let key = Key::from_text("a").expect("a path");
    let error = both(&root, &stored, || Ask::Key(key.clone())).expect("its page is there").expect_err("no such tree");
    assert!(error.to_string().contains("below a whole key"), "{error}");
}
