//! Driving of operations, which wait for what they cannot compute: one parked [`Need`], one `poll`, one `supply`.
//!
//! An operation is an `async fn` written as if everything were in memory; the compiler turns it into a state machine.
//! There is no runtime and no I/O. A leaf future parks a need in the operation's slot and is pending; the caller gets
//! the need from [`Operation::poll`], meets it, and polls again.
//!
//! ```text
//! caller                      Operation                    async fn
//!   | poll(budget) ------------> | poll the future ----------> | runs until it lacks pages
//!   |                            | <------------- Pending ---- | slot.need = Pages
//!   | <--- Needs(Pages) -------- |                             |
//!   | reads the store            |                             |
//!   | supply_pages(pages) -----> | slot.pages = pages          |
//!   | poll(budget) ------------> | poll the future ----------> | continues where it stopped
//!   | <--- Done(response) ------ | <--------- Ready(response)- |
//! ```

mod need;

use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use coregw_core::{Cid, Digest, Error, InputCode, Page, PageDifference, Result, RootCid};

pub use need::{Lookahead, Need, WantedPage};

/// The result of [`Operation::poll`].
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// The operation has ended with this response body: JSON, unless the operation says otherwise.
    Done(Vec<u8>),
    /// The operation waits.
    Needs(Need),
}

/// How many nodes an operation may visit in all, together with the operations that it joins.
///
/// A node that was visited may be kept until the response is written, so this bounds the time and the memory.
struct Allowance {
    limit: AtomicU64,
    left: AtomicU64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { limit: AtomicU64::new(u64::MAX), left: AtomicU64::new(u64::MAX) }
    }
}

/// Where an operation and its caller exchange needs and what meets them.
#[derive(Default)]
pub(crate) struct Slot {
    /// Nodes that may still be visited during the current poll.
    budget: AtomicU64,
    /// The memory of what the operation holds; see [`Operation::held_bytes`].
    held_bytes: AtomicUsize,
    /// See [`Operation::store_unless_held`].
    stores_unless_held: AtomicBool,
    allowance: Arc<Allowance>,
    state: Mutex<SlotState>,
}

#[derive(Default)]
struct SlotState {
    need: Option<Need>,
    is_met: bool,
    pages: Vec<Arc<Page>>,
    held: Vec<bool>,
    bytes: Vec<u8>,
    lookahead: Vec<Lookahead>,
}

/// Pages to store, by digest, and the differences of some of them to others.
#[derive(Default)]
pub(crate) struct NewPages {
    pub(crate) pages: Vec<(Digest, Vec<u8>)>,
    pub(crate) differences: Vec<(Digest, PageDifference)>,
}

