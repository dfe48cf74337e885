//! A query for one leaf has the same answer, proof and interrupts on pages and on a tree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use crate::bits::first_difference;
use crate::error::Result;
use crate::id::cid::{Cid, Kind, RootCid};
use crate::id::suite::{Digest, Suite};
use crate::interrupt::Interrupt;
use crate::key::Key;
use crate::key_list::Keys;
use crate::page::cache::PageSource;
use crate::page::format::Page;
use crate::page::links::Links;
use crate::page::partial::MAX_MISSING_PAGES;
use crate::proof::query::{Answer, Ask, Query};
use crate::proof::verify;
use crate::query::arcs::Arcs;
use crate::snapshot::Snapshot;
use crate::tree::arena::Arena;
use crate::tree::pruned::{self, Form, VisitLimits};

type Stored = BTreeMap<Digest, Arc<Page>>;

/// A source that has these pages.
struct Shelf(Stored);

impl PageSource for Shelf {
    fn page(&self, digest: &Digest) -> Option<Arc<Page>> {
        self.0.get(digest).map(Arc::clone)
    }
}

/// The interrupts of a query and what was left of each budget, and how it ended; None if a page is missing.
type Course = (Vec<(Interrupt, u64)>, Option<Result<(Answer, Vec<u8>)>>);

fn course(mut query: Query, stored: &Stored, budget: u64) -> Course {
    let mut stops = Vec::new();
    loop {
        let mut left = budget;
        let interrupt = match query.run(&mut left) {
            Ok(answer) => return (stops, Some(Ok((answer, query.proof())))),
            Err(Interrupt::Failed(error)) => return (stops, Some(Err(error))),
            Err(interrupt) => interrupt,
        };
        stops.push((interrupt.clone(), left));
        if let Interrupt::Pages(missing) = interrupt {
            let pages: Vec<_> = missing.iter().filter_map(|digest| stored.get(digest).map(Arc::clone)).collect();
            if pages.len() < missing.len() {
                return (stops, None);
            }
            query.supply(pages);
        }
    }
}

/// How a query ends, which is the same on pages and on a tree, whichever pages are available and whatever the budget is.
fn both(root: &RootCid, stored: &Stored, ask: impl Fn() -> Ask) -> Option<Result<(Answer, Vec<u8>)>> {
    let mut end = None;
    for (is_available, budget) in [(true, u64::MAX), (false, u64::MAX), (false, 1), (true, 3)] {
        let run = |open: fn(&RootCid, Arc<dyn PageSource>, Ask) -> Query| {
            let stored = read_again(stored);
            let shelf = if is_available { stored.clone() } else { Stored::new() };
            course(open(root, Arc::new(Shelf(shelf)), ask()), &stored, budget)
        };
        let on_pages = run(Query::open);
        assert_eq!(on_pages, run(Query::on_tree));
        end = on_pages.1;
    }
    end
}

/// The pages as a store returns them, without links to each other.
fn stored(tree: &Snapshot) -> Stored {
    let read = |page: Arc<Page>| Page::parse(&page.to_bytes(), page.kind, page.suite, &page.digest()).expect("a page");
    tree.pages().map(|page| (page.digest(), Arc::new(read(page)))).collect()
}

