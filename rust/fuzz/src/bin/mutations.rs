//! Fuzz target: mutations of stored maps and lists, fixed lists among them. A mutation succeeds exactly if it fits a plain
//! model, its result is the tree of a fresh build, and its receipt verifies; and the verifier accepts sizes that are not
//! fixed only where the protocol says that a proof does not show them.
#![no_main]

use coregw_core::{Error, RootCid, Suite};
use coregw_fuzz::input::Input;
use coregw_fuzz::model::{Arcmap, Elements, list, map};
use coregw_fuzz::store::{Store, root_of};
use coregw_ops::verify_transition;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fn store(input: &mut Input<'_>) -> Store {
    Store::new([1 << 22, 1 << 12, 0][input.below(3)], [u64::MAX, 50, 3, 1][input.below(4)])
}

fn hold(store: &mut Store, tree: &coregw_core::Snapshot) -> RootCid {
    store.pages.extend(tree.pages().map(|page| (page.digest(), page.to_bytes())));
    store.roots.insert(tree.root());
    tree.root()
}

/// Sends one delta; checks the outcome against the tree that is expected, or against a refusal.
fn mutate(store: &mut Store, base: &RootCid, delta: Value, expected: Option<&coregw_core::Snapshot>) {
    let deltas = json!([delta]);
    let before = store.pages.len();
    match (store.mutate(base, &json!({"deltas": deltas, "prove": true})), expected) {
        (Ok(receipt), Some(tree)) => {
            assert_eq!(root_of(&receipt["new_root"]), tree.root(), "{deltas}");
            assert!(tree.pages().all(|page| store.pages.get(&page.digest()) == Some(&page.to_bytes())), "{deltas}");
            let request = json!({"root": base.cid().text(), "deltas": deltas}).to_string();
            let proven = verify_transition(request.as_bytes(), receipt.to_string().as_bytes());
            assert_eq!(proven, Ok(tree.root().cid()), "{deltas}");
        }
        (Err(Error::Conflict { .. } | Error::Input { .. }), None) => assert_eq!(store.pages.len(), before),
        (outcome, expected) => panic!("{outcome:?} instead of {:?}: {deltas}", expected.map(|tree| tree.root())),
    }
}

fn maps(input: &mut Input<'_>, suite: Suite) {
    let mut store = store(input);
    let mut arcs = input.arcs();
    let mut root = hold(&mut store, &map(suite, &arcs));
    for _ in 0..1 + input.below(3) {
        let mut next = arcs.clone();
        let (mut changes, mut fits) = (Vec::new(), true);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1 + input.below(5) {
            let path = input.near(&arcs.keys().collect::<Vec<_>>());
            let there = arcs.get(&path).copied();
            let before = if input.byte() < 240 { there } else { input.flag().then(|| input.target()) };
            let after = input.flag().then(|| input.target());
            fits &= before == there && before != after && seen.insert(path.clone());
            let mut change = json!({"path": path.join("/")});
            for (member, cid) in [("before", before), ("after", after)] {
                if let Some(cid) = cid {
                    change[member] = json!({"target": cid.text()});
                }
            }
            changes.push(change);
            match after {
                Some(after) => drop(next.insert(path, after)),
                None => drop(next.remove(&path)),
            }
        }
        let long = |arcs: &Arcmap| arcs.keys().any(|path| path.join("/").len() > 4096);
        if long(&next) {
            return;
        }
        let tree = map(suite, &next);
        mutate(&mut store, &root, json!({"kind": "map", "changes": changes}), fits.then_some(&tree));
        if fits {
            (arcs, root) = (next, tree.root());
        }
    }
}

/// Elements of one size, except the last, and sometimes one other or two that only add up.
fn fixed_elements(input: &mut Input<'_>, size: u64) -> Elements {
    let mut elements = input.elements();
    elements.iter_mut().for_each(|element| element.1 = size);
    if let (Some(last), true) = (elements.last_mut(), input.flag()) {
        last.1 = 1 + input.number() % size;
    }
    if !elements.is_empty() && input.byte() < 60 && size > 1 {
        let (at, other, by) =
            (input.below(elements.len()), input.below(elements.len()), 1 + input.number() % (size - 1).max(1));
        elements[at].1 += by;
        if elements[other].1 > by {
            elements[other].1 -= by;
        }
    }
    elements
}

