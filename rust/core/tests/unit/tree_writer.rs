use super::*;
use crate::id::suite::Digest;
use crate::tree::arena::Node;
use crate::tree::node::Summary;

#[test]
fn stubs_of_small_and_large_subtrees_have_one_form() {
    let digest = Digest(std::array::from_fn(|i| i as u8 + 1));
    for (kind, tag) in [(Kind::Map, 0x03), (Kind::List, 0x13)] {
        for count in [1, 2, 0x7e, 0x7f, 0x80, 0x81, 0xff, 0x100, 0x1234, 0x3fff, 0x4000, 0x4001, (1 << 53) - 1] {
            let mut expected = vec![0xee, tag];
            varint::write(&mut expected, count);
            if kind == Kind::List {
                varint::write(&mut expected, 3 * count);
            }
            expected.extend_from_slice(&digest.0);
            let (mut out, mut arena) = (vec![0xee], Arena::default());
            let sum = Summary { count, measure: 3 * count, digest };
            let id = arena.push(Node::new(&sum, State::Stub { extent: 0, ordinal: 0 }), sum.measure);
            write_stub(&mut out, kind, &arena, id);
            assert_eq!(out, expected, "{kind:?}, {count}");
        }
    }
}
