//! Page tests: invalid pages are refused, and where pages are cut depends only on content while a tree grows and
//! shrinks.

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use coregw_core::internals::arena::State;
use coregw_core::{
    Ask, Cid, Digest, Error, FixedSizes, Kind, ListChanges, MAX_PAGE, MapChange, MapChanges, Page, PageSource, Query,
    RootCid, Snapshot, Suite, inner_pages,
};
use support::{Arcmap, Path, pages, target};

/// Makes one change and checks that the tree equals a fresh build, page for page.
fn step(tree: &Snapshot, arcs: &mut Arcmap, path: &Path, after: Option<u16>) -> Snapshot {
    let before = arcs.get(path).copied();
    let after = after.map(target);
    match after {
        Some(target) => drop(arcs.insert(path.clone(), target).is_some()),
        None => drop(arcs.remove(path).is_some()),
    }
    let changes = MapChanges::new(vec![MapChange { key: support::key(path), before, after }]).expect("a change");
    let (changed, _) = tree.change_map(changes).expect("the change fits");
    let fresh = support::map(tree.root().suite, arcs);
    assert_eq!(changed.root(), fresh.root());
    assert!(pages(&changed) == pages(&fresh), "pages differ from a fresh build at {} arcs, {path:?}", arcs.len());
    changed
}

fn check_growing_and_shrinking(paths: &[Path]) {
    let mut arcs = Arcmap::new();
    let mut tree = support::map(Suite::Sha2_256, &arcs);
    let empty = tree.root();
    for (i, path) in paths.iter().enumerate() {
        tree = step(&tree, &mut arcs, path, Some(i as u16));
    }
    assert!(pages(&tree).len() > 4);
    for (i, path) in paths.iter().enumerate() {
        // Removals happen in another order than insertions.
        let path = if i % 3 == 0 { path } else { &paths[i / 3 * 3 + 3 - i % 3] };
        tree = step(&tree, &mut arcs, path, None);
    }
    assert_eq!((tree.root(), pages(&tree).len()), (empty, 1));
}

#[test]
fn pages_of_numbered_files_depend_only_on_content() {
    let paths: Vec<_> = (0..450).map(|i| vec!["logs".to_owned(), format!("2024-{i:06}.txt")]).collect();
    check_growing_and_shrinking(&paths);
}

#[test]
fn pages_of_scattered_keys_depend_only_on_content() {
    let hex = |i: u32| Suite::Blake3.digest(&i.to_be_bytes()).to_string()[..24].to_owned();
    let paths: Vec<_> = (0..450).map(|i| vec![hex(i)]).collect();
    check_growing_and_shrinking(&paths);
}

#[test]
fn pages_of_long_keys_depend_only_on_content() {
    let name = |i: usize| format!("{:02}{}", i * 7 % 90, "x".repeat(i * 40));
    let paths: Vec<_> = (0..90).map(|i| vec!["d".repeat(400), name(i)]).collect();
    check_growing_and_shrinking(&paths);
}

#[test]
fn pages_of_a_list_depend_only_on_content() {
    let mut elements = Vec::new();
    let mut tree = support::list(Suite::Blake3, &elements);
    for n in (1..500).chain((0..498).rev().step_by(3)) {
        let next: support::Elements = (0..n).map(|i| (target(i as u16), 1 + i * i * i)).collect();
        let changes = ListChanges::new(support::list_changes(&elements, &next)).expect("changes");
        (tree, _) = tree.change_list(changes).expect("the changes fit");
        elements = next;
        let fresh = support::list(Suite::Blake3, &elements);
        assert_eq!((tree.root(), tree.measure()), (fresh.root(), fresh.measure()));
        assert!(pages(&tree) == pages(&fresh), "pages differ from a fresh build at {n} elements");
    }
}

/// A map of several pages.
#[test]
fn pages_of_a_new_tree_have_no_spare_memory() {
    let paths = (0..900).map(|i| vec!["x".repeat(i % 7 * 90 + 1), format!("{:x}", i * 0x9e37 % 0xffff)]);
    let map = support::map(Suite::Sha2_256, &paths.zip(0..).map(|(path, i)| (path, target(i))).collect());
    let list = support::list(Suite::Sha2_256, &(0..900).map(|i| (target(i), 1 + u64::from(i))).collect::<Vec<_>>());
    for tree in [map, list] {
        assert!(tree.pages().count() > 4);
        for page in tree.pages() {
            let (nodes, bytes) = (&page.arena.nodes, &page.arena.bytes);
            assert_eq!((nodes.capacity(), bytes.capacity()), (nodes.len(), bytes.len()));
        }
    }
}

fn map_of_several_pages() -> Snapshot {
    let arcs = (0..600).map(|i| (vec![format!("{i:05}")], target(i)));
    support::map(Suite::Sha2_256, &arcs.collect())
}

