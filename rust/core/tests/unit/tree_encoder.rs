//! Digests are hashes of the encodings.

use super::*;
use crate::key::MAX_KEY;
use crate::tree::node::{MapInner, MapLeaf, SUM_LIMIT, bytes};

#[test]
fn digests_are_hashes_of_the_encodings() {
    let sum = |count, byte| Summary { count, measure: count, digest: Digest([byte; 32]) };
    let [left, right] = [sum(1, 3), sum(SUM_LIMIT - 1, 5)];
    let key: Vec<u8> = (0..MAX_KEY).map(|i| i as u8 | 1).collect();
    for suite in Suite::ALL {
        let mut encoder = Encoder::new(suite);
        for len in (0..400).chain([MAX_KEY]).rev() {
            let (key, target) = (&key[..len], vec![9; 1 + len % MAX_LEN]);
            encoder.put(0, key);
            assert_eq!(encoder.path(len), key);
            let leaf = bytes(&MapLeaf { key, target: &target });
            assert_eq!(encoder.map_leaf(len, &target), suite.digest(&leaf), "{len}");
            for bit in (8 * len as u32).saturating_sub(8)..8 * len as u32 {
                encoder.put(0, key);
                let inner = bytes(&MapInner { bit, path: &key[..bit.div_ceil(8) as usize], children: [&left, &right] });
                assert_eq!(encoder.map_inner(bit, &left, &right), suite.digest(&inner), "{bit}");
            }
        }
        let list = bytes(&ListInner { children: [&left, &right] });
        assert_eq!(encoder.list_inner(&left, &right), suite.digest(&list));
        assert_eq!(encoder.map_empty(), suite.digest(&[0]));
    }
}

#[test]
fn a_path_that_is_longer_than_the_buffer_makes_it_grow() {
    let key: Vec<u8> = (0..1200).map(|i| i as u8 | 1).collect();
    for len in 0..key.len() {
        let mut encoder = Encoder::new(Suite::Sha2_256);
        encoder.put(0, &key[..len]);
        assert_eq!(encoder.path(len), &key[..len]);
        let leaf = bytes(&MapLeaf { key: &key[..len], target: &[9; MAX_LEN] });
        assert_eq!(encoder.map_leaf(len, &[9; MAX_LEN]), Suite::Sha2_256.digest(&leaf), "{len}");
    }
}
