use super::*;

const PATH: [u8; 12] = [0x53, 0xa1, 0x7c, 0x0f, 0xe8, 0x91, 0x36, 0xd4, 0x2b, 0x6d, 0xf7, 0x88];

/// The bits of a label as the bytes of the path that it determines, with zeros elsewhere.
fn shown(own: Own<'_>, floor: u32, bit: u32) -> Vec<u8> {
    let from = (floor / 8) as usize;
    let len = if floor == bit { 0 } else { bit.div_ceil(8) as usize - from };
    let mut bytes = match own {
        Own::Word(word) => word.to_be_bytes()[..len].to_vec(),
        Own::Bytes(bytes) => bytes.to_vec(),
    };
    for at in (0..8 * len as u32).filter(|at| !(floor..bit).contains(&(8 * from as u32 + at))) {
        bytes[at as usize / 8] &= !(0x80 >> (at % 8));
    }
    bytes
}

#[test]
fn labels_in_nodes_and_in_the_arena_hold_the_same_bits() {
    for bit in 0..=8 * PATH.len() as u32 {
        for start in 0..=bit.div_ceil(8) {
            let own = &PATH[start as usize..bit.div_ceil(8) as usize];
            let (mut arena, mut copies) = (Arena::default(), Arena::default());
            arena.store(b"other bytes");
            let label = arena.store_label(own, bit);
            assert_eq!(label.offset(bit), (own.len() > 4).then_some(11), "{start}, {bit}");
            assert_eq!(arena.bytes.len() as u32, 11 + Label::stored_len(own.len() as u32));
            let copied = copies.copy_label(&arena, label, bit);
            for floor in (8 * start).min(bit)..=bit {
                let expected = shown(Own::Bytes(arena.label(&label, floor, bit)), floor, bit);
                assert_eq!(shown(arena.own(&label, floor, bit), floor, bit), expected, "{start}, {floor}..{bit}");
                assert_eq!(shown(copies.own(&copied, floor, bit), floor, bit), expected);
                let from = (floor / 8) as usize;
                assert_eq!(expected, shown(Own::Bytes(&PATH[from..from + expected.len()]), floor, bit));
            }
        }
    }
}

#[test]
fn measures_take_memory_only_where_they_are_not_the_counts() {
    let sum = |count, measure| Summary { count, measure, digest: Digest([count as u8; 32]) };
    let stub = State::Stub { extent: 0, ordinal: 0 };
    let push = |arena: &mut Arena, sum: &Summary| arena.push(Node::new(sum, stub), sum.measure);
    let sums = [sum(1, 1), sum(2, 2), sum(3, 30), sum(4, 4), sum(5, 0)];
    let mut arena = Arena::default();
    let ids = sums.map(|sum| {
        let id = push(&mut arena, &sum);
        assert_eq!(arena.measures.len(), if sum.count < 3 { 0 } else { [3, 3, 5][sum.count as usize - 3] });
        id
    });
    assert_eq!(ids.map(|id| arena.sum(id)), sums);
    // A node that had its count gets another measure, and one that had another gets its count.
    for (id, sum) in [(ids[3], sum(4, 44)), (ids[2], sum(33, 33))] {
        arena.set_sum(id, &sum);
        assert_eq!(arena.sum(id), sum);
    }
    assert_eq!([ids[0], ids[1], ids[4]].map(|id| arena.sum(id)), [sums[0], sums[1], sums[4]]);
    let mut all = Arena::default();
    push(&mut all, &sum(7, 7));
    let (start, _) = all.append(&arena);
    assert_eq!((all.sum(start), all.measure(NodeId(start.0 + 3))), (sums[0], 44));
    arena.truncate(1, 0);
    let added = push(&mut arena, &sum(9, 9));
    assert_eq!((arena.sum(ids[0]), arena.sum(added)), (sums[0], sum(9, 9)));
}
