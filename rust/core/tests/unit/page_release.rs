//! Changes that release the pages they have used give the same trees, proofs and pages, and hold few pages at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use crate::id::cid::{Cid, RootCid};
use crate::id::suite::{Digest, Suite};
use crate::interrupt::Interrupt;
use crate::key::Key;
use crate::page::cache::PageSource;
use crate::page::draft::EncodedPage;
use crate::page::format::Page;
use crate::proof::query::{Answer, Ask, Query};
use crate::query::arcs::Arcs;
use crate::query::changes::{ListChange, ListChanges, MapChange, MapChanges};
use crate::snapshot::Snapshot;
use crate::tree::arena::{Node, NodeId, State};

type Stored = BTreeMap<Digest, Arc<Page>>;

/// A source that has these pages.
struct Shelf(Stored);

impl PageSource for Shelf {
    fn page(&self, digest: &Digest) -> Option<Arc<Page>> {
        self.0.get(digest).map(Arc::clone)
    }
}

/// A change of a stored tree: the digest of the result, the proof, new pages, and how many bytes of pages were held.
struct Changed {
    digest: Digest,
    proof: Vec<u8>,
    pages: BTreeMap<Digest, Vec<u8>>,
    /// How many of these are no short differences to pages that were there.
    whole: usize,
    held_bytes: usize,
}

/// Changes a tree whose pages are supplied when they are asked for.
fn change(root: &RootCid, stored: &Stored, ask: Ask, budget: u64, max_held_bytes: usize, shelf: Stored) -> Changed {
    let held = |page: &&Arc<Page>| Arc::strong_count(page) > 1;
    let held_bytes = || stored.values().filter(held).map(|page| page.memory()).sum::<usize>();
    let mut query = Query::open(root, Arc::new(Shelf(shelf)), ask);
    query.hold_at_most(max_held_bytes);
    let (mut pages, mut most, mut whole) = (BTreeMap::new(), 0, 0);
    let mut meet = |query: &mut Query, interrupt| {
        most = most.max(held_bytes());
        match interrupt {
            Interrupt::Budget => {}
            Interrupt::Pages(missing) => query.supply(missing.iter().map(|digest| Arc::clone(&stored[digest]))),
            Interrupt::Failed(error) => panic!("{error}"),
        }
    };
    let digest = loop {
        match query.run(&mut budget.clone()) {
            Ok(Answer::Changed(sum)) => break sum.digest,
            Ok(other) => panic!("{other:?}"),
            Err(interrupt) => meet(&mut query, interrupt),
        }
    };
    loop {
        match query.new_pages() {
            Ok(new) if new.is_empty() => break,
            Ok(new) => pages.extend(new.into_iter().map(|new| {
                check_is_as_read(&new.page, &new.bytes);
                check_difference(&new, stored);
                whole += usize::from(new.difference.is_none());
                (new.page.digest(), new.bytes)
            })),
            Err(interrupt) => meet(&mut query, interrupt),
        }
    }
    let held_bytes = most.max(held_bytes());
    Changed { digest, proof: query.proof(), pages, whole, held_bytes }
}

/// Checks that a new page is what its difference makes of a stored one.
fn check_difference(new: &EncodedPage, stored: &Stored) {
    if let Some(difference) = &new.difference {
        let base = stored[&difference.base()].to_bytes();
        assert_eq!(difference.apply(&base).as_ref(), Some(&new.bytes));
    }
}

/// Checks that a new page is as the one that is read from its encoding: a cache may keep it instead.
fn check_is_as_read(page: &Page, bytes: &[u8]) {
    let read = Page::parse(bytes, page.kind, page.suite, &page.digest()).expect("a page");
    let nodes = |page: &Page| -> Vec<_> {
        let ids = (0..page.arena.nodes.len() as u32).map(NodeId);
        let state = |id| match page.arena.node(id).state {
            State::Inner { bit, left, right, .. } => format!("{bit} {left:?} {right:?}"),
            State::Leaf { .. } => format!("{:?}", page.arena.target(id)),
            other => format!("{other:?}"),
        };
        let numbers = |node: &Node| (node.digest, node.count, node.weight, node.height, node.flags);
        ids.map(|id| (numbers(page.arena.node(id)), page.arena.measure(id), state(id))).collect()
    };
    assert_eq!(nodes(page), nodes(&read));
    assert_eq!(read.to_bytes(), bytes);
    assert!(page.memory() <= read.memory());
}

/// The pages as a store returns them, without links to each other.
fn stored(tree: &Snapshot) -> Stored {
    let read = |page: Arc<Page>| Page::parse(&page.to_bytes(), page.kind, page.suite, &page.digest()).expect("a page");
    tree.pages().map(|page| (page.digest(), Arc::new(read(page)))).collect()
}

/// Compares a change of a stored tree, however it is interrupted, with the same change in memory.
fn check(before: &Snapshot, ask: &Ask) {
    let (after, proof) = match ask.clone() {
        Ask::ChangeMap(changes) => before.change_map(changes),
        Ask::ChangeList(changes) => before.change_list(changes),
        other => panic!("{other:?}"),
    }
    .expect("it fits");
    let (root, old) = (before.root(), stored(before));
    let all: BTreeMap<_, _> = after.pages().map(|page| (page.digest(), page.to_bytes())).collect();
    for (budget, max_held_bytes, shelf) in
        [(u64::MAX, 0, Stored::new()), (3, 0, Stored::new()), (u64::MAX, 0, old.clone()), (7, 60_000, Stored::new())]
    {
        let changed = change(&root, &old, ask.clone(), budget, max_held_bytes, shelf);
        assert_eq!((changed.digest, &changed.proof), (after.root().digest, &proof));
        assert!(changed.pages.iter().all(|(digest, bytes)| all.get(digest) == Some(bytes)));
        assert!(all.keys().all(|digest| old.contains_key(digest) || changed.pages.contains_key(digest)));
    }
}

