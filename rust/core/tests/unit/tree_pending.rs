use super::*;
use crate::tree::node::{ListInner, MapInner, SUM_LIMIT};

#[test]
fn the_longest_nodes_without_a_key_or_target_have_room() {
    let most = Summary { count: SUM_LIMIT - 1, measure: SUM_LIMIT - 1, digest: Digest::ZERO };
    let (children, below) = ([&most; 2], |kind| Below::of(kind, [KNOWN; 2], &most));
    for suite in [Suite::Sha2_256, Suite::Blake3] {
        let mut encoder = Encoder::new(suite);
        let expected = [encoder.list_inner(&most, &most), encoder.map_inner(0, &most, &most)];
        let mut pending = PendingNodes::new(suite);
        for _ in 0..3 {
            pending.encode((), &ListInner { children }, 0, below(Kind::List));
            pending.encode((), &MapInner { bit: 0, path: &[], children }, 0, below(Kind::Map));
        }
        pending.hash();
        let digests: Vec<_> = pending.hashed().map(|((), _, digest)| digest).collect();
        assert_eq!(digests, expected.repeat(3));
    }
}

#[test]
fn the_longest_node_of_each_length_of_a_prefix_has_room() {
    // The padding takes up to a block and eight bytes more than the encoding, which depends on its length.
    let most = Summary { count: SUM_LIMIT - 1, measure: SUM_LIMIT - 1, digest: Digest::ZERO };
    let path = [0; lanes::BLOCK_BYTES];
    for len in 0..path.len() {
        let mut pending = PendingNodes::new(Suite::Sha2_256);
        let node = MapInner { bit: 8 * len as u32, path: &path[..len], children: [&most; 2] };
        pending.encode((), &node, len, Below::of(Kind::Map, [KNOWN; 2], &most));
        pending.hash();
        let mut encoder = Encoder::new(Suite::Sha2_256);
        encoder.put(0, &path[..len]);
        let expected = encoder.map_inner(8 * len as u32, &most, &most);
        assert_eq!(pending.digest(0), Some(expected), "a prefix of {len} bytes");
    }
}
