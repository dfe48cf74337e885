//! Links from a page of a cache to the pages below it, which spare the lookup by digest.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use coregw_lanes::prefetch_bytes_at;

use crate::page::format::Page;

/// The pages that the stubs of a page stand for, by ordinal, as far as they were found. A link does not keep its page.
#[derive(Debug, Default)]
pub(crate) struct Links(Box<[Mutex<Weak<Page>>]>);

/// The counts of references before the value of an `Arc`.
const ARC_HEAD_BYTES: usize = 2 * size_of::<usize>();

impl Links {
    /// Links for so many stubs.
    pub(crate) fn of(stubs: usize) -> Self {
        Self((0..stubs).map(|_| Mutex::default()).collect())
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

    /// The memory that the links take, in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.0)
    }
}
