//! The work of a restore: what is to be written, jobs, the threads that do them, and what went wrong first.

use std::collections::VecDeque;
use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};

use coregw_core::{Cid, Error, InputCode, Result};

use crate::metadata::{FileStat, Metadata};
use crate::parallel::locked;
use crate::plan::{self, Batch, Files, NewFile, Placement, Plan, PlannedFile, PlannedPayload, TOP};
use crate::stat_file::Stat;
use crate::top::{RestoreFailure, Top};

/// Bytes that wait for a thread, in all lanes together. A connection that brings more has to wait.
const MAX_WAITING_BYTES: usize = 32 << 20;
/// The size of a payload that nothing is known of, before any has come.
const FIRST_GUESS_BYTES: u64 = 32 << 10;
/// What a thread works on until nothing is left of it.
pub trait Job: Send + Sync {
    /// Works until nothing is left.
    fn run(&self, work: &Writing);
}

/// What threads share.
pub struct Writing {
    plan: RwLock<Plan>,
    pub(crate) top: Top,
    /// Files that are not requested yet.
    pub files: Mutex<Files>,
    states: Mutex<States>,
    /// Whether what is at the top is moved elsewhere in the end.
    pub is_moved: bool,
    /// Bytes that all files together may have, and those that they have as far as is known.
    max_bytes: u64,
    bytes: AtomicU64,
    /// Bytes that wait.
    pub waiting: AtomicUsize,
    /// Bytes written to files.
    pub written: AtomicU64,
    /// Bytes of payloads that have come, and their number.
    pub received: AtomicU64,
    pub(crate) payloads: AtomicU64,
    /// Buffers of finished lanes, for the next ones: new memory is cleared by the system when it is first written to.
    buffers: Mutex<Vec<Vec<u8>>>,
    queue: Mutex<Queue>,
    wake: Condvar,
    room: Condvar,
    failure: Mutex<Option<RestoreFailure>>,
    is_stopped: AtomicBool,
}

/// The payloads of a file: their CIDs and sizes.
pub type Parts<'a> = &'a [(Cid, Option<u64>)];

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Arc<dyn Job>>,
    has_ended: bool,
}

