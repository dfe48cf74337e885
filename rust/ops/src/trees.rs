//! Stored trees as an operation reads them: from the cache, and where that lacks something, by waiting for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coregw_core::{
    Answer, Ask, Digest, Error, Interrupt, Missing, Page, PageCache, PageSource, Query, Result, RootCid,
};

use crate::run::{Lookahead, NewPages, Slot, WantedPage};

/// The trees of one store.
#[derive(Clone)]
pub(crate) struct Trees {
    pub(crate) cache: Arc<PageCache>,
    pub(crate) slot: Arc<Slot>,
}

impl Trees {
    pub(crate) fn source(&self) -> Arc<dyn PageSource> {
        Arc::clone(&self.cache) as Arc<dyn PageSource>
    }

    /// Whether the store has a record of `root`, before the operation looks for `keys` in the tree of `root`.
    pub(crate) async fn is_held_before(&self, root: &RootCid, keys: impl FnOnce() -> Vec<Vec<u8>>) -> bool {
        if let Some(is_held) = self.cache.is_held(root) {
            return is_held;
        }
        let lookahead = Lookahead { root: *root, keys: keys() };
        self.slot.roots_before(vec![*root], vec![lookahead]).await == [true]
    }

    /// The first of `roots` that the store has no record of.
    pub(crate) async fn first_not_held<'a>(&self, roots: &'a [RootCid]) -> Option<&'a RootCid> {
        self.first_not_held_before(roots, Vec::new).await
    }

    async fn first_not_held_before<'a>(
        &self,
        roots: &'a [RootCid],
        keys: impl Fn() -> Vec<Vec<u8>>,
    ) -> Option<&'a RootCid> {
        if roots.iter().all(|root| self.cache.is_held(root) == Some(true)) {
            return None;
        }
        let lookahead = roots.iter().map(|root| Lookahead { root: *root, keys: keys() }).collect();
        let held = self.slot.roots_before(roots.to_vec(), lookahead).await;
        roots.iter().zip(held).find(|(_, is_held)| !is_held).map(|(root, _)| root)
    }

    /// Whether the store holds all of `roots` and has renewed them, so that a response may say that they are stored.
    pub(crate) async fn are_renewed(&self, roots: &[RootCid]) -> bool {
        self.slot.renewal(roots.to_vec()).await.iter().all(|is_held| *is_held)
    }

    /// # Errors
    /// [`Error::NotFound`] if the store has no record of one of `roots`.
    pub(crate) async fn check_held(&self, roots: &[RootCid]) -> Result<()> {
        self.check_held_before(roots, Vec::new).await
    }

    /// As [`Trees::check_held`], before the operation looks for `keys` in the tree of each.
    pub(crate) async fn check_held_before(&self, roots: &[RootCid], keys: impl Fn() -> Vec<Vec<u8>>) -> Result<()> {
        match self.first_not_held_before(roots, keys).await {
            None => Ok(()),
            Some(root) => Err(not_held(root)),
        }
    }

    /// Answers a question about the tree of a held root, with the proof.
    pub(crate) async fn answer(&self, root: &RootCid, ask: Ask) -> Result<(Answer, Vec<u8>)> {
        self.answer_taking(root, ask, answer_bytes).await
    }

    /// As [`Trees::answer`], for a response that is the proof alone.
    pub(crate) async fn prove(&self, root: &RootCid, ask: Ask) -> Result<Vec<u8>> {
        self.answer_taking(root, ask, |_| 0).await.map(|(_, proof)| proof)
    }

    /// As [`Trees::answer`], given how many bytes an answer takes in the response besides its proof.
    async fn answer_taking(
        &self,
        root: &RootCid,
        ask: Ask,
        bytes_of: fn(&Answer) -> usize,
    ) -> Result<(Answer, Vec<u8>)> {
        let mut query = Query::open(root, self.source(), ask);
        let answer = self.run(&mut query).await?;
        let bytes = bytes_of(&answer);
        self.slot.set_held_bytes(query.tree_bytes() + bytes);
        // The scan has paid for the bytes of its keys when it read them.
        let paid = if let Answer::Listing(listing) = &answer { listing.key_cost() } else { 0 };
        self.spend((bytes as u64 / BYTES_PER_NODE).saturating_sub(paid)).await?;
        Ok((answer, query.proof()))
    }

    /// Runs a query to its answer.
    pub(crate) async fn run(&self, query: &mut Query) -> Result<Answer> {
        loop {
            let before = self.slot.budget();
            let mut budget = before;
            let outcome = query.run(&mut budget);
            self.slot.set_held_bytes(query.tree_bytes());
            self.slot.take(before.saturating_sub(budget))?;
            match outcome {
                Ok(answer) => return Ok(answer),
                Err(interrupt) => self.meet(query, interrupt).await?,
            }
        }
    }

    /// Waits for what an interrupted query needs.
    ///
    /// # Errors
    /// The error of a query that failed.
    pub(crate) async fn meet(&self, query: &mut Query, interrupt: Interrupt) -> Result<()> {
        match interrupt {
            Interrupt::Failed(error) => return Err(error),
            Interrupt::Pages(missing) => query.supply(self.load(query.root(), missing).await),
            Interrupt::Budget => self.slot.more_budget().await,
        }
        Ok(())
    }

    /// Waits for pages of the tree of `root`, and keeps them in the cache.
    pub(crate) async fn load(&self, root: &RootCid, missing: BTreeSet<Digest>) -> Vec<Arc<Page>> {
        let wanted = |digest| WantedPage { root: *root, digest };
        let pages = self.slot.pages(missing.into_iter().map(wanted).collect()).await;
        pages.iter().for_each(|page| self.cache.insert(Arc::clone(page)));
        pages
    }

    /// Takes `nodes` from the budget, and from as many new ones as it takes.
    ///
    /// # Errors
    /// As [`Slot::charge`].
    pub(crate) async fn spend(&self, mut nodes: u64) -> Result<()> {
        loop {
            let now = nodes.min(self.slot.budget());
            self.slot.take(now)?;
            nodes -= now;
            if nodes == 0 {
                return Ok(());
            }
            self.slot.more_budget().await;
        }
    }

    /// Takes from the budget what writing this many bytes of a response costs; see [`Trees::spend`].
    pub(crate) async fn spend_bytes(&self, bytes: usize) -> Result<()> {
        self.spend(bytes as u64 / BYTES_PER_NODE).await
    }

    /// As [`Trees::store`], unless all of `roots` are held, whose pages are stored already: then these are renewed.
    pub(crate) async fn store_unless_held(&self, pages: impl Into<NewPages>, roots: &[RootCid], requires: &[RootCid]) {
        let pages = pages.into();
        let is_judged = self.slot.stores_unless_held() && bytes_of(&pages.pages) <= MAX_STORE_BYTES;
        if is_judged || self.first_not_held(roots).await.is_some() || !self.are_renewed(roots).await {
            self.store(pages, roots, requires).await;
        }
    }

    /// Waits until pages, and after them the records of `roots`, are stored, `MAX_STORE_BYTES` at a time.
    ///
    /// The last pages are stored together with the records, so that a small change is one write. The trees share pages
    /// with those of `requires`.
    pub(crate) async fn store(&self, pages: impl Into<NewPages>, roots: &[RootCid], requires: &[RootCid]) {
        let NewPages { pages, differences } = pages.into();
        let mut differences: BTreeMap<_, _> = differences.into_iter().collect();
        let (mut batch, mut bytes) = (NewPages::default(), 0);
        for page in pages {
            bytes += page.1.len();
            if bytes > MAX_STORE_BYTES && !batch.pages.is_empty() {
                self.slot.store(std::mem::take(&mut batch), Vec::new(), Vec::new()).await;
                bytes = page.1.len();
            }
            batch.differences.extend(differences.remove_entry(&page.0));
            batch.pages.push(page);
        }
        self.record(batch, roots, requires).await;
    }

    /// Waits until the last pages, then the records of `roots`, are stored, while `requires` are held.
    pub(crate) async fn record(&self, last_pages: impl Into<NewPages>, roots: &[RootCid], requires: &[RootCid]) {
        let generation = self.cache.generation();
        self.slot.store(last_pages, roots.to_vec(), requires.to_vec()).await;
        roots.iter().for_each(|root| self.cache.remember(*root, generation));
    }
}

