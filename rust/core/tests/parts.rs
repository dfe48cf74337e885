//! Trees that are built in parts, by one thread or several: the same pages as those built leaf by leaf.

mod support;

use coregw_core::{
    Arcs, Cid, Error, Key, ListChange, ListChanges, MapBuilder, OneThread, Snapshot, Suite, Workers, map,
};
use proptest::prelude::*;
use support::{pages, target};

/// Runs jobs in three threads, the last ones first.
struct ThreeThreads;

impl Workers for ThreeThreads {
    fn run(&self, jobs: usize, job: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || (thread..jobs).step_by(3).rev().for_each(job));
            }
        });
    }
}

/// Runs no job.
struct Lazy;

impl Workers for Lazy {
    fn run(&self, _: usize, _: &(dyn Fn(usize) + Sync)) {}
}

fn arcs(paths: &[String]) -> Arcs {
    let mut arcs = Arcs::default();
    for (i, path) in paths.iter().enumerate() {
        arcs.push(&Key::from_text(path).expect("a path"), &target(i as u16));
    }
    arcs
}

/// Checks that the map of these distinct paths has the pages that `MapBuilder` makes, whoever builds it.
fn check(suite: Suite, paths: &[String]) {
    let mut sorted: Vec<_> =
        paths.iter().zip(0..).map(|(path, i)| (Key::from_text(path).expect("a path"), i)).collect();
    sorted.sort();
    let mut builder = MapBuilder::new(suite);
    for (key, i) in &sorted {
        builder.push(key.as_bytes(), target(*i).as_bytes()).expect("arcs in order");
    }
    let mut wanted: Vec<_> = builder.take_pages();
    let last = builder.finish().expect("a map");
    wanted.extend(last.pages);
    wanted.sort();
    for workers in [&OneThread as &dyn Workers, &ThreeThreads] {
        let tree = Snapshot::map_by(workers, suite, arcs(paths)).expect("a map");
        assert_eq!((tree.root(), tree.count()), (last.root, last.count));
        assert!(pages(&tree).into_iter().eq(wanted.iter().cloned()), "other pages in memory");
        let mut stored = map::build_pages(suite, arcs(paths), workers).expect("a map").pages;
        stored.sort();
        assert!(stored == wanted, "other pages for a store");
    }
}

fn hex(i: u32) -> String {
    Suite::Blake3.digest(&i.to_be_bytes()).to_string()[..24].to_owned()
}

#[test]
fn maps_of_many_parts_have_the_pages_of_maps_built_key_by_key() {
    let families: [fn(u32) -> String; 5] = [
        hex,
        |i| format!("users/{:06}", i.wrapping_mul(7_919) % 1_000_000),
        // Nine of ten keys share a long prefix that is longer than what one division looks at.
        |i| if i % 10 == 0 { hex(i) } else { format!("{}/{}", "deep/".repeat(30) + "er", hex(i)) },
        // Keys end at any distance from where others go on.
        |i| format!("{}/{}", "a\0".repeat(i as usize % 90), hex(i)),
        |i| format!("{}-{i}", "z".repeat(i as usize % 900)),
    ];
    for (family, suite) in families.into_iter().zip(Suite::ALL.into_iter().cycle()) {
        check(suite, &(0..30_000).map(|i| family(i).trim_start_matches('/').to_owned()).collect::<Vec<_>>());
    }
}

#[test]
fn keys_that_part_one_at_a_time_are_built() {
    check(
        Suite::Sha2_256,
        &(0..12_000).map(|i| "b".repeat(i / 8) + ["0", "1", "2", "3", "4", "5", "6", "7"][i % 8]).collect::<Vec<_>>()
            [..9_000],
    );
}

#[test]
fn a_path_that_occurs_twice_is_refused_in_any_part() {
    let paths: Vec<_> = (0..20_000).map(hex).collect();
    for twice in [0, 777, 19_999] {
        let mut paths = paths.clone();
        paths.push(paths[twice].clone());
        let wanted = Error::request(format!("arcs: the path {:?} occurs twice", paths[twice]));
        assert_eq!(Snapshot::map_by(&ThreeThreads, Suite::Sha2_256, arcs(&paths)).err(), Some(wanted.clone()));
        assert_eq!(map::build_pages(Suite::Sha2_256, arcs(&paths), &OneThread).err(), Some(wanted));
    }
    let same = vec!["same".to_owned(); 20_000];
    assert!(Snapshot::map(Suite::Sha2_256, arcs(&same)).is_err());
}

#[test]
fn lists_of_many_parts_are_those_that_grow_to_the_same_elements() {
    let elements: Vec<(Cid, u64)> = (0..40_005u32).map(|i| (target(i as u16), u64::from(i % 300) + 1)).collect();
    for (len, suite) in [8_191, 8_192, 8_193, 16_384, 24_577, 40_005].into_iter().zip(Suite::ALL.into_iter().cycle()) {
        let (few, rest) = elements[..len].split_at(100);
        let appended = (100..).zip(rest).map(|(index, after)| ListChange { index, before: None, after: Some(*after) });
        let grown = Snapshot::list(suite, few).expect("a list");
        let (grown, _) = grown.change_list(ListChanges::new(appended.collect()).expect("changes")).expect("they fit");
        for workers in [&OneThread as &dyn Workers, &ThreeThreads] {
            let tree = Snapshot::list_by(workers, suite, &elements[..len]).expect("a list");
            assert_eq!((tree.root(), tree.measure()), (grown.root(), grown.measure()));
            assert!(pages(&tree) == pages(&grown), "other pages");
        }
    }
}

#[test]
fn work_that_was_not_done_is_an_error() {
    let paths: Vec<_> = (0..20_000).map(hex).collect();
    assert!(Snapshot::map_by(&Lazy, Suite::Sha2_256, arcs(&paths)).is_err());
    let elements = vec![(target(1), 1); 20_000];
    assert!(Snapshot::list_by(&Lazy, Suite::Sha2_256, &elements).is_err());
}

proptest! {
    #![proptest_config(support::config(6))]

    #[test]
    fn maps_of_any_paths_have_the_pages_of_maps_built_key_by_key(
        prefixes in prop::collection::vec("[ab\0/]{0,40}", 1..6),
        seed: u32,
        suite in support::suites(),
    ) {
        let clean = |path: String| path.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
        let path = |i: u32| clean(format!("{}{}", prefixes[i as usize % prefixes.len()], hex(seed.wrapping_add(i))));
        check(suite, &(0..18_000).map(path).collect::<Vec<_>>());
    }
}
