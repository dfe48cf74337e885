//! Queue of what hot requests write: a thread takes everything that waits, so that one commit, and one sync, are for all.
//!
//! What was queued is written whether or not its client still waits for it, so a client that leaves cancels nothing half-way.
//! The threads are the caller's ([`Writes::next`], [`Writes::done`]).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use coregw_core::{Digest, PageDifference, RootCid};

use crate::batch::{Failure, Home, Multihash, Reply, ReplyTo, closed, reply};
use crate::budget::Account;
use parking_lot::{Condvar, Mutex, MutexGuard};

/// The size in bytes up to which a payload is written here whatever the store is.
pub const SHORT_PAYLOAD_BYTES: usize = 64 << 10;
/// The size of a chunk of a payload: a longer one is written chunk by chunk, while it arrives.
pub const CHUNK_BYTES: usize = 1 << 20;
/// A root or a mutation whose request has at most this size is made by the threads of the front, in bytes.
pub const SHORT_CHANGE_BYTES: usize = 16 << 10;
/// The most of one batch: what is written while others wait for the disk.
const MAX_BATCH_BYTES: usize = 1 << 20;
const MAX_BATCH_WRITES: usize = 1024;
/// How many writes may wait.
const MAX_WAITING: usize = 16_384;
/// Which part of the time of a batch the next one may wait for the clients of both: clients that send one write after the
/// other would otherwise form two groups, each with a sync of its own.
const GATHERING_PART: f32 = 0.25;

/// What is written at once.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WriteBatch {
    /// What [`Writes::done`] is told.
    pub id: u64,
    /// Payloads, each with its binary multihash, in the order in which they came.
    pub payloads: Vec<(Multihash, Bytes)>,
    /// Chunks of longer payloads. Those of one upload come in their order, never two in a batch.
    pub chunks: Vec<PayloadChunk>,
    /// Uploads that have ended without a last chunk, or whose last chunk has failed or is not known to be stored.
    pub dropped: Vec<UploadId>,
    /// Parts of trees.
    pub trees: Vec<NewTrees>,
    /// Roots to date as if they were stored now, as far as they are held.
    pub renewals: Vec<Vec<RootCid>>,
}

/// The number of an upload, which no other of the same queue has.
pub type UploadId = u64;

/// A part of a payload that arrives in chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadChunk {
    /// The upload.
    pub upload: UploadId,
    /// The bytes: [`CHUNK_BYTES`], or fewer in the last one.
    pub bytes: Bytes,
    /// The binary multihash of the payload, if this is the last chunk: the payload is stored then, durably.
    pub ends: Option<Multihash>,
}

/// Pages, and the records of roots, which are written together or not at all. If all roots are held already, and complete,
/// they are dated instead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewTrees {
    /// Pages by digest.
    pub pages: Vec<(Digest, Vec<u8>)>,
    /// Differences of some of the pages to others, by digest, which a store may keep instead.
    pub differences: Vec<(Digest, PageDifference)>,
    /// Roots that are held from then on; without any, the pages need not be durable.
    pub roots: Vec<RootCid>,
    /// Roots that must be held: their trees have pages that the new ones share.
    pub requires: Vec<RootCid>,
    /// The store's time of the first write of the same change, if this is not the first.
    pub since: Option<u64>,
}

/// What became of each write of a batch, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Of payloads.
    pub payloads: Vec<Result<(), Failure>>,
    /// Of chunks.
    pub chunks: Vec<Result<(), Failure>>,
    /// Of trees: the store's time.
    pub trees: Vec<Result<u64, Failure>>,
    /// Of renewals: which roots are held.
    pub renewals: Vec<Result<Vec<bool>, Failure>>,
}

/// A write, and who waits for it.
enum Write {
    Payload { name: Multihash, bytes: Bytes, waiting: Awaiting<()> },
    Chunk { chunk: PayloadChunk, waiting: Awaiting<()> },
    Drop { upload: UploadId },
    Trees { trees: NewTrees, waiting: Awaiting<(u64, Account)> },
    Renewal { roots: Vec<RootCid>, waiting: Awaiting<Vec<bool>> },
}

impl Write {
    fn size(&self) -> usize {
        match self {
            Write::Payload { bytes, .. } => bytes.len(),
            Write::Chunk { chunk, .. } => chunk.bytes.len(),
            Write::Trees { trees, .. } => trees.pages.iter().map(|(_, page)| page.len()).sum(),
            Write::Renewal { .. } | Write::Drop { .. } => 0,
        }
    }

    fn fail(self, failure: Failure) {
        match self {
            Write::Payload { waiting, .. } | Write::Chunk { waiting, .. } => waiting.end(Err(failure)),
            Write::Drop { .. } => {}
            Write::Trees { waiting, .. } => waiting.end(Err(failure)),
            Write::Renewal { waiting, .. } => waiting.end(Err(failure)),
        }
    }
}

/// Who waits for a write, and the memory that is counted until its end, also if nobody does.
struct Awaiting<T> {
    reply: ReplyTo<T>,
    account: Option<Account>,
}

