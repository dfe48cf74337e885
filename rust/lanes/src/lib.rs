//! SHA-256 of many short messages at once, in the lanes of vector registers.
//!
//! ```text
//!            lane 0    lane 1    lane 2          lane 15
//!          ┌─────────┬─────────┬─────────┬─ … ─┬─────────┐
//! block 0  │ m0      │ m1      │ m2      │     │ m15     │   one compression of all lanes
//! block 1  │ m0      │ m1      │ m2      │     │ m15     │   another
//! block 2  │         │ m1      │         │     │         │   a few long messages: one after the other
//!          └─────────┴─────────┴─────────┴─ … ─┴─────────┘
//! ```
//!
//! The rounds of one SHA-256 computation form a chain, which leaves most of a core idle. The messages of a Merkle tree
//! are independent of each other as far as they are on the same level, so one instruction of AVX-512 can work on sixteen of
//! them, or a core on several chains of its SHA instructions at a time. Each is faster on some processors ([`Method`]), and
//! takes about half the time of one chain. Elsewhere they are hashed one after the other by the crate `sha2`.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod constants;
mod method;
mod prefetch;
#[cfg(target_arch = "x86_64")]
mod sha;

use sha2::block_api::compress256;

use constants::INITIAL;
pub use method::Method;
pub use prefetch::{prefetch, prefetch_bytes, prefetch_bytes_at};

/// The example of the README, so that it is compiled and run, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The number of messages that are hashed at a time. Groups of so many messages of the same length are the fastest.
pub const LANES: usize = 16;

/// The length of a block, in bytes.
pub const BLOCK_BYTES: usize = 64;

/// The minimum number of messages for which sixteen lanes take less time than one message after the other.
const MIN_MESSAGES: usize = 9;

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// The number of blocks of a message of so many bytes, with its padding.
#[inline]
pub const fn blocks(len: usize) -> usize {
    (len + 9).div_ceil(BLOCK_BYTES)
}

/// Whether messages are hashed several at a time on this processor. O(1).
#[inline]
pub fn is_wide() -> bool {
    Method::fastest() != Method::Alone
}

/// The room that [`pad`] needs after a message, in bytes.
pub const PADDING_BYTES: usize = PADDING.len();

/// The padding of a message before its length (FIPS 180-4, section 5.1.1).
const PADDING: [u8; BLOCK_BYTES + 8] = {
    let mut padding = [0; BLOCK_BYTES + 8];
    padding[0] = 0x80;
    padding
};

/// Pads the message in the first `len` bytes of `buffer`, and returns its blocks. Overwrites [`PADDING_BYTES`] bytes.
///
/// # Panics
/// If the buffer has less room after the message.
#[inline(always)]
pub fn pad(buffer: &mut [u8], len: usize) -> &[[u8; BLOCK_BYTES]] {
    let blocks = blocks(len);
    let padded = &mut buffer[..len + PADDING_BYTES];
    // Of constant length, so that it is inlined.
    padded[len..].copy_from_slice(&PADDING);
    padded[BLOCK_BYTES * blocks - 8..BLOCK_BYTES * blocks].copy_from_slice(&(8 * len as u64).to_be_bytes());
    &padded.as_chunks().0[..blocks]
}

/// Hashes one message that is padded already. O(blocks).
#[inline(always)]
pub fn hash_one(message: &[[u8; BLOCK_BYTES]]) -> Digest {
    let mut state = INITIAL;
    compress256(&mut state, message);
    bytes(state)
}

/// Hashes messages that are padded already: the digest of `messages[i]` goes to `digests[i]`. O(blocks).
///
/// # Panics
/// If there are not as many digests as messages.
#[inline]
pub fn hash_padded(messages: &[&[[u8; BLOCK_BYTES]]], digests: &mut [Digest]) {
    hash_padded_by(Method::fastest(), messages, digests);
}

