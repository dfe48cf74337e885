//! Forged proofs under roots that match them: each forgery violates exactly one check of what is decoded.
//!
//! Each test also verifies a valid tree that differs from the forgery only in the checked property.

#[path = "support/forging.rs"]
mod forging;

use coregw_core::{
    Cid, Error, InputCode, Kind, ListChange, ListChanges, MapChange, MapChanges, Page, SUM_LIMIT, Window, key as path,
    verify,
};
use forging::{
    Part, SUITE, assert_refused, get, index, key, list, list_inner, list_leaf, list_stub, map_inner, map_leaf,
    map_stub, number, root, target,
};

#[test]
fn element_measure_must_be_positive_and_below_2_to_the_53() {
    let honest = list_leaf(SUM_LIMIT - 1, &target(1));
    assert_eq!(index(&honest, 0).expect("an element").size, Some(SUM_LIMIT - 1));
    for measure in [SUM_LIMIT, SUM_LIMIT + 1, (1 << 63) - 1] {
        assert_refused(index(&list_leaf(measure, &target(1)), 0), "2^53");
    }
    assert_refused(index(&list_leaf(0, &target(1)), 0), "measure 0");
}

#[test]
fn counts_and_measures_must_sum_to_less_than_2_to_the_53() {
    let half = SUM_LIMIT / 2;
    let honest = list_inner([list_stub(half, half), list_stub(half - 1, half - 1)]);
    let absent = index(&honest, u64::MAX).expect("the root node shows the length");
    assert_eq!((absent.length, absent.target), (SUM_LIMIT - 1, None));
    assert_refused(index(&list_inner([list_stub(half, 1), list_stub(half, 1)]), u64::MAX), "2^53");
    assert_refused(index(&list_inner([list_stub(1, half), list_stub(1, half)]), u64::MAX), "2^53");
    let map = |counts: [u64; 2]| map_inner(9, &[0x62, 0], counts.map(map_stub));
    assert_eq!(get(&map([half, half - 1]), &key("a")), Ok(None));
    assert_refused(get(&map([half, half]), &key("a")), "2^53");
}

#[test]
fn list_proof_deeper_than_53_nodes_is_refused() {
    // In a list of 2^53 - 1 elements, the left subtrees on the path to element 0 hold 2^52, 2^51, ..., 1 elements.
    let leaf = (0..52).fold(list_leaf(1, &target(1)), |below, i| list_inner([below, list_stub(1 << i, 1 << i)]));
    let whole = list_inner([leaf, list_stub((1 << 52) - 1, (1 << 52) - 1)]);
    let found = index(&whole, 0).expect("the first element");
    assert_eq!((found.target, found.length), (Some(target(1)), SUM_LIMIT - 1));
    let deeper = list_inner([whole, list_stub(1, 1)]);
    assert!(index(&deeper, 0).is_err());
}

#[test]
fn branching_bit_past_the_longest_key_is_refused() {
    let prefix = vec![b'x'; path::MAX_KEY];
    let sides = || [map_stub(1), map_stub(1)];
    let last = u64::from(path::MAX_BITS) - 1;
    let mut honest = prefix.clone();
    honest[path::MAX_KEY - 1] &= 0xfe;
    // No valid key continues below this bit, but the lookup diverges from the prefix earlier and does not check that.
    assert_eq!(get(&map_inner(last, &honest, sides()), &key("a")), Ok(None));
    assert_refused(get(&map_inner(last + 1, &prefix, sides()), &key("a")), "past the longest key");
    assert_eq!(get(&map_inner(8, b"x", sides()), &key("a")), Ok(None));
}

#[test]
fn leaf_key_longer_than_the_longest_path_is_refused() {
    let leaf = |key: &[u8]| map_leaf(key, 0, target(1).as_bytes());
    let honest = key(&"x".repeat(path::MAX_TEXT));
    assert_eq!(get(&leaf(honest.as_bytes()), &honest), Ok(Some(target(1))));
    // Each is one byte of text too long: letters only, with an escaped zero byte, with a separator.
    let letters = vec![b'x'; path::MAX_TEXT - 1];
    for end in [&b"xx\0\0"[..], b"x\0\xff\0\0", b"\0\x01x\0\0"] {
        assert_refused(get(&leaf(&[&letters[..], end].concat()), &key("a")), "4,096 bytes of text");
    }
    assert_refused(get(&leaf(&vec![b'x'; path::MAX_KEY + 1]), &key("a")), "8,194 bytes");
    // Below an inner node, the bytes of the path count too.
    let below = map_leaf(&vec![b'x'; path::MAX_KEY + 1], 9, target(1).as_bytes());
    assert_refused(list(&map_inner(8, b"x", [below, map_stub(1)])), "8,194 bytes");
}

