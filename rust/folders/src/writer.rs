//! The work of a restore: what is to be written, jobs, the threads that do them, and what went wrong first.

use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use coregw_core::{Cid, Error, InputCode, Result};

use rustix::fs::{self, AtFlags, Timespec, Timestamps, UTIME_NOW};

use crate::beneath::Beneath;
use crate::metadata::{FileStat, Metadata};
use crate::parallel::locked;
use crate::plan::{self, Batch, Content, Files, HeldItem, NewFile, Placement, Plan, PlannedFile, PlannedPayload, TOP};
use crate::stat_file::{Header, Stat, StatSorter};
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
    /// Where it is written.
    pub top: Top,
    /// Files that are not requested yet.
    pub files: Mutex<Files>,
    states: Mutex<Option<States>>,
    /// Whether what is at the top is moved elsewhere in the end.
    pub is_moved: bool,
    /// Bytes that all files together may have, and those that they have as far as is known.
    max_bytes: AtomicU64,
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
    /// Nothing is to be written yet. Whether files and links `are_held` until it is known what is there; where the temporary
    /// file of a stat cache is, if there is one.
    pub(crate) fn new(top: Top, is_moved: bool, max_bytes: u64, are_held: bool, cached_in: Option<PathBuf>) -> Self {
        Self {
            plan: RwLock::new(Plan::new(are_held)),
            top,
            files: Mutex::default(),
            states: Mutex::new(cached_in.map(States::new)),
            is_moved,
            max_bytes: AtomicU64::new(max_bytes),
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

    /// All files together may have this number of bytes.
    pub fn set_max_bytes(&self, max_bytes: u64) {
        self.max_bytes.store(max_bytes, Ordering::Relaxed);
    }

    /// Adds a file that consists of these payloads, at least one; `list` is the root of their list. It is held until it is
    /// known what is there, if all are.
    ///
    /// # Errors
    /// [`Error::Input`] if no file can be that long, all files have too many bytes, or the tree has the path already.
    pub fn add_file(
        &self,
        (plan, files): (&mut Plan, &mut Files),
        place: (u32, CString),
        (parts, list): (Parts<'_>, Option<&Cid>),
        attributes: Metadata,
        placement: Placement,
    ) -> Result<()> {
        if plan.held.is_some() {
            let content = Content::File(parts.to_vec(), list.map(|list| Box::new(*list)));
            return plan.hold(place, content, attributes).map(drop);
        }
        self.plan_file((plan, files), place, (parts, list), attributes, placement)
    }

    /// The number of files that are written.
    pub(crate) fn planned_files(&self) -> u32 {
        locked(&self.files).count
    }

    /// The number of files that were added, and the sum of their sizes; none if one of them is not known. O(files) if they
    /// are held.
    pub fn added(&self) -> (u64, Option<u64>) {
        let (files, plan) = self.planned();
        if plan.held.is_none() {
            let (count, bytes) = files.added();
            return (count.into(), bytes);
        }
        let held = || plan.items.iter().filter(|item| item.is_file());
        let bytes = held().try_fold(0u64, |sum, item| Some(sum.saturating_add(item.size()?)));
        (held().count() as u64, bytes)
    }

    /// Adds a file that is written.
    pub(crate) fn plan_file(
        &self,
        (plan, files): (&Plan, &mut Files),
        place: (u32, CString),
        (parts, list): (Parts<'_>, Option<&Cid>),
        attributes: Metadata,
        placement: Placement,
    ) -> Result<()> {
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
        let max = self.max_bytes.load(Ordering::Relaxed);
        if counted <= max {
            return Ok(());
        }
        let path = path();
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
        let Some(state) = state.filter(|_| locked(&self.states).is_some()) else { return };
        let target = file.list.as_ref().map_or_else(|| payload.cid(), |list| Cid::trusted(list));
        // Before the states are locked: who has the plan may want them.
        let path = self.plan().path(file.folder, &file.name);
        if let Some(states) = &mut *locked(&self.states) {
            states.note(path, state.into(), &target, self.is_moved && file.folder == TOP);
        }
    }

    /// Notes the state of a file that stays.
    pub(crate) fn note_kept(&self, plan: &Plan, item: &HeldItem, stat: Stat) {
        let (Some(target), Some(states)) = (item.target(), &mut *locked(&self.states)) else { return };
        states.note(plan.path(item.folder, &item.name), stat, target, self.is_moved && item.folder == TOP);
    }

    /// Writes the stat cache to a file. `clock` is a folder of the same file system as `folder`, where all files are now.
    /// Waits for up to a tick of the file system's clock, mostly 10 ms or less.
    ///
    /// # Errors
    /// The file, or one for many states before, cannot be written.
    pub fn save(&self, file: &Path, folder: &Path, clock: &Path, known_as: &[u8]) -> io::Result<()> {
        let Some(states) = locked(&self.states).take() else { return Ok(()) };
        let clock = Beneath::new(clock)?;
        states.save(file, &Beneath::new(folder)?, known_as, &mut || {
            fs::futimens(&clock, &NOW)?;
            Ok(Stat::from(FileStat::of(&clock)?).ctime)
        })
    }
}

/// What is known of files that are restored.
struct States {
    sorter: StatSorter,
    /// Files at the top that are moved: their times of change are others then.
    moved: Vec<(String, Stat, Cid)>,
    newest: i64,
    failure: Option<io::Error>,
}

/// A clock that stands still for longer is not waited for: some file systems do not record changes of a folder.
const MAX_PAUSES: u32 = 100;
/// The pause between two looks at the file system's clock, which counts in ticks: of 1 to 10 ms in Linux.
const PAUSE: Duration = Duration::from_millis(1);

const NOW: Timestamps = {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    Timestamps { last_access: now, last_modification: now }
};

impl States {
    fn new(folder: PathBuf) -> Self {
        Self { sorter: StatSorter::new(folder, None), moved: Vec::new(), newest: 0, failure: None }
    }

    fn note(&mut self, path: String, stat: Stat, target: &Cid, is_moved: bool) {
        if is_moved {
            self.moved.push((path, stat, *target));
            return;
        }
        self.newest = self.newest.max(stat.ctime);
        if let Err(error) = self.sorter.add(path.as_bytes(), stat, target) {
            self.failure.get_or_insert(error);
        }
    }

    fn save(
        mut self,
        file: &Path,
        folder: &Beneath,
        known_as: &[u8],
        clock: &mut dyn FnMut() -> io::Result<i64>,
    ) -> io::Result<()> {
        for (name, stat, target) in std::mem::take(&mut self.moved) {
            let found =
                fs::statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW).map(|found| Stat::from(FileStat::from(found)));
            let is_same = |found: &Stat| Stat { ctime: stat.ctime, ..*found } == stat;
            self.note(name, found.ok().filter(is_same).unwrap_or(stat), &target, false);
        }
        if let Some(error) = self.failure {
            return Err(error);
        }
        let before = time_after(self.newest, clock, &mut || thread::sleep(PAUSE))?;
        let header = Header { folder: known_as.to_vec(), options: RESTORED.to_vec(), before, ..Header::default() };
        self.sorter.write(file, &header)
    }
}

/// What the stat cache of a restored folder has in place of the options of an upload.
pub const RESTORED: &[u8] = b"restored";

/// The time of a file system, if possible after `newest`. No later change has an earlier time.
///
/// Times are those of the file system, which may be on another machine. Those with fractions of a second advance every 16 ms
/// or more often; all others are exact to two seconds (FAT), for which [`Stat::is_final`] allows.
///
/// # Errors
/// Those of `clock`.
pub fn time_after(newest: i64, clock: &mut dyn FnMut() -> io::Result<i64>, pause: &mut dyn FnMut()) -> io::Result<i64> {
    let mut now = clock()?;
    for _ in 0..MAX_PAUSES {
        if now != newest || newest % 1_000_000_000 == 0 {
            break;
        }
        pause();
        now = clock()?;
    }
    Ok(now)
}
