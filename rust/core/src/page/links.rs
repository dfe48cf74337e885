//! Links from a page of a cache to the pages below it, which spare the lookup by digest.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use coregw_lanes::prefetch_bytes_at;

/// The pages that the stubs of a page stand for, by ordinal, as far as they were found. A link does not keep its page.
#[derive(Debug)]
pub(crate) struct Links<Page>(Box<[Mutex<Weak<Page>>]>);

/// The counts of references before the value of an `Arc`.
const ARC_HEAD_BYTES: usize = 2 * size_of::<usize>();

/// The heap memory of a mutex that was locked: on Apple's systems, the standard library boxes a `pthread_mutex_t`.
const MUTEX_HEAP_BYTES: usize = if cfg!(target_vendor = "apple") { 64 } else { 0 };

impl<Page> Default for Links<Page> {
    /// No links.
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<Page> Links<Page> {
    /// Links for so many stubs.
    pub(crate) fn of(stubs: usize) -> Self {
        Self((0..stubs).map(|_| Mutex::new(Weak::new())).collect())
    }

    /// The page of a stub, if it was found and is still in memory.
    #[inline]
    pub(crate) fn get(&self, ordinal: u32) -> Option<Arc<Page>> {
        self.0.get(ordinal as usize)?.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Notes the page of a stub.
    pub(crate) fn set(&self, ordinal: u32, page: &Arc<Page>) {
        if let Some(link) = self.0.get(ordinal as usize) {
            *link.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(page);
        }
    }

    /// Prefetches the head of the page of a stub.
    #[inline]
    pub(crate) fn prefetch(&self, ordinal: u32) {
        if let Some(link) = self.0.get(ordinal as usize) {
            let page = link.lock().unwrap_or_else(PoisonError::into_inner).as_ptr();
            prefetch_bytes_at(page.cast::<u8>().wrapping_sub(ARC_HEAD_BYTES), ARC_HEAD_BYTES + size_of::<Page>());
        }
    }

    /// The memory that the links take at most, in bytes: their own, and that of the heads of pages, which stay in memory
    /// without their content as long as a link points to them.
    pub(crate) fn memory(&self) -> usize {
        self.0.len() * (size_of::<Mutex<Weak<Page>>>() + MUTEX_HEAP_BYTES + ARC_HEAD_BYTES + size_of::<Page>())
    }
}

#[cfg(test)]
#[path = "../../tests/unit/page_links.rs"]
mod tests;
