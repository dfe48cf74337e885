//! Inputs that are very long, very deep or over a limit: each works on a small stack, or the error names the limit.

mod support;

use coregw_core::{
    Arcs, Cid, Digest, Error, InputCode, Key, Keys, Kind, ListChange, ListChanges, MAX_PAGE, MapBuilder, MapChange,
    MapChanges, Page, RootCid, Snapshot, Suite, check_same_suite, cid, internals::node, key as path, map, varint,
    verify,
};
use support::{Answer, Path, Query, target};

/// Runs a test on a stack so small that recursion on the depth of a tree, a proof or a chain of pages overflows it.
fn in_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(test).expect("a thread");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Key `i` of a comb: it diverges from a path of many `U` at the i-th bit that a text can vary.
fn tooth(i: usize, len: usize) -> Path {
    let (at, bit) = (i / 7, 1 + i % 7);
    let mut text = "U".repeat(at);
    text.push((0x55u8 ^ 0x80 >> bit) as char);
    let text = if len > text.len() { text.clone() + &"x".repeat(len - text.len()) } else { text };
    vec![text]
}

/// The path from which all teeth diverge; the comb contains it too.
fn spine(depth: usize) -> Path {
    vec!["U".repeat(depth.div_ceil(7))]
}

/// Builds a map whose depth is its number of keys, each at least `len` bytes long.
fn comb(depth: usize, len: usize) -> Snapshot {
    let mut arcs = Arcs::default();
    (0..depth).for_each(|i| arcs.push(&support::key(&tooth(i, len)), &target(i as u16)));
    arcs.push(&support::key(&spine(depth)), &target(1));
    Snapshot::map(Suite::Sha2_256, arcs).expect("a map")
}

fn changes(all: &[(Path, Option<Cid>, Option<Cid>)]) -> Vec<MapChange> {
    let one =
        |(path, before, after): &(Path, _, _)| MapChange { key: support::key(path), before: *before, after: *after };
    all.iter().map(one).collect()
}

/// Proves and verifies a query; returns the answer and the length of the proof in bytes.
fn check(tree: &Snapshot, query: &Query) -> (Answer, usize) {
    let (answer, proof) = query.prove(tree).expect("an answer");
    assert_eq!(query.verify(&tree.root(), &proof).as_ref(), Ok(&answer));
    (answer, proof.len())
}

fn work_on_comb(depth: usize, len: usize) {
    let tree = comb(depth, len);
    assert_eq!(tree.count(), depth as u64 + 1);
    let deepest = tooth(depth - 1, len);
    let found = check(&tree, &Query::Key(deepest.clone()));
    assert_eq!(found.0, Answer::Key(Some(target(depth as u16 - 1))));
    let absent = vec!["U".repeat(depth.div_ceil(7) - 1) + "V"];
    assert_eq!(check(&tree, &Query::Key(absent.clone())).0, Answer::Key(None));
    let Answer::Listing(listing) = check(&tree, &Query::Scan(Vec::new(), None, 50)).0 else { unreachable!() };
    assert_eq!((listing.entries.len(), listing.more), (50, true));
    let listing = check(&tree, &Query::Scan(spine(depth), None, 50)).0;
    assert_eq!(
        listing,
        Answer::Listing(map::Listing { entries: vec![(support::key(&spine(depth)), target(1))], more: false })
    );

    let there = vec![(absent, None, Some(target(7))), (deepest, Some(target(depth as u16 - 1)), None)];
    let back = there.iter().map(|(path, before, after)| (path.clone(), *after, *before)).collect::<Vec<_>>();
    let (there, back) = (changes(&there), changes(&back));
    let apply = |tree: &Snapshot, all: &[MapChange]| tree.change_map(MapChanges::new(all.to_vec()).expect("changes"));
    let (changed, _) = apply(&tree, &there).expect("the changes fit");
    assert_eq!(check(&tree, &Query::ChangeMap(there)).0, Answer::Root(changed.root()));
    let (restored, _) = apply(&changed, &back).expect("the changes fit");
    assert_eq!(restored.root(), tree.root());
    assert_eq!(support::pages(&restored), support::pages(&tree));
    drop((tree, changed));
    assert_eq!(restored.count(), depth as u64 + 1);
    drop(restored);
}

