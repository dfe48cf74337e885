use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keys_are_sorted_as_their_bytes_are(
        prefix in prop::sample::select(vec!["", "a\u{0}", "users/"]),
        ends in prop::collection::vec("[a\u{0}\u{1}b]{1,11}", 1..40),
    ) {
        let key = |end| Key::from_text(&format!("{prefix}{end}")).expect("a path");
        let keys: Vec<Key> = ends.iter().map(key).collect();
        let mut expected: Vec<u32> = (0..keys.len() as u32).collect();
        expected.sort_by_key(|&place| keys[place as usize].as_bytes());
        prop_assert_eq!(sort(&keys.into_iter().collect()), expected);
    }
}
