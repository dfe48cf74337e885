//! Fuzz target: random changes of a map or a list. Root and pages equal those of a fresh build, and the transition proof
//! verifies.
#![no_main]

use std::collections::BTreeMap;

use coregw_core::{
    Arcs, Cid, Digest, Key, ListChange, ListChanges, MapChange, MapChanges, Page, Snapshot, Suite, verify,
};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 16 << 20;

fn target(n: u8) -> Cid {
    Cid::from_bytes(&[&[1, 0x55, 0x12, 32][..], &[n; 32]].concat()).expect("a CID")
}

/// Derives a path from two bytes; some paths share prefixes, some are long.
fn path(a: u8, b: u8) -> Vec<String> {
    let mut path =
        vec![["a", "b", "ab", "a\0", "run"][usize::from(a % 5)].to_owned(), format!("{:03}", u16::from(b) * 3)];
    if a & 0x40 != 0 {
        path.push("x".repeat(usize::from(b) * 6 + 1));
    }
    if a & 0x80 != 0 {
        path.truncate(1);
    }
    path
}

fn pages(tree: &Snapshot) -> BTreeMap<Digest, Vec<u8>> {
    let root = tree.root();
    let stored = |page: std::sync::Arc<Page>| {
        let (digest, bytes) = (page.digest(), page.to_bytes());
        Page::parse(&bytes, root.kind, root.suite, &digest).expect("a page parses");
        (digest, bytes)
    };
    tree.pages().map(stored).collect()
}

type Content = BTreeMap<Vec<String>, Cid>;

fn build(suite: Suite, content: &Content) -> Snapshot {
    let mut arcs = Arcs::default();
    content.iter().for_each(|(path, cid)| arcs.push(&Key::from_segments(path).expect("a path"), cid));
    Snapshot::map(suite, arcs).expect("a map")
}

fn maps(suite: Suite, mut data: &[u8]) {
    let mut content = Content::new();
    let mut tree = build(suite, &content);
    while let Some((&n, rest)) = data.split_first() {
        data = rest;
        let mut next = content.clone();
        for _ in 0..=n % 32 {
            let Some((&[a, b, c], rest)) = data.split_first_chunk() else { break };
            data = rest;
            match c {
                0..80 => drop(next.remove(&path(a, b)).is_some()),
                // Runs of adjacent keys produce trees of many pages.
                80..128 => next.extend((0..c).map(|i| (vec![format!("{a}-{b:03}"), format!("{i:04}")], target(i)))),
                _ => drop(next.insert(path(a, b), target(c)).is_some()),
            }
        }
        let paths: std::collections::BTreeSet<_> = content.keys().chain(next.keys()).collect();
        let change = |path: &Vec<String>| MapChange {
            key: Key::from_segments(path).expect("a path"),
            before: content.get(path).copied(),
            after: next.get(path).copied(),
        };
        let changes: Vec<_> = paths.into_iter().map(change).filter(|change| change.before != change.after).collect();
        let Ok(changes) = MapChanges::new(changes) else { continue };
        let (changed, proof) = tree.change_map(changes.clone()).expect("the changes fit");
        let fresh = build(suite, &next);
        assert_eq!(changed.root(), fresh.root());
        assert!(pages(&changed) == pages(&fresh), "the pages depend on the history");
        assert_eq!(verify::map_changes(&tree.root(), changes, &proof, LIMIT), Ok(fresh.root()));
        (tree, content) = (changed, next);
    }
}

fn lists(suite: Suite, mut data: &[u8]) {
    let mut content: Vec<(Cid, u64)> = Vec::new();
    let mut tree = Snapshot::list(suite, &content).expect("a list");
    while let Some((&[n, a, b], rest)) = data.split_first_chunk() {
        data = rest;
        let mut next = content.clone();
        next.truncate(usize::from(a) * 2);
        let kept = next.len();
        if kept == content.len() {
            next.extend((0..n).map(|i| (target(i & b), 1 + u64::from(i) * u64::from(b))));
        }
        if kept > 0 {
            next[usize::from(b) % kept] = (target(n), u64::from(n) + 1);
        }
        let change = |i: usize| ListChange {
            index: i as u64,
            before: content.get(i).map(|(cid, size)| (*cid, Some(*size))),
            after: next.get(i).copied(),
        };
        let all = (0..content.len().max(next.len())).filter(|i| content.get(*i) != next.get(*i)).map(change);
        let Ok(changes) = ListChanges::new(all.collect()) else { continue };
        let (changed, proof) = tree.change_list(changes.clone()).expect("the changes fit");
        let fresh = Snapshot::list(suite, &next).expect("a list");
        assert_eq!(changed.root(), fresh.root());
        assert!(pages(&changed) == pages(&fresh), "the pages depend on the history");
        assert_eq!(verify::list_changes(&tree.root(), changes, &proof, LIMIT), Ok(fresh.root()));
        (tree, content) = (changed, next);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else {
        return;
    };
    let suite = Suite::ALL[usize::from(how & 1)];
    match how & 2 {
        0 => maps(suite, &data[..data.len().min(600)]),
        _ => lists(suite, &data[..data.len().min(60)]),
    }
});
