//! The compression function of SHA-256 on sixteen blocks at once, with AVX-512.
//!
//! Each register holds the same word of sixteen states or blocks. `vprord` rotates, and `vpternlog` computes any function
//! of three bits at once.

use std::arch::x86_64::*;

use crate::constants::K;
use crate::{BLOCK_BYTES, Digest, LANES};

/// Functions of three bits, as the table of their results for 000 to 111: `a ^ b ^ c`, `a ? b : c`, the majority.
const XOR: i32 = 0x96;
const CHOOSE: i32 = 0xca;
const MAJORITY: i32 = 0xe8;

/// Whether this processor, and the operating system, support what [`compress`] uses. O(1): the answer is cached.
#[inline]
pub(crate) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// Compresses one block into each state whose bit in `active` is set. `states[word][lane]`.
///
/// # Panics
/// Unless [`is_available`].
#[inline]
pub(crate) fn compress(states: &mut [[u32; LANES]; 8], blocks: &[&[u8; BLOCK_BYTES]; LANES], active: u16) {
    assert!(is_available(), "AVX-512 was detected before");
    // SAFETY: the processor has the features that `compress_lanes` is compiled for, as was just asserted. It has no other
    // precondition.
    unsafe { compress_lanes(states, blocks, active) }
}

/// The states as digests: their words in big-endian order.
///
/// # Panics
/// Unless [`is_available`].
#[inline]
pub(crate) fn digests(states: &[[u32; LANES]; 8]) -> [Digest; LANES] {
    assert!(is_available(), "AVX-512 was detected before");
    // SAFETY: as in `compress`.
    unsafe { digests_of_lanes(states) }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn digests_of_lanes(states: &[[u32; LANES]; 8]) -> [Digest; LANES] {
    let words = std::array::from_fn(|i| states.get(i).map_or(_mm512_setzero_si512(), |words| load_words(words)));
    let mut digests = [[0; 32]; LANES];
    for (digest, row) in digests.iter_mut().zip(transpose(words)) {
        store_digest(digest, swap_bytes(row));
    }
    digests
}

#[target_feature(enable = "avx512f,avx512bw")]
fn compress_lanes(states: &mut [[u32; LANES]; 8], blocks: &[&[u8; BLOCK_BYTES]; LANES], active: u16) {
    let mut w = transpose(std::array::from_fn(|n| swap_bytes(load_bytes(blocks[n]))));
    let before: [__m512i; 8] = std::array::from_fn(|i| load_words(&states[i]));
    let mut s = before;
    let (first, rest) = K.as_chunks::<16>().0.split_first().expect("four times sixteen constants");
    for i in 0..16 {
        s = round(s, first[i], w[i]);
    }
    for k in rest {
        for i in 0..16 {
            w[i] = schedule(&w, i);
            s = round(s, k[i], w[i]);
        }
    }
    for (i, state) in states.iter_mut().enumerate() {
        let sum = _mm512_add_epi32(before[i], s[i]);
        store_words(state, _mm512_mask_mov_epi32(before[i], active, sum));
    }
}

/// One round of all lanes (FIPS 180-4, section 6.2.2, step 3).
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn round([a, b, c, d, e, f, g, h]: [__m512i; 8], k: u32, w: __m512i) -> [__m512i; 8] {
    let s1 = xor(_mm512_ror_epi32::<6>(e), _mm512_ror_epi32::<11>(e), _mm512_ror_epi32::<25>(e));
    let choice = _mm512_ternarylogic_epi32::<CHOOSE>(e, f, g);
    let kw = _mm512_add_epi32(_mm512_add_epi32(h, _mm512_set1_epi32(k.cast_signed())), w);
    let t1 = _mm512_add_epi32(kw, _mm512_add_epi32(s1, choice));
    let s0 = xor(_mm512_ror_epi32::<2>(a), _mm512_ror_epi32::<13>(a), _mm512_ror_epi32::<22>(a));
    let t2 = _mm512_add_epi32(s0, _mm512_ternarylogic_epi32::<MAJORITY>(a, b, c));
    [_mm512_add_epi32(t1, t2), a, b, c, _mm512_add_epi32(d, t1), e, f, g]
}

/// The word of the message schedule that replaces `w[i]` (FIPS 180-4, section 6.2.2, step 1).
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn schedule(w: &[__m512i; 16], i: usize) -> __m512i {
    let (x, y) = (w[(i + 1) % 16], w[(i + 14) % 16]);
    let s0 = xor(_mm512_ror_epi32::<7>(x), _mm512_ror_epi32::<18>(x), _mm512_srli_epi32::<3>(x));
    let s1 = xor(_mm512_ror_epi32::<17>(y), _mm512_ror_epi32::<19>(y), _mm512_srli_epi32::<10>(y));
    _mm512_add_epi32(_mm512_add_epi32(w[i], s0), _mm512_add_epi32(w[(i + 9) % 16], s1))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn xor(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<XOR>(a, b, c)
}

/// Reverses the bytes of each word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn swap_bytes(words: __m512i) -> __m512i {
    let order = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203));
    _mm512_shuffle_epi8(words, order)
}