/// The same pages without the links that queries have made.
fn read_again(stored: &Stored) -> Stored {
    let read = |page: &Page| {
        let Page { kind, suite, arena, .. } = page;
        let arena = arena.clone();
        Page { kind: *kind, suite: *suite, arena, next: Vec::new(), links: Links::of(page.stubs().count()) }
    };
    stored.iter().map(|(digest, page)| (*digest, Arc::new(read(page)))).collect()
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

/// Few letters and long repeats, so that keys diverge early, late, and inside bytes.
fn paths() -> impl Strategy<Value = BTreeSet<String>> {
    let segment = prop_oneof![
        4 => "[a-cq]{1,4}",
        2 => "[0-9a-f]{24}",
        1 => (1usize..300).prop_map(|n| "x".repeat(n)),
    ];
    let path = prop::collection::vec(segment, 1..5).prop_map(|segments| segments.join("/"));
    prop_oneof![prop::collection::btree_set(path.clone(), 0..4), prop::collection::btree_set(path, 0..400)]
}

/// Looks a key up in memory, on stored pages and on a tree.
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
    fn keys_are_found_on_pages_as_on_a_tree(paths in paths(), others in paths()) {
        let tree = map(&paths);
        let stored = stored(&tree);
        let longer = paths.iter().map(|path| format!("{path}/a"));
        for path in paths.iter().cloned().chain(others).chain(longer).take(300) {
            check_key(&tree, &stored, &path, paths.contains(&path));
        }
    }

    #[test]
    fn several_keys_are_found_on_pages_as_on_a_tree(paths in paths(), others in paths()) {
        let tree = map(&paths);
        let longer = paths.iter().map(|path| format!("{path}/a"));
        let asked: BTreeSet<_> = paths.iter().cloned().step_by(3).chain(others).chain(longer.step_by(2)).collect();
        if !asked.is_empty() {
            check_keys(&tree, &stored(&tree), &asked);
        }
    }

    #[test]
    fn interrupts_change_neither_what_several_keys_cost_nor_their_proof(
        paths in paths(),
        others in paths(),
        every in 1usize..40,
        budgets in prop::collection::vec(1u64..40, 1..6),
    ) {
        let tree = map(&paths);
        let stored = stored(&tree);
        let longer = paths.iter().map(|path| format!("{path}/a"));
        let asked: BTreeSet<_> = paths.iter().cloned().chain(others).chain(longer).step_by(every).collect();
        prop_assume!(!asked.is_empty());
        let keys = asked.iter().map(|path| Key::from_text(path).expect("a path")).collect();
        let ask = Ask::Keys(Keys::new(keys).expect("distinct keys"));
        let mut whole = Query::on_tree(&tree.root(), Arc::new(Shelf(stored.clone())), ask.clone());
        let mut left = u64::MAX;
        let answer = whole.run(&mut left).expect("an answer");
        let (cost, proof) = (u64::MAX - left, whole.proof());
        // Budgets in turn, and one of so many pages.
        for step in 1..4 {
            let stored = read_again(&stored);
            let available = stored.iter().step_by(step).map(|(digest, page)| (*digest, Arc::clone(page))).collect();
            let mut query = Query::open(&tree.root(), Arc::new(Shelf(available)), ask.clone());
            let (mut spent, mut given) = (0, budgets.iter().cycle());
            let end = loop {
                let budget = *given.next().expect("a budget");
                let mut left = budget;
                let outcome = query.run(&mut left);
                spent += budget - left;
                match outcome {
                    Err(Interrupt::Pages(missing)) => {
                        query.supply(missing.iter().map(|digest| Arc::clone(&stored[digest])));
                    }
                    Err(Interrupt::Budget) => prop_assert_eq!(left, 0),
                    end => break end,
                }
            };
            prop_assert_eq!((end, query.proof(), spent), (Ok(answer.clone()), proof.clone(), cost));
        }
    }

    #[test]
    fn indices_are_found_on_pages_as_on_a_tree(sizes in prop::collection::vec(1u64..1 << 40, 0..700)) {
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
fn keys_over_many_pages_are_found_on_pages_as_on_a_tree() {
    let hex = |i: usize| Suite::Blake3.digest(&i.to_be_bytes()).to_string()[..24].to_owned();
    let paths: BTreeSet<_> = (0..20_000).map(hex).collect();
    let tree = map(&paths);
    let stored = stored(&tree);
    assert!(stored.len() > 100);
    for i in (0..20_400).step_by(97) {
        check_key(&tree, &stored, &hex(i), i < 20_000);
    }
}

/// Looks keys up in memory, on stored pages and on a tree, whichever pages are available and whatever the budget is.
fn check_keys(tree: &Snapshot, stored: &Stored, paths: &BTreeSet<String>) {
    let keys: Vec<_> = paths.iter().rev().map(|path| Key::from_text(path).expect("a path")).collect();
    let keys = Keys::new(keys.into_iter().collect()).expect("distinct keys");
    let (targets, proof) = tree.keys(keys.clone()).expect("a map");
    let proof = proof();
    assert_eq!(verify::keys(&tree.root(), &keys, &proof, verify::WIDE_PROOF_LIMIT), Ok(targets.clone()));
    let ask = Ask::Keys(keys);
    let answer = Answer::Keys(targets);
    assert_eq!(verify::replay_on_tree(&tree.root(), &ask, &proof, verify::WIDE_PROOF_LIMIT).as_ref(), Ok(&answer));
    // One of so many pages is available at first.
    for (step, budget) in [(1, u64::MAX), (usize::MAX, u64::MAX), (2, 1), (1, 3)] {
        let stored = read_again(stored);
        let available = stored.iter().step_by(step).map(|(digest, page)| (*digest, Arc::clone(page)));
        let shelf: Arc<dyn PageSource> = Arc::new(Shelf(available.collect()));
        let (stops, end) = course(Query::open(&tree.root(), Arc::clone(&shelf), ask.clone()), &stored, budget);
        assert_eq!(end.expect("all pages are there").as_ref(), Ok(&(answer.clone(), proof.clone())));
        let asks_for_few =
            |stop: &Interrupt| !matches!(stop, Interrupt::Pages(pages) if pages.len() > MAX_MISSING_PAGES);
        assert!(stops.iter().all(|(stop, _)| asks_for_few(stop)), "at most {MAX_MISSING_PAGES} pages at once");
        let nodes: u64 = stops.iter().map(|(_, left)| budget - left).sum();
        assert!(budget > 3 || nodes <= stops.len() as u64 * budget);
        let (_, end) = course(Query::on_tree(&tree.root(), shelf, ask.clone()), &stored, u64::MAX);
        assert_eq!(end.expect("all pages are there").as_ref(), Ok(&(answer.clone(), proof.clone())));
    }
}

#[test]
fn several_keys_over_many_pages_are_found_on_pages_as_on_a_tree() {
    let hex = |i: usize| Suite::Blake3.digest(&i.to_be_bytes()).to_string()[..24].to_owned();
    let tree = map(&(0..20_000).map(hex).collect());
    let stored = stored(&tree);
    // More pages than one interrupt asks for; keys of which one in fifty is absent.
    check_keys(&tree, &stored, &(0..20_400).step_by(19).map(hex).collect());
    check_keys(&tree, &stored, &(19_000..20_400).step_by(700).map(hex).collect());
    // Mostly one key of each page, also where as many pages are missing as one interrupt asks for.
    check_keys(&tree, &stored, &(0..20_400).step_by(75).map(hex).collect());
}

#[test]
fn a_map_branches_where_its_keys_first_differ_from_the_one_that_was_looked_for() {
    let paths = ["a", "ab", "ab/c", "b", "b/c/d", "b/c/e", "q", "qq", "x/y"].map(str::to_owned).into();
    let (tree, key) = (map(&paths), |path: &str| Key::from_text(path).expect("a path"));
    let source: Arc<dyn PageSource> = Arc::new(Shelf(stored(&tree)));
    for path in paths.iter().map(String::as_str).chain(["aa", "ab/d", "b/c", "c", "x", "x/y/z"]) {
        let mut query = Query::open(&tree.root(), Arc::clone(&source), Ask::Key(key(path)));
        let answer = query.run(&mut u64::MAX.clone()).expect("an answer");
        assert!(matches!(answer, Answer::Key(found) if found.is_some() == paths.contains(path)));
        let bits: BTreeSet<_> =
            paths.iter().filter_map(|other| first_difference(key(path).as_bytes(), key(other).as_bytes())).collect();
        for bit in 0..8 * key(path).as_bytes().len() as u32 {
            assert_eq!(query.branches_at(bit), bits.contains(&bit), "{path} at bit {bit}");
        }
    }
}

#[test]
fn a_query_counts_what_it_has_written_before_pages_were_missing() {
    let hex = |i: usize| Suite::Blake3.digest(&i.to_be_bytes()).to_string()[..24].to_owned();
    let tree = map(&(0..20_000).map(hex).collect());
    let stored = stored(&tree);
    let keys = (0..20_000).step_by(500).map(|i| Key::from_text(&hex(i)).expect("a path"));
    let ask = Ask::Keys(Keys::new(keys.collect()).expect("distinct keys"));
    let mut query = Query::open(&tree.root(), Arc::new(Shelf(Stored::new())), ask);
    let (mut budget, mut before_end) = (u64::MAX, 0);
    while let Err(interrupt) = query.run(&mut budget) {
        let Interrupt::Pages(missing) = interrupt else { panic!("{interrupt:?}") };
        query.supply(missing.iter().map(|digest| Arc::clone(&stored[digest])));
        before_end = query.tree_bytes();
    }
    let held = query.tree_bytes();
    let proof = query.proof();
    assert!(before_end > 1000 && held >= proof.len(), "{before_end}, then {held} of {}", proof.len());
}

#[test]
fn a_query_of_several_keys_holds_few_of_the_pages_that_it_has_visited() {
    let hex = |i: usize| Suite::Blake3.digest(&i.to_be_bytes()).to_string()[..24].to_owned();
    let tree = map(&(0..60_000).map(hex).collect());
    let stored = stored(&tree);
    let keys: Vec<_> = (0..60_000).step_by(30).map(|i| Key::from_text(&hex(i)).expect("a path")).collect();
    let (found, proof) = tree.keys(Keys::new(keys.iter().cloned().collect()).expect("distinct keys")).expect("a map");
    let proof = proof();
    for is_available in [true, false] {
        let stored = read_again(&stored);
        let ask = Ask::Keys(Keys::new(keys.iter().cloned().collect()).expect("distinct keys"));
        let shelf = if is_available { stored.clone() } else { Stored::new() };
        let mut query = Query::open(&tree.root(), Arc::new(Shelf(shelf)), ask);
        let (mut most, mut runs) = (0, 0);
        let answer = loop {
            let interrupt = match query.run(&mut 500) {
                Ok(answer) => break answer,
                Err(interrupt) => interrupt,
            };
            runs += 1;
            let held = stored.values().filter(|page| Arc::strong_count(page) > 1 + usize::from(is_available)).count();
            most = most.max(held);
            if let Interrupt::Pages(missing) = interrupt {
                query.supply(missing.iter().map(|digest| Arc::clone(&stored[digest])));
            }
        };
        assert_eq!((answer, query.proof()), (Answer::Keys(found.clone()), proof.clone()));
        assert!(runs > 10 && 4 * most < stored.len(), "{most} of {} pages in {runs} runs", stored.len());
    }
}

#[test]
fn pages_that_were_found_are_found_again_by_links_while_they_are_in_memory() {
    /// Counts the lookups and the uses of pages that were linked.
    #[derive(Default)]
    struct Counting(Stored, AtomicUsize, AtomicUsize);
    impl PageSource for Counting {
        fn page(&self, digest: &Digest) -> Option<Arc<Page>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.get(digest).map(Arc::clone)
        }
        fn touch(&self, _: &Digest) {
            self.2.fetch_add(1, Ordering::Relaxed);
        }
    }
    let hex = |i: usize| Suite::Blake3.digest(&i.to_be_bytes()).to_string()[..24].to_owned();
    let tree = map(&(0..20_000).map(hex).collect());
    let mut pages = stored(&tree);
    let top = tree.root().digest;
    let keys: Vec<_> = (0..20_000).step_by(500).map(|i| Key::from_text(&hex(i)).expect("a path")).collect();
    let (_, proof) = tree.keys(Keys::new(keys.iter().cloned().collect()).expect("distinct keys")).expect("a map");
    let proof = proof();
    // Of a page that is no longer in memory there is no link.
    for is_dropped in [false, true] {
        let source = Arc::new(Counting(pages.clone(), AtomicUsize::new(0), AtomicUsize::new(0)));
        let count = |ask: Ask| {
            let before = (source.1.load(Ordering::Relaxed), source.2.load(Ordering::Relaxed));
            let (_, end) = course(Query::open(&tree.root(), source.clone(), ask), &pages, 2_000);
            let proof = end.expect("all pages are there").expect("an answer").1;
            (source.1.load(Ordering::Relaxed) - before.0, source.2.load(Ordering::Relaxed) - before.1, proof)
        };
        let all = || Ask::Keys(Keys::new(keys.iter().cloned().collect()).expect("distinct keys"));
        let (first, linked, first_proof) = count(all());
        assert!(first > 40 && linked == 0, "{first} lookups, {linked} by links");
        assert_eq!(count(all()), (1, first - 1, first_proof.clone()), "the top page alone is looked up");
        let (lookups, linked, _) = count(Ask::Key(keys[0].clone()));
        assert!(lookups == 1 && linked > 0, "{lookups} lookups, {linked} by links");
        assert_eq!(first_proof, proof);
        if !is_dropped {
            drop(source);
            let links = Arc::clone(&pages[&top]);
            pages = read_again(&pages);
            pages.insert(top, links);
        }
    }
}

#[test]
fn a_missing_page_interrupts_both_at_the_same_node() {
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
    assert!(missed >= 2, "the path crosses {missed} pages");
}

#[test]
fn a_page_of_another_kind_or_suite_is_rejected_by_both() {
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
fn a_node_below_a_whole_key_is_rejected_by_both() {
    // An inner node whose label is the whole key of "a", and more: no key continues after that.
    let label = b"a\0\0xxxxx";
    let stub = [&[3, 1][..], &[7; 32], &[0, 0, 0]].concat();
    let bytes = [&[2, 64][..], label, &stub, &stub].concat();
    let mut arena = Arena::default();
    pruned::decode(&mut arena, &bytes, Kind::Map, Suite::Sha2_256, Form::Page, VisitLimits::NONE)
        .expect("a pruned tree");
    let page = Arc::new(Page { kind: Kind::Map, suite: Suite::Sha2_256, arena, next: Vec::new(), links: Links::of(1) });
    let root = RootCid { kind: Kind::Map, suite: Suite::Sha2_256, digest: page.digest() };
    let stored = Stored::from([(page.digest(), page)]);
    let key = Key::from_text("a").expect("a path");
    let error = both(&root, &stored, || Ask::Key(key.clone())).expect("its page is there").expect_err("no such tree");
    assert!(error.to_string().contains("below a whole key"), "{error}");
}