/// [`hash_padded`] by a method, for comparison with the others.
///
/// # Panics
/// If there are not as many digests as messages, or the processor does not support the method.
pub fn hash_padded_by(method: Method, messages: &[&[[u8; BLOCK_BYTES]]], digests: &mut [Digest]) {
    assert_eq!(messages.len(), digests.len(), "one digest per message");
    hash(method, messages.len(), |i| Blocks { body: messages[i], tail: &[] }, |i, digest| digests[i] = digest);
}

/// Hashes messages: the digest of `messages[i]` goes to `digests[i]`. O(bytes).
///
/// # Panics
/// If there are not as many digests as messages.
pub fn hash_many(messages: &[&[u8]], digests: &mut [Digest]) {
    assert_eq!(messages.len(), digests.len(), "one digest per message");
    for (messages, digests) in messages.chunks(LANES).zip(digests.chunks_mut(LANES)) {
        let mut tails = [[0; 2 * BLOCK_BYTES]; LANES];
        for (message, tail) in messages.iter().zip(&mut tails) {
            let rest = message.as_chunks::<BLOCK_BYTES>().1;
            tail[..rest.len()].copy_from_slice(rest);
            tail[rest.len()] = 0x80;
            let end = BLOCK_BYTES * blocks(rest.len());
            tail[end - 8..end].copy_from_slice(&(8 * message.len() as u64).to_be_bytes());
        }
        let message = |i: usize| {
            let (body, rest) = messages[i].as_chunks();
            Blocks { body, tail: &tails[i].as_chunks().0[..blocks(rest.len())] }
        };
        hash(Method::fastest(), messages.len(), message, |i, digest| digests[i] = digest);
    }
}

/// A padded message in two parts.
#[derive(Clone, Copy)]
struct Blocks<'a> {
    body: &'a [[u8; BLOCK_BYTES]],
    tail: &'a [[u8; BLOCK_BYTES]],
}

impl<'a> Blocks<'a> {
    const NONE: Self = Self { body: &[], tail: &[] };

    #[inline]
    fn len(&self) -> usize {
        self.body.len() + self.tail.len()
    }

    #[inline]
    fn block(&self, i: usize) -> &'a [u8; BLOCK_BYTES] {
        self.body.get(i).unwrap_or_else(|| &self.tail[i - self.body.len()])
    }

    /// Hashes the blocks from `start` on, one after the other.
    #[inline]
    fn finish(&self, mut state: [u32; 8], start: usize) -> Digest {
        let split = start.min(self.body.len());
        compress256(&mut state, &self.body[split..]);
        if !self.tail.is_empty() {
            compress256(&mut state, &self.tail[start - split..]);
        }
        bytes(state)
    }
}

#[inline(always)]
fn bytes(state: [u32; 8]) -> Digest {
    // All words at once: a 16-byte load of bytes that were stored four at a time would stall.
    let words = state.map(u32::to_be_bytes);
    words.as_flattened().try_into().expect("eight words are 32 bytes")
}

/// Hashes `count` messages.
#[inline]
fn hash<'a>(method: Method, count: usize, message: impl Fn(usize) -> Blocks<'a>, mut put: impl FnMut(usize, Digest)) {
    let hashed = match method {
        #[cfg(target_arch = "x86_64")]
        Method::Lanes => hash_in_lanes(count, &message, &mut put),
        #[cfg(target_arch = "x86_64")]
        Method::EvexChains => hash_in_chains::<true>(count, &message, &mut put),
        #[cfg(target_arch = "x86_64")]
        Method::Chains => hash_in_chains::<false>(count, &message, &mut put),
        _ => 0,
    };
    for i in hashed..count {
        put(i, message(i).finish(INITIAL, 0));
    }
}

