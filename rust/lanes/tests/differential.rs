//! Every digest equals that of the crate `sha2`.

use coregw_lanes::{BLOCK_BYTES, LANES, Method, blocks, hash_many, hash_one, hash_padded, hash_padded_by, pad};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

const CASES: u32 = if cfg!(miri) { 8 } else { 400 };

fn check(messages: &[Vec<u8>]) {
    let expected: Vec<[u8; 32]> = messages.iter().map(|message| Sha256::digest(message).into()).collect();
    let mut digests = vec![[0xaa; 32]; messages.len()];
    hash_many(&messages.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut digests);
    assert_eq!(digests, expected);
    // What follows the message in its buffer is overwritten.
    let mut buffers: Vec<Vec<u8>> = messages.iter().map(|message| [&message[..], &[0xee; 200]].concat()).collect();
    let padded: Vec<_> = buffers.iter_mut().zip(messages).map(|(buffer, message)| pad(buffer, message.len())).collect();
    assert!(padded.iter().zip(messages).all(|(padded, message)| padded.len() == blocks(message.len())));
    for method in Method::ALL.into_iter().filter(|method| method.is_available()) {
        digests.fill([0xbb; 32]);
        hash_padded_by(method, &padded, &mut digests);
        assert_eq!(digests, expected, "{method:?}");
    }
    digests.fill([0xcc; 32]);
    hash_padded(&padded, &mut digests);
    assert_eq!(digests, expected);
    assert!(padded.iter().map(|message| hash_one(message)).eq(expected));
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 17 + i * i / 7) as u8).collect()
}

#[test]
fn every_length_and_number_of_messages() {
    let most = if cfg!(miri) { LANES + 2 } else { 3 * LANES };
    for count in 0..most {
        for len in [0, 1, 54, 55, 56, 63, 64, 65, 118, 119, 120, 128, 300] {
            check(&(0..count).map(|i| bytes(len, i)).collect::<Vec<_>>());
        }
        // All of different lengths, around the ends of blocks.
        check(&(0..count).map(|i| bytes(50 + 3 * i, i)).collect::<Vec<_>>());
    }
}

#[test]
fn the_standard_vectors_in_every_lane() {
    // FIPS 180-4 examples: the empty message, "abc", and 448 bits.
    let vectors = [
        ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        ),
    ];
    let messages: Vec<&[u8]> = (0..3 * LANES).map(|i| vectors[i % 3].0.as_bytes()).collect();
    let mut digests = vec![[0; 32]; messages.len()];
    hash_many(&messages, &mut digests);
    for (i, digest) in digests.iter().enumerate() {
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, vectors[i % 3].1, "message {i}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_messages(messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4 * BLOCK_BYTES), 0..40)) {
        check(&messages);
    }

    #[test]
    fn a_few_long_messages_among_short_ones(
        messages in prop::collection::vec(
            prop_oneof![9 => prop::collection::vec(any::<u8>(), 60..100), 1 => prop::collection::vec(any::<u8>(), 0..3000)],
            8..36,
        )
    ) {
        check(&messages);
    }
}

#[test]
#[should_panic(expected = "one digest per message")]
fn as_many_digests_as_messages() {
    hash_many(&[b"a", b"b"], &mut [[0; 32]]);
}

#[test]
fn no_blocks_at_all() {
    // Not a padded message, but its digest is the same by each method.
    let [empty, message]: [&[[u8; BLOCK_BYTES]]; 2] = [&[], &[[1; BLOCK_BYTES]; 3]];
    let messages: Vec<_> = (0..2 * LANES + 3).map(|i| if i % 3 == 0 { empty } else { message }).collect();
    let digests = Method::ALL.into_iter().filter(|method| method.is_available()).map(|method| {
        let mut digests = vec![[0; 32]; messages.len()];
        hash_padded_by(method, &messages, &mut digests);
        digests
    });
    let digests: Vec<_> = digests.collect();
    assert!(digests.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn the_fastest_method_is_available() {
    assert!(Method::fastest().is_available());
    assert_eq!(coregw_lanes::is_wide(), Method::fastest() != Method::Alone);
}