impl<T> Awaiting<T> {
    fn end(self, outcome: Result<T, Failure>) {
        let _ = self.reply.send(outcome); // its client may have left
    }
}

impl Awaiting<(u64, Account)> {
    fn end_trees(mut self, outcome: Result<u64, Failure>) {
        let outcome = outcome.and_then(|now| Ok((now, self.account.take().ok_or(Failure::Internal)?)));
        self.end(outcome);
    }
}

/// Those who wait for a batch, in its order.
#[derive(Default)]
struct Waiters {
    payloads: Vec<Awaiting<()>>,
    chunks: Vec<Awaiting<()>>,
    trees: Vec<Awaiting<(u64, Account)>>,
    renewals: Vec<Awaiting<Vec<bool>>>,
}

impl Waiters {
    fn count(&self) -> usize {
        self.payloads.len() + self.chunks.len() + self.trees.len() + self.renewals.len()
    }
}

#[derive(Default)]
struct WriteQueue {
    last_id: u64,
    is_closed: bool,
    waiting: VecDeque<Write>,
    in_progress: HashMap<u64, Waiters>,
    /// When the batch in progress was taken, if there is one alone.
    taken_at: Option<Instant>,
    /// How many writes the next batch waits for, and how long.
    gathering: (usize, Duration),
    /// How many writes the thread that waits waits for.
    wanted: usize,
}

/// The writes to one store.
pub struct Writes {
    state: Mutex<WriteQueue>,
    arrived: Condvar,
    home: Home,
    gathering_part: f32,
    take_chunks: bool,
    /// How many uploads have begun.
    uploads: AtomicU64,
}

impl Writes {
    /// A queue without writes, and whether it takes payloads that arrive in chunks.
    pub fn new(take_chunks: bool) -> Arc<Self> {
        Self::gathering(GATHERING_PART, take_chunks)
    }

    /// A queue whose batches wait for others during this part of the time of the batch before, at most.
    pub fn gathering(part: f32, take_chunks: bool) -> Arc<Self> {
        Arc::new(Writes {
            state: Mutex::default(),
            arrived: Condvar::new(),
            home: Home::default(),
            gathering_part: part,
            take_chunks,
            uploads: AtomicU64::new(0),
        })
    }

    /// Writes a payload; the reply comes when it is durable. `account` counts its memory until then.
    pub fn put(&self, name: Multihash, bytes: Bytes, account: Account) -> Reply<()> {
        let (to, written) = reply();
        self.add(Write::Payload { name, bytes, waiting: Awaiting { reply: to, account: Some(account) } });
        written
    }

    /// Whether it takes payloads of more than [`SHORT_PAYLOAD_BYTES`], and in chunks.
    pub fn take_chunks(&self) -> bool {
        self.take_chunks
    }

    /// Begins a payload that arrives in chunks.
    pub fn begin(self: &Arc<Self>) -> Upload {
        let id = self.uploads.fetch_add(1, Ordering::Relaxed);
        Upload { id, writes: Arc::clone(self), in_flight: None, has_begun: false }
    }

    /// Writes parts of trees; the reply comes when they are durable, if there are roots: the store's time, and the account,
    /// which counts their memory until then.
    pub fn store(&self, trees: NewTrees, account: Account) -> Reply<(u64, Account)> {
        let (to, written) = reply();
        self.add(Write::Trees { trees, waiting: Awaiting { reply: to, account: Some(account) } });
        written
    }

    /// Dates roots as if they were stored now; the reply is which of them are held.
    pub fn renew(&self, roots: Vec<RootCid>) -> Reply<Vec<bool>> {
        let (to, written) = reply();
        self.add(Write::Renewal { roots, waiting: Awaiting { reply: to, account: None } });
        written
    }

    fn add(&self, write: Write) {
        self.home.note();
        let mut state = self.lock();
        let refusal = match state.waiting.len() {
            _ if state.is_closed => closed(),
            MAX_WAITING.. if !matches!(write, Write::Drop { .. }) => {
                Failure::Unavailable(format!("the store does not keep up: {MAX_WAITING} writes wait"))
            }
            _ => {
                state.waiting.push_back(write);
                let is_enough = state.waiting.len() >= state.wanted;
                drop(state);
                if is_enough {
                    self.arrived.notify_one();
                }
                return;
            }
        };
        drop(state);
        write.fail(refusal);
    }

