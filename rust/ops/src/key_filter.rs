//! Filter of keys: a split block Bloom filter.
//!
//! ```text
//! key ──► 64-bit hash ──┬── upper half ──► a block of 32 bytes
//!                       └── lower half ──► one bit in each of its eight words
//! ```

use std::hash::{BuildHasher, RandomState};

/// A part of the filter: a key is in one of them, so it touches one line of a processor's cache.
#[repr(align(32))]
#[derive(Debug, Clone, Copy)]
struct Block([u32; WORDS]);

const WORDS: usize = 8;

/// What the hash is multiplied with for each word: those of the format Parquet.
const SALTS: [u32; WORDS] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// A set of keys that may claim to hold others, and never denies one that was added.
///
/// With 16 bits of memory for each key, one in 1,000 claims is false; with 8 bits, one in 40. The hash is keyed at random, so
/// nobody can choose keys that the filter confuses.
///
/// ```
/// let mut filter = coregw_ops::KeyFilter::new(1 << 10);
/// filter.add(b"key");
/// assert!(filter.may_hold(b"key") && !filter.may_hold(b"another"));
/// ```
#[derive(Debug)]
pub struct KeyFilter {
    random: RandomState,
    blocks: Vec<Block>,
}

impl KeyFilter {
    /// An empty filter of about so many bytes, at least one block and at most 2^32.
    pub fn new(bytes: usize) -> Self {
        let blocks = (bytes / size_of::<Block>()).clamp(1, u32::MAX as usize);
        Self { random: RandomState::new(), blocks: vec![Block([0; WORDS]); blocks] }
    }

    /// Adds a key. O(1).
    pub fn add(&mut self, key: &[u8]) {
        let (at, bits) = self.place(key);
        for (word, bit) in self.blocks[at].0.iter_mut().zip(bits) {
            *word |= bit;
        }
    }

    /// Whether the key may have been added. O(1).
    pub fn may_hold(&self, key: &[u8]) -> bool {
        let (at, bits) = self.place(key);
        self.blocks[at].0.iter().zip(bits).all(|(word, bit)| word & bit != 0)
    }

    /// The block of a key, and its bit in each word.
    fn place(&self, key: &[u8]) -> (usize, [u32; WORDS]) {
        let hash = self.random.hash_one(key);
        let at = ((hash >> 32) * self.blocks.len() as u64) >> 32;
        (at as usize, SALTS.map(|salt| 1 << ((hash as u32).wrapping_mul(salt) >> 27)))
    }
}

#[cfg(test)]
#[path = "../tests/unit/key_filter.rs"]
mod tests;
