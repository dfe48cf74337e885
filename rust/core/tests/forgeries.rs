//! Forged proofs under roots that match them: each forgery violates exactly one check.
//!
//! The trees are assembled by hand from the encodings of protocol section 3, so they can contain any value. Each test
//! also verifies a valid tree that differs from the forgery only in the checked property.

use coregw_core::{
    Cid, Digest, Error, InputCode, Key, Kind, ListChange, ListChanges, MapChange, MapChanges, Page, Result, RootCid,
    SUM_LIMIT, Suite, Window, key as path, map, varint, verify,
};

const SUITE: Suite = Suite::Sha2_256;

fn target(n: u8) -> Cid {
    Cid::from_bytes(&[&[1, 0x55, 0x12, 32][..], &[n; 32]].concat()).expect("a CID")
}

fn key(text: &str) -> Key {
    Key::from_text(text).expect("a path")
}

fn number(out: &mut Vec<u8>, n: u64) {
    varint::write(out, n);
}

/// A subtree: the count, measure and digest that its parent hashes, and its bytes in a proof.
#[derive(Clone)]
struct Part {
    count: u64,
    measure: u64,
    digest: Digest,
    proof: Vec<u8>,
}

fn map_leaf(key: &[u8], floor: usize, target: &[u8]) -> Part {
    let (mut encoding, mut proof) = (vec![1], vec![1]);
    let mut tail = key[(floor / 8).min(key.len())..].to_vec();
    if let (Some(first), 1..) = (tail.first_mut(), floor % 8) {
        *first &= 0xff >> (floor % 8);
    }
    for (out, key) in [(&mut encoding, key), (&mut proof, &tail)] {
        number(out, key.len() as u64);
        out.extend_from_slice(key);
        number(out, target.len() as u64);
        out.extend_from_slice(target);
    }
    Part { count: 1, measure: 1, digest: SUITE.digest(&encoding), proof }
}

/// An inner map node at the top of a tree; its prefix is the first `bit` bits of `prefix`.
fn map_inner(bit: u64, prefix: &[u8], sides: [Part; 2]) -> Part {
    let label = &prefix[..bit.div_ceil(8) as usize];
    let (mut encoding, mut proof) = (vec![2], vec![2]);
    for out in [&mut encoding, &mut proof] {
        number(out, bit);
        out.extend_from_slice(label);
    }
    for side in &sides {
        number(&mut encoding, side.count);
        encoding.extend_from_slice(&side.digest.0);
        proof.extend_from_slice(&side.proof);
    }
    let [l, r] = sides;
    Part { count: l.count + r.count, measure: l.count + r.count, digest: SUITE.digest(&encoding), proof }
}

fn map_stub(count: u64) -> Part {
    let digest = Digest([0xab; 32]);
    let mut proof = vec![3];
    number(&mut proof, count);
    proof.extend_from_slice(&digest.0);
    Part { count, measure: count, digest, proof }
}

fn list_leaf(measure: u64, target: &Cid) -> Part {
    let mut encoding = vec![0x11];
    number(&mut encoding, measure);
    number(&mut encoding, target.as_bytes().len() as u64);
    encoding.extend_from_slice(target.as_bytes());
    Part { count: 1, measure, digest: SUITE.digest(&encoding), proof: encoding }
}

fn list_stub(count: u64, measure: u64) -> Part {
    let digest = Digest([0xcd; 32]);
    let mut proof = vec![0x13];
    number(&mut proof, count);
    number(&mut proof, measure);
    proof.extend_from_slice(&digest.0);
    Part { count, measure, digest, proof }
}

fn list_inner(sides: [Part; 2]) -> Part {
    let (mut encoding, mut proof) = (vec![0x12], vec![0x12]);
    for side in &sides {
        number(&mut encoding, side.count);
        number(&mut encoding, side.measure);
        encoding.extend_from_slice(&side.digest.0);
        proof.extend_from_slice(&side.proof);
    }
    let [l, r] = sides;
    let digest = SUITE.digest(&encoding);
    Part { count: l.count + r.count, measure: l.measure.wrapping_add(r.measure), digest, proof }
}

fn root(kind: Kind, part: &Part) -> RootCid {
    RootCid { kind, suite: SUITE, digest: part.digest }
}

fn get(part: &Part, key: &Key) -> Result<Option<Cid>> {
    verify::key(&root(Kind::Map, part), key, &part.proof, verify::PROOF_LIMIT)
}

/// Verifies a listing of the first entry of the map.
fn list(part: &Part) -> Result<map::Listing> {
    let window = Window::new::<&str, &str>(&[], None).expect("a window");
    verify::scan(&root(Kind::Map, part), window, 1, &part.proof, verify::PROOF_LIMIT)
}

fn index(part: &Part, index: u64) -> Result<coregw_core::Element> {
    verify::index(&root(Kind::List, part), index, &part.proof, verify::PROOF_LIMIT)
}

/// Asserts that `outcome` is a proof error whose failed check contains `why`.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(outcome: Result<T>, why: &str) {
    assert!(matches!(&outcome, Err(Error::Proof { check, .. }) if check.contains(why)), "{why}: {outcome:?}");
}

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
