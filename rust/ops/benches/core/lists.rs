//! Lists: one element, a range, a change, a build, and memory.

use std::time::Duration;

use coregw_core::{ListChange, ListChanges, Snapshot, Suite, verify};

use crate::bare::{self, Strings};
use crate::data::{Numbers, target};
use crate::maps::{elements, rounds};
use crate::measure::{Place, best, each, ratio, time};
use crate::store;

/// Elements looked up, in rows as for maps.
const ROWS: usize = 5;
const ROW_LENGTH: usize = 200;
/// Changes made in a row.
const CHANGES: usize = 40;
/// Elements of a range.
const RANGE: u64 = 1_000;

/// Prints all figures of a list of this many elements.
pub fn measure(place: Place, suite: Suite) {
    let tree = Snapshot::list(suite, &elements(place.arcs as u64)).expect("a list");
    let verifying = one_element(place, &tree);
    range(place, &tree);
    change(place, &tree, verifying);
    store::memory(place, &tree);
    store::stored(place, &tree);
    drop(tree);
    building(place, suite);
}

fn row(tree: &Snapshot, numbers: &mut Numbers) -> ([Duration; 3], usize) {
    let root = tree.root();
    let mut strings = Strings::default();
    let picks: Vec<_> = (0..ROW_LENGTH)
        .map(|_| {
            let i = numbers.below(tree.count() as usize) as u64;
            let (element, proof) = tree.index(i).expect("a list");
            let proof = proof();
            assert_eq!(verify::index(&root, i, &proof, usize::MAX), Ok(element));
            assert_eq!(bare::nodes_of_proof(root.suite, &proof, &mut strings), root.digest);
            (i, proof)
        })
        .collect();
    let mut verify = || time(|| picks.iter().filter(|p| verify::index(&root, p.0, &p.1, usize::MAX).is_ok()).count());
    strings.link(root.suite);
    let mut hash = || strings.chain(root.suite);
    let mut prove = || time(|| picks.iter().map(|p| tree.index(p.0).expect("a list").1().len()).sum::<usize>());
    (best(4, 10, [&mut verify, &mut hash, &mut prove]), picks.iter().map(|pick| pick.1.len()).sum())
}

fn one_element(place: Place, tree: &Snapshot) -> Duration {
    let mut numbers = Numbers::new(1);
    let rows: Vec<_> = (0..ROWS).map(|_| row(tree, &mut numbers)).collect();
    let [verifying, hashing, proving] = [0, 1, 2].map(|i| rows.iter().map(|row| row.0[i]).sum::<Duration>());
    let lookups = ROWS * ROW_LENGTH;
    let bytes = rows.iter().map(|row| row.1).sum::<usize>();
    place.line("verify one element / hash the same strings", ratio(verifying, hashing), "x", Some(1.3), "");
    place.line("prove one element, pages cached / verify it", ratio(proving, verifying), "x", Some(0.6), "");
    place.line("verify one element", each(verifying, lookups), "us", None, "");
    place.line("prove one element", each(proving, lookups), "us", None, "");
    place.line("proof of one element", bytes as f64 / lookups as f64, "bytes", None, "");
    verifying / lookups as u32
}

fn range(place: Place, tree: &Snapshot) {
    let (root, start) = (tree.root(), tree.count() / 3);
    let end = Some(tree.count().min(start + RANGE));
    let (span, proof) = tree.range(start, end).expect("a list");
    let mut strings = Strings::default();
    assert_eq!(bare::nodes_of_proof(root.suite, &proof, &mut strings), root.digest);
    let verify = || verify::range(&root, start, end, &proof, usize::MAX).expect("a proof");
    assert_eq!(verify(), span);
    let prove = || tree.range(start, end).expect("a list").1.len();
    let [verifying, hashing, proving] =
        best(4, 10, [&mut || time(verify), &mut || strings.floor(root.suite), &mut || time(prove)]);
    let note = format!("{} elements", span.segments.len());
    place.line("verify a range / hash the same strings", ratio(verifying, hashing), "x", None, &note);
    place.line("prove a range / verify it", ratio(proving, verifying), "x", None, "");
    let bytes = proof.len() as f64 / span.segments.len() as f64;
    place.line("proof of a range, per element", bytes, "bytes", None, "");
}

fn change(place: Place, tree: &Snapshot, verifying: Duration) {
    let mut numbers = Numbers::new(3);
    let changes: Vec<_> = (0..CHANGES)
        .map(|_| {
            let index = numbers.below(place.arcs) as u64;
            let (before, after) = (Some((target(index), None)), Some((target(u64::MAX - index), 1)));
            ListChanges::new(vec![ListChange { index, before, after }]).expect("a change")
        })
        .collect();
    let apply = |change: &ListChanges| tree.change_list(change.clone()).expect("a change that fits").1.len();
    let [applying] = best(4, 10, [&mut || time(|| changes.iter().map(apply).sum::<usize>())]);
    let note = "a new list, its pages, and the transition proof";
    let times = ratio(applying / CHANGES as u32, verifying);
    place.line("change one element / verify it", times, "x", None, note);
    place.line("change one element", each(applying, CHANGES), "us", None, "");
}

fn building(place: Place, suite: Suite) {
    let elements = elements(place.arcs as u64);
    let strings = bare::nodes_of_list(suite, place.arcs as u64);
    let (rounds, repeats) = rounds(place.arcs);
    let mut build = || time(|| Snapshot::list(suite, &elements).expect("a list"));
    let [building, hashing] = best(rounds, repeats, [&mut build, &mut || strings.floor(suite)]);
    place.line("build / hash its nodes", ratio(building, hashing), "x", None, "");
    place.line("build, per element", each(building, place.arcs), "us", None, "");
}