fn target(n: usize) -> Cid {
    let bytes = [&[1, 0x55, 0x12, 32][..], &Suite::Sha2_256.digest(&n.to_be_bytes()).0].concat();
    Cid::from_bytes(&bytes).expect("a CID")
}

fn map(paths: impl IntoIterator<Item = String>) -> Snapshot {
    let mut arcs = Arcs::default();
    paths.into_iter().for_each(|path| arcs.push(&Key::from_text(&path).expect("a path"), &target(0)));
    Snapshot::map(Suite::Sha2_256, arcs).expect("a map")
}

fn changes(all: impl IntoIterator<Item = (String, bool, bool)>) -> Ask {
    let side = |there: bool, n| there.then(|| target(n));
    let change = |(path, before, after): (String, bool, bool)| MapChange {
        key: Key::from_text(&path).expect("a path"),
        before: side(before, 0),
        after: side(after, 1),
    };
    Ask::ChangeMap(MapChanges::new(all.into_iter().map(change).collect()).expect("changes"))
}

fn paths() -> impl Strategy<Value = BTreeSet<String>> {
    let path = prop_oneof![4 => "[a-c]{1,9}", 2 => "[0-9a-f]{24}", 1 => "x{40,90}/[ab]{1,9}"];
    prop_oneof![prop::collection::btree_set(path.clone(), 1..5), prop::collection::btree_set(path, 1..500)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn maps_are_changed_the_same_when_pages_are_released(paths in paths(), others in paths(), step in 1usize..40) {
        let before = map(paths.clone());
        let removed = paths.iter().step_by(step).map(|path| (path.clone(), true, step % 3 > 0));
        let added = others.difference(&paths).step_by(step).map(|path| (path.clone(), false, true));
        check(&before, &changes(removed.chain(added)));
    }

    #[test]
    fn lists_are_changed_the_same_when_pages_are_released(count in 1u64..900, step in 1u64..200, cut in 0u64..400) {
        let elements: Vec<_> = (0..count).map(|i| (target(0), 1 + i)).collect();
        let before = Snapshot::list(Suite::Blake3, &elements).expect("a list");
        let kept = count.saturating_sub(cut).max(1);
        let replaced = (0..kept).step_by(step as usize).map(|index| ListChange {
            index,
            before: Some((target(0), Some(1 + index))),
            after: Some((target(1), 5)),
        });
        let removed = (kept..count).map(|index| ListChange { index, before: Some((target(0), None)), after: None });
        let added = (count..count + cut).map(|index| ListChange { index, before: None, after: Some((target(2), 3)) });
        for rest in [removed.collect::<Vec<_>>(), added.collect()] {
            let all = replaced.clone().chain(rest).collect();
            check(&before, &Ask::ChangeList(ListChanges::new(all).expect("changes")));
        }
    }
}

#[test]
fn one_change_makes_short_differences_of_all_long_pages_on_its_path() {
    let hex = |i: usize| Suite::Blake3.digest(&i.to_be_bytes()).to_string()[..24].to_owned();
    let before = map((0..20_000).map(hex));
    let stored = stored(&before);
    for (path, is_there) in [(hex(7), true), (hex(20_001), false)] {
        let ask = changes([(path, is_there, true)]);
        let changed = change(&before.root(), &stored, ask, u64::MAX, usize::MAX, Stored::new());
        let long = changed.pages.values().filter(|page| page.len() > 1000).count();
        assert_eq!((changed.pages.len(), long, changed.whole), (3, 2, 1));
    }
}

const LIMIT: usize = 1 << 20;

/// 2,500 changes on 900 pages of a map, and on 600 of a list.
#[test]
fn a_change_of_many_pages_holds_few_of_them() {
    let hex = |i: usize| Suite::Blake3.digest(&i.to_be_bytes()).to_string()[..24].to_owned();
    let before = map((0..75_000).map(hex));
    let some = changes((0..75_000).step_by(30).map(|i| (hex(i), true, i % 4 > 0)));
    let elements: Vec<_> = (0..75_000).map(|i| (target(0), 1 + i)).collect();
    let list = Snapshot::list(Suite::Sha2_256, &elements).expect("a list");
    let change_of = |index| ListChange { index, before: Some((target(0), None)), after: Some((target(1), 1)) };
    let replaced = ListChanges::new((0..75_000).step_by(30).map(change_of).collect()).expect("changes");
    for (before, ask) in [(before, some), (list, Ask::ChangeList(replaced))] {
        let stored = stored(&before);
        let all: usize = stored.values().map(|page| page.memory()).sum();
        let changed = change(&before.root(), &stored, ask, 500, LIMIT, Stored::new());
        // Besides what may be held, at most 128 pages are supplied at once.
        let largest = stored.values().map(|page| page.memory()).max().expect("pages");
        let most = LIMIT + 128 * largest;
        assert!(changed.held_bytes < most, "{} of {all} bytes of pages were held", changed.held_bytes);
        assert!(all > 2 * most && changed.pages.len() > 500, "{all} bytes, {} pages", changed.pages.len());
    }
}