#[test]
fn leaf_key_that_ends_inside_its_parents_prefix_is_refused() {
    // The parent's prefix is the key "a" plus three bits, so the leaf below it cannot have the key "a".
    let whole = key("a");
    let forged = map_inner(27, &[0x61, 0, 0, 0], [map_leaf(whole.as_bytes(), 28, target(1).as_bytes()), map_stub(1)]);
    assert_refused(list(&forged), "tail shorter");
    assert_refused(get(&forged, &whole), "below a whole key");
}

#[test]
fn descent_past_the_end_of_the_key_is_refused() {
    let (here, below) = (key("a"), [0x61, 0, 0, 0x40]);
    let forged = map_inner(24, &[0x61, 0, 0], [map_stub(1), map_leaf(&below, 25, target(1).as_bytes())]);
    assert_refused(list(&forged), "bytes follow the terminator");
    assert_refused(get(&forged, &here), "below a whole key");
    let forged = map_inner(24, &[0x61, 0, 0], [map_stub(1), map_stub(1)]);
    assert_refused(get(&forged, &here), "below a whole key");
    assert_eq!(get(&forged, &key("b")), Ok(None));
}

#[test]
fn diff_with_a_node_below_a_whole_key_is_refused() {
    let leaf = map_leaf(key("a").as_bytes(), 0, target(1).as_bytes());
    let below = map_inner(24, &[0x61, 0, 0], [map_stub(1), map_stub(1)]);
    let everything = Window::new::<&str, &str>(&[], None).expect("a window");
    for [a, b] in [[&leaf, &below], [&below, &leaf]] {
        let roots = [a, b].map(|part| root(Kind::Map, part));
        let proofs = [&a.proof[..], &b.proof];
        let outcome = verify::diff([&roots[0], &roots[1]], &everything, 10, proofs, verify::WIDE_PROOF_LIMIT);
        assert_refused(outcome, "below a whole key");
    }
}

#[test]
fn insert_into_a_map_of_the_maximum_count_is_refused() {
    let add = MapChange { key: key("a"), before: None, after: Some(target(1)) };
    let changes = MapChanges::new(vec![add]).expect("a change");
    let insert = |counts: [u64; 2]| {
        let full = map_inner(9, &[0x62, 0], counts.map(map_stub));
        verify::map_changes(&root(Kind::Map, &full), changes.clone(), &full.proof, verify::PROOF_LIMIT)
    };
    let half = SUM_LIMIT / 2;
    assert!(insert([half, half - 2]).is_ok());
    assert_refused(insert([half, half - 1]), "2^53");
}

#[test]
fn replacement_that_exceeds_the_maximum_list_size_is_refused() {
    let (old, other) = (list_leaf(1, &target(1)), list_stub(1, 5));
    let tree = list_inner([old, other]);
    let replace = |size| {
        let change = ListChange { index: 0, before: Some((target(1), Some(1))), after: Some((target(2), size)) };
        let changes = ListChanges::new(vec![change]).expect("a change");
        verify::list_changes(&root(Kind::List, &tree), changes, &tree.proof, verify::PROOF_LIMIT)
    };
    assert!(replace(SUM_LIMIT - 6).is_ok());
    assert_refused(replace(SUM_LIMIT - 5), "2^53");
}

#[test]
fn page_with_stub_fields_out_of_range_is_refused() {
    let tree = map_inner(9, &[0x62, 0], [map_stub(1), map_stub(1)]);
    let page = |fields: [u64; 3]| {
        let stub = &map_stub(1).proof;
        let mut bytes = tree.proof[..tree.proof.len() - 2 * stub.len()].to_vec();
        for _ in 0..2 {
            bytes.extend_from_slice(stub);
            fields.iter().for_each(|n| number(&mut bytes, *n));
        }
        Page::parse(&bytes, Kind::Map, SUITE, &tree.digest)
    };
    assert!(page([255, 65_535, u64::from(u32::MAX)]).is_ok());
    for fields in [[256, 0, 0], [0, 65_536, 0], [0, 0, 1 << 32]] {
        let refused = page(fields).expect_err("out of range");
        assert!(refused.to_string().contains("out of range"), "{refused}");
    }
}