fn is_fixed(elements: &Elements, total: u64, size: u64) -> bool {
    let mut left = total;
    let fits = elements.iter().all(|element| {
        let expected = left.min(size);
        left -= expected;
        expected > 0 && element.1 == expected
    });
    fits && left == 0
}

fn lists(input: &mut Input<'_>, suite: Suite) {
    let mut store = store(input);
    let size = 1 + u64::from(input.byte() % 5);
    let mut elements = fixed_elements(input, size);
    let mut root = hold(&mut store, &list(suite, &elements));
    for _ in 0..1 + input.below(4) {
        let mut next = elements.clone();
        let shrink = input.byte() < 60;
        if shrink {
            next.truncate(input.below(elements.len() + 1));
        } else {
            let sized = |input: &mut Input<'_>| if input.byte() < 230 { size } else { 1 + input.number() % 9 };
            next.extend((0..input.below(6)).map(|_| (input.target(), sized(input))).collect::<Vec<_>>());
        }
        for _ in 0..input.below(4) {
            let at = input.below(next.len());
            if let Some(element) = next.get_mut(at) {
                *element = (input.target(), if input.byte() < 220 { element.1 } else { 1 + input.number() % 9 });
            }
        }
        let total: u64 = next.iter().map(|element| element.1).sum();
        let commit = match input.byte() {
            0..60 => None,
            60..200 => Some((total, size)),
            _ => Some((input.number() % (total + 9), 1 + u64::from(input.byte() % 6))),
        };
        let mut changes = Vec::new();
        for i in 0..elements.len().max(next.len()) {
            if elements.get(i) == next.get(i) {
                continue;
            }
            let mut change = json!({"index": i});
            for (member, element) in [("before", elements.get(i)), ("after", next.get(i))] {
                if let Some((cid, size)) = element {
                    change[member] = json!({"target": cid.text(), "size": size});
                }
            }
            changes.push(change);
        }
        if changes.is_empty() {
            return;
        }
        let mut delta = json!({"kind": "list", "changes": changes});
        if let Some((total, size)) = commit {
            delta["commit"] = json!({"fixed_list": {"total_size": total, "chunk_size": size}});
        }
        let fits = commit.is_none_or(|(total, size)| is_fixed(&next, total, size));
        let tree = list(suite, &next);
        mutate(&mut store, &root, delta.clone(), fits.then_some(&tree));
        if let (Some((total, size)), false) = (commit, fits) {
            forge(&mut store, &root, &mut delta, [&elements, &next], (total, size));
        }
        if fits {
            (elements, root) = (next, tree.root());
        }
    }
}

/// Makes changes without their commit, and verifies the receipt as if the request had had one: a result of another number of
/// elements, or of another total, is refused, and so is any of which every element is shown. Of two elements that are left of
/// a longer list, unchanged, the proof shows only the sum.
fn forge(
    store: &mut Store,
    root: &RootCid,
    delta: &mut Value,
    [elements, next]: [&Elements; 2],
    (total, size): (u64, u64),
) {
    let commit = delta["commit"].take();
    delta.as_object_mut().expect("an object").remove("commit");
    let Ok(receipt) = store.mutate(root, &json!({"deltas": [delta.clone()], "prove": true})) else { return };
    delta["commit"] = commit;
    let request = json!({"root": root.cid().text(), "deltas": [delta]}).to_string();
    let proven = verify_transition(request.as_bytes(), receipt.to_string().as_bytes());
    let sum: u64 = next.iter().map(|element| element.1).sum();
    let is_shown = next.len() < 2 || next.len() == 2 && !elements.starts_with(next);
    if next.len() as u64 != total.div_ceil(size) || sum != total || is_shown {
        assert!(proven.is_err(), "{request}: {next:?}");
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let how = input.byte();
    let suite = Suite::ALL[usize::from(how & 1)];
    if how & 2 == 0 { maps(&mut input, suite) } else { lists(&mut input, suite) }
});
