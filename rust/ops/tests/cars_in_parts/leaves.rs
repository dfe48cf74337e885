//! The leaves of a CAR's trees are those of the trees that were exported.

use std::collections::BTreeMap;

use crate::cars::{arcs, export, frames, list, read};
use crate::store::{Store, payload};
use coregw_core::{Cid, Error, RootCid, Suite};
use coregw_ops::Operation;

/// What is listed of a CAR: each tree with its lines, in the order in which they come.
fn leaves(car: &[u8]) -> Result<Vec<(RootCid, Vec<u8>)>, Error> {
    let mut store = Store::new(0, u64::MAX);
    store.car = car.to_vec();
    store.serve(Operation::list_car(read(car, 4096)?))?;
    Ok(store.leaves)
}

fn lines_of<T: for<'a> serde::Deserialize<'a>>(lines: &[u8]) -> Vec<T> {
    lines.split_inclusive(|&byte| byte == b'\n').map(|line| serde_json::from_slice(line).expect("JSON")).collect()
}

#[test]
fn nested_trees_are_listed_before_the_root() {
    let mut store = Store::new(1 << 20, 1000);
    let targets: Vec<_> = (0..500).map(payload).collect();
    let elements = list(&mut store, Suite::Blake3, &targets);
    let none = store.build(Suite::Sha2_256, &BTreeMap::new());
    let mut outer = arcs(700);
    outer.extend([("a/list".into(), elements.cid()), ("b\n\"".into(), none.cid())]);
    let root = store.build(Suite::Sha2_256, &outer);
    let listed = leaves(&export(&mut store, &root, true).expect("a held root")).expect("a CAR");
    assert_eq!(listed.iter().map(|(tree, _)| *tree).collect::<Vec<_>>(), [elements, none, root]);
    let sizes = lines_of::<(String, u64)>(&listed[0].1);
    assert_eq!(sizes, targets.iter().zip(0..).map(|(cid, i)| (cid.text(), 1 + i % 300)).collect::<Vec<_>>());
    assert!(listed[1].1.is_empty());
    let paths: BTreeMap<String, Cid> = lines_of::<(String, String)>(&listed[2].1)
        .into_iter()
        .map(|(path, cid)| (path, Cid::from_text(&cid).expect("a CID")))
        .collect();
    assert_eq!(paths, outer);
}

#[test]
fn long_trees_are_listed_in_chunks_of_whole_lines() {
    let mut store = Store::new(1 << 20, 1000);
    let root = store.build(Suite::Sha2_256, &arcs(9000));
    let listed = leaves(&export(&mut store, &root, false).expect("a held root")).expect("a CAR");
    assert!(listed.len() > 2 && listed.iter().all(|(tree, lines)| *tree == root && lines.len() < 300 << 10));
    assert_eq!(listed.iter().map(|(_, lines)| lines_of::<(String, String)>(lines).len()).sum::<usize>(), 9000);
}

#[test]
fn trees_that_lack_a_node_are_refused_before_any_leaf() {
    let mut store = Store::new(1 << 20, 1000);
    let root = store.build(Suite::Sha2_256, &arcs(50));
    let mut frames = frames(&export(&mut store, &root, false).expect("a held root"));
    frames.remove(60);
    assert!(matches!(leaves(&frames.concat()), Err(Error::Input { .. })));
}
