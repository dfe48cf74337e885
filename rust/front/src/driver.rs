//! Driver of operations: meets what they wait for, and polls them again.
//!
//! Most queries find all in the cache, and end at their first poll, on the thread of their connection. The others move:
//!
//! | a query that | continues |
//! |---|---|
//! | lacks a few pages | when these were read, on the thread of its connection |
//! | lacks many pages | the same, but only some of such queries at a time: what they find takes memory |
//! | has more to do than [`DriverLimits::node_budget`] | on a thread for short work |
//! | has run for a millisecond there | in slices, on a thread for long work, if it has one of [`DriverLimits::long_queries`] slots |
//!
//! A change is driven in the same way, but is never dropped: what it writes goes to the queue of writes, together with what
//! others write, and from its first write on it has no time limit.
//!
//! So short queries wait only for others that are short. A query that would wait for a slot with much memory, or while many
//! others wait, is dropped, and starts again when it has the slot.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use coregw_core::{Cid, Error, Missing, Page, PageCache, RootCid};
use coregw_ops::{BatchError, Lookahead, Need, Operation, Progress, WantedPage};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant as Deadline, timeout, timeout_at};

use crate::budget::Account;
use crate::problem::Problem;
use crate::reads::{Failure, FoundPage, Reads};
use crate::writes::{NewTrees, Writes};

/// Work of a greater weight, in bytes of a query, leaves the thread of the connection.
const MAX_WEIGHT_HERE: usize = 64 << 10;
/// Queries that lack more pages than these share [`MAX_LOADING`] slots.
const MAX_PAGES_HERE: usize = 8;
const MAX_LOADING: usize = 8;
/// At most this many queries wait for a slot with what they have found, each with at most so many bytes.
const MAX_KEPT: usize = 32;
const MAX_KEPT_BYTES: usize = 1 << 20;
/// What a query runs for before it is long, and at once after that.
const SHORT: Duration = Duration::from_millis(1);
const LONGEST_SLICE: Duration = Duration::from_millis(16);
/// A poll on a thread for work has this many times the budget of one on the thread of a connection.
const BUDGET_FACTOR: u64 = 4;
/// A byte of the request of a change is as much work as so many of a query: each coordinate is a walk, hashes and new pages.
const CHANGE_FACTOR: usize = 64;
/// A change may visit so many times the nodes of a query, and one for each byte of its request: the first commitment to a fixed list checks all of it.
const CHANGE_NODES_FACTOR: u64 = 16;
/// Changes of over a millisecond in progress. So many share a sync of the store.
const MAX_CHANGES: usize = 16;
/// Top pages are read together with the records of at most this many roots.
const MAX_OPENED_TOGETHER: usize = 8;

/// Limits on queries.
#[derive(Debug, Clone, Copy)]
pub struct DriverLimits {
    /// Nodes that a query visits before it leaves the thread of its connection.
    pub node_budget: u64,
    /// Nodes that a query, or all of a batch, may visit.
    pub max_nodes: u64,
    /// The time that a query may take.
    pub patience: Duration,
    /// Queries of more than a millisecond in progress.
    pub long_queries: usize,
    /// Threads for long work, and for short.
    pub threads: usize,
}

/// Slots, and how many queries wait for one with what they have found.
#[derive(Debug)]
struct Slots {
    free: Arc<Semaphore>,
    kept: AtomicUsize,
}

impl Slots {
    fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count)), kept: AtomicUsize::new(0) }
    }

    /// Waits for a slot. The operation is dropped if it may not wait with what it has found.
    async fn take(&self, operation: &mut Option<Operation>) -> Result<OwnedSemaphorePermit, Problem> {
        if let Ok(slot) = Arc::clone(&self.free).try_acquire_owned() {
            return Ok(slot);
        }
        let is_small = operation.as_ref().is_none_or(|operation| operation.held_bytes() <= MAX_KEPT_BYTES);
        let _kept = is_small.then(|| Counted::new(&self.kept, MAX_KEPT)).flatten();
        if _kept.is_none() {
            *operation = None;
        }
        Arc::clone(&self.free).acquire_owned().await.map_err(|_| Problem::internal())
    }
}