impl Writing {
    pub(crate) fn new(top: Top, is_moved: bool, max_bytes: u64) -> Self {
        Self {
            plan: RwLock::new(Plan::new()),
            top,
            files: Mutex::default(),
            states: Mutex::default(),
            is_moved,
            max_bytes,
            bytes: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            written: AtomicU64::new(0),
            received: AtomicU64::new(0),
            payloads: AtomicU64::new(0),
            buffers: Mutex::default(),
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

    /// An empty buffer, if possible one that was used before.
    pub fn take_buffer(&self) -> Vec<u8> {
        locked(&self.buffers).pop().unwrap_or_default()
    }

    /// Keeps a buffer for the next caller of `take_buffer`.
    pub fn keep_buffer(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        locked(&self.buffers).push(buffer);
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

    /// The first failure, unless it was taken before.
    pub fn take_failure(&self) -> Option<RestoreFailure> {
        locked(&self.failure).take()
    }

    /// Nothing more is written; what has come is dropped.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        drop(locked(&self.queue));
        self.room.notify_all();
    }

    /// Whether nothing more is written.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Lets the threads end when there is nothing left to do.
    pub fn end(&self) {
        locked(&self.queue).has_ended = true;
        self.wake.notify_all();
    }

    /// The folders, links and kept files.
    pub fn plan(&self) -> RwLockReadGuard<'_, Plan> {
        self.plan.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, to be changed.
    pub fn plan_mut(&self) -> RwLockWriteGuard<'_, Plan> {
        self.plan.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is planned, to be changed: the files first, as everywhere. Waits for threads, which may make folders.
    pub fn planned(&self) -> (MutexGuard<'_, Files>, RwLockWriteGuard<'_, Plan>) {
        (locked(&self.files), self.plan_mut())
    }

    /// The same; none if a thread has one of the locks.
    pub fn try_planned(&self) -> Option<(MutexGuard<'_, Files>, RwLockWriteGuard<'_, Plan>)> {
        // A lock that a panic has poisoned counts as taken: `planned` takes it.
        Some((self.files.try_lock().ok()?, self.plan.try_write().ok()?))
    }

    /// Adds a file that consists of these payloads, at least one; `list` is the root of their list.
    pub fn add_file(
        &self,
        (plan, files): (&mut Plan, &mut Files),
        (below, path): (u32, &[String]),
        (parts, list): (Parts<'_>, Option<&Cid>),
        attributes: Metadata,
        placement: Placement,
    ) -> Result<()> {
        let place = plan.place(below, path)?;
        let shown = || plan.path(place.0, &place.1).escape_debug().to_string();
        let size = plan::known_size(parts).map_err(|error| error.within(&shown()))?;
        self.count(size, shown)?;
        let number = files.count;
        let bytes = files.bytes.checked_add(size).ok_or_else(|| {
            Error::input(InputCode::TooLarge, format!("{}: the sizes of all files sum to 2^64 or more", shown()))
        })?;
        files.draft.add(NewFile { number, place, parts, list, attributes, placement })?;
        files.count += 1;
        files.bytes = bytes;
        files.has_unknown_sizes |= parts.iter().any(|(_, size)| size.is_none());
        Ok(())
    }

    /// Counts bytes of files, before any of them is written.
    ///
    /// # Errors
    /// [`Error::Input`] if there are more than there may be; `path` names the file whose bytes these are.
    fn count(&self, bytes: u64, path: impl FnOnce() -> String) -> Result<()> {
        let counted = self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if counted <= self.max_bytes {
            return Ok(());
        }
        let (path, max) = (path(), self.max_bytes);
        let what = format!("{path}: with this file, {counted} bytes are to be written, but {max} are free on the disk");
        Err(Error::input(InputCode::TooLarge, what))
    }

    /// Counts the bytes of a payload where its size was not known before it came.
    pub fn count_unknown(&self, batch: &Batch, payload: &PlannedPayload, size: u64) -> Result<()> {
        if payload.is_counted.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let mut unknown = payload.places.iter().filter(|place| place.size.is_none());
        let Some(first) = unknown.next() else { return Ok(()) };
        let file = &batch.files[first.file as usize];
        let bytes = size.saturating_mul(1 + unknown.count() as u64);
        self.count(bytes, || self.plan().path(file.folder, &file.name).escape_debug().to_string())
    }

    /// The size of a payload that nothing is known of: that of those that have come on average.
    pub fn mean_size(&self) -> u64 {
        let (count, received) = (self.payloads.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed));
        received.checked_div(count).map_or(FIRST_GUESS_BYTES, |average| average + 1)
    }

    /// Notes the state of a complete file; none if somebody else has changed it already.
    pub fn note(&self, file: &PlannedFile, state: Option<FileStat>, payload: &PlannedPayload) {
        let Some(state) = state else { return };
        let target = file.list.as_ref().map_or_else(|| payload.cid(), |list| Cid::trusted(list));
        let path = self.plan().path(file.folder, &file.name);
        let mut states = locked(&self.states);
        let kept_apart = self.is_moved && file.folder == TOP;
        if kept_apart { &mut states.top } else { &mut states.files }.push((path, state.into(), target));
    }

    /// The states that were noted since the last call.
    pub fn take_states(&self) -> States {
        std::mem::take(&mut *locked(&self.states))
    }
}

/// What a writer has written since it was asked last.
#[derive(Default)]
pub struct States {
    /// The path, the state and the target of each file.
    pub files: Vec<NotedFile>,
    /// The same for files that are not below a folder, if they are kept apart.
    pub top: Vec<NotedFile>,
}

/// The path of a file, the state in which it had its path, and its target.
pub type NotedFile = (String, Stat, Cid);