#[test]
fn trie_ten_thousand_nodes_deep_works_on_a_small_stack() {
    in_small_stack(|| work_on_comb(10_000, 0));
}

#[test]
fn thousands_of_linked_pages_are_dropped_on_a_small_stack() {
    in_small_stack(|| {
        let tree = comb(8_000, path::MAX_TEXT);
        let pages = tree.pages().count();
        assert!(pages > 3_000, "{pages} pages");
        let added = MapChanges::new(changes(&[(vec!["new".into()], None, Some(target(3)))])).expect("changes");
        let (changed, _) = tree.change_map(added).expect("the change fits");
        // Pages that two trees share live until the second tree is dropped.
        drop(tree);
        assert_eq!(changed.count(), 8_002);
        assert_eq!(check(&changed, &Query::Key(tooth(7_999, path::MAX_TEXT))).0, Answer::Key(Some(target(7_999))));
    });
}

#[test]
fn proof_over_the_length_limit_is_refused_and_the_error_names_the_limit() {
    in_small_stack(|| {
        let depth = 7 * path::MAX_TEXT;
        let tree = comb(depth, 0);
        let deepest = tooth(depth - 1, 0);
        let (answer, len) = check(&tree, &Query::Key(deepest.clone()));
        assert_eq!(answer, Answer::Key(Some(target(depth as u16 - 1))));
        let (_, mut proof) = Query::Key(deepest.clone()).prove(&tree).expect("an answer");
        let verify = |proof: &[u8], limit| verify::key(&tree.root(), &support::key(&deepest), proof, limit);
        assert!(verify(&proof, len).is_ok());
        for limit in [len - 1, 0] {
            let refused = verify(&proof, limit).expect_err("over the limit");
            assert!(refused.to_string().contains(&format!("the limit is {limit}")), "{refused}");
        }
        proof.resize(verify::PROOF_LIMIT + 1, 0);
        let refused = verify(&proof, verify::PROOF_LIMIT).expect_err("over the limit");
        assert!(refused.to_string().contains("the limit is 2892588"), "{refused}");
    });
}

#[test]
fn limit_admits_the_longest_proof_of_a_key() {
    let key = Key::from_text(&"\0".repeat(path::MAX_TEXT)).expect("a path");
    let (bytes, target) = (key.as_bytes(), target(1));
    let leaf = node::bytes(&node::MapLeaf { key: bytes, target: target.as_bytes() });
    let suite = Suite::Blake3;
    let mut child = node::Summary { count: 1, measure: 0, digest: suite.digest(&leaf) };
    // At every bit of the key there is a sibling, with the longest count that can be added up so often.
    let sibling = node::Summary { count: 1 << 36, measure: 0, digest: Digest([7; 32]) };
    let mut stub = vec![0x03];
    varint::write(&mut stub, sibling.count);
    stub.extend(sibling.digest.0);
    let (mut start, mut end) = (Vec::new(), Vec::new());
    for bit in (0..path::MAX_BITS).rev() {
        let is_right = bytes[bit as usize / 8] >> (7 - bit % 8) & 1 == 1;
        let children = if is_right { [&sibling, &child] } else { [&child, &sibling] };
        let prefix = &bytes[..bit.div_ceil(8) as usize];
        let digest = suite.digest(&node::bytes(&node::MapInner { bit, path: prefix, children }));
        child = node::Summary { count: child.count + sibling.count, digest, ..child };
    }
    for bit in 0..path::MAX_BITS {
        let is_right = bytes[bit as usize / 8] >> (7 - bit % 8) & 1 == 1;
        start.extend([0x02, 0]);
        (if is_right { &mut start } else { &mut end }).extend(&stub);
    }
    start.extend([0x01, 0, target.as_bytes().len() as u8]);
    start.extend(target.as_bytes());
    let proof = [start, end].concat();
    assert!(proof.len() > 65_552 * 41, "{} bytes", proof.len());
    let root = RootCid { kind: Kind::Map, suite, digest: child.digest };
    assert_eq!(verify::key(&root, &key, &proof, verify::PROOF_LIMIT), Ok(Some(target)));
}