#[test]
fn query_on_a_root_of_the_other_kind_is_a_kind_mismatch() {
    let (map, list) = (map_leaf(key("a").as_bytes(), 0, target(1).as_bytes()), list_leaf(1, &target(1)));
    let window = || Window::new::<&str, &str>(&[], None).expect("a window");
    let add = MapChange { key: key("b"), before: None, after: Some(target(1)) };
    let append = ListChange { index: 1, before: None, after: Some((target(1), 1)) };
    let (add, append) =
        (MapChanges::new(vec![add]).expect("a change"), ListChanges::new(vec![append]).expect("a change"));
    let (as_map, as_list) = (root(Kind::Map, &list), root(Kind::List, &map));
    let refusals = [
        verify::key(&as_list, &key("a"), &map.proof, 99).err(),
        verify::scan(&as_list, window(), 1, &map.proof, 99).err(),
        verify::map_changes(&as_list, add, &map.proof, 99).err(),
        verify::index(&as_map, 0, &list.proof, 99).err(),
        verify::range(&as_map, 0, None, &list.proof, 99).err(),
        verify::list_changes(&as_map, append, &list.proof, 99).err(),
    ];
    for refusal in refusals {
        assert!(matches!(refusal, Some(Error::Input { code: InputCode::KindMismatch, .. })), "{refusal:?}");
    }
    let honest = root(Kind::Map, &map);
    assert!(verify::scan(&honest, window(), 1, &map.proof, 99).is_ok());
    let zero_limit = verify::scan(&honest, window(), 0, &map.proof, 99).err();
    assert!(matches!(zero_limit, Some(Error::Input { code: InputCode::InvalidRequest, .. })), "{zero_limit:?}");
}

/// Asserts that a proof of a map is refused, as it is read and on the decoded tree.
#[track_caller]
fn assert_map_refused(part: &Part, why: &str) {
    assert_refused(get(part, &key("a")), why);
    assert_refused(list(part), why);
}

/// The same tree with other bytes as its proof.
fn with_proof(part: &Part, proof: Vec<u8>) -> Part {
    Part { proof, ..part.clone() }
}

/// The map of "a" alone, and the list of one element.
fn one() -> [Part; 2] {
    [map_leaf(key("a").as_bytes(), 0, target(1).as_bytes()), list_leaf(1, &target(1))]
}

#[test]
fn truncated_proof_is_refused() {
    let [leaf, element] = one();
    let fork = map_inner(9, &[0x62, 0], [map_stub(1), map_stub(1)]);
    let pair = list_inner([element.clone(), list_stub(1, 1)]);
    assert_eq!(get(&fork, &key("a")), Ok(None));
    for whole in [&leaf, &fork] {
        (0..whole.proof.len())
            .for_each(|n| assert_map_refused(&with_proof(whole, whole.proof[..n].to_vec()), "end inside"));
    }
    for whole in [&element, &pair] {
        (0..whole.proof.len()).for_each(|n| {
            assert_refused(index(&with_proof(whole, whole.proof[..n].to_vec()), 0), "end inside");
        });
    }
}

#[test]
fn bytes_after_the_tree_are_refused() {
    let [leaf, element] = one();
    for byte in [0, 3, 0xff] {
        assert_map_refused(&with_proof(&leaf, [&leaf.proof[..], &[byte]].concat()), "bytes follow");
        assert_refused(index(&with_proof(&element, [&element.proof[..], &[byte]].concat()), 0), "bytes follow");
    }
}

#[test]
fn long_varint_is_refused() {
    let [leaf, element] = one();
    for (long, why) in [(&[0x84, 0][..], "minimal"), (&[0x84, 0x80, 0], "minimal"), (&[0xff; 9], "9 bytes")] {
        let tail = [&leaf.proof[..1], long, &leaf.proof[2..]].concat();
        assert_map_refused(&with_proof(&leaf, tail), why);
        let measure = [&element.proof[..1], long, &element.proof[2..]].concat();
        assert_refused(index(&with_proof(&element, measure), 0), why);
    }
    // The digests are those of the same numbers in minimal form, so only the form is wrong. Numbers of up to three bytes have
    // a path of their own.
    for count in [1, 127, 128, 300, 16_383, 16_384, 2_097_151, 2_097_152, SUM_LIMIT - 2] {
        let fork = map_inner(9, &[0x62, 0], [map_stub(count), map_stub(1)]);
        assert_eq!(get(&fork, &key("a")), Ok(None), "{count}");
        let (mut at, mut long) = (5, fork.proof.clone());
        while long[at] >= 0x80 {
            at += 1;
        }
        long[at] |= 0x80;
        long.insert(at + 1, 0);
        assert_map_refused(&with_proof(&fork, long), "minimal");
        let pair = list_inner([list_stub(1, count), list_stub(1, 1)]);
        assert_eq!(index(&pair, 9).map(|shorter| shorter.length), Ok(2), "{count}");
    }
}

