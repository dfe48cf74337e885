use super::*;
use crate::tree::node::{ListInner, ListLeaf, MapInner, MapLeaf, bytes};

fn sum(count: u64, measure: u64) -> Summary {
    Summary { count, measure, digest: Digest([7; 32]) }
}

fn target() -> Vec<u8> {
    [&[1, 0x55, 0x12, 32][..], &[9; 32]].concat()
}

#[test]
fn encodings_decode_and_truncated_or_extended_ones_do_not() {
    let (key, target) = (b"docs\0\x01readme\0\0", target());
    let (l, r) = (sum(2, 2), sum(1, 1));
    let inner = MapInner { bit: 11, path: &[0xff, 0xff], children: [&l, &r] };
    let nodes = [
        (Kind::Map, vec![0]),
        (Kind::List, vec![0x10]),
        (Kind::Map, bytes(&MapLeaf { key, target: &target })),
        (Kind::Map, bytes(&inner)),
        (Kind::List, bytes(&ListLeaf { measure: 300, target: &target })),
        (Kind::List, bytes(&ListInner { children: [&sum(2, 9), &sum(1, 1 << 40)] })),
    ];
    for (kind, node) in nodes {
        assert!(Block::read(kind, &node).is_ok(), "{node:?}");
        for cut in 0..node.len() {
            assert!(Block::read(kind, &node[..cut]).is_err(), "{node:?} cut at {cut}");
        }
        assert!(Block::read(kind, &[&node[..], &[0]].concat()).is_err());
        let other = if kind == Kind::Map { Kind::List } else { Kind::Map };
        assert!(Block::read(other, &node).is_err());
    }
    let read = bytes(&inner);
    let Ok(Block::Inner { bit: 11, prefix: &[0xff, 0xe0], children }) = Block::read(Kind::Map, &read) else {
        panic!("another node was read");
    };
    assert_eq!(children, [l, r]);
}

#[test]
fn amounts_and_path_follow_from_the_encoding() {
    let (key, target, children) = (&b"a\0\0"[..], &target(), [sum(3, 40), sum(2, 5)]);
    let leaf = Block::Leaf { key, measure: 7, target };
    let inner = Block::Inner { bit: 11, prefix: &[0xff, 0xe0], children };
    assert_eq!([Block::Empty, leaf, inner].map(|block| block.amounts()), [(0, 0), (1, 7), (5, 45)]);
    assert_eq!([leaf, inner].map(|block| block.own()), [(key, 24), (&[0xff, 0xe0], 11)]);
    assert_eq!(Block::Empty.own(), (&[][..], 0));
}

#[test]
fn nodes_that_cannot_occur_in_a_tree_are_rejected() {
    let target = target();
    let list = |l, r| bytes(&ListInner { children: [&l, &r] });
    let refused = [
        (Kind::List, list(sum(1, 1), sum(2, 2)), "another shape"),
        (Kind::List, list(sum(0, 1), sum(1, 1)), "of 0"),
        (Kind::List, list(sum(1, 1), sum(1, 0)), "of 0"),
        (Kind::List, list(sum(1 << 52, 1), sum(1 << 52, 1)), "sum to 2^53"),
        (Kind::List, list(sum(1, 1 << 52), sum(1, 1 << 52)), "sum to 2^53"),
        (Kind::Map, [&[1, 0x83, 0x40], &[b'a'; MAX_KEY + 1][..]].concat(), "longer than 8,194 bytes"),
        (Kind::List, [&[0x11, 1, 0xc8, 1], &[9; 200][..]].concat(), "longer than any CID"),
        (Kind::List, bytes(&ListLeaf { measure: 1 << 53, target: &target }), "2^53"),
        (Kind::List, bytes(&ListLeaf { measure: 1, target: &target[..35] }), "not a valid CID"),
        (Kind::Map, bytes(&MapLeaf { key: b"a/b\0\0", target: &target }), "'/'"),
        (Kind::Map, bytes(&MapInner { bit: MAX_BITS, path: &[0; MAX_KEY], children: [&sum(1, 1); 2] }), "longest"),
        (Kind::Map, [&[2, 1, 0x40, 1], &[7; 32][..], &[1], &[7; 32]].concat(), "stray"),
        (Kind::Map, vec![3], "not a node"),
    ];
    for (kind, node, why) in refused {
        let error = Block::read(kind, &node).expect_err(why);
        assert!(error.contains(why), "{error}");
    }
}
