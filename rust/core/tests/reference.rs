//! The verifier accepts exactly what a second, slow one accepts that is written from the text of the protocol, with the
//! same answers, whoever made the root.

mod support;

use coregw_core::{Cid, Kind, RootCid, Suite, Window, varint};
use proptest::prelude::*;
use proptest::sample::Index;
use support::agree::{agree, agree_on_diff, agree_on_own_root};
use support::model::{Answer, Arcmap, Path, Query, prove_diff, slow_diff, slow_scan};
use support::query::{list_queries, map_queries, near};
use support::reference::identifier::{escape, is_cid, is_key, read_number};
use support::tamper::{Edit, edits, hostile_bytes, tamper};
use support::{config, reference, suites};

/// Compares both verifiers on an honest proof, and on edits of it under roots of their own.
fn compare(tree: &coregw_core::Snapshot, query: &Query, edits: &[Vec<Edit>]) -> Result<(), TestCaseError> {
    let root = tree.root();
    let (answer, proof) = query.prove(tree).expect("an answer");
    prop_assert_eq!(agree(&root, query, &proof), Some(answer));
    for edits in edits {
        let edited = tamper(&proof, edits);
        agree(&root, query, &edited);
        agree_on_own_root(root.kind, root.suite, query, &edited);
    }
    // Every byte, so that each field of each node is changed.
    for at in 0..proof.len().min(400) {
        for flip in [1, 2, 0x80] {
            let mut edited = proof.clone();
            edited[at] ^= flip;
            agree_on_own_root(root.kind, root.suite, query, &edited);
        }
    }
    Ok(())
}

fn many_edits() -> impl Strategy<Value = Vec<Vec<Edit>>> {
    prop::collection::vec(edits(), 20)
}

proptest! {
    #![proptest_config(config(48))]

    #[test]
    fn proofs_on_maps_are_accepted_as_by_the_reference(
        (arcs, query) in map_queries(24), other in map_queries(3), suite in suites(), edits in many_edits(),
    ) {
        let tree = support::map(suite, &arcs);
        compare(&tree, &query, &edits)?;
        agree(&tree.root(), &other.1, &query.prove(&tree).expect("an answer").1);
    }

    #[test]
    fn proofs_on_lists_are_accepted_as_by_the_reference(
        (elements, query) in list_queries(40), other in list_queries(3), suite in suites(), edits in many_edits(),
    ) {
        let tree = support::list(suite, &elements);
        compare(&tree, &query, &edits)?;
        agree(&tree.root(), &other.1, &query.prove(&tree).expect("an answer").1);
    }

    #[test]
    fn changes_to_fixed_lists_are_accepted_as_by_the_reference(
        (elements, query) in list_queries(20), fixed in (0u64..90, 1u64..5), suite in suites(), edits in many_edits(),
    ) {
        let Query::ChangeList(changes, _) = query else { return Ok(()) };
        let tree = support::list(suite, &elements);
        let (_, proof) = Query::ChangeList(changes.clone(), None).prove(&tree).expect("an answer");
        let after = changes.iter().filter_map(|change| change.after).map(|after| after.1);
        for fixed in [fixed, (tree.measure(), fixed.1), (after.sum(), fixed.1)] {
            let query = Query::ChangeList(changes.clone(), Some(fixed));
            agree(&tree.root(), &query, &proof);
            edits.iter().for_each(|edits| drop(agree_on_own_root(Kind::List, suite, &query, &tamper(&proof, edits))));
        }
    }

    #[test]
    fn diffs_are_accepted_as_by_the_reference(
        a in support::arcmaps(24), b in support::arcmaps(6), drops in prop::collection::vec(any::<Index>(), 0..6),
        picks in any::<[Index; 4]>(), other in support::paths(), limit in 1usize..6, suite in suites(), edits in many_edits(),
    ) {
        let mut to = a.clone();
        for drop in drops.iter().filter(|_| !a.is_empty()) {
            to.remove(*drop.get(&a.keys().collect::<Vec<_>>()));
        }
        to.extend(b);
        let path = near(&a, picks[0], picks[1], other);
        let prefix: Path = path[..picks[2].index(path.len() + 1)].to_vec();
        let after = (picks[3].index(2) > 0).then_some(&path);
        let trees = [support::map(suite, &a), support::map(suite, &to)];
        let roots = [trees[0].root(), trees[1].root()];
        let after = after.filter(|after| after.starts_with(&prefix));
        let window = Window::new(&prefix, after.map(Vec::as_slice)).expect("a window");
        let (found, proofs) = prove_diff([&trees[0], &trees[1]], window, limit);
        prop_assert_eq!(&found, &slow_diff([&a, &to], &prefix, after, limit));
        let proven = agree_on_diff([&roots[0], &roots[1]], (&prefix, after), limit, [&proofs[0], &proofs[1]]);
        prop_assert_eq!(proven, Some(found));
        agree_on_diff([&roots[0], &roots[1]], (&prefix, None), limit + 1, [&proofs[0], &proofs[1]]);
        for pair in edits.chunks(2) {
            let edited = [tamper(&proofs[0], &pair[0]), tamper(&proofs[1], &pair[1])];
            let own = [0, 1].map(|i| reference::own_digest(Kind::Map, suite, &edited[i]));
            let [Some(x), Some(y)] = own else { continue };
            let roots = [x, y].map(|digest| RootCid { digest, ..roots[0] });
            agree_on_diff([&roots[0], &roots[1]], (&prefix, after), limit, [&edited[0], &edited[1]]);
        }
    }

    #[test]
    fn random_bytes_are_proofs_only_where_the_reference_accepts_them(
        (_, on_map) in map_queries(5), (_, on_list) in list_queries(5), bytes in hostile_bytes(), suite in suites(),
    ) {
        agree_on_own_root(Kind::Map, suite, &on_map, &bytes);
        agree_on_own_root(Kind::List, suite, &on_list, &bytes);
    }
}

