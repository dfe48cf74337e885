use super::*;

#[test]
fn same_bits_compares_the_first_bits_alone() {
    let a = [0b1010_1010, 0b1100_0011, 0b0101_0101];
    for n in 0..=24 {
        assert!(same_bits(&a, &a, n));
        for changed in 0..24 {
            let mut b = a;
            b[changed / 8] ^= 0x80 >> (changed % 8);
            assert_eq!(same_bits(&a, &b, n), changed >= n as usize, "bit {changed} of {n}");
        }
    }
    assert!(same_bits(&a, &[0b1010_1010, 0b1100_0000], 12));
}

#[test]
fn a_leaf_is_found_by_its_whole_key_alone() {
    let leaf = b"docs";
    for floor in [0, 8, 13, 32] {
        let tail = &leaf[floor as usize / 8..];
        let compare = |key: &[u8]| leaf_divergence(tail, floor, leaf.len(), key);
        assert_eq!(compare(b"docs"), Divergence::Never);
        assert_eq!([compare(b"doc"), compare(b"docs/")], [Divergence::KeyEnds; 2], "floor {floor}");
        if floor < 32 {
            assert_eq!(compare(b"docr"), Divergence::At(31));
        }
    }
}

#[test]
fn bits_in_a_word_diverge_where_their_bytes_do() {
    let key: Vec<u8> = (0..9u8).map(|i| i.wrapping_mul(0x9d) ^ 0x35).collect();
    for floor in 0..40 {
        let from = floor as usize / 8;
        for end in floor..=8 * from as u32 + 32 {
            let len = if end == floor { 0 } else { end.div_ceil(8) as usize - from };
            for changed in (0..32).map(Some).chain([None]) {
                // Bits outside `floor..end` are those of no key.
                let mut word: [u8; 4] = std::array::from_fn(|i| key[from + i]);
                for stray in (0..32).filter(|&bit| !(floor..end).contains(&(8 * from as u32 + bit))) {
                    word[stray as usize / 8] ^= 0x80 >> (stray % 8);
                }
                if let Some(bit) = changed {
                    word[bit as usize / 8] ^= 0x80 >> (bit % 8);
                }
                for key_len in 0..=key.len() {
                    let compare = |own: Own<'_>| own.divergence(floor, end, &key[..key_len]);
                    let expected = compare(Own::Bytes(&word[..len]));
                    let found = compare(Own::Word(u32::from_be_bytes(word)));
                    assert_eq!(found, expected, "{floor}..{end}, bit {changed:?}, {key_len} bytes");
                }
            }
        }
    }
}