fn bytes_of(pages: &[(Digest, Vec<u8>)]) -> usize {
    pages.iter().map(|(_, page)| page.len()).sum()
}

/// Writing this many bytes of a response is about as much work as visiting a node.
const BYTES_PER_NODE: u64 = 64;

/// About how many bytes an answer takes in a response besides its proof, which is no longer than what was visited for it.
pub(crate) fn answer_bytes(answer: &Answer) -> usize {
    match answer {
        Answer::Listing(listing) => listing.entries.iter().map(|(key, _)| entry_bytes(key.segment_bytes())).sum(),
        Answer::Span(span) => span.segments.len() * ENTRY_BYTES,
        Answer::Keys(targets) => targets.len() * ENTRY_BYTES,
        Answer::Key(_) | Answer::Element(_) | Answer::Changed(_) => 0,
    }
}

/// The bytes of an entry with segments of this length in a listing and in its proof. Escapes may make them six times as
/// long.
pub(crate) fn entry_bytes(segment_bytes: usize) -> usize {
    ENTRY_BYTES + 4 * segment_bytes
}

const ENTRY_BYTES: usize = 256;

/// Bytes of pages that are stored at once.
pub(crate) const MAX_STORE_BYTES: usize = 1 << 20;

/// The error for a root that the store has no record of.
pub(crate) fn not_held(root: &RootCid) -> Error {
    let what = format!("the store has no root {root}");
    Error::NotFound { missing: Missing::Root, what, details: None }
}