/// One of a number of things that are counted, until it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    /// Another one. None if there are as many as `most` already.
    fn new(counter: &'a AtomicUsize, most: usize) -> Option<Self> {
        let counted = Self(counter);
        (counter.fetch_add(1, Ordering::Relaxed) < most).then_some(counted)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Drives operations over one store.
pub struct Driver {
    /// What is known of the store.
    pub cache: Arc<PageCache>,
    /// What the store is asked.
    pub reads: Arc<Reads>,
    limits: DriverLimits,
    loading: Slots,
    long: Slots,
    changes: Semaphore,
    short_threads: Arc<Semaphore>,
    long_threads: Arc<Semaphore>,
    jobs: AtomicUsize,
}

/// A query between two polls.
struct Begun {
    operation: Operation,
    need: Need,
    busy: Duration,
}

/// What makes an operation, again if it was dropped.
pub trait Start: Fn() -> Result<Operation, Problem> + Clone + Send + 'static {}

impl<F: Fn() -> Result<Operation, Problem> + Clone + Send + 'static> Start for F {}

impl Driver {
    /// A driver without queries.
    pub fn new(cache: Arc<PageCache>, reads: Arc<Reads>, limits: DriverLimits) -> Self {
        let [loading, long] = [MAX_LOADING, limits.long_queries].map(Slots::new);
        let [short_threads, long_threads] = [(); 2].map(|()| Arc::new(Semaphore::new(limits.threads.max(1))));
        let changes = Semaphore::new(MAX_CHANGES);
        Self { cache, reads, limits, loading, long, changes, short_threads, long_threads, jobs: AtomicUsize::new(0) }
    }

    /// How many calls run on threads for work, or wait for one.
    pub fn jobs(&self) -> usize {
        self.jobs.load(Ordering::Relaxed)
    }

    /// Makes a query, and drives it to its response.
    ///
    /// # Errors
    /// Those of the operation; `too_large` if it visits too many nodes, `unavailable` if it takes too long or the store does
    /// not answer.
    pub async fn answer(&self, weight: usize, start: impl Start) -> Result<Vec<u8>, Problem> {
        if weight > MAX_WEIGHT_HERE {
            return Box::pin(self.in_time(self.finish(start, None))).await;
        }
        let budget = self.limits.node_budget;
        let began = Instant::now();
        let mut operation = start()?;
        operation.limit_nodes(self.limits.max_nodes);
        match operation.poll(budget).map_err(Problem::of)? {
            Progress::Done(response) => Ok(response),
            Progress::Needs(need) => {
                let begun = Begun { operation, need, busy: began.elapsed() };
                // Boxed, so that the other queries, which are most, take no memory for it.
                Box::pin(self.in_time(self.finish(start, Some(begun)))).await
            }
        }
    }

    /// Waits for something at most for the time that a query may take.
    ///
    /// # Errors
    /// `unavailable` if it takes longer.
    pub async fn in_time<T>(&self, work: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
        timeout(self.limits.patience, work).await.unwrap_or_else(|_| Err(self.late()))
    }

    fn late(&self) -> Problem {
        let seconds = self.limits.patience.as_secs_f64();
        Problem::unavailable(&format!("this took longer than {seconds} seconds"))
    }

    /// Calls a function here if its weight, in bytes of a query, is small, and otherwise on a thread for work.
    ///
    /// # Errors
    /// Those of the function.
    pub async fn call<T: Send + 'static>(
        &self,
        weight: usize,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        if weight <= MAX_WEIGHT_HERE {
            return work();
        }
        let threads = if weight <= 16 * MAX_WEIGHT_HERE { &self.short_threads } else { &self.long_threads };
        self.on_thread(threads, work).await?
    }

    /// Which of `roots` the store holds. Only that it holds one is remembered, until roots expire.
    ///
    /// # Errors
    /// `unavailable` if the store does not answer.
    pub async fn are_held(&self, roots: &[RootCid], lookahead: Vec<Lookahead>) -> Result<Vec<bool>, Problem> {
        let states = self.find_roots(roots, lookahead).await?;
        Ok(states.iter().map(Option::is_some).collect())
    }

    /// Whether each of `roots` is complete; None for one that the store does not hold.
    async fn find_roots(&self, roots: &[RootCid], lookahead: Vec<Lookahead>) -> Result<Vec<Option<bool>>, Problem> {
        let unknown = self.unknown(roots);
        if unknown.is_empty() {
            return Ok(vec![Some(true); roots.len()]);
        }
        let found = self.reads.roots(unknown.clone(), lookahead).await.map_err(Problem::of_failure)?;
        let state = |root| match unknown.iter().position(|each| each == root) {
            Some(index) => found.get(index).copied().flatten(),
            None => Some(true),
        };
        Ok(roots.iter().map(state).collect())
    }

    /// Those of `roots` that the store is not known to hold.
    fn unknown(&self, roots: &[RootCid]) -> Vec<RootCid> {
        roots.iter().filter(|root| self.cache.is_held(root).is_none()).copied().collect()
    }

    /// Makes a change, and drives it to its response, when what it has stored is durable.
    ///
    /// `account` counts the memory of its request, and of what it holds.
    ///
    /// # Errors
    /// Those of the operation; `too_large` if it visits too many nodes or holds too much, `root_not_found` if what it is
    /// based on has expired, `unavailable` and `storage_full` if the store does not answer or takes nothing.
    pub async fn change(
        &self,
        writes: &Writes,
        account: Account,
        request_bytes: usize,
        start: impl FnOnce() -> Result<Operation, Problem> + Send + 'static,
    ) -> Result<Vec<u8>, Problem> {
        let nodes = CHANGE_NODES_FACTOR * self.limits.max_nodes + request_bytes as u64;
        let start = move || {
            start().inspect(|operation| {
                operation.limit_nodes(nodes);
                operation.store_unless_held();
            })
        };
        let mut change = Change::new(self, writes, account);
        let (mut operation, mut progress, mut busy) = if CHANGE_FACTOR * request_bytes <= MAX_WEIGHT_HERE {
            self.poll_here(start()?)?
        } else {
            let budget = self.limits.node_budget * BUDGET_FACTOR;
            change.in_time(self.on_thread(&self.short_threads, move || poll_for(start()?, budget, SHORT))).await??
        };
        let mut slot = None;
        loop {
            let need = match progress {
                Progress::Done(response) => return Ok(response),
                Progress::Needs(need) => need,
            };
            let on_thread = need == Need::Budget;
            change.hold(&operation)?;
            if on_thread && busy >= SHORT && slot.is_none() {
                let free = async { self.changes.acquire().await.map_err(|_| Problem::internal()) };
                slot = Some(change.in_time(free).await?);
            }
            change.meet(&mut operation, need).await?;
            let took;
            (operation, progress, took) = if on_thread {
                change.in_time(self.poll_on_thread(operation, busy, slot.is_some())).await?
            } else {
                self.poll_here(operation)?
            };
            busy += took;
        }
    }

    async fn finish(&self, start: impl Start, begun: Option<Begun>) -> Result<Vec<u8>, Problem> {
        // Whether it continues on the thread of its connection.
        let mut is_here = begun.is_some();
        let (mut slot_to_load, mut slot_to_run) = (None, None);
        let mut begun = match begun {
            Some(begun) => begun,
            None => match self.begin(start.clone()).await? {
                Ok(response) => return Ok(response),
                Err(begun) => begun,
            },
        };
        loop {
            let Begun { operation, need, mut busy } = begun;
            let mut operation = Some(operation);
            let slot = match &need {
                Need::Budget if busy >= SHORT && slot_to_run.is_none() => Some((&self.long, &mut slot_to_run)),
                Need::Pages(wanted) if wanted.len() > MAX_PAGES_HERE && slot_to_run.is_none() => {
                    slot_to_load.is_none().then_some((&self.loading, &mut slot_to_load))
                }
                _ => None,
            };
            if let Some((slots, taken)) = slot {
                *taken = Some(slots.take(&mut operation).await?);
            }
            let Some(mut operation) = operation else {
                match self.begin(start.clone()).await? {
                    Ok(response) => return Ok(response),
                    Err(again) => begun = again,
                }
                continue;
            };
            is_here &= need != Need::Budget || slot_to_run.is_none();
            let on_thread = !is_here || need == Need::Budget;
            self.meet(&mut operation, need).await?;
            let has_slot = slot_to_run.is_some();
            let (operation, progress, took) = if on_thread {
                self.poll_on_thread(operation, busy, has_slot).await?
            } else {
                self.poll_here(operation)?
            };
            busy += took;
            match progress {
                Progress::Done(response) => return Ok(response),
                Progress::Needs(need) => begun = Begun { operation, need, busy },
            }
        }
    }

    /// Polls on the thread of the connection; also returns how long that took.
    fn poll_here(&self, mut operation: Operation) -> Result<(Operation, Progress, Duration), Problem> {
        let began = Instant::now();
        let progress = operation.poll(self.limits.node_budget).map_err(Problem::of)?;
        Ok((operation, progress, began.elapsed()))
    }

    /// Polls on a thread for work: for long work if the operation, which has run for `busy`, has a slot.
    async fn poll_on_thread(
        &self,
        operation: Operation,
        busy: Duration,
        has_slot: bool,
    ) -> Result<(Operation, Progress, Duration), Problem> {
        let (threads, most) = match has_slot {
            true => (&self.long_threads, busy.clamp(SHORT, LONGEST_SLICE)),
            false => (&self.short_threads, SHORT),
        };
        let budget = self.limits.node_budget * BUDGET_FACTOR;
        self.on_thread(threads, move || poll_for(operation, budget, most)).await?
    }

    /// Begins a query on a thread for short work: the response, or what it waits for.
    async fn begin(&self, start: impl Start) -> Result<Result<Vec<u8>, Begun>, Problem> {
        let DriverLimits { node_budget, max_nodes, .. } = self.limits;
        let work = move || {
            let operation = start()?;
            operation.limit_nodes(max_nodes);
            poll_for(operation, node_budget * BUDGET_FACTOR, SHORT)
        };
        let (operation, progress, busy) = self.on_thread(&self.short_threads, work).await??;
        Ok(match progress {
            Progress::Done(response) => Ok(response),
            Progress::Needs(need) => Err(Begun { operation, need, busy }),
        })
    }

    async fn on_thread<T: Send + 'static>(
        &self,
        threads: &Arc<Semaphore>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let _job = Counted::new(&self.jobs, usize::MAX);
        let thread = Arc::clone(threads).acquire_owned().await.map_err(|_| Problem::internal())?;
        let work = move || {
            // The thread is taken until the work has ended, also if its client leaves: a client that resets one stream after
            // the other would have any number of calls in the pool.
            let _thread = thread;
            work()
        };
        spawn_blocking(work).await.map_err(|_| Problem::internal())
    }

    /// Meets a need of a query.
    async fn meet(&self, operation: &mut Operation, need: Need) -> Result<(), Problem> {
        match need {
            Need::Budget => Ok(()), // the next poll does
            Need::Roots(roots) => {
                let held = self.are_held(&roots, self.lookahead(operation, &roots)).await?;
                operation.supply_roots(held).map_err(Problem::of)
            }
            Need::Pages(wanted) => {
                let pages = self.load(&wanted).await?;
                operation.supply_pages(pages).map_err(Problem::of)
            }
            _ => Err(Problem::internal()), // no query needs anything else
        }
    }

    /// The trees whose top pages are read together with the records of their roots, and what is looked for below.
    fn lookahead(&self, operation: &Operation, roots: &[RootCid]) -> Vec<Lookahead> {
        let unknown = self.unknown(roots);
        if unknown.len() > MAX_OPENED_TOGETHER {
            return Vec::new();
        }
        let known = operation.lookahead();
        let keys = |root| known.iter().find(|each| each.root == root).map(|each| each.keys.clone()).unwrap_or_default();
        unknown.into_iter().map(|root| Lookahead { root, keys: keys(root) }).collect()
    }

    /// Reads pages of held roots.
    ///
    /// # Errors
    /// `root_not_found` if one is missing since its root has expired, which the cache may not have known.
    async fn load(&self, wanted: &[WantedPage]) -> Result<Vec<Arc<Page>>, Problem> {
        let found = self.reads.pages(wanted).found().await.map_err(Problem::of_failure)?;
        let is_missing = |page: &FoundPage| matches!(page, FoundPage::Missing);
        if found.iter().any(is_missing) {
            let missing = wanted.iter().zip(&found).filter(|(_, page)| is_missing(page));
            self.require_unexpired(missing.map(|(wanted, _)| wanted.root).collect()).await?;
        }
        let page = |(page, wanted): (FoundPage, &WantedPage)| match page {
            FoundPage::Parsed(page) => page,
            FoundPage::Missing => wanted.parse(None),
            FoundPage::Bytes(bytes) => wanted.parse(Some(&bytes)),
        };
        found.into_iter().zip(wanted).map(page).collect::<Result<_, _>>().map_err(Problem::of)
    }

    /// Fails if one of these roots, of whose trees pages are missing, is not held, since roots have expired.
    async fn require_unexpired(&self, mut roots: Vec<RootCid>) -> Result<(), Problem> {
        if self.cache.generation() == 0 {
            return Ok(());
        }
        roots.sort_unstable_by_key(|root| root.cid().as_bytes().to_vec());
        roots.dedup();
        let held = self.reads.roots(roots.clone(), Vec::new()).await.map_err(Problem::of_failure)?;
        match roots.iter().zip(held).find(|(_, held)| held.is_none()) {
            None => Ok(()),
            Some((root, _)) => {
                self.cache.expire();
                Err(Problem::new("root_not_found", format!("the store no longer holds the root {root}")))
            }
        }
    }
}