    /// Waits for writes, and takes those that wait, up to a size; None after [`Writes::close`]. For any number of threads.
    pub fn next(&self) -> Option<WriteBatch> {
        let mut state = self.lock();
        loop {
            if !state.waiting.is_empty() && state.in_progress.is_empty() {
                self.gather(&mut state); // others may take what is there meanwhile
            }
            if !state.waiting.is_empty() {
                break;
            }
            if state.is_closed {
                return None;
            }
            self.arrived.wait(&mut state);
        }
        let (mut size, mut count) = (0, 0);
        let (mut batch, mut waiters) = (WriteBatch::default(), Waiters::default());
        while size < MAX_BATCH_BYTES && count < MAX_BATCH_WRITES {
            let Some(next) = state.waiting.pop_front() else { break };
            size += next.size();
            count += 1;
            match next {
                Write::Payload { name, bytes, waiting } => {
                    batch.payloads.push((name, bytes));
                    waiters.payloads.push(waiting);
                }
                Write::Chunk { chunk, waiting } => {
                    batch.chunks.push(chunk);
                    waiters.chunks.push(waiting);
                }
                Write::Drop { upload } => batch.dropped.push(upload),
                Write::Trees { trees, waiting } => {
                    batch.trees.push(trees);
                    waiters.trees.push(waiting);
                }
                Write::Renewal { roots, waiting } => {
                    batch.renewals.push(roots);
                    waiters.renewals.push(waiting);
                }
            }
        }
        state.taken_at = state.in_progress.is_empty().then(Instant::now);
        state.last_id += 1;
        batch.id = state.last_id;
        state.in_progress.insert(batch.id, waiters);
        if !state.waiting.is_empty() {
            self.arrived.notify_one();
        }
        Some(batch)
    }

    /// Waits a moment for as many writes as the last batch and those that have come during it.
    fn gather(&self, state: &mut MutexGuard<'_, WriteQueue>) {
        let (count, pause) = std::mem::take(&mut state.gathering);
        state.wanted = count;
        self.arrived.wait_while_for(state, |state| !state.is_closed && state.waiting.len() < count, pause);
        state.wanted = 0;
    }

    /// Says what became of a batch, or why nothing is known to be written. An unknown batch is ignored; a write without an
    /// outcome has failed.
    pub fn done(&self, batch: u64, outcome: Result<Written, Failure>) {
        let mut state = self.lock();
        let Some(waiters) = state.in_progress.remove(&batch) else { return };
        if let Some(taken_at) = state.taken_at.take() {
            let count = waiters.count() + state.waiting.len();
            state.gathering = (count.min(MAX_BATCH_WRITES), taken_at.elapsed().mul_f32(self.gathering_part));
        }
        drop(state);
        let (written, failure) = match outcome {
            Ok(written) => (written, Failure::Internal),
            Err(failure) => (Written::default(), failure),
        };
        self.home.send(move || {
            end_all(waiters.payloads, written.payloads, &failure, Awaiting::end);
            end_all(waiters.chunks, written.chunks, &failure, Awaiting::end);
            end_all(waiters.trees, written.trees, &failure, Awaiting::end_trees);
            end_all(waiters.renewals, written.renewals, &failure, Awaiting::end);
        });
    }

    /// Ends the queue: what waits fails, and further writes do. What was taken goes on.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(|each| each.fail(closed()));
        self.arrived.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, WriteQueue> {
        self.state.lock()
    }
}

/// A payload that arrives in chunks. What was written of it is dropped with this, unless it was finished.
pub struct Upload {
    id: UploadId,
    writes: Arc<Writes>,
    /// The chunk that is written while the next one arrives.
    in_flight: Option<Reply<()>>,
    /// Whether something may have been written.
    has_begun: bool,
}

impl Upload {
    /// Begins to write the next chunk, of [`CHUNK_BYTES`], once the one before it is written. `account` counts its memory.
    ///
    /// # Errors
    /// Why the chunk before it was not written.
    pub async fn send(&mut self, bytes: Bytes, account: Account) -> Result<(), Failure> {
        self.wait().await?;
        self.in_flight = Some(self.write(bytes, None, account));
        Ok(())
    }

    /// Writes the last chunk, which is not empty if it follows others, and stores the payload under its binary multihash.
    ///
    /// # Errors
    /// Why the payload is not, or is not known to be, stored.
    pub async fn finish(mut self, name: Multihash, bytes: Bytes, account: Account) -> Result<(), Failure> {
        if !self.has_begun {
            return self.writes.put(name, bytes, account).found().await;
        }
        self.wait().await?;
        self.write(bytes, Some(name), account).found().await?;
        self.has_begun = false;
        Ok(())
    }

    async fn wait(&mut self) -> Result<(), Failure> {
        match self.in_flight.take() {
            Some(written) => written.found().await,
            None => Ok(()),
        }
    }

    fn write(&mut self, bytes: Bytes, ends: Option<Multihash>, account: Account) -> Reply<()> {
        self.has_begun = true;
        let (to, written) = reply();
        let chunk = PayloadChunk { upload: self.id, bytes, ends };
        self.writes.add(Write::Chunk { chunk, waiting: Awaiting { reply: to, account: Some(account) } });
        written
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.has_begun {
            self.writes.add(Write::Drop { upload: self.id });
        }
    }
}

fn end_all<W, T>(
    waiters: Vec<W>,
    outcomes: Vec<Result<T, Failure>>,
    without: &Failure,
    end: fn(W, Result<T, Failure>),
) {
    let mut outcomes = outcomes.into_iter();
    for each in waiters {
        end(each, outcomes.next().unwrap_or_else(|| Err(without.clone())));
    }
}
