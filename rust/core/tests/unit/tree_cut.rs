use super::*;
use crate::id::suite::Digest;
use crate::tree::arena::{Label, Tail};
use crate::tree::node::Summary;

#[test]
fn a_child_takes_the_bytes_of_its_node_or_of_its_stub() {
    let labels = [(0, 0), (9, 9), (40, 13), (0, 1), (7, 9), (13, 40)];
    assert_eq!(labels.map(|(floor, extent)| own_len(floor, extent)), [0, 0, 0, 1, 2, 4]);
    let sum = Summary { count: 300, measure: 1 << 20, digest: Digest::ZERO };
    let mut node = Node::new(&sum, State::Empty);
    (node.height, node.weight) = (200, 20_000);
    let [map, list] = [Kind::Map, Kind::List].map(|kind| Child::of(&node, sum.measure, kind, 13, 400));
    assert_eq!((map.height, map.kept, map.cut()), (200, 4 + 49 + 20_000, 1 + 2 + 32 + 2 + 3 + 2));
    assert_eq!((list.kept, list.cut()), (4 + 20_000, 1 + 2 + 3 + 32 + 2 + 3 + 2));
    assert_eq!([map.own_bytes(), list.own_bytes()], [49, 0]);
    assert_eq!([Kind::Map, Kind::List].map(|kind| leaf_weight(kind, 300, 36)), [37, 39]);
}

#[test]
fn children_of_a_lower_height_stay_if_they_are_tiny_and_all_fits() {
    let decided = |children: [(u8, u32); 2]| {
        // A stub of 40 bytes: 1, 32 and 1, and 2 each for the count, the weight and the extent.
        let child = |(height, kept)| Child { height, weight: 128, extent: 128, count: 128, measure_len: 0, kept };
        let Decision { keep, height, weight } = decide(children.map(child));
        (keep, height, weight)
    };
    assert_eq!(decided([(1, 5000), (0, 199)]), ([true, true], 1, 5199));
    assert_eq!(decided([(1, 5000), (0, 200)]), ([true, false], 1, 5040));
    assert_eq!(decided([(0, 150), (1, 8042)]), ([true, true], 1, 8192));
    assert_eq!(decided([(0, 151), (1, 8042)]), ([false, true], 1, 8082));
    assert_eq!(decided([(1, 5000), (1, 3192)]), ([true, true], 1, 8192));
    assert_eq!(decided([(1, 5000), (1, 3193)]), ([false, false], 2, 80));
    assert_eq!(decided([(1, 199), (1, 8000)]), ([true, false], 2, 239));
    assert_eq!(decided([(1, 8000), (1, 199)]), ([false, true], 2, 239));
}
#[test]
fn a_page_is_above_a_child_of_its_height_only_if_that_child_was_cut() {
    let height = |stub: u8, kept: u8| {
        let mut arena = Arena::default();
        let sum = Summary { count: 1, measure: 0, digest: Digest::ZERO };
        let mut add = |state, height| {
            let id = arena.push(Node::new(&sum, state), sum.measure);
            arena.node_mut(id).height = height;
            id
        };
        let left = add(State::Stub { extent: 8, ordinal: 0 }, stub);
        let right = add(State::Leaf { tail: Tail::NONE, target: 0, target_len: 0 }, kept);
        let top = add(State::Inner { bit: 0, label: Label::NONE, left, right }, 0);
        measure(&mut arena, Kind::Map, top);
        arena.node(top).height
    };
    assert_eq!([height(1, 0), height(0, 1), height(1, 1)], [2, 1, 2]);
}

#[test]
fn a_page_has_the_bytes_of_its_children_from_the_bit_after_its_own_on() {
    let weight = |bit| {
        let mut arena = Arena::default();
        let mut add = |state| {
            let id = arena.push(Node::new(&Summary { count: 1, measure: 0, digest: Digest::ZERO }, state), 0);
            arena.node_mut(id).weight = 10;
            id
        };
        let left = add(State::Stub { extent: 24, ordinal: 0 });
        let right = add(State::Leaf { tail: Tail { offset: 0, start: 0, len: 3 }, target: 0, target_len: 0 });
        let top = add(State::Inner { bit, label: Label::NONE, left, right });
        measure(&mut arena, Kind::Map, top);
        u32::from(arena.node(top).weight)
    };
    let stub = 1 + 1 + 32 + 1 + 1 + 1;
    assert_eq!([6, 7, 8, 15].map(weight), [3, 2, 2, 1].map(|own| stub + HEAD + own + 10));
}
