//! The work of a `FolderWriter`: jobs, the threads that do them, and what went wrong first.

use std::collections::VecDeque;
use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::failure::RestoreFailure;
use super::folders::Top;
use super::lock::locked;
use super::plan::Plan;

/// Bytes that wait for a thread, in all lanes together. A connection that brings more has to wait.
const MAX_WAITING_BYTES: usize = 32 << 20;
/// The size of a payload that nothing is known of, before any has come.
const FIRST_GUESS_BYTES: u64 = 32 << 10;
/// The most payloads that one request may name.
const MAX_PAYLOADS: usize = 4096;

/// What a thread works on until nothing is left of it.
pub(super) trait Job: Send + Sync {
    fn run(&self, work: &Writing);
}

/// What threads share.
pub(super) struct Writing {
    pub plan: Plan,
    pub top: Top,
    /// Bytes that wait.
    pub waiting: AtomicUsize,
    /// Bytes written to files.
    pub written: AtomicU64,
    /// Bytes of payloads that have come, and their number.
    pub received: AtomicU64,
    pub payloads: AtomicU64,
    /// The payload to request next.
    next: Mutex<usize>,
    queue: Mutex<Queue>,
    wake: Condvar,
    room: Condvar,
    failure: Mutex<Option<RestoreFailure>>,
    is_stopped: AtomicBool,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Arc<dyn Job>>,
    has_ended: bool,
}

impl Writing {
    pub fn new(plan: Plan, top: Top) -> Self {
        Self {
            plan,
            top,
            waiting: AtomicUsize::new(0),
            written: AtomicU64::new(0),
            received: AtomicU64::new(0),
            payloads: AtomicU64::new(0),
            next: Mutex::new(0),
            queue: Mutex::default(),
            wake: Condvar::new(),
            room: Condvar::new(),
            failure: Mutex::new(None),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Starts one thread for each core.
    pub fn start(self: &Arc<Self>) -> io::Result<Vec<JoinHandle<()>>> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let mut threads = Vec::new();
        for _ in 0..cores {
            let work = Arc::clone(self);
            match thread::Builder::new().name("coregw-restore".into()).spawn(move || work.run()) {
                Ok(thread) => threads.push(thread),
                Err(error) if threads.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(threads)
    }

    fn run(&self) {
        loop {
            let mut queue = locked(&self.queue);
            let job = loop {
                if let Some(job) = queue.jobs.pop_front() {
                    break job;
                }
                if queue.has_ended {
                    return;
                }
                queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            drop(queue);
            job.run(self);
        }
    }

    /// Queues a job for a thread.
    pub fn schedule(&self, job: Arc<dyn Job>) {
        locked(&self.queue).jobs.push_back(job);
        self.wake.notify_one();
    }

    /// Notes that a thread has worked on so many bytes.
    pub fn taken(&self, count: usize) {
        if self.waiting.fetch_sub(count, Ordering::AcqRel) > MAX_WAITING_BYTES {
            drop(locked(&self.queue));
            self.room.notify_all();
        }
    }

    /// Whether more bytes wait than may.
    pub fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > MAX_WAITING_BYTES
    }

    /// Waits until there is room for more bytes.
    pub fn wait_for_room(&self) {
        let mut queue = locked(&self.queue);
        while self.is_full() && !self.is_stopped() {
            queue = self.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Calls `task`, and keeps its failure if it is the first.
    pub fn attempt(&self, task: impl FnOnce() -> Result<(), RestoreFailure>) {
        let failure = match catch_unwind(AssertUnwindSafe(task)) {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure,
            Err(panic) => RestoreFailure::Panic(panic),
        };
        locked(&self.failure).get_or_insert(failure);
        self.stop();
    }

    /// The first failure, once.
    pub fn failure(&self) -> Option<RestoreFailure> {
        locked(&self.failure).take()
    }

    /// Nothing more is written; what has come is dropped.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        drop(locked(&self.queue));
        self.room.notify_all();
    }

    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Lets the threads end when there is nothing left to do.
    pub fn end(&self) {
        locked(&self.queue).has_ended = true;
        self.wake.notify_all();
    }

    /// The next payloads to request: of about `bytes` together, at least one. None if all have been.
    ///
    /// A payload of unknown size counts as much as those that have come on average.
    pub fn next_request(&self, bytes: u64) -> Vec<u32> {
        let (count, received) = (self.payloads.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed));
        let guess = received.checked_div(count).map_or(FIRST_GUESS_BYTES, |average| average + 1);
        let mut next = locked(&self.next);
        let (mut requested, mut total) = (Vec::new(), 0u64);
        while let Some(payload) = self.plan.payloads.get(*next) {
            if !payload.is_done.load(Ordering::Acquire) {
                total = total.saturating_add(payload.size().unwrap_or(guess));
                if requested.len() == MAX_PAYLOADS || total > bytes && !requested.is_empty() {
                    break;
                }
                requested.push(*next as u32);
            }
            *next += 1;
        }
        requested
    }
}