/// A change between two polls: what it has counted, learnt and written.
struct Change<'a> {
    driver: &'a Driver,
    writes: &'a Writes,
    /// None while it is written.
    account: Option<Account>,
    /// Bytes of what the operation holds that are in the account.
    counted: usize,
    /// Held roots that have lost pages.
    incomplete: HashSet<RootCid>,
    /// The store's time of its first write.
    since: Option<u64>,
    /// When it has taken too long; none once it has written.
    deadline: Option<Deadline>,
}

impl<'a> Change<'a> {
    fn new(driver: &'a Driver, writes: &'a Writes, account: Account) -> Self {
        let deadline = Some(Deadline::now() + driver.limits.patience);
        Change { driver, writes, account: Some(account), counted: 0, incomplete: HashSet::new(), since: None, deadline }
    }

    fn hold(&mut self, operation: &Operation) -> Result<(), Problem> {
        let account = self.account.as_mut().ok_or_else(Problem::internal)?;
        account.hold(operation.held_bytes(), &mut self.counted)
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
        match self.deadline {
            Some(deadline) => timeout_at(deadline, work).await.unwrap_or_else(|_| Err(self.driver.late())),
            None => work.await,
        }
    }

    /// Meets a need of the change.
    async fn meet(&mut self, operation: &mut Operation, need: Need) -> Result<(), Problem> {
        match need {
            Need::Roots(roots) => {
                let found = self.driver.find_roots(&roots, self.driver.lookahead(operation, &roots));
                let found = self.in_time(found).await?;
                let lost = roots.iter().zip(&found).filter(|(_, state)| **state == Some(false));
                self.incomplete.extend(lost.map(|(root, _)| *root));
                operation.supply_roots(found.iter().map(Option::is_some).collect()).map_err(Problem::of)
            }
            Need::Renewal(roots) => {
                self.deadline = None;
                let held = self.writes.renew(roots.clone()).found().await.map_err(Problem::of_failure)?;
                let is_complete = |(root, is_held): (&RootCid, bool)| is_held && !self.incomplete.contains(root);
                operation.supply_roots(roots.iter().zip(held).map(is_complete).collect()).map_err(Problem::of)
            }
            Need::Store { pages, differences, roots, requires } => {
                self.deadline = None;
                self.store(NewTrees { pages, differences, roots, requires, since: self.since }).await
            }
            need => self.in_time(self.driver.meet(operation, need)).await,
        }
    }

