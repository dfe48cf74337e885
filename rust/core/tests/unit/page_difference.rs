use proptest::prelude::*;

use super::*;

const BASE: Digest = Digest([7; 32]);
const OTHER: Digest = Digest([8; 32]);

/// A page, and what a few changes make of it, one after the other.
fn versions() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let page = prop::collection::vec(0u8..4, 0..300);
    let change = (any::<prop::sample::Index>(), 0usize..40, prop::collection::vec(0u8..4, 0..40));
    (page, prop::collection::vec(change, 1..8)).prop_map(|(page, changes)| {
        let mut versions = vec![page];
        for (at, left_out, inserted) in changes {
            let mut next = versions[versions.len() - 1].clone();
            let at = at.index(next.len() + 1);
            let end = (at + left_out).min(next.len());
            next.splice(at..end, inserted);
            versions.push(next);
        }
        versions
    })
}

proptest! {
    #[test]
    fn makes_the_page_of_its_base(versions in versions()) {
        let (old, new) = (&versions[0], &versions[versions.len() - 1]);
        let difference = PageDifference::between(&BASE, old, new);
        prop_assert_eq!(&difference.apply(old), &Some(new.clone()));
        prop_assert_eq!(difference.base(), BASE);
        prop_assert_eq!(PageDifference::read(difference.as_ref()), Some(difference));
    }

    #[test]
    fn joins_the_differences_of_a_history(versions in versions()) {
        let mut joined = PageDifference::between(&BASE, &versions[0], &versions[0]);
        for pair in versions.windows(2) {
            joined = joined.join(&PageDifference::between(&OTHER, &pair[0], &pair[1]));
            prop_assert_eq!(joined.apply(&versions[0]), Some(pair[1].clone()));
            prop_assert_eq!(joined.base(), BASE);
        }
    }

    #[test]
    fn refuses_or_applies_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..120), base in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Some(difference) = PageDifference::read(&bytes) {
            let made = difference.apply(&base);
            prop_assert!(made.is_none_or(|made| made.len() <= MAX_PAGE));
            let _ = difference.join(&difference).apply(&base);
        }
    }
}

#[test]
fn copies_what_lies_between_two_digests() {
    let old = [vec![0; 100], vec![1; 32], vec![2; 500], vec![3; 32], vec![4; 100]].concat();
    let new = [vec![0; 100], vec![9; 32], vec![2; 500], vec![8; 32], vec![4; 100]].concat();
    let difference = PageDifference::between(&BASE, &old, &new);
    assert_eq!(difference.as_ref().len(), 32 + (1 + 1 + 1 + 32) + (2 + 1 + 1 + 32));
    assert_eq!(difference.apply(&old), Some(new));
}

#[test]
fn of_the_same_page_is_empty() {
    assert_eq!(PageDifference::between(&BASE, b"page", b"page").as_ref(), BASE.0);
}

#[test]
fn refuses_malformed_bytes() {
    let splice = |bytes: &[u8]| [&BASE.0[..], bytes].concat();
    for bytes in [
        BASE.0[..31].to_vec(),
        splice(&[0]),
        splice(&[0, 0, 1]),
        splice(&[0x80, 0x00, 0, 0]),
        splice(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]),
    ] {
        assert_eq!(PageDifference::read(&bytes), None, "{bytes:?}");
    }
}

#[test]
fn does_not_apply_to_a_shorter_page() {
    let difference = PageDifference::between(&BASE, &[1; 100], &[&[1; 100][..], b"end"].concat());
    assert_eq!(difference.apply(&[1; 99]), None);
}