#[test]
fn stray_bits_are_refused() {
    // Bit 9 of the keys below differs; the bits of the prefix after it are 0.
    let honest = map_inner(9, &[0x62, 0], [map_stub(1), map_stub(1)]);
    for stray in [1, 0x40] {
        let mut label = honest.proof.clone();
        label[3] |= stray;
        assert_map_refused(&with_proof(&honest, label), "a stray bit in a label");
    }
    // The leaf's own bits start at bit 9, in the second byte of its key.
    let (here, below) = (key("a"), &[0x61, 0x80, 0, 0][..]);
    let leaf = map_leaf(here.as_bytes(), 9, target(1).as_bytes());
    let fork = map_inner(8, b"a", [leaf.clone(), map_stub(1)]);
    assert_eq!(get(&fork, &here), Ok(Some(target(1))), "{below:?}");
    let mut tail = fork.proof.clone();
    tail[5] |= 0x80;
    assert_map_refused(&with_proof(&fork, tail), "a stray bit in a tail");
}

#[test]
fn unknown_node_tag_is_refused() {
    let [leaf, element] = one();
    for tag in [4, 5, 0x10, 0x11, 0x12, 0x13, 0x14, 0xff] {
        assert_map_refused(&with_proof(&leaf, [&[tag], &leaf.proof[1..]].concat()), "unknown node tag");
        let sibling = map_inner(9, &[0x62, 0], [map_stub(1), map_stub(1)]);
        let mut forged = sibling.proof.clone();
        forged[4] = tag;
        assert_map_refused(&with_proof(&sibling, forged), "unknown node tag");
    }
    for tag in [0, 1, 2, 3, 0x14, 0xff] {
        assert_refused(index(&with_proof(&element, [&[tag], &element.proof[1..]].concat()), 0), "unknown node tag");
    }
}

#[test]
fn empty_node_inside_a_tree_is_refused() {
    let empty = |tag: u8| Part { count: 0, measure: 0, digest: SUITE.digest(&[tag]), proof: vec![tag] };
    assert_eq!(get(&empty(0), &key("a")), Ok(None));
    assert_eq!(index(&empty(0x10), 0).map(|shorter| shorter.length), Ok(0));
    // The descent to "a" ends at the empty node, or passes it on the way up.
    for sides in [[empty(0), map_stub(1)], [map_stub(1), empty(0)]] {
        let forged = map_inner(8, b"a", sides);
        assert!(get(&forged, &key("a")).is_err() && list(&forged).is_err());
    }
    let followed = map_inner(8, b"a", [empty(0), map_stub(1)]);
    let stubs = [map_stub(1).proof, map_stub(1).proof].concat();
    assert_map_refused(&with_proof(&followed, [&followed.proof[..], &stubs].concat()), "an empty node inside a tree");
    for sides in [[empty(0x10), list_leaf(1, &target(1))], [list_leaf(1, &target(1)), empty(0x10)]] {
        assert_refused(index(&list_inner(sides), 0), "an empty node inside a tree");
    }
}

#[test]
fn list_of_another_shape_is_refused() {
    let leaf = |n: u8| list_leaf(1, &target(n));
    let pair = || list_inner([leaf(1), leaf(2)]);
    assert_eq!(index(&list_inner([list_stub(2, 2), leaf(3)]), 2).map(|found| found.target), Ok(Some(target(3))));
    for sides in [[leaf(3), list_stub(2, 2)], [list_stub(3, 3), leaf(3)], [list_stub(1, 1), pair()]] {
        assert_refused(index(&list_inner(sides), 2), "another shape");
    }
}

