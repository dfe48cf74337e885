//! The compression function of SHA-256 on a few blocks side by side, with the SHA instructions of x86-64.
//!
//! Each `sha256rnds2` computes two rounds and needs the result of the one before, for which it waits longer than the
//! processor takes to begin another. So two to four chains of them are interleaved.

use std::arch::x86_64::*;
use std::array;

use crate::BLOCK_BYTES;
use crate::constants::K;

/// The number of chains that keep the SHA unit of a core busy.
pub(crate) const CHAINS: usize = 4;

/// Whether this processor supports what [`compress`] uses. O(1): the answer is cached.
#[inline]
pub(crate) fn is_available() -> bool {
    is_x86_feature_detected!("sha") && is_x86_feature_detected!("ssse3") && is_x86_feature_detected!("sse4.1")
}

/// Whether this processor, and the operating system, also have the 32 vector registers of AVX-512, which hold the words of
/// four chains. Sixteen registers do not: every second instruction loads or stores one. O(1): the answer is cached.
#[inline]
pub(crate) fn is_evex_available() -> bool {
    is_available() && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl")
}

/// Compresses one block into each of several states, with the registers of AVX-512 if `EVEX`.
///
/// # Panics
/// Unless [`is_available`], or [`is_evex_available`].
#[inline]
pub(crate) fn compress<const N: usize, const EVEX: bool>(states: [&mut [u32; 8]; N], blocks: [&[u8; BLOCK_BYTES]; N]) {
    if EVEX {
        assert!(is_evex_available(), "the SHA instructions and AVX-512 were detected before");
        // SAFETY: the processor has the features that `compress_evex` is compiled for, as was just asserted. It has no
        // other precondition.
        unsafe { compress_evex(states, blocks) }
    } else {
        assert!(is_available(), "the SHA instructions were detected before");
        // SAFETY: as above, of `compress_sse`.
        unsafe { compress_sse(states, blocks) }
    }
}

/// Defines the compression for some instructions: a function that is shared by both would not be inlined, so it would be
/// compiled for those that both have.
macro_rules! compress_with {
    ($name:ident, $features:literal) => {
        #[target_feature(enable = $features)]
        fn $name<const N: usize>(states: [&mut [u32; 8]; N], blocks: [&[u8; BLOCK_BYTES]; N]) {
            let before: [State; N] = array::from_fn(|n| load_state(states[n]));
            let mut chains = before;
            // The last sixteen words of each message schedule, of which `w[i % 4]` holds words 4i to 4i + 3.
            let mut schedules: [[__m128i; 4]; N] = array::from_fn(|n| load_block(blocks[n]));
            let k: [__m128i; 16] = array::from_fn(|i| load_words(&K.as_chunks().0[i]));
            for i in 0..4 {
                for (state, w) in chains.iter_mut().zip(&schedules) {
                    *state = four_rounds(*state, _mm_add_epi32(w[i], k[i]));
                }
            }
            for quarter in k.as_chunks::<4>().0.iter().skip(1) {
                for i in 0..4 {
                    for (state, w) in chains.iter_mut().zip(&mut schedules) {
                        w[i] = next_words(w, i);
                        *state = four_rounds(*state, _mm_add_epi32(w[i], quarter[i]));
                    }
                }
            }
            for ((state, before), after) in states.into_iter().zip(before).zip(chains) {
                store_state(state, [_mm_add_epi32(before[0], after[0]), _mm_add_epi32(before[1], after[1])]);
            }
        }
    };
}

compress_with!(compress_evex, "sha,sse2,ssse3,sse4.1,avx512f,avx512vl");
compress_with!(compress_sse, "sha,sse2,ssse3,sse4.1");

/// A state as the instructions take it: the words A, B, E, F and C, D, G, H, the first in the highest lane.
type State = [__m128i; 2];

/// Four rounds (FIPS 180-4, section 6.2.2, step 3); `kw` holds the sums of their constants and words.
#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn four_rounds([abef, cdgh]: State, kw: __m128i) -> State {
    let second = _mm_sha256rnds2_epu32(cdgh, abef, kw);
    [_mm_sha256rnds2_epu32(abef, second, _mm_shuffle_epi32::<0x0e>(kw)), second]
}

/// The four words of the message schedule that replace `w[i]` (FIPS 180-4, section 6.2.2, step 1).
#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn next_words(w: &[__m128i; 4], i: usize) -> __m128i {
    let last = w[(i + 3) % 4];
    let sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[i], w[(i + 1) % 4]), _mm_alignr_epi8::<4>(last, w[(i + 2) % 4]));
    _mm_sha256msg2_epu32(sum, last)
}

#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn load_state(state: &[u32; 8]) -> State {
    let [dcba, hgfe] = [0, 1].map(|half| load_words(&state.as_chunks().0[half]));
    let (cdab, efgh) = (_mm_shuffle_epi32::<0xb1>(dcba), _mm_shuffle_epi32::<0x1b>(hgfe));
    [_mm_alignr_epi8::<8>(cdab, efgh), _mm_blend_epi16::<0xf0>(efgh, cdab)]
}

#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn store_state(state: &mut [u32; 8], [abef, cdgh]: State) {
    let (feba, dchg) = (_mm_shuffle_epi32::<0x1b>(abef), _mm_shuffle_epi32::<0xb1>(cdgh));
    let halves = [_mm_blend_epi16::<0xf0>(feba, dchg), _mm_alignr_epi8::<8>(dchg, feba)];
    for (words, half) in state.as_chunks_mut::<4>().0.iter_mut().zip(halves) {
        // SAFETY: the reference is valid for writes of 16 bytes, which is what the instruction writes, at any alignment,
        // and any bits are a `u32`.
        unsafe { _mm_storeu_si128(words.as_mut_ptr().cast(), half) }
    }
}

/// The words of a block, which are big-endian.
#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn load_block(block: &[u8; BLOCK_BYTES]) -> [__m128i; 4] {
    let order = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    array::from_fn(|i| {
        let quarter: &[u8; 16] = &block.as_chunks().0[i];
        // SAFETY: the reference is valid for reads of 16 bytes, which is what the instruction reads, at any alignment.
        _mm_shuffle_epi8(unsafe { _mm_loadu_si128(quarter.as_ptr().cast()) }, order)
    })
}

#[inline]
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn load_words(words: &[u32; 4]) -> __m128i {
    // SAFETY: the reference is valid for reads of four times 4 bytes, which is what the instruction reads, at any alignment.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}