/// The binary form of a CID with these fields.
fn cid_like(fields: &[u64; 4], digest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    fields.iter().for_each(|field| varint::write(&mut bytes, *field));
    [&bytes, digest].concat()
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn cids_varints_and_keys_are_read_as_by_the_reference(
        version in prop_oneof![9 => Just(1u64), 1 => 0u64..300],
        codec in prop_oneof![Just(0x55u64), 0x30_3000u64..0x30_3300, 0x2f_fffeu64..0x31_0002, 0u64..1 << 63],
        function in prop::sample::select(vec![0x12u64, 0x13, 0x16, 0xb220, 0x1e, 0, 0x11, 0x14, 300]),
        length in prop_oneof![4 => prop::sample::select(vec![31u64, 32, 33, 63, 64, 65, 127, 128, 129]), 1 => 0u64..400],
        digest in prop_oneof![Just(32usize), Just(64), 0usize..140],
        exact in any::<bool>(), edits in edits(), key in support::paths(), bytes in hostile_bytes(),
    ) {
        let digest = vec![7; if exact { length as usize } else { digest }];
        let cid = cid_like(&[version, codec, function, length], &digest);
        for bytes in [&cid, &tamper(&cid, &edits), &bytes] {
            prop_assert_eq!(Cid::from_bytes(bytes).is_ok(), is_cid(bytes), "{:02x?}", bytes);
            let ours = varint::read(bytes).ok();
            prop_assert_eq!(ours.map(|(n, len)| (n, &bytes[len..])), read_number(bytes).ok(), "{:02x?}", bytes);
        }
        // A leaf alone is the proof of its key, and of whatever is not its key.
        let key = support::key(&key);
        prop_assert_eq!(key.as_bytes(), [&escape(&key.text().split('/').map(str::to_owned).collect::<Vec<_>>())[..], &[0, 0]].concat());
        for bytes in [key.as_bytes(), &tamper(key.as_bytes(), &edits), &bytes] {
            let mut leaf = vec![1];
            varint::write(&mut leaf, bytes.len() as u64);
            leaf.extend([bytes, &[4, 1, 0x55, 0, 0]].concat());
            let shown = agree_on_own_root(Kind::Map, Suite::Blake3, &Query::Key(vec!["q".to_owned()]), &leaf);
            prop_assert_eq!(shown.is_some(), is_key(bytes));
        }
    }
}

