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

/// As [`prefetch_bytes`], of memory that may be freed already: only its address is used.
#[inline(always)]
pub fn prefetch_bytes_at(start: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        for offset in (0..len).step_by(LINE_BYTES) {
            // SAFETY: The instruction, which is part of SSE, reads nothing, and ignores addresses that are not mapped.
            // The pointer is not dereferenced, and is made without the promise that it is within an allocation.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(offset).cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, len);
}

/// Asks the processor to load bytes to its caches, as [`prefetch`] does. O(bytes).
#[inline]
pub fn prefetch_bytes(bytes: &[u8]) {
    bytes.chunks(LINE_BYTES).filter_map(<[u8]>::first).for_each(prefetch);
    bytes.last().into_iter().for_each(prefetch);
}

/// The length of a cache line, in bytes.
const LINE_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_not_be_of_memory() {
        prefetch_bytes_at(std::ptr::null(), 0);
        prefetch_bytes_at(std::ptr::null(), 3 * LINE_BYTES);
        prefetch_bytes_at(std::ptr::without_provenance(usize::MAX), LINE_BYTES + 1);
        prefetch_bytes_at([0; 8].as_ptr(), 8);
    }
}
