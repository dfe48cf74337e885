//! Where the pages of a query come from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::id::suite::Digest;
use crate::interrupt::{Attempt, Interrupt};
use crate::page::cache::PageSource;
use crate::page::format::Page;

/// A source of pages, and those that it did not have.
#[derive(Default)]
pub(crate) struct Supply {
    pub(crate) source: Option<Arc<dyn PageSource>>,
    supplied: BTreeMap<Digest, Arc<Page>>,
}

impl Supply {
    pub(crate) fn from(source: Arc<dyn PageSource>) -> Self {
        Self { source: Some(source), ..Self::default() }
    }

    /// Adds pages that were missing.
    pub(crate) fn add(&mut self, pages: impl IntoIterator<Item = Arc<Page>>) {
        self.supplied.extend(pages.into_iter().map(|page| (page.digest(), page)));
    }

    /// Drops a page if it was added.
    #[inline]
    pub(crate) fn remove(&mut self, page: &Page) {
        if !self.supplied.is_empty() {
            self.supplied.remove(&page.digest());
        }
    }

    /// Drops pages that were added.
    pub(crate) fn clear(&mut self) {
        self.supplied.clear();
    }

    /// Notes that a page was found without the source.
    #[inline]
    pub(crate) fn touch(&self, digest: &Digest) {
        if let Some(source) = &self.source {
            source.touch(digest);
        }
    }

    /// Returns the page with this digest: `linked`, if another page links to it, or one from the source.
    pub(crate) fn page(&self, linked: Option<Arc<Page>>, digest: &Digest) -> Attempt<Arc<Page>> {
        linked
            .or_else(|| self.supplied.get(digest).map(Arc::clone))
            .or_else(|| self.source.as_ref().and_then(|source| source.page(digest)))
            .ok_or_else(|| Interrupt::Pages(BTreeSet::from([*digest])))
    }
}