impl From<Vec<(Digest, Vec<u8>)>> for NewPages {
    fn from(pages: Vec<(Digest, Vec<u8>)>) -> Self {
        Self { pages, differences: Vec::new() }
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        // Each field is assigned as a whole, so a panic elsewhere cannot leave the state inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn park(&self, need: Need) {
        self.lock().need = Some(need);
        poll_fn(|_| match std::mem::take(&mut self.lock().is_met) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Waits for pages; they come in the order of `wanted`.
    pub(crate) async fn pages(&self, wanted: Vec<WantedPage>) -> Vec<Arc<Page>> {
        self.park(Need::Pages(wanted)).await;
        std::mem::take(&mut self.lock().pages)
    }

    /// Waits to learn which of `roots` the store has a record of.
    pub(crate) async fn roots(&self, roots: Vec<RootCid>) -> Vec<bool> {
        self.park(Need::Roots(roots)).await;
        std::mem::take(&mut self.lock().held)
    }

    /// As [`Slot::roots`], before the operation looks for keys in the trees.
    pub(crate) async fn roots_before(&self, roots: Vec<RootCid>, lookahead: Vec<Lookahead>) -> Vec<bool> {
        self.lock().lookahead = lookahead;
        let held = self.roots(roots).await;
        self.lock().lookahead = Vec::new();
        held
    }

    /// Waits until the store has renewed `roots`, and to learn which of them it holds.
    pub(crate) async fn renewal(&self, roots: Vec<RootCid>) -> Vec<bool> {
        self.park(Need::Renewal(roots)).await;
        std::mem::take(&mut self.lock().held)
    }

    /// Waits for bytes of the imported CAR.
    pub(crate) async fn bytes(&self, range: Range<u64>) -> Vec<u8> {
        self.park(Need::Bytes(range)).await;
        std::mem::take(&mut self.lock().bytes)
    }

    /// Waits until bytes, and the blocks of payloads after them, are sent.
    pub(crate) async fn output(&self, bytes: Vec<u8>, payloads: Vec<Cid>) {
        self.park(Need::Output { bytes, payloads }).await;
    }

    /// Waits until leaves of a tree in a CAR are used.
    pub(crate) async fn leaves(&self, root: RootCid, lines: Vec<u8>) {
        self.park(Need::Leaves { root, lines }).await;
    }

    /// Waits until payloads are stored.
    pub(crate) async fn payloads(&self, blocks: Vec<Range<u64>>) {
        self.park(Need::Payloads(blocks)).await;
    }

    /// Waits until pages, then the records of `roots`, are stored, while `requires` are held.
    pub(crate) async fn store(&self, pages: impl Into<NewPages>, roots: Vec<RootCid>, requires: Vec<RootCid>) {
        let NewPages { pages, differences } = pages.into();
        self.park(Need::Store { pages, differences, roots, requires }).await;
    }

    /// Waits for the next poll, which brings a new budget.
    pub(crate) async fn more_budget(&self) {
        self.park(Need::Budget).await;
    }

    /// Nodes that may still be visited during this poll.
    pub(crate) fn budget(&self) -> u64 {
        self.budget.load(Ordering::Relaxed)
    }

    /// Whether a root that is held already is not stored again, but dated, by who meets [`Need::Store`].
    pub(crate) fn stores_unless_held(&self) -> bool {
        self.stores_unless_held.load(Ordering::Relaxed)
    }

    /// Notes the memory of what the operation holds.
    pub(crate) fn set_held_bytes(&self, bytes: usize) {
        self.held_bytes.store(bytes, Ordering::Relaxed);
    }

    fn set_budget(&self, nodes: u64) {
        self.budget.store(nodes, Ordering::Relaxed);
    }

    /// Takes visited nodes from the budget of this poll, and from what the whole operation may visit.
    ///
    /// # Errors
    /// As [`Slot::charge`].
    pub(crate) fn take(&self, nodes: u64) -> Result<()> {
        self.set_budget(self.budget().saturating_sub(nodes));
        self.charge(nodes)
    }

    /// Takes nodes from what the whole operation may visit.
    ///
    /// # Errors
    /// [`InputCode::TooLarge`] if it has visited too many.
    pub(crate) fn charge(&self, nodes: u64) -> Result<()> {
        let Allowance { limit, left } = &*self.allowance;
        match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(nodes)) {
            Ok(_) => Ok(()),
            Err(_) => {
                let limit = limit.load(Ordering::Relaxed);
                let what =
                    format!("the request visits more than {limit} tree nodes, the limit; ask for less in one request");
                Err(Error::input(InputCode::TooLarge, what))
            }
        }
    }
}

type Response = dyn Future<Output = Result<Vec<u8>>> + Send;

/// An operation in progress, from request to response body.
pub struct Operation {
    slot: Arc<Slot>,
    future: Pin<Box<Response>>,
    /// The need that `poll` returned last, if it has to be met before the next poll.
    pending: Option<Need>,
    has_ended: bool,
}

impl Operation {
    pub(crate) fn new<F>(start: impl FnOnce(Arc<Slot>) -> F) -> Self
    where
        F: Future<Output = Result<Vec<u8>>> + Send + 'static,
    {
        Self::on(Slot::default(), start)
    }

    /// An operation that another joins; what they may visit is one limit.
    pub(crate) fn part_of<F>(whole: &Slot, start: impl FnOnce(Arc<Slot>) -> F) -> Self
    where
        F: Future<Output = Result<Vec<u8>>> + Send + 'static,
    {
        Self::on(Slot { allowance: Arc::clone(&whole.allowance), ..Slot::default() }, start)
    }

    fn on<F>(slot: Slot, start: impl FnOnce(Arc<Slot>) -> F) -> Self
    where
        F: Future<Output = Result<Vec<u8>>> + Send + 'static,
    {
        let slot = Arc::new(slot);
        let future = Box::pin(start(Arc::clone(&slot)));
        Self { slot, future, pending: None, has_ended: false }
    }

    /// Lets the operation visit at most `nodes` nodes from now on; beyond that, it fails with [`InputCode::TooLarge`].
    ///
    /// Without this call there is no limit. Writing 64 bytes of a response counts as one node, and starting a lookup of a
    /// resolve as 32.
    pub fn limit_nodes(&self, nodes: u64) {
        self.slot.allowance.limit.store(nodes, Ordering::Relaxed);
        self.slot.allowance.left.store(nodes, Ordering::Relaxed);
    }