/// Transposes sixteen rows of sixteen words: first within each quarter of a register, then the quarters.
///
/// ```text
/// rows 4q to 4q + 3          quads[4q + r]                   words[4c + r]
/// ┌────┬────┬────┬────┐      word 4c + r of four rows in     word 4c + r of all rows
/// └────┴────┴────┴────┘      quarter c, for each c
/// ```
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transpose(rows: [__m512i; 16]) -> [__m512i; 16] {
    let mut quads = rows;
    for q in 0..4 {
        let [a, b, c, d] = [rows[4 * q], rows[4 * q + 1], rows[4 * q + 2], rows[4 * q + 3]];
        let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        quads[4 * q] = _mm512_unpacklo_epi64(ab, cd);
        quads[4 * q + 1] = _mm512_unpackhi_epi64(ab, cd);
        let (ab, cd) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        quads[4 * q + 2] = _mm512_unpacklo_epi64(ab, cd);
        quads[4 * q + 3] = _mm512_unpackhi_epi64(ab, cd);
    }
    let mut words = quads;
    for r in 0..4 {
        let [a, b, c, d] = [quads[r], quads[4 + r], quads[8 + r], quads[12 + r]];
        let even = [_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0x88>(c, d)];
        let odd = [_mm512_shuffle_i32x4::<0xdd>(a, b), _mm512_shuffle_i32x4::<0xdd>(c, d)];
        words[r] = _mm512_shuffle_i32x4::<0x88>(even[0], even[1]);
        words[4 + r] = _mm512_shuffle_i32x4::<0x88>(odd[0], odd[1]);
        words[8 + r] = _mm512_shuffle_i32x4::<0xdd>(even[0], even[1]);
        words[12 + r] = _mm512_shuffle_i32x4::<0xdd>(odd[0], odd[1]);
    }
    words
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_bytes(bytes: &[u8; BLOCK_BYTES]) -> __m512i {
    // SAFETY: the reference is valid for reads of 64 bytes, which is what the instruction reads, at any alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_words(words: &[u32; LANES]) -> __m512i {
    // SAFETY: the reference is valid for reads of 16 times 4 bytes, which is what the instruction reads, at any alignment.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store_digest(digest: &mut Digest, row: __m512i) {
    let half = _mm512_castsi512_si256(row);
    // SAFETY: the reference is valid for writes of 32 bytes, which is what the instruction writes, at any alignment.
    unsafe { _mm256_storeu_si256(digest.as_mut_ptr().cast(), half) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store_words(words: &mut [u32; LANES], value: __m512i) {
    // SAFETY: the reference is valid for writes of 16 times 4 bytes, which is what the instruction writes, at any
    // alignment, and any bits are a `u32`.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), value) }
}