#[test]
fn path_of_two_thousand_segments_works_on_a_small_stack() {
    in_small_stack(|| {
        let path: Path = (0..2_000).map(|i| ["a", "b"][i % 2].to_owned()).collect();
        let mut arcs = support::Arcmap::new();
        arcs.extend((1..=path.len()).map(|n| (path[..n].to_vec(), target(n as u16))));
        let tree = support::map(Suite::Blake3, &arcs);
        for n in [1, 2, 999, 1_999, 2_000] {
            assert_eq!(check(&tree, &Query::Key(path[..n].to_vec())).0, Answer::Key(Some(target(n as u16))));
        }
        let listing = map::Listing { entries: vec![(support::key(&path), target(2_000))], more: false };
        assert_eq!(check(&tree, &Query::Scan(path.clone(), None, 10)).0, Answer::Listing(listing.clone()));
        let after = Query::Scan(path[..1_000].to_vec(), Some(path[..1_999].to_vec()), 10);
        assert_eq!(check(&tree, &after).0, Answer::Listing(listing));
        let removal = changes(&[(path, Some(target(2_000)), None)]);
        let all = MapChanges::new(removal.clone()).expect("changes");
        let (changed, _) = tree.change_map(all).expect("the change fits");
        assert_eq!(check(&tree, &Query::ChangeMap(removal)).0, Answer::Root(changed.root()));
    });
}

#[test]
fn longest_keys_work_and_errors_for_longer_ones_name_the_limit() {
    let zeros = vec!["\0".repeat(path::MAX_TEXT)];
    let letters = vec!["z".repeat(path::MAX_TEXT)];
    let slashes: Path = vec!["a".to_owned(); path::MAX_TEXT.div_ceil(2)];
    let almost = vec!["\0".repeat(path::MAX_TEXT - 1) + "\u{1}"];
    let all = [zeros, letters, slashes, almost];
    let arcs: support::Arcmap = all.iter().cloned().zip((0..).map(target)).collect();
    let tree = support::map(Suite::Sha2_256, &arcs);
    assert_eq!(tree.root().digest, support::slow_map(Suite::Sha2_256, &arcs));
    for path in &all {
        assert_eq!(check(&tree, &Query::Key(path.clone())).0, Answer::Key(arcs.get(path).copied()));
    }
    assert!(support::pages(&tree).values().all(|page| page.len() <= MAX_PAGE));
    let names_limit = |refused: coregw_core::Result<Key>| match refused {
        Err(Error::Input { code: InputCode::InvalidPath, what }) => what.contains("4,096"),
        _ => false,
    };
    assert!(names_limit(Key::from_text(&"z".repeat(path::MAX_TEXT + 1))));
    assert!(names_limit(Key::from_segments(&["z".repeat(path::MAX_TEXT + 1)])));
    assert!(names_limit(Key::from_segments(&vec!["a"; path::MAX_TEXT.div_ceil(2) + 1])));
}

#[test]
fn sizes_up_to_the_limit_work_and_errors_for_larger_ones_name_the_limit() {
    let most = coregw_core::SUM_LIMIT - 1;
    let one = support::list(Suite::Sha2_256, &[(target(1), most)]);
    assert_eq!(one.measure(), most);
    assert_eq!(check(&one, &Query::Range(most - 1, None)).0, check(&one, &Query::Range(0, Some(1))).0);
    support::list(Suite::Sha2_256, &[(target(1), most - 1), (target(1), 1)]);
    for elements in [vec![(target(1), most + 1)], vec![(target(1), most), (target(1), 1)], vec![(target(1), 0)]] {
        let refused = Snapshot::list(Suite::Sha2_256, &elements).expect_err("over the limit");
        assert!(refused.to_string().contains("2^53"), "{refused}");
    }
    let append = ListChange { index: 1, before: None, after: Some((target(2), 1)) };
    let append = ListChanges::new(vec![append]).expect("a change");
    let refused = one.change_list(append).expect_err("over the limit");
    assert!(
        matches!(&refused, Error::Input { code: InputCode::TooLarge, what } if what.contains("2^53")),
        "{refused:?}"
    );
    for size in [0, most + 1] {
        let change = ListChange { index: 0, before: None, after: Some((target(2), size)) };
        assert!(ListChanges::new(vec![change]).expect_err("a bad size").to_string().contains("2^53"));
    }
}

