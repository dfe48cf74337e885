//! Queue of what hot requests write: a thread takes everything that waits, so that one commit, and one sync, are for all.
//!
//! What was queued is written whether or not its client still waits for it, so a client that leaves cancels nothing half-way.
//! The threads are the caller's ([`Writes::next`], [`Writes::done`]).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::batch::{Failure, Multihash};
use crate::budget::Account;
use crate::reads::{Reply, ReplyTo, closed, reply};

/// A payload of at most this size is hashed by the thread of its connection and written with others, in bytes.
pub const SHORT_PAYLOAD_BYTES: usize = 64 << 10;
/// The most of one batch: what is written while others wait for the disk.
const MAX_BATCH_BYTES: usize = 1 << 20;
const MAX_BATCH_PAYLOADS: usize = 1024;
/// How many payloads may wait.
const MAX_WAITING: usize = 16_384;

/// What is written at once.
#[derive(Debug, PartialEq, Eq)]
pub struct WriteBatch {
    /// What [`Writes::done`] is told.
    pub id: u64,
    /// Payloads, each with its binary multihash, in the order in which they came.
    pub payloads: Vec<(Multihash, Bytes)>,
}

struct NewPayload {
    name: Multihash,
    bytes: Bytes,
    writing: Writing,
}

/// Who waits for a write, and the memory of its body.
struct Writing {
    reply: ReplyTo<()>,
    _account: Account,
}

#[derive(Default)]
struct WriteQueue {
    last_id: u64,
    is_closed: bool,
    waiting: VecDeque<NewPayload>,
    in_progress: HashMap<u64, Vec<Writing>>,
}

/// The writes to one store.
#[derive(Default)]
pub struct Writes {
    state: Mutex<WriteQueue>,
    arrived: Condvar,
}

impl Writes {
    /// A queue without writes.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Writes a payload; the reply comes when it is durable. `account` counts its memory until then.
    pub fn put(&self, name: Multihash, bytes: Bytes, account: Account) -> Reply<()> {
        let (to, written) = reply();
        let mut state = self.lock();
        let refusal = match state.waiting.len() {
            _ if state.is_closed => Some(closed()),
            MAX_WAITING.. => {
                Some(Failure::Unavailable(format!("the store does not keep up: {MAX_WAITING} payloads wait")))
            }
            _ => None,
        };
        match refusal {
            Some(failure) => drop(to.send(Err(failure))), // it is held below
            None => {
                state.waiting.push_back(NewPayload { name, bytes, writing: Writing { reply: to, _account: account } })
            }
        }
        drop(state);
        self.arrived.notify_one();
        written
    }

    /// Waits for writes, and takes those that wait, up to a size; None after [`Writes::close`]. For any number of threads.
    pub fn next(&self) -> Option<WriteBatch> {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.is_closed {
                return None;
            }
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut size, mut payloads, mut writing) = (0, Vec::new(), Vec::new());
        while size < MAX_BATCH_BYTES && payloads.len() < MAX_BATCH_PAYLOADS {
            let Some(next) = state.waiting.pop_front() else { break };
            size += next.bytes.len();
            payloads.push((next.name, next.bytes));
            writing.push(next.writing);
        }
        state.last_id += 1;
        let id = state.last_id;
        state.in_progress.insert(id, writing);
        if !state.waiting.is_empty() {
            self.arrived.notify_one();
        }
        Some(WriteBatch { id, payloads })
    }

    /// Says that a batch is durable, or why it is not. An unknown batch is ignored.
    pub fn done(&self, batch: u64, outcome: &Result<(), Failure>) {
        let Some(writing) = self.lock().in_progress.remove(&batch) else { return };
        for each in writing {
            let _ = each.reply.send(outcome.clone()); // its client may have left
        }
    }

    /// Ends the queue: what waits fails, and further writes do. What was taken goes on.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        for each in state.waiting.drain(..) {
            let _ = each.writing.reply.send(Err(closed())); // its client may have left
        }
        drop(state);
        self.arrived.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, WriteQueue> {
        // Nothing in here panics while the state is inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
