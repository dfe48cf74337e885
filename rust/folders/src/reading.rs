//! Threads that read and hash the files of a folder, and collect their payloads in batches, unless nobody wants these.
//!
//! ```text
//! threads: read, hash ─► draft ─full─► ready (one batch) ─► next ─► in flight ─► acknowledged
//!             ▲             │
//!             └── wait ◄────┘ while both are full
//! ```

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use coregw_core::{Cid, Error, Result, Snapshot};

use crate::changes::Joined;
use crate::contents::{self, Chunk, Unread, list_of};
use crate::entries::EntryKind;
use crate::hashed::{Hashed, Recorded, read_top_xattrs, read_xattrs};
use crate::parallel::locked;
use crate::stat_file::{Stat, StatFile};
use crate::survey::Survey;
use crate::upload::Draft;
use crate::watch::Watch;

/// Full batches that wait to be taken.
const MAX_READY: usize = 1;
/// How often a caller that waits looks after what only it can do.
const WATCH: Duration = Duration::from_millis(20);

/// The chunks of files that are lists, by the places of the files in the survey.
pub type Chunks = BTreeMap<usize, Vec<Chunk>>;

/// What is known of an entry's target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knowledge {
    /// Its file has to be read.
    Unknown,
    /// It is that of the last time, and nothing of its bytes is among the batches.
    Remembered,
    /// All its payloads are, or were, among the batches; or it is skipped, or not a file.
    Settled,
}

/// What the threads share.
pub struct Reading {
    pub(crate) survey: Arc<Survey>,
    xattrs: bool,
    /// Shared with those who read all of it: no lock is held for as long as that takes. Its caller may want the lock while
    /// it holds another, which a `Watch` may want to look for an interrupt.
    hashed: Mutex<Arc<Hashed>>,
    knowledge: Mutex<Vec<Knowledge>>,
    /// The next entry to be read.
    next: AtomicUsize,
    /// The chunks of the files that are lists, if no payloads are collected.
    chunks: Option<Mutex<Chunks>>,
    queue: Mutex<Collected>,
    changed: Condvar,
    is_stopped: AtomicBool,
    /// Bytes that were read or need not be read, since they were asked for last.
    progress: AtomicU64,
    files_read: AtomicU64,
}

#[derive(Default)]
struct Collected {
    /// Threads that read.
    readers: usize,
    draft: Draft,
    /// Digests of payloads that are collected and not acknowledged.
    recent: HashSet<[u8; 32]>,
    ready: VecDeque<Draft>,
    /// Batches that were handed out.
    handed_out: u64,
    /// Those of them that are not acknowledged.
    in_flight: BTreeSet<u64>,
    lists: WaitingLists,
    /// Why a thread has ended before all was read.
    failure: Option<ReadFailure>,
}

enum ReadFailure {
    Core(Error),
    /// A bug.
    Panic(Box<dyn Any + Send>),
}

impl Reading {
    /// The files of a survey of which nothing more is known than `hashed` says.
    pub fn new(hashed: Hashed, xattrs: bool) -> Self {
        let survey = Arc::clone(&hashed.survey);
        let is_unknown = |index| survey.entries.kind(index) == EntryKind::File && !hashed.targets.is_known(index);
        let known = |index| if is_unknown(index) { Knowledge::Unknown } else { Knowledge::Settled };
        let knowledge = (0..survey.entries.count()).map(known).collect();
        Self {
            xattrs,
            hashed: Mutex::new(Arc::new(hashed)),
            knowledge: Mutex::new(knowledge),
            next: AtomicUsize::new(0),
            chunks: None,
            survey,
            queue: Mutex::default(),
            changed: Condvar::new(),
            is_stopped: AtomicBool::new(false),
            progress: AtomicU64::new(0),
            files_read: AtomicU64::new(0),
        }
    }