#[test]
fn page_over_the_length_limit_is_refused_and_the_error_names_the_limit() {
    let digest = Suite::Sha2_256.digest(b"");
    let refused = Page::parse(&vec![0; MAX_PAGE + 1], Kind::Map, Suite::Sha2_256, &digest).expect_err("too long");
    assert!(refused.to_string().contains(&format!("the limit is {MAX_PAGE}")), "{refused}");
}

#[test]
fn several_keys_are_at_least_one_and_each_once() {
    let keys = |texts: &[&str]| Keys::new(texts.iter().map(|text| Key::from_text(text).expect("a path")).collect());
    let two = keys(&["b", "a"]).expect("keys");
    assert!(two.len() == 2 && !two.is_empty());
    assert!(keys(&[]).is_err());
    let refused = keys(&["b", "a", "b"]).expect_err("one key twice").to_string();
    assert!(refused.contains("keys[2]"), "{refused}");
}

#[test]
fn a_range_without_bytes_shows_no_element() {
    let list = support::list(Suite::Sha2_256, &(0..20).map(|i| (target(i), 3)).collect::<Vec<_>>());
    let (nothing, shortest) = list.range(0, Some(0)).expect("a range");
    assert_eq!((nothing.segments.len(), nothing.offset, nothing.total_size), (0, None, 60));
    for start in 0..70 {
        let (found, proof) = list.range(start, Some(start)).expect("a range");
        assert_eq!((&found, proof.len()), (&nothing, shortest.len()), "{start}");
    }
}

#[test]
fn changes_are_counted_and_each_coordinate_is_changed_once() {
    let [a, b] = ["a", "b"].map(|text| MapChange {
        key: Key::from_text(text).expect("a path"),
        before: None,
        after: Some(target(1)),
    });
    let two = MapChanges::new(vec![b.clone(), a.clone()]).expect("changes");
    assert_eq!((two.len(), two.is_empty()), (2, false));
    let twice = MapChanges::new(vec![a.clone(), b, a]).expect_err("a key twice").to_string();
    assert!(twice.contains("changed twice"), "{twice}");
    let at = |index| ListChange { index, before: None, after: Some((target(1), 1)) };
    let two = ListChanges::new(vec![at(1), at(0)]).expect("changes");
    assert_eq!((two.len(), two.is_empty()), (2, false));
    for indices in [[0, 1, 1], [0, 0, 1]] {
        let twice = ListChanges::new(indices.map(at).to_vec()).expect_err("an index twice").to_string();
        assert!(twice.contains("changed twice"), "{twice}");
    }
}

#[test]
fn maps_of_two_suites_and_lists_have_no_diff() {
    let [sha, blake] = Suite::ALL.map(|suite| support::map(suite, &Default::default()).root());
    let list = support::list(Suite::Sha2_256, &[]).root();
    assert_eq!(check_same_suite([&sha, &sha]), Ok(()));
    for roots in [[&sha, &blake], [&sha, &list], [&list, &list]] {
        let refused = check_same_suite(roots);
        assert!(matches!(refused, Err(Error::Input { code: InputCode::KindMismatch, .. })), "{refused:?}");
    }
}

#[test]
fn limits_are_those_of_the_protocol() {
    use coregw_core::internals::block::MAX_BLOCK;
    assert_eq!((varint::MAX_LEN, cid::MAX_IDENTITY_BYTES, cid::MAX_LEN), (9, 128, 141));
    assert_eq!((path::MAX_TEXT, path::MAX_KEY, path::MAX_BITS), (4096, 8194, 65_552));
    assert_eq!(
        (coregw_core::SUM_LIMIT, MAX_BLOCK, MapBuilder::MAX_HELD_BYTES),
        (9_007_199_254_740_992, 8278, 67_108_864)
    );
    let too_long = |len: usize| {
        let refused = Cid::from_text(&format!("f{}", "0".repeat(len - 1))).expect_err("zeros");
        refused.to_string().contains("it is too long")
    };
    assert_eq!([283, 284].map(too_long), [false, true]);
    // Base 32: 176 bytes in a text that is not too long.
    Cid::from_text(&format!("b{}", "a".repeat(282))).expect_err("longer than any CID");
}