#[test]
fn page_whose_top_node_is_a_stub_is_refused() {
    let tree = map_of_several_pages();
    let top = tree.pages().next().expect("a page");
    for stub in top.stubs() {
        // A stub carries the expected digest without any node that hashes to it.
        let bytes = [&[3, 1][..], &stub.0, &[0, 0, 0]].concat();
        let refused = Page::parse(&bytes, Kind::Map, Suite::Sha2_256, &stub).expect_err("a stub is not a page");
        assert!(matches!(&refused, Error::Damaged { what } if what.contains(&stub.to_string())), "{refused}");
        let bytes = [&[0x13, 1, 1][..], &stub.0, &[0, 0, 0]].concat();
        Page::parse(&bytes, Kind::List, Suite::Sha2_256, &stub).expect_err("a stub is not a page");
    }
}

#[test]
fn page_is_refused_under_another_digest_kind_or_suite() {
    let tree = map_of_several_pages();
    for page in tree.pages() {
        let (bytes, digest) = (page.to_bytes(), page.digest());
        assert_eq!(Page::parse(&bytes, Kind::Map, Suite::Sha2_256, &digest).expect("a page").to_bytes(), bytes);
        let mut other = digest;
        other.0[31] ^= 1;
        for (kind, suite, digest) in [
            (Kind::Map, Suite::Sha2_256, other),
            (Kind::Map, Suite::Blake3, digest),
            (Kind::List, Suite::Sha2_256, digest),
        ] {
            let refused = Page::parse(&bytes, kind, suite, &digest).expect_err("another page");
            assert!(matches!(&refused, Error::Damaged { what } if what.contains(&digest.to_string())), "{refused}");
        }
    }
}

#[test]
fn page_with_a_flipped_bit_is_refused_or_has_the_same_stubs() {
    let tree = map_of_several_pages();
    let page = tree.pages().min_by_key(|page| page.to_bytes().len() + 9999 * usize::from(page.stubs().count() == 0));
    let page = page.expect("a page with stubs");
    let (bytes, digest) = (page.to_bytes(), page.digest());
    let stubs: Vec<_> = page.stubs().collect();
    let mut flipped = bytes.clone();
    let mut refused = 0;
    for i in 0..8 * bytes.len() {
        flipped[i / 8] ^= 0x80 >> (i % 8);
        // A stub's height, weight and extent are not hashed.
        match Page::parse(&flipped, Kind::Map, Suite::Sha2_256, &digest) {
            Ok(page) => assert_eq!(page.stubs().collect::<Vec<_>>(), stubs),
            Err(_) => refused += 1,
        }
        flipped[i / 8] ^= 0x80 >> (i % 8);
    }
    assert!(refused > 7 * bytes.len());
    for n in 0..bytes.len() {
        Page::parse(&bytes[..n], Kind::Map, Suite::Sha2_256, &digest).expect_err("a truncated page");
    }
    Page::parse(&[&bytes[..], &[0]].concat(), Kind::Map, Suite::Sha2_256, &digest)
        .expect_err("a page followed by a byte");
}

#[test]
fn a_page_of_the_shortest_nodes_is_read() {
    let empty = Cid::from_text("bafkqaaa").expect("the empty payload");
    for n in 1..9 {
        let list = support::list(Suite::Sha2_256, &vec![(empty, 1); n]);
        for page in list.pages() {
            let read = Page::parse(&page.to_bytes(), Kind::List, Suite::Sha2_256, &page.digest()).expect("a page");
            assert_eq!(read.to_bytes(), page.to_bytes());
        }
    }
}

#[test]
fn sizes_on_a_page_are_those_of_a_fixed_list_or_name_the_element() {
    let mut sizes = vec![4; 2_000];
    let list =
        |sizes: &[u64]| support::list(Suite::Sha2_256, &sizes.iter().map(|n| (target(1), *n)).collect::<Vec<_>>());
    let fixed = FixedSizes::new(8_000, 4).expect("a size");
    let top = list(&sizes).pages().next().expect("a page");
    let below = fixed.check_page(&top, 0).expect("sums that fit");
    assert!(below.len() > 1 && below.iter().filter(|subtree| subtree.has_last).count() == 1);
    assert_eq!(below.last().map(|first| first.first), Some(0));
    // Sizes that are 1 each follow from their sum.
    let ones = list(&vec![1; 2_000]).pages().next().expect("a page");
    assert_eq!(FixedSizes::new(2_000, 1).expect("a size").check_page(&ones, 0), Ok(Vec::new()));
    sizes[0] = 5;
    let refused = fixed.check_page(&list(&sizes).pages().next().expect("a page"), 0);
    assert!(refused.is_err_and(|error| error.to_string().contains("commit: element")));
}

#[test]
fn the_block_of_a_pages_top_node_has_the_digest_that_names_the_page() {
    let elements: Vec<_> = (0..600).map(|i| (target(i), 1 + u64::from(i))).collect();
    for suite in Suite::ALL {
        let trees = [
            support::map(suite, &(0..600).map(|i| (vec![format!("{i:05}")], target(i))).collect()),
            support::map(suite, &[(vec!["a".to_owned()], target(1))].into()),
            support::map(suite, &Arcmap::new()),
            support::list(suite, &elements),
            support::list(suite, &elements[..1]),
            support::list(suite, &[]),
        ];
        for page in trees.iter().flat_map(Snapshot::pages) {
            assert_eq!(suite.digest(&page.top_block()), page.digest());
            // The cache counts pages by the memory that they take, which is more than their bytes.
            assert!((page.to_bytes().len()..100 * page.to_bytes().len() + 1000).contains(&page.memory()));
            // One that was read may also have a link for each stub, to the head of a page that is no longer there.
            let read = Page::parse(&page.to_bytes(), page.kind, suite, &page.digest()).expect("a page");
            assert!(read.memory() >= page.memory() + page.stubs().count() * size_of::<Page>());
        }
    }
}

