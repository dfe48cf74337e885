//! Per-thread spare buffers for long proofs and responses, whose memory would otherwise come from the kernel each time,
//! which clears it: that takes as long as writing it.

use std::cell::RefCell;

/// The number of buffers that a thread keeps: a proof, and the response that contains it.
const MAX_BUFFERS: usize = 2;

/// Shorter buffers are the allocator's, which keeps their memory.
const MIN_BYTES: usize = 64 << 10;

/// Longer buffers are freed.
const MAX_BYTES: usize = 1 << 20;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer with room for some bytes: a spare one if this thread has one that is long enough.
pub fn take(capacity: usize) -> Vec<u8> {
    if (MIN_BYTES..=MAX_BYTES).contains(&capacity) {
        let found = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            let at = spare.iter().position(|buffer| buffer.capacity() >= capacity)?;
            Some(spare.swap_remove(at))
        });
        if let Ok(Some(buffer)) = found {
            return buffer;
        }
    }
    Vec::with_capacity(capacity)
}

/// Keeps a buffer for [`take`], or frees it.
pub fn give(mut buffer: Vec<u8>) {
    if (MIN_BYTES..=MAX_BYTES).contains(&buffer.capacity()) {
        buffer.clear();
        // Fails only while the thread is being torn down.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() == MAX_BUFFERS {
                spare.remove(0);
            }
            spare.push(buffer);
        });
    }
}

#[cfg(test)]
#[path = "../tests/unit/spare.rs"]
mod tests;