    /// Lets a change not ask whether its result is held before it stores that in one [`Need::Store`]: if its roots are held
    /// and complete, who meets that need dates them, and stores nothing.
    pub fn store_unless_held(&self) {
        self.slot.stores_unless_held.store(true, Ordering::Relaxed);
    }

    /// What it will look for in the trees of the roots for which it waits, as far as it knows: pages to read early.
    pub fn lookahead(&self) -> Vec<Lookahead> {
        self.slot.lock().lookahead.clone()
    }

    /// The memory, in bytes, of what the operation holds: the nodes that its current query has visited and made, the arcs
    /// of a new map and the pages that are made of them, or the index of a CAR. O(1).
    ///
    /// Operations that it joins are not included.
    pub fn held_bytes(&self) -> usize {
        self.slot.held_bytes.load(Ordering::Relaxed)
    }

    /// Runs until the operation ends or waits, visiting about `budget` nodes at most.
    ///
    /// Returns the pending need again if it has to be met first.
    ///
    /// # Errors
    /// The operation's own errors, after which it has ended. [`Error::Input`] if it had ended before.
    pub fn poll(&mut self, budget: u64) -> Result<Progress> {
        if let Some(need) = &self.pending {
            return Ok(Progress::Needs(need.clone()));
        }
        if self.has_ended {
            return Err(Error::request("the operation has ended"));
        }
        self.slot.set_budget(budget);
        match self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(response) => {
                self.has_ended = true;
                response.map(Progress::Done)
            }
            Poll::Pending => self.parked().map(Progress::Needs),
        }
    }

    fn parked(&mut self) -> Result<Need> {
        let mut state = self.slot.lock();
        let need = state.need.take().ok_or_else(|| Error::damaged("the operation waits without a need"))?;
        match need {
            Need::Pages(_) | Need::Roots(_) | Need::Renewal(_) | Need::Bytes(_) => self.pending = Some(need.clone()),
            // The next poll is the answer.
            Need::Budget | Need::Output { .. } | Need::Leaves { .. } | Need::Payloads(_) | Need::Store { .. } => {
                state.is_met = true
            }
        }
        Ok(need)
    }

    /// The pages to supply, in this order; empty if the operation waits for something else.
    pub fn wanted_pages(&self) -> &[WantedPage] {
        match &self.pending {
            Some(Need::Pages(wanted)) => wanted,
            _ => &[],
        }
    }

    /// Checks that the operation waits for this number of pages, before they are parsed.
    ///
    /// # Errors
    /// [`Error::Input`] if it does not.
    pub fn check_page_count(&self, given: usize) -> Result<()> {
        let expected = if let Some(Need::Pages(wanted)) = &self.pending { Some(wanted.len()) } else { None };
        check_count("pages", expected, given)
    }

    /// Answers [`Need::Pages`] with parsed pages, in the order of the need (see [`WantedPage::parse`]).
    ///
    /// # Errors
    /// [`Error::Input`] if the operation does not wait for this number of pages.
    pub fn supply_pages(&mut self, pages: Vec<Arc<Page>>) -> Result<()> {
        self.check_page_count(pages.len())?;
        self.answer(|state| state.pages = pages);
        Ok(())
    }

    /// Answers [`Need::Roots`] or [`Need::Renewal`]: whether the store holds each root, in the order of the need.
    ///
    /// # Errors
    /// [`Error::Input`] if the operation does not wait for this number of answers.
    pub fn supply_roots(&mut self, held: Vec<bool>) -> Result<()> {
        let expected = match &self.pending {
            Some(Need::Roots(roots) | Need::Renewal(roots)) => Some(roots.len()),
            _ => None,
        };
        check_count("roots", expected, held.len())?;
        self.answer(|state| state.held = held);
        Ok(())
    }

    /// Answers [`Need::Bytes`].
    ///
    /// # Errors
    /// [`Error::Input`] if the operation does not wait for bytes.
    pub fn supply_bytes(&mut self, bytes: Vec<u8>) -> Result<()> {
        let expected = if let Some(Need::Bytes(_)) = &self.pending { Some(1) } else { None };
        check_count("ranges of bytes", expected, 1)?;
        self.answer(|state| state.bytes = bytes);
        Ok(())
    }

    fn answer(&mut self, supply: impl FnOnce(&mut SlotState)) {
        self.pending = None;
        let mut state = self.slot.lock();
        supply(&mut state);
        state.is_met = true;
    }
}

fn check_count(what: &str, expected: Option<usize>, given: usize) -> Result<()> {
    if expected == Some(given) {
        return Ok(());
    }
    let expected = expected.map_or("none".to_owned(), |count| count.to_string());
    Err(Error::request(format!("{given} {what} supplied, but the operation needs {expected}")))
}