    async fn store(&mut self, trees: NewTrees) -> Result<(), Problem> {
        if let Some(root) = trees.requires.iter().find(|root| self.incomplete.contains(root)) {
            let what = format!("{root} has lost pages, so nothing can be based on it before it is healed");
            return Err(Problem::failed(what));
        }
        let account = self.account.take().ok_or_else(Problem::internal)?;
        match self.writes.store(trees, account).found().await {
            Ok((now, account)) => {
                self.account = Some(account);
                self.since = self.since.or(Some(now));
                Ok(())
            }
            Err(Failure::NotFound(message)) => {
                self.driver.cache.expire();
                let message = format!("a root that this change is based on has expired: {message}");
                Err(Problem::new("root_not_found", message))
            }
            Err(failure) => Err(Problem::of_failure(failure)),
        }
    }
}

/// Polls for about this time, or until the operation ends or waits; also returns how long that took.
fn poll_for(mut operation: Operation, budget: u64, most: Duration) -> Result<(Operation, Progress, Duration), Problem> {
    let began = Instant::now();
    loop {
        let progress = operation.poll(budget).map_err(Problem::of)?;
        let took = began.elapsed();
        if progress != Progress::Needs(Need::Budget) || took >= most {
            return Ok((operation, progress, took));
        }
    }
}

