//! Slow reference models of maps and lists, and strategies for random content.
//!
//! The models follow the text of the protocol only: sorted maps, vectors, and roots by plain recursion, without pages,
//! proofs or traversals of the crate.
#![allow(dead_code, reason = "each test program uses only some of these items")]

pub mod query;
pub mod tamper;

use std::collections::BTreeMap;

use coregw_core::{Arcs, Cid, Digest, Key, ListChange, MapChange, Page, Snapshot, Suite, varint};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// A path by its segments. Their order is the order of keys (protocol section 2).
pub type Path = Vec<String>;
/// A map.
pub type Arcmap = BTreeMap<Path, Cid>;
/// A list: targets and sizes.
pub type Elements = Vec<(Cid, u64)>;

/// Runs each property `cases` times unless `PROPTEST_CASES` is set. Failing seeds are saved next to the tests.
pub fn config(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    config.failure_persistence = Some(Box::new(FileFailurePersistence::WithSource("regressions")));
    config
}

/// Target number `n`: a payload CID with one of several hash functions and codecs, an identity CID, or a root CID.
pub fn target(n: u16) -> Cid {
    let (codec, function, len): (u64, u64, u64) = match n % 8 {
        0..=2 => (0x55, 0x12, 32),
        3 => (0x71, 0x13, 64),
        7 => (0x55, 0x00, 2 + u64::from(n / 8 % 127)),
        4 => (0x55, 0x1e, 32),
        5 => (0x30_3110, 0x12, 32),
        _ => (0x30_3211, 0x1e, 32),
    };
    let mut bytes = vec![1];
    varint::write(&mut bytes, codec);
    varint::write(&mut bytes, function);
    varint::write(&mut bytes, len);
    bytes.extend(n.to_be_bytes().iter().cycle().take(len as usize));
    Cid::from_bytes(&bytes).expect("a CID")
}

/// The key of a path.
pub fn key(path: &Path) -> Key {
    Key::from_segments(path).expect("a path")
}

/// Builds a map with the crate.
pub fn map(suite: Suite, arcs: &Arcmap) -> Snapshot {
    map_in_order(suite, arcs.iter())
}

/// Builds a map with the crate from arcs in any order.
pub fn map_in_order<'a>(suite: Suite, arcs: impl IntoIterator<Item = (&'a Path, &'a Cid)>) -> Snapshot {
    let mut all = Arcs::default();
    arcs.into_iter().for_each(|(path, target)| all.push(&key(path), target));
    Snapshot::map(suite, all).expect("a map")
}

/// Builds a list with the crate.
pub fn list(suite: Suite, elements: &[(Cid, u64)]) -> Snapshot {
    Snapshot::list(suite, elements).expect("a list")
}

/// The stored bytes of all pages of a tree, by digest.
pub fn pages(tree: &Snapshot) -> BTreeMap<Digest, Vec<u8>> {
    tree.pages().map(|page| (page.digest(), page.to_bytes())).collect()
}

/// The number of bytes that a page's top node takes (tag, number, label or tail); the page limit counts the rest.
pub fn top_len(page: &[u8]) -> usize {
    let number = |at| varint::read(&page[at..]).expect("a varint");
    match page[0] {
        0x01 => 1 + number(1).1 + number(1).0 as usize,
        0x02 => 1 + number(1).1 + number(1).0.div_ceil(8) as usize,
        _ => 1,
    }
}

/// Encodes a page and parses it again.
pub fn reparsed(page: &Page, tree: &Snapshot) -> Page {
    let root = tree.root();
    Page::parse(&page.to_bytes(), root.kind, root.suite, &page.digest()).expect("a page parses")
}

fn chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::write(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn bit(key: &[u8], i: usize) -> bool {
    key[i / 8] >> (7 - i % 8) & 1 == 1
}

/// The digest of a map by the definition in section 3: split at the first bit in which any two keys differ.
pub fn slow_map(suite: Suite, arcs: &Arcmap) -> Digest {
    let arcs: Vec<_> = arcs.iter().map(|(path, target)| (key(path).as_bytes().to_vec(), *target)).collect();
    if arcs.is_empty() { suite.digest(&[0]) } else { slow_map_node(suite, &arcs) }
}

fn slow_map_node(suite: Suite, arcs: &[(Vec<u8>, Cid)]) -> Digest {
    let mut out = Vec::new();
    if let [(key, target)] = arcs {
        out.push(1);
        chunk(&mut out, key);
        chunk(&mut out, target.as_bytes());
        return suite.digest(&out);
    }
    let first = &arcs[0].0;
    let differs = |i: &usize| arcs.iter().any(|(key, _)| bit(key, *i) != bit(first, *i));
    let at = (0..8 * first.len()).find(differs).expect("keys that differ");
    let mut prefix = first[..at.div_ceil(8)].to_vec();
    (at..8 * prefix.len()).for_each(|i| prefix[i / 8] &= !(0x80 >> (i % 8)));
    out.push(2);
    varint::write(&mut out, at as u64);
    out.extend_from_slice(&prefix);
    let (left, right): (Vec<_>, Vec<_>) = arcs.iter().cloned().partition(|(key, _)| !bit(key, at));
    for side in [left, right] {
        varint::write(&mut out, side.len() as u64);
        out.extend_from_slice(&slow_map_node(suite, &side).0);
    }
    suite.digest(&out)
}

/// The digest of a list by the definition in section 3.
pub fn slow_list(suite: Suite, elements: &[(Cid, u64)]) -> Digest {
    let mut out = Vec::new();
    match elements {
        [] => out.push(0x10),
        [(target, size)] => {
            out.push(0x11);
            varint::write(&mut out, *size);
            chunk(&mut out, target.as_bytes());
        }
        _ => {
            let half = (0..).map(|i| 1 << i).take_while(|n| *n < elements.len()).last().expect("a power of two");
            out.push(0x12);
            for side in [&elements[..half], &elements[half..]] {
                varint::write(&mut out, side.len() as u64);
                varint::write(&mut out, side.iter().map(|e| e.1).sum());
                out.extend_from_slice(&slow_list(suite, side).0);
            }
        }
    }
    suite.digest(&out)
}

/// The changes that turn one map into another.
pub fn map_changes(from: &Arcmap, to: &Arcmap) -> Vec<MapChange> {
    let paths: std::collections::BTreeSet<_> = from.keys().chain(to.keys()).collect();
    let change =
        |path: &Path| MapChange { key: key(path), before: from.get(path).copied(), after: to.get(path).copied() };
    paths.into_iter().map(change).filter(|change| change.before != change.after).collect()
}

/// The changes that turn one list into another.
pub fn list_changes(from: &Elements, to: &Elements) -> Vec<ListChange> {
    let change = |i: usize| ListChange {
        index: i as u64,
        before: from.get(i).map(|(target, size)| (*target, Some(*size))),
        after: to.get(i).copied(),
    };
    let all = (0..from.len().max(to.len())).map(change);
    all.filter(|change| change.before.map(|(target, size)| (target, size.unwrap_or(0))) != change.after).collect()
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
