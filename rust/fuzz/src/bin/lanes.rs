//! Fuzz target: any messages, hashed together. Every digest equals that of one message alone.
#![no_main]

use coregw_core::Suite;
use coregw_lanes::{Method, hash_many, hash_padded_by, pad};
use libfuzzer_sys::fuzz_target;

/// Splits the input into messages: two bytes of length, then the message.
fn messages(mut data: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while let [a, b, rest @ ..] = data {
        let len = (usize::from(*a) + 256 * usize::from(*b % 4)).min(rest.len());
        let (message, rest) = rest.split_at(len);
        found.push(message);
        data = rest;
    }
    found
}

fuzz_target!(|data: &[u8]| {
    let mut messages = messages(data);
    // Enough for several groups, whatever the input.
    while !messages.is_empty() && messages.len() < 20 {
        messages.extend_from_within(..);
    }
    let expected: Vec<[u8; 32]> = messages.iter().map(|message| Suite::Sha2_256.digest(message).0).collect();
    let mut digests = vec![[0; 32]; messages.len()];
    hash_many(&messages, &mut digests);
    assert_eq!(digests, expected);
    let mut buffers: Vec<Vec<u8>> = messages.iter().map(|message| [message, &[0xee; 128][..]].concat()).collect();
    let padded: Vec<_> =
        buffers.iter_mut().zip(&messages).map(|(buffer, message)| pad(buffer, message.len())).collect();
    for method in Method::ALL.into_iter().filter(|method| method.is_available()) {
        digests.fill([0; 32]);
        hash_padded_by(method, &padded, &mut digests);
        assert_eq!(digests, expected, "{method:?}");
    }
});
