use super::KeyFilter;

fn keys(from: u32, to: u32) -> impl Iterator<Item = [u8; 4]> {
    (from..to).map(u32::to_be_bytes)
}

#[test]
fn every_key_that_was_added_is_held() {
    for bytes in [0, 1, 32, 1000, 1 << 20] {
        let mut filter = KeyFilter::new(bytes);
        keys(0, 5000).for_each(|key| filter.add(&key));
        assert!(keys(0, 5000).all(|key| filter.may_hold(&key)), "{bytes} bytes");
    }
}

#[test]
fn false_claims_are_as_rare_as_the_memory_for_each_key_allows() {
    for (bits, at_most) in [(8, 5_000), (16, 400), (32, 20)] {
        let mut filter = KeyFilter::new(100_000 * bits / 8);
        keys(0, 100_000).for_each(|key| filter.add(&key));
        let claims = keys(100_000, 200_000).filter(|key| filter.may_hold(key)).count();
        assert!(claims <= at_most, "{claims} of 100,000 with {bits} bits for each key");
    }
}

#[test]
fn an_empty_filter_holds_nothing() {
    let filter = KeyFilter::new(64);
    assert!(!keys(0, 1000).any(|key| filter.may_hold(&key)));
}
