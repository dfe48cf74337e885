//! Building a map from arcs in key order: the same root and the same pages as from all arcs at once, in bounded memory.

mod support;

use std::collections::BTreeMap;

use coregw_core::{Digest, Error, InputCode, Key, MapBuilder, Snapshot, Suite, map};
use proptest::prelude::*;
use support::{Arcmap, Path, pages, target};

type Pages = BTreeMap<Digest, Vec<u8>>;

/// Builds a map arc by arc, and checks that each page comes before the page above it.
fn streamed(suite: Suite, arcs: &Arcmap) -> (map::NewMap, Pages, usize) {
    let (mut builder, mut found, mut most_held) = (MapBuilder::new(suite), Pages::new(), 0);
    let mut take = |pages: Vec<(Digest, Vec<u8>)>| {
        for (digest, page) in pages {
            let parsed = coregw_core::Page::parse(&page, coregw_core::Kind::Map, suite, &digest).expect("a page");
            assert!(parsed.stubs().all(|below| found.contains_key(&below)), "a page precedes one below it");
            found.insert(digest, page);
        }
    };
    let mut is_early = false;
    for (path, target) in arcs {
        builder.push(support::key(path).as_bytes(), target.as_bytes()).expect("arcs in order");
        let complete = builder.take_pages();
        is_early |= !complete.is_empty();
        take(complete);
        most_held = most_held.max(builder.held_bytes());
    }
    assert!(is_early || arcs.len() < 2000, "no page is complete before the end");
    let mut built = builder.finish().expect("a map");
    take(std::mem::take(&mut built.pages));
    (built, found, most_held)
}

/// Returns how many bytes of incomplete pages were held at most.
fn check(suite: Suite, arcs: &Arcmap) -> usize {
    let tree: Snapshot = support::map(suite, arcs);
    let (built, found, most_held) = streamed(suite, arcs);
    assert_eq!((built.root, built.count), (tree.root(), arcs.len() as u64));
    assert!(found == pages(&tree), "other pages than those of the whole map");
    most_held
}

#[test]
fn maps_of_many_pages_are_built_in_memory_for_a_few() {
    let hex = |i: u32| Suite::Blake3.digest(&i.to_be_bytes()).to_string()[..24].to_owned();
    let families: [fn(u32, String) -> Path; 3] = [
        |_, hex| vec![hex],
        |i, _| vec!["logs".to_owned(), format!("2024-{i:06}.txt")],
        |i, hex| vec![format!("{}", i % 50), hex, "x".repeat(1 + i as usize % 300)],
    ];
    for family in families {
        let arcs: Arcmap = (1..20_000).map(|i| (family(i, hex(i)), target(i as u16))).collect();
        let held = check(Suite::Sha2_256, &arcs);
        assert!(held < 1 << 20, "{held} bytes were held");
    }
}

#[test]
fn arcs_out_of_order_twice_or_malformed_are_refused() {
    let key = |text: &str| Key::from_text(text).expect("a path");
    let target = target(1);
    let pushed = |texts: &[&str]| {
        let mut builder = MapBuilder::new(Suite::Sha2_256);
        texts.iter().try_for_each(|text| builder.push(key(text).as_bytes(), target.as_bytes()))
    };
    assert_eq!(pushed(&["a", "a/b", "b"]), Ok(()));
    assert!(matches!(pushed(&["b", "a"]), Err(Error::Damaged { what }) if what.contains("key order")));
    let Err(Error::Input { code: InputCode::InvalidRequest, what }) = pushed(&["a", "a/b", "a/b"]) else {
        panic!("a path was accepted twice");
    };
    assert_eq!(what, "arcs: the path \"a/b\" occurs twice");
    let mut builder = MapBuilder::new(Suite::Sha2_256);
    assert!(matches!(builder.push(b"a", target.as_bytes()), Err(Error::Damaged { .. })));
    assert!(matches!(builder.push(key("a").as_bytes(), b"no CID"), Err(Error::Damaged { .. })));
}

#[test]
fn paths_that_continue_each_other_too_often_are_refused_before_memory_runs_out() {
    let mut builder = MapBuilder::new(Suite::Blake3);
    let mut push = |text: &str| builder.push(Key::from_text(text)?.as_bytes(), target(1).as_bytes());
    let refused = (1..4000).find_map(|len| {
        let name = "a".repeat(len);
        let siblings = (0..15).map(|i| format!("{name}/{i:02}"));
        siblings.into_iter().find_map(|path| push(&path).err())
    });
    assert!(matches!(refused, Some(Error::Input { code: InputCode::TooLarge, what }) if what.contains("long paths")));
    assert!((MapBuilder::MAX_HELD_BYTES..MapBuilder::MAX_HELD_BYTES + (64 << 10)).contains(&builder.held_bytes()));
}

proptest! {
    #[test]
    fn a_map_is_the_same_whether_its_arcs_come_at_once_or_in_order(
        paths in prop::collection::btree_set(
            prop::collection::vec(prop_oneof!["[ab]{1,3}", "a{1,40}b?", "[\0a]{1,9}", "[a-z]{900}"], 1..4), 0..300),
        is_blake3: bool,
    ) {
        let suite = if is_blake3 { Suite::Blake3 } else { Suite::Sha2_256 };
        let arcs: Arcmap = paths.into_iter().enumerate().map(|(i, path)| (path, target(i as u16))).collect();
        check(suite, &arcs);
    }
}