impl Problem {
    /// What a client may know of an error of an operation.
    pub(crate) fn of(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Input { code, .. } => Problem::new(code.as_str(), message),
            Error::Conflict { code, .. } => Problem::new(code.as_str(), message),
            Error::NotFound { missing, details, .. } => {
                let code = if missing == Missing::Root { "root_not_found" } else { "path_not_found" };
                Problem { details, ..Problem::new(code, message) }
            }
            Error::Damaged { .. } | Error::Proof { .. } => Problem::failed(message),
        }
    }

    /// What a client may know of an error of a batch.
    pub(crate) fn of_batch(BatchError { error, index }: BatchError) -> Self {
        let problem = Problem::of(error);
        match index {
            Some(index) => Problem { details: Some(format!("{{\"index\":{index}}}")), ..problem },
            None => problem,
        }
    }

    /// What a client may know of why the store was not read.
    pub(crate) fn of_failure(failure: Failure) -> Self {
        match failure {
            Failure::Unavailable(message) => Problem::new("unavailable", message),
            Failure::Full(message) => Problem::new("storage_full", message),
            Failure::NotFound(message) => Problem::new("payload_not_found", message),
            Failure::Damaged(message) => Problem::failed(message),
            Failure::Internal => Problem::internal(),
        }
    }

    /// What is not a CID.
    pub(crate) fn cid(text: &str) -> Result<Cid, Self> {
        Cid::from_text(text).map_err(Problem::of)
    }
}
