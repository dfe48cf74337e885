//! Slow reference models, a second verifier, and strategies for random content.
#![allow(dead_code, reason = "each test program uses only some of these items")]

pub mod agree;
pub mod model;
pub mod query;
pub mod reference;
pub mod tamper;

use coregw_core::{Cid, Suite};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

pub use model::*;

/// Runs each property `cases` times unless `PROPTEST_CASES` is set. Failing seeds are saved next to the tests.
pub fn config(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    config.failure_persistence = Some(Box::new(FileFailurePersistence::WithSource("regressions")));
    config
}

/// Either suite.
pub fn suites() -> impl Strategy<Value = Suite> {
    prop_oneof![Just(Suite::Sha2_256), Just(Suite::Blake3)]
}

/// Segments with common prefixes, zero bytes and non-ASCII text; a few are long.
pub fn segments() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "[ab\u{0}\u{1}.]{1,3}",
        3 => "[a-z0-9]{1,12}",
        1 => prop::collection::vec(any::<char>().prop_map(|c| if c == '/' { '\u{0}' } else { c }), 1..4)
            .prop_map(String::from_iter),
        1 => (1usize..400, "[a\u{0}z]").prop_map(|(n, s)| s.repeat(n)),
    ]
}

/// Paths of a few segments.
pub fn paths() -> impl Strategy<Value = Path> {
    prop::collection::vec(segments(), 1..5)
}

/// Targets from a pool of a few hundred, so that some repeat.
pub fn targets() -> impl Strategy<Value = Cid> {
    (0u16..400).prop_map(target)
}

/// Maps of fewer than `n` arcs.
pub fn arcmaps(n: usize) -> impl Strategy<Value = Arcmap> {
    prop::collection::btree_map(paths(), targets(), 0..n)
}

/// Maps that take many pages: runs of numbered files in folders, and random keys.
pub fn large_arcmaps(n: usize) -> impl Strategy<Value = Arcmap> {
    let runs = prop::collection::vec((segments(), 0u32..5000, 1usize..=n / 4), 1..5);
    (runs, arcmaps(n / 4), 0u16..999).prop_map(|(runs, mut arcs, seed)| {
        for (folder, start, len) in runs {
            for i in start..start + len as u32 {
                arcs.insert(vec![folder.clone(), format!("file-{i:08}.txt")], target(seed.wrapping_add(i as u16)));
            }
        }
        arcs
    })
}

/// Lists of fewer than `n` elements, many of them equal.
pub fn elements(n: usize) -> impl Strategy<Value = Elements> {
    let size = prop_oneof![4 => 1u64..5, 1 => 1u64..1 << 20, 1 => Just(1 << 40)];
    prop::collection::vec((targets(), size), 0..n)
}