#[test]
fn the_reference_knows_absence_from_presence() {
    let arcs: Arcmap = [(vec!["a".to_owned()], support::target(1))].into();
    let tree = support::map(Suite::Sha2_256, &arcs);
    for (path, target) in [("a", Some(support::target(1))), ("b", None)] {
        let query = Query::Key(vec![path.to_owned()]);
        let (_, proof) = query.prove(&tree).expect("an answer");
        assert_eq!(agree(&tree.root(), &query, &proof), Some(Answer::Key(target)));
    }
}

/// Maps of few short paths, whose windows begin and end inside the bytes where their keys branch.
fn small_maps() -> [Arcmap; 3] {
    let all = "bcdefg\u{e3}\u{f8}\u{fc}".chars().flat_map(|letter| {
        let path = |rest: &[&str]| {
            [&[letter.to_string()], &rest.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>()[..]].concat()
        };
        [path(&[]), path(&["x"]), path(&["y", "z"]), path(&["\u{1}"])]
    });
    let numbered: Vec<(u16, Path)> = (0..).zip(all).collect();
    let of = |wanted: fn(u16) -> bool, target: fn(u16) -> u16| -> Arcmap {
        numbered
            .iter()
            .filter(|(i, _)| wanted(*i))
            .map(|(i, path)| (path.clone(), support::target(target(*i))))
            .collect()
    };
    [of(|i| i % 3 > 0, |i| i), of(|i| i % 4 > 0 && i != 9, |i| i + i % 2), Arcmap::new()]
}

#[test]
fn small_windows_are_listed_and_compared_as_in_a_sorted_map() {
    let maps = small_maps();
    let trees = maps.each_ref().map(|arcs| support::map(Suite::Sha2_256, arcs));
    let mut starts: Vec<(Path, Option<Path>)> = vec![(Path::new(), None)];
    for letter in "abcdefgh\u{e3}\u{f8}".chars() {
        let prefix = vec![letter.to_string()];
        let after = ["\u{1}", "w", "x", "y"].map(|part| Some(vec![letter.to_string(), part.to_owned()]));
        let within = [None, Some(prefix.clone())].into_iter().chain(after);
        starts.extend(within.flat_map(|after| [(prefix.clone(), after.clone()), (Path::new(), after)]));
    }
    for (prefix, after) in &starts {
        for limit in [1, 2, 3, 100] {
            for (arcs, tree) in maps.iter().zip(&trees) {
                let query = Query::Scan(prefix.clone(), after.clone(), limit);
                let (answer, proof) = query.prove(tree).expect("a listing");
                let expected = Answer::Listing(slow_scan(arcs, prefix, after.as_ref(), limit));
                assert_eq!((agree(&tree.root(), &query, &proof), &answer), (Some(expected.clone()), &expected));
            }
            for [a, b] in [[0, 1], [1, 0], [0, 2], [2, 1]] {
                let window = Window::new(prefix, after.as_deref()).expect("a window");
                let (found, proofs) = prove_diff([&trees[a], &trees[b]], window, limit);
                let expected = slow_diff([&maps[a], &maps[b]], prefix, after.as_ref(), limit);
                assert_eq!(found, expected, "{prefix:?} {after:?} {limit}");
                let roots = [&trees[a].root(), &trees[b].root()];
                let proven =
                    agree_on_diff(roots, (prefix, after.as_ref()), limit, proofs.each_ref().map(Vec::as_slice));
                assert_eq!(proven, Some(expected));
            }
        }
    }
}
