//! How the bytes of a file are cut.

use coregw_folders::chunks::{MAX_CHUNK_BYTES, next_chunk};

/// The minimum length of a chunk that is not the last one, in bytes.
const MIN_CHUNK_BYTES: usize = 16 << 10;

/// The lengths of all chunks of a file.
fn cuts(file: &[u8]) -> Vec<usize> {
    let (mut rest, mut lengths) = (file, Vec::new());
    while !rest.is_empty() {
        lengths.push(next_chunk(rest, file.len() as u64));
        rest = &rest[lengths[lengths.len() - 1]..];
    }
    lengths
}

#[test]
fn files_up_to_the_longest_chunk_are_one_and_others_are_cut_by_their_bytes() {
    let noise: Vec<u8> = (0..1u64 << 20).map(|n| (n.wrapping_mul(n ^ 0x9e37_79b9_7f4a_7c15) >> 17) as u8).collect();
    for len in [1, MIN_CHUNK_BYTES, MAX_CHUNK_BYTES] {
        assert_eq!(cuts(&noise[..len]), [len]);
    }
    assert_eq!(next_chunk(&[], 0), 0);
    assert_eq!(cuts(&vec![0; 2 * MAX_CHUNK_BYTES]), [MAX_CHUNK_BYTES; 2]);
    let lengths = cuts(&noise);
    let (last, others) = lengths.split_last().expect("chunks");
    assert!(others.len() > 4 && *last <= MAX_CHUNK_BYTES, "{lengths:?}");
    assert!(others.iter().all(|len| (MIN_CHUNK_BYTES..=MAX_CHUNK_BYTES).contains(len)), "{lengths:?}");
    // After an insertion the last cuts are the same.
    let longer = cuts(&[&[1; 1000], &noise[..]].concat());
    assert_eq!(longer[longer.len() - 3..], lengths[lengths.len() - 3..]);
}