/// Hashes messages in groups that are worth it, and returns how many.
#[cfg(target_arch = "x86_64")]
#[inline]
fn hash_in_lanes<'a>(
    count: usize,
    message: &impl Fn(usize) -> Blocks<'a>,
    put: &mut impl FnMut(usize, Digest),
) -> usize {
    let mut start = 0;
    while count - start >= MIN_MESSAGES {
        let group = LANES.min(count - start);
        let mut lanes = [Blocks::NONE; LANES];
        lanes[..group].iter_mut().enumerate().for_each(|(n, lane)| *lane = message(start + n));
        hash_lanes(&lanes[..group], |n, digest| put(start + n, digest));
        start += group;
    }
    start
}

/// Hashes at most sixteen messages: together while enough of them have blocks left, then one after the other.
#[cfg(target_arch = "x86_64")]
#[inline]
fn hash_lanes(messages: &[Blocks<'_>], mut put: impl FnMut(usize, Digest)) {
    let mut lens = [0; LANES];
    lens.iter_mut().zip(messages).for_each(|(len, message)| *len = message.len());
    let mut states = INITIAL.map(|word| [word; LANES]);
    let mut blocks = [&[0; BLOCK_BYTES]; LANES];
    let mut done = 0;
    loop {
        let active = (0..LANES).fold(0, |active, n| active | u16::from(lens[n] > done) << n);
        if (active.count_ones() as usize) < MIN_MESSAGES {
            break;
        }
        for (n, message) in messages.iter().enumerate() {
            if lens[n] > done {
                blocks[n] = message.block(done);
            }
        }
        avx512::compress(&mut states, &blocks, active);
        done += 1;
    }
    let digests = avx512::digests(&states);
    for (n, message) in messages.iter().enumerate() {
        match lens[n] > done {
            true => put(n, message.finish(states.map(|word| word[n]), done)),
            false => put(n, digests[n]),
        }
    }
}

/// A message in one of several chains.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Chain<'a> {
    /// The number of the message.
    item: usize,
    message: Blocks<'a>,
    /// The blocks that `state` covers.
    done: usize,
    state: [u32; 8],
}

/// Hashes messages in chains side by side: one that has ended takes the next message. Returns how many.
#[cfg(target_arch = "x86_64")]
#[inline]
fn hash_in_chains<'a, const EVEX: bool>(
    count: usize,
    message: &impl Fn(usize) -> Blocks<'a>,
    put: &mut impl FnMut(usize, Digest),
) -> usize {
    let begin = |item| Chain { item, message: message(item), done: 0, state: INITIAL };
    let mut next = sha::CHAINS.min(count);
    let mut chains = [Chain { item: 0, message: Blocks::NONE, done: 0, state: INITIAL }; sha::CHAINS];
    chains[..next].iter_mut().enumerate().for_each(|(n, chain)| *chain = begin(n));
    let mut active = next;
    loop {
        let mut n = 0;
        while n < active {
            let Chain { item, message, done, state } = chains[n];
            if done < message.len() {
                n += 1;
                continue;
            }
            put(item, bytes(state));
            if next < count {
                chains[n] = begin(next);
                next += 1;
            } else {
                active -= 1;
                chains[n] = chains[active];
            }
        }
        match active {
            4 => step::<4, EVEX>(&mut chains),
            3 => step::<3, EVEX>(&mut chains),
            2 => step::<2, EVEX>(&mut chains),
            _ => break,
        }
    }
    for Chain { item, message, done, state } in &chains[..active] {
        put(*item, message.finish(*state, *done));
    }
    count
}

/// Compresses the next block of each of the first `N` chains.
#[cfg(target_arch = "x86_64")]
#[inline]
fn step<const N: usize, const EVEX: bool>(chains: &mut [Chain<'_>; sha::CHAINS]) {
    let Some(chains) = chains.first_chunk_mut::<N>() else {
        return;
    };
    let blocks = chains.each_ref().map(|chain| chain.message.block(chain.done));
    sha::compress::<N, EVEX>(chains.each_mut().map(|chain| &mut chain.state), blocks);
    chains.iter_mut().for_each(|chain| chain.done += 1);
}