#[test]
fn invalid_key_is_refused() {
    let leaf = |key: &[u8]| map_leaf(key, 0, target(1).as_bytes());
    assert_eq!(get(&leaf(b"b\0\xff\0\0"), &key("a")), Ok(None));
    for (forged, why) in [
        (&b"b"[..], "no terminator"),
        (b"b\0", "invalid escape"),
        (b"b\0\x02\0\0", "invalid escape"),
        (b"\0\0", "empty segment"),
        (b"b\0\x01\0\0", "empty segment"),
        (b"\0\x01b\0\0", "empty segment"),
        (b"b\0\0c\0\0", "bytes follow"),
        (b"b/c\0\0", "'/'"),
        (b"\xc3\xa9/\0\0", "'/'"),
        (b"b\xff\0\0", "UTF-8"),
        (b"b\xed\xa0\x80\0\0", "UTF-8"),
        (b"b\xc3\0\0", "UTF-8"),
    ] {
        assert_map_refused(&leaf(forged), why);
    }
    assert_refused(list(&leaf(b"")), "no terminator");
}

#[test]
fn invalid_target_is_refused() {
    let digest = [7; 32];
    let cid = |head: &[u8], digest: &[u8]| [head, digest].concat();
    let valid = cid(&[1, 0x55, 0x12, 32], &digest);
    for target in [valid.clone(), cid(&[1, 0x90, 0xe2, 0xc0, 1, 0x12, 32], &digest), vec![1, 0x55, 0, 0]] {
        let leaf = map_leaf(key("b").as_bytes(), 0, &target);
        assert_eq!((get(&leaf, &key("a")), get(&leaf, &key("b"))), (Ok(None), Ok(Cid::from_bytes(&target).ok())));
    }
    for forged in [
        Vec::new(),
        valid[..35].to_vec(),
        [&valid[..], &[0]].concat(),
        cid(&[2, 0x55, 0x12, 32], &digest),
        cid(&[0x12, 32], &digest),
        cid(&[1, 0x55, 0x11, 20], &digest[..20]),
        cid(&[1, 0x55, 0x12, 31], &digest[..31]),
        cid(&[1, 0xd5, 0, 0x12, 32], &digest),
        // Roots of another version, kind or suite, or with another hash function than their suite's.
        cid(&[1, 0x90, 0xa2, 0xc0, 1, 0x12, 32], &digest),
        cid(&[1, 0x90, 0xe6, 0xc0, 1, 0x12, 32], &digest),
        cid(&[1, 0x92, 0xe2, 0xc0, 1, 0x12, 32], &digest),
        cid(&[1, 0x90, 0xe2, 0xc0, 1, 0x1e, 32], &digest),
        cid(&[1, 0x55, 0, 0x81, 1], &[7; 129]),
    ] {
        assert_map_refused(&map_leaf(key("b").as_bytes(), 0, &forged), "not a valid CID");
        assert_refused(get(&map_leaf(key("a").as_bytes(), 0, &forged), &key("a")), "not a valid CID");
    }
}

#[test]
fn refusal_of_a_malformed_proof_names_the_byte() {
    let [leaf, element] = one();
    let fork = map_inner(9, &[0x62, 0], [map_stub(1), map_stub(1)]);
    let past = map_inner(u64::from(path::MAX_BITS), &vec![b'x'; path::MAX_KEY], [map_stub(1), map_stub(1)]);
    let stray = [&fork.proof[..3], &[1], &fork.proof[4..]].concat();
    let bad_key = map_leaf(b"b/\0\0", 0, target(1).as_bytes());
    let bad_target = map_leaf(b"b\0\0", 0, &[2; 36]);
    let zero = [&fork.proof[..5], &[0], &fork.proof[6..]].concat();
    for (part, at) in [
        (with_proof(&leaf, [&leaf.proof[..], &[0]].concat()), leaf.proof.len()),
        (with_proof(&leaf, vec![9]), 0),
        (with_proof(&leaf, Vec::new()), 0),
        (with_proof(&fork, stray), 2),
        (with_proof(&fork, zero), 5),
        (past, 0),
        (bad_key, 2),
        (bad_target, 6),
    ] {
        let refused = list(&part);
        assert!(matches!(refused, Err(Error::Proof { at: Some(there), .. }) if there == at), "{at}: {refused:?}");
    }
    let refused = index(&with_proof(&element, [&element.proof[..], &[0]].concat()), 0);
    assert!(matches!(refused, Err(Error::Proof { at: Some(at), .. }) if at == element.proof.len()), "{refused:?}");
}
