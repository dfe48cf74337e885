use multibase::Base;
use proptest::prelude::*;

use super::*;

fn target(i: usize) -> Cid {
    Cid::from_bytes(&[&[1, 0x55, 0x12, 32][..], &[i as u8; 32]].concat()).expect("a CID")
}

fn sorted(keys: &[Key]) -> Result<Vec<(Vec<u8>, Cid)>> {
    let mut arcs = Arcs::default();
    keys.iter().enumerate().for_each(|(i, key)| arcs.push(key, &target(i)));
    arcs.sort()?;
    Ok(arcs.iter().map(|(key, target)| (key.to_vec(), Cid::from_bytes(target).expect("a CID"))).collect())
}

/// Keys with long common prefixes that end at any distance from them and contain zero bytes; few are duplicates.
fn keys() -> impl Strategy<Value = Vec<Key>> {
    let segment = prop_oneof![Just("a".repeat(30)), Just("\0".repeat(9)), "[ab]{1,3}", "a{1,20}b?", "[\0ab]{1,9}"];
    let path = prop::collection::vec(segment, 1..5).prop_map(|segments| Key::from_segments(&segments));
    prop::collection::vec(path.prop_map(|key| key.expect("a path")), 0..200)
}

#[test]
fn targets_in_text_form_become_their_bytes_in_any_base() {
    let long = Cid::from_bytes(&[&[1, 0x71, 0x13, 64][..], &[9; 64]].concat()).expect("a CID");
    let texts = |cid: &Cid| {
        let bases = [Base::Base16Lower, Base::Base58Btc, Base::Base64];
        bases.map(|base| multibase::encode(base, cid.as_bytes())).into_iter().chain([cid.text()])
    };
    let all: Vec<_> = [target(7), long].iter().flat_map(|cid| texts(cid).map(|text| (text, *cid))).collect();
    let mut arcs = Arcs::default();
    for (i, (text, _)) in all.iter().enumerate() {
        assert!(arcs.push_text(&format!("{i:02}"), text).is_ok(), "{text}");
    }
    let found: Vec<_> = arcs.iter().map(|(_, target)| Cid::from_bytes(target)).collect();
    assert_eq!(found, all.iter().map(|(_, cid)| Ok(*cid)).collect::<Vec<_>>());
}

#[test]
fn keys_that_diverge_one_at_a_time_after_long_prefixes_are_sorted() {
    let key = |n: usize| Key::from_text(&format!("{}b", "a".repeat(13 * n))).expect("a path");
    let mut keys: Vec<_> = (0..300).map(|n| key(n * 7 % 300)).collect();
    let found = sorted(&keys).expect("distinct keys");
    // An "a" where another key has its "b" comes first.
    let wanted: Vec<_> = (0..300).rev().map(|n| key(n).as_bytes().to_vec()).collect();
    assert_eq!(found.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), wanted);
    keys.push(key(299));
    assert!(sorted(&keys).is_err());
}

proptest! {
    #[test]
    fn arcs_are_sorted_by_key_and_duplicates_rejected(mut keys in keys()) {
        let distinct: std::collections::BTreeSet<_> = keys.iter().cloned().collect();
        prop_assert_eq!(sorted(&keys).is_ok(), distinct.len() == keys.len());
        let mut seen = std::collections::BTreeSet::new();
        keys.retain(|key| seen.insert(key.clone()));
        let mut wanted: Vec<_> =
            keys.iter().enumerate().map(|(i, key)| (key.as_bytes().to_vec(), target(i))).collect();
        wanted.sort_by(|a, b| a.0.cmp(&b.0));
        prop_assert_eq!(sorted(&keys).expect("distinct keys"), wanted);
    }
}