#[test]
fn a_page_that_is_longer_than_any_is_refused_before_it_is_read() {
    assert_eq!(MAX_PAGE, 16_642);
    let digest = map_of_several_pages().root().digest;
    let refused =
        |len| Page::parse(&vec![0xff; len], Kind::Map, Suite::Sha2_256, &digest).expect_err("not a page").to_string();
    assert!(refused(MAX_PAGE + 1).contains("the limit is 16642"));
    assert!(!refused(MAX_PAGE).contains("the limit is"));
}

/// All pages of a tree; notes which were asked for.
struct Asked {
    root: RootCid,
    pages: BTreeMap<Digest, Vec<u8>>,
    digests: Mutex<Vec<Digest>>,
}

impl PageSource for Asked {
    fn page(&self, digest: &Digest) -> Option<Arc<Page>> {
        self.digests.lock().expect("one thread").push(*digest);
        let page = Page::of_store(&self.root, digest, self.pages.get(digest).map(Vec::as_slice));
        Some(page.expect("the page is stored"))
    }
}

#[test]
fn inner_pages_lead_to_each_key() {
    let hex = |i: u32| Suite::Blake3.digest(&i.to_be_bytes()).to_string();
    let path = |i: u32| vec![hex(i), "x".repeat(if i.is_multiple_of(3) { 0 } else { 400 })];
    let path = |i: u32| path(i).into_iter().filter(|segment| !segment.is_empty()).collect::<Path>();
    let arcs: Arcmap = (0..6000).map(|i| (path(i), target(i as u16))).collect();
    let tree = support::map(Suite::Sha2_256, &arcs);
    let source = Arc::new(Asked { root: tree.root(), pages: pages(&tree), digests: Mutex::default() });
    let mut levels = 0;
    for i in (0..6500).step_by(13) {
        let key = support::key(&path(i));
        let mut way = vec![tree.root().digest];
        loop {
            let inner = inner_pages(&source.pages[way.last().expect("the top")]);
            assert!(inner.is_sorted_by(|a, b| a.first < b.first));
            let after = inner.partition_point(|page| page.first.as_slice() <= key.as_bytes());
            let Some(next) = after.checked_sub(1).map(|at| inner[at].digest) else { break };
            way.push(next);
        }
        let mut query = Query::open(&tree.root(), Arc::clone(&source) as Arc<dyn PageSource>, Ask::Key(key));
        query.run(&mut u64::MAX.clone()).expect("all pages are there");
        let asked = std::mem::take(&mut *source.digests.lock().expect("one thread"));
        if i < 6000 {
            assert!(asked.starts_with(&way) && asked.len() <= way.len() + 1, "{way:?} does not lead to {asked:?}");
        }
        levels = levels.max(way.len());
    }
    assert!(levels > 1, "no page has inner pages below it");
}

#[test]
fn inner_pages_are_the_stubs_above_further_pages() {
    let arcs: Arcmap = (0..6000).map(|i| (vec![format!("{i:0400}")], target(i as u16))).collect();
    let tree = support::map(Suite::Blake3, &arcs);
    for (digest, bytes) in pages(&tree) {
        let page = Page::parse(&bytes, Kind::Map, Suite::Blake3, &digest).expect("a page");
        let stubs = page.arena.nodes.iter().filter(|node| matches!(node.state, State::Stub { .. }) && node.height > 0);
        let stubs: Vec<_> = stubs.map(|node| node.digest).collect();
        assert_eq!(inner_pages(&bytes).iter().map(|page| page.digest).collect::<Vec<_>>(), stubs);
        if !stubs.is_empty() {
            for end in 0..bytes.len() {
                assert!(inner_pages(&bytes[..end]).is_empty(), "a page that ends at {end}");
            }
        }
    }
    assert!(inner_pages(&[0x13, 1, 1]).is_empty(), "a list");
}

#[test]
fn inner_pages_are_found_beside_leaves_and_begin_with_whole_bytes() {
    let digest = Suite::Sha2_256.digest(b"an inner page");
    let label = [2, 7, 0b1010_1000]; // an inner node at bit 7
    let leaf = [&[1, 0, 36][..], target(1).as_bytes()].concat(); // its tail is empty
    let stub = [&[3, 1][..], &digest.0, &[1, 5, 9]].concat(); // of height 1
    let found = inner_pages(&[&label[..], &leaf, &stub].concat());
    let [page] = &found[..] else { panic!("{found:?}") };
    assert_eq!((page.first.as_slice(), page.digest), (&[0b1010_1001][..], digest));
}