    /// What is known now. It does not change while it is held: threads that read files change a copy of it then.
    pub fn hashed(&self) -> Arc<Hashed> {
        Arc::clone(&locked(&self.hashed))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Hashed) -> T) -> T {
        change(Arc::make_mut(&mut locked(&self.hashed)))
    }

    /// Lets all threads end soon.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        drop(locked(&self.queue));
        self.changed.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// The number of times that a file was read.
    pub fn files_read(&self) -> u64 {
        self.files_read.load(Ordering::Relaxed)
    }

    /// The number of bytes that were read, or need not be read, since it was asked for last.
    pub fn take_progress(&self) -> u64 {
        self.progress.swap(0, Ordering::Relaxed)
    }

    /// Takes what the cache knows: the targets of files that have not changed since. False if the cache is damaged.
    pub fn remember(&self, cache: &StatFile) -> bool {
        let before = cache.header.before;
        let Ok(mut joined) = Joined::new(&self.survey, Some(cache)) else { return false };
        let (mut shared, mut knowledge) = (locked(&self.hashed), locked(&self.knowledge));
        let hashed = Arc::make_mut(&mut shared);
        let (entries, mut size) = (&self.survey.entries, 0u64);
        let joined = (|| {
            while joined.advance()? {
                let (Some(index), Some(old)) = (joined.index(), joined.old()) else { continue };
                let Some(target) = old.target().filter(|_| entries.kind(index) == EntryKind::File) else { continue };
                let state = entries.state(index);
                let is_same = old.stat.is_some_and(|stat| stat.is_final(before) && stat == Stat::of(&state));
                if hashed.targets.set(index, &target) && is_same {
                    knowledge[index] = Knowledge::Remembered;
                    size = size.saturating_add(state.size);
                }
            }
            Ok::<_, Error>(())
        })();
        if joined.is_err() {
            // Nothing of it is used.
            *hashed = Hashed::new(Arc::clone(&self.survey), hashed.suite);
            for known in knowledge.iter_mut().filter(|known| **known == Knowledge::Remembered) {
                *known = Knowledge::Unknown;
            }
            return false;
        }
        self.progress.fetch_add(size, Ordering::Relaxed);
        true
    }

    /// Starts to read the files of which nothing is known, on all cores. No other reading is in progress.
    ///
    /// Extended attributes are read the first time.
    pub fn start(this: &Arc<Self>, is_first: bool) -> Result<()> {
        this.next.store(0, Ordering::Relaxed);
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(this.survey.entries.count()).max(1);
        for number in 0..threads {
            let started = Self::spawn(this, move |reading| {
                if number == 0 && reading.xattrs && is_first {
                    let found = read_top_xattrs(&reading.survey);
                    reading.change(|hashed| hashed.take_top_xattrs(found));
                }
                reading.read_files(reading.xattrs && is_first);
                Ok(())
            });
            // Where the system refuses another thread, those that exist do the work.
            if started.is_err() && number == 0 {
                return Err(Error::request("no thread can be started"));
            }
        }
        Ok(())
    }

    /// Starts to collect the records that are payloads, without those that `base` has at the same paths: those at the places
    /// `changed`, if these are known.
    pub fn start_records(
        this: &Arc<Self>,
        recorded: Recorded,
        base: Option<Arc<StatFile>>,
        changed: Option<Vec<usize>>,
    ) -> Result<()> {
        let started = Self::spawn(this, move |reading| reading.collect_records(recorded, base.as_deref(), changed));
        started.map_err(|_| Error::request("no thread can be started"))
    }

    /// Starts a thread that reads by `work`. What that fails or panics with, [`Reading::next`] passes on.
    ///
    /// # Errors
    /// The system refuses another thread.
    pub fn spawn(this: &Arc<Self>, work: impl FnOnce(&Self) -> Result<()> + Send + 'static) -> io::Result<()> {
        locked(&this.queue).readers += 1;
        let reader = ReadingThread(Arc::clone(this));
        let started = thread::Builder::new().name("coregw-read".to_owned()).spawn(move || {
            let failure = match catch_unwind(AssertUnwindSafe(|| work(&reader.0))) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => ReadFailure::Core(error),
                Err(panic) => ReadFailure::Panic(panic),
            };
            locked(&reader.0.queue).failure.get_or_insert(failure);
        });
        started.map(drop)
    }

    fn read_files(&self, xattrs: bool) {
        while let Some(index) = self.next_entry(xattrs).filter(|_| !self.is_stopped()) {
            if locked(&self.knowledge)[index] == Knowledge::Unknown {
                self.read_file(index);
            }
            if xattrs {
                let found = read_xattrs(&self.survey, index);
                self.change(|hashed| hashed.take_xattrs(index, found));
            }
        }
    }

    /// The next entry that something is to be read of: of `all`, or of those whose file nothing is known of.
    fn next_entry(&self, all: bool) -> Option<usize> {
        // One thread looks for it at a time, so none of the entries that are passed over is visited by two.
        let knowledge = locked(&self.knowledge);
        let from = self.next.load(Ordering::Relaxed);
        let step = knowledge.get(from..)?.iter().position(|known| all || *known == Knowledge::Unknown);
        self.next.store(step.map_or(knowledge.len(), |step| from + step + 1), Ordering::Relaxed);
        step.map(|step| from + step)
    }

    fn read_file(&self, index: usize) {
        let (old, suite) = {
            // Not a share, for which another thread would have to copy all.
            let hashed = locked(&self.hashed);
            (hashed.targets.get(index), hashed.suite)
        };
        let mut is_left_out = false;
        self.files_read.fetch_add(1, Ordering::Relaxed);
        let read = contents::read_here(|| self.survey.open(index), suite, &mut |cid, bytes| {
            self.progress.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            // A file that was touched, and has the bytes of the last time.
            if old == Some(*cid) {
                is_left_out = true;
                return self.is_stopped();
            }
            self.collect(cid, bytes)
        });
        match read {
            Ok(read) => {
                let target = Some(read.target);
                is_left_out |= old == target;
                let chunks = self.change(|hashed| hashed.take_contents(index, read)).filter(|_| old != target);
                locked(&self.knowledge)[index] = if is_left_out { Knowledge::Remembered } else { Knowledge::Settled };
                if let Some(chunks) = chunks {
                    self.keep(index, chunks);
                }
            }
            Err(Unread::Skipped(why)) => {
                locked(&self.knowledge)[index] = Knowledge::Settled;
                self.change(|hashed| {
                    hashed.targets.clear(index);
                    hashed.skip(index, why);
                });
            }
            Err(Unread::Interrupted) => {}
        }
    }

    /// Keeps the chunks of a list: for its tree, which is sent after them, or for whoever asks.
    fn keep(&self, index: usize, chunks: Vec<Chunk>) {
        if let Some(kept) = &self.chunks {
            locked(kept).insert(index, chunks);
            return;
        }
        let mut queue = locked(&self.queue);
        let after = queue.handed_out + queue.ready.len() as u64;
        queue.lists.push(chunks, after);
    }

    fn collect_records(&self, recorded: Recorded, base: Option<&StatFile>, changed: Option<Vec<usize>>) -> Result<()> {
        let hashed = self.hashed();
        let held = base.and_then(|base| base.header.top_record());
        if let Some(record) = hashed.top_record(recorded)?
            && record.target.identity().is_none()
            && held != Some(record.target)
            && self.collect(&record.target, &record.bytes)
        {
            return Ok(());
        }
        if let Some(changed) = changed {
            for index in changed {
                let Some(record) = hashed.record(index, recorded)? else { continue };
                if record.target.identity().is_none() && self.collect(&record.target, &record.bytes) {
                    break;
                }
            }
            return Ok(());
        }
        let mut joined = Joined::new(&self.survey, base)?;
        while joined.advance()? {
            let Some(index) = joined.index() else { continue };
            let Some(record) = hashed.record(index, recorded)? else { continue };
            let held = joined.old().and_then(|old| old.record_bytes());
            let is_held = record.target.identity().is_some() || held == Some(record.target.as_bytes());
            if !is_held && self.collect(&record.target, &record.bytes) {
                break;
            }
        }
        Ok(())
    }

    /// Puts a payload into a batch; waits while too many are full. Returns whether to end.
    fn collect(&self, cid: &Cid, bytes: &[u8]) -> bool {
        if self.chunks.is_some() {
            return self.is_stopped();
        }
        let mut queue = locked(&self.queue);
        while queue.draft.is_full() && !self.is_stopped() {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if cid.digest().try_into().is_ok_and(|digest| queue.recent.insert(digest)) {
            queue.draft.push(cid, bytes);
            self.make_ready(&mut queue);
        }
        self.is_stopped()
    }

    /// Lets a full batch be taken, if there is room for it.
    fn make_ready(&self, queue: &mut Collected) {
        if queue.draft.is_full() && queue.ready.len() < MAX_READY {
            let full = std::mem::take(&mut queue.draft);
            queue.ready.push_back(full);
            self.changed.notify_all();
        }
    }

    /// Whether there is nothing to wait for.
    pub fn is_at_end(&self) -> bool {
        let queue = locked(&self.queue);
        queue.readers == 0 && queue.ready.is_empty() && !queue.draft.is_full() && queue.failure.is_none()
    }

    /// Waits for the next batch, and its number; None if there is none yet, or no more. A panic of a thread is resumed in the caller.
    pub fn next(&self, patience: Duration) -> Result<Option<(u64, Draft)>> {
        let mut queue = locked(&self.queue);
        if queue.ready.is_empty() && queue.readers > 0 {
            queue = self.changed.wait_timeout(queue, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        match queue.failure.take() {
            None => {}
            Some(ReadFailure::Core(error)) => return Err(error),
            Some(ReadFailure::Panic(panic)) => {
                drop(queue);
                resume_unwind(panic);
            }
        }
        self.make_ready(&mut queue);
        Ok(queue.ready.pop_front().map(|draft| {
            self.make_ready(&mut queue);
            let number = queue.handed_out;
            queue.handed_out += 1;
            queue.in_flight.insert(number);
            (number, draft)
        }))
    }

    /// Lets the next batch be taken, though it is not full. No reading is in progress.
    pub fn flush(&self) {
        let mut queue = locked(&self.queue);
        if !queue.draft.is_empty() {
            let rest = std::mem::take(&mut queue.draft);
            queue.ready.push_back(rest);
        }
    }

    /// Notes that the gateway holds the payloads of the batch with this number: those with these digests.
    pub fn acknowledge(&self, number: u64, digests: &[[u8; 32]]) {
        let mut queue = locked(&self.queue);
        queue.in_flight.remove(&number);
        for digest in digests {
            queue.recent.remove(digest);
        }
    }

    /// Lists all of whose chunks are acknowledged; none while only few wait. At the end, when all batches are
    /// acknowledged, `all` that wait.
    pub fn take_lists(&self, all: bool) -> Result<Vec<Snapshot>> {
        let chunks = {
            let mut queue = locked(&self.queue);
            let acknowledged = queue.in_flight.first().copied().unwrap_or(queue.handed_out);
            queue.lists.take(acknowledged, all)
        };
        let suite = locked(&self.hashed).suite;
        chunks.iter().map(|chunks| list_of(suite, chunks)).collect()
    }

    /// The next files that are only remembered, from a place on: binary CIDs of payloads, and their places. Lists are
    /// to be read again, since their chunks are not remembered.
    pub fn doubtful(&self, from: usize, most: usize) -> (Vec<u8>, Vec<usize>, usize) {
        let (mut shared, mut knowledge) = (locked(&self.hashed), locked(&self.knowledge));
        let hashed = Arc::make_mut(&mut shared);
        let (mut cids, mut places) = (Vec::new(), Vec::new());
        for index in from..knowledge.len() {
            if knowledge[index] != Knowledge::Remembered {
                continue;
            }
            if places.len() == most {
                return (cids, places, index);
            }
            match hashed.targets.get(index) {
                Some(target) if target.root().is_none() => {
                    cids.extend_from_slice(target.as_bytes());
                    places.push(index);
                }
                _ => {
                    // So that its tree is sent as well.
                    hashed.targets.clear(index);
                    knowledge[index] = Knowledge::Unknown;
                }
            }
        }
        (cids, places, knowledge.len())
    }

    /// Notes that these files have to be read again, because their payloads are missing.
    pub fn forget(&self, places: impl Iterator<Item = usize>) {
        let (mut shared, mut knowledge) = (locked(&self.hashed), locked(&self.knowledge));
        let hashed = Arc::make_mut(&mut shared);
        for index in places {
            knowledge[index] = Knowledge::Unknown;
            hashed.targets.clear(index);
        }
    }
}

/// Reads and hashes the files whose targets are not known yet, on all cores, and collects nothing: what is known then, and the
/// chunks of the files that are lists. O(bytes). An interrupt ends it early. A panic of a thread is resumed in the caller.
///
/// # Errors
/// [`Error::Input`] if no thread can be started.
pub fn read_all(hashed: Hashed, xattrs: bool, watch: &impl Watch) -> Result<(Arc<Hashed>, Chunks)> {
    let reading = Reading { chunks: Some(Mutex::default()), ..Reading::new(hashed, xattrs) };
    let reading = Stopping(Arc::new(reading));
    Reading::start(&reading.0, true)?;
    while !reading.0.is_at_end() {
        reading.0.next(WATCH)?;
        watch.progress(reading.0.take_progress());
        if watch.is_interrupted() {
            reading.0.stop();
        }
    }
    watch.progress(reading.0.take_progress());
    let chunks = reading.0.chunks.as_ref().map(|kept| std::mem::take(&mut *locked(kept))).unwrap_or_default();
    Ok((reading.0.hashed(), chunks))
}

/// A reading whose threads end with its caller, also if that panics.
struct Stopping(Arc<Reading>);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A thread that reads, or was to be started: others must not wait for it after its end.
struct ReadingThread(Arc<Reading>);

impl Drop for ReadingThread {
    fn drop(&mut self) {
        locked(&self.0.queue).readers -= 1;
        self.0.changed.notify_all();
    }
}

/// Chunks of lists that wait to be sent, beyond which they are sent before all files are read.
const MAX_CHUNKS: usize = 1 << 16;
/// Lists that are sent at once: readers of CARs accept headers with 1,400 roots.
const LISTS_AT_ONCE: usize = 500;

/// The lists that wait, in the order in which their files were read.
#[derive(Default)]
pub struct WaitingLists {
    /// The chunks of each, and the number of the last batch that may have one of them.
    lists: VecDeque<(Vec<Chunk>, u64)>,
    chunks: usize,
}

impl WaitingLists {
    /// Adds a list. Its chunks are in batches up to the one of this number.
    pub fn push(&mut self, chunks: Vec<Chunk>, batch: u64) {
        self.chunks += chunks.len();
        self.lists.push_back((chunks, batch));
    }

    /// Takes the next lists whose chunks are in batches before `acknowledged`; none while there are few. If `all`, it
    /// does not matter how many there are, and all chunks are acknowledged.
    pub fn take(&mut self, acknowledged: u64, all: bool) -> Vec<Vec<Chunk>> {
        let mut taken = Vec::new();
        let is_due = all || self.chunks > MAX_CHUNKS;
        while is_due && taken.len() < LISTS_AT_ONCE {
            let is_next = self.lists.front().is_some_and(|(_, batch)| all || *batch < acknowledged);
            let Some((chunks, _)) = is_next.then(|| self.lists.pop_front()).flatten() else { break };
            self.chunks -= chunks.len();
            taken.push(chunks);
        }
        taken
    }
}
