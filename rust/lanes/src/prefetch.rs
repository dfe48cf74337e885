//! Hints to load memory before it is read.

/// Asks the processor to load the first and the last byte of `item` to its caches: all of it, if it is no longer than a
/// line of 64 bytes. Does not wait, and reads nothing.
///
/// Only on x86-64; elsewhere it does nothing, since the hint is not stable there yet.
#[inline(always)]
pub fn prefetch<T>(item: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        let start = std::ptr::from_ref(item).cast::<i8>();
        let last = size_of::<T>().saturating_sub(1);
        // SAFETY: Both addresses are within `item`, or at it if it has no bytes. The instruction is part of SSE, which
        // x86-64 includes.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(start);
            _mm_prefetch::<_MM_HINT_T0>(start.add(last));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = item;
}

/// Asks the processor to load bytes to its caches, as [`prefetch`] does. O(bytes).
#[inline]
pub fn prefetch_bytes(bytes: &[u8]) {
    bytes.chunks(LINE_BYTES).filter_map(<[u8]>::first).for_each(prefetch);
    bytes.last().into_iter().for_each(prefetch);
}

/// The length of a cache line, in bytes.
const LINE_BYTES: usize = 64;
