//! Arcs of any number in any order, sorted in bounded memory with the help of a temporary file.
//!
//! ```text
//! feed, add  ->  arcs in memory  --full-->  a thread sorts them, and appends a run to the file
//! finish     ->  the last run    ------->   merges of all runs, as often as needed
//!
//! arc of a run   | shared u16 | rest u16 | target u8 | rest of the key | target |      integers are little-endian
//! ```
//!
//! `shared` is how many bytes the key has in common with the one before it in the run.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use coregw_core::internals::{common_len, lead};
use coregw_core::{Arcs, Error, MapBuilder, Result, RootCid, Suite};
use coregw_ops::SortedArcs;
use coregw_ops::json::{ArcLines, LineFormat};

use crate::parallel::locked;
use crate::watch::Watch;

/// Bytes that are read between two checks whether a run is full.
const SLICE_BYTES: usize = 256 << 10;
/// Arcs between two looks for an interrupt.
const ARCS_AT_ONCE: usize = 1024;

/// Sorts the arcs of a map of any size, in memory for about four runs, and a temporary file for the others. After a
/// failure it must not be used any more.
pub struct Sorter {
    folder: Option<PathBuf>,
    run_bytes: usize,
    lines: ArcLines,
    /// The run in progress.
    arcs: Arcs,
    count: u64,
    /// The thread that sorts the run before, and appends it to the file; it returns the memory.
    sorting: Option<JoinHandle<Result<(Arcs, Run), SortFailure>>>,
    file: Option<Arc<RunFile>>,
    runs: Vec<Run>,
    sorted: Option<Sorted>,
}

/// Why sorting failed.
pub enum SortFailure {
    /// An arc is refused.
    Core(Error),
    /// The temporary file cannot be written, or no thread be started.
    Io(io::Error),
}

impl From<Error> for SortFailure {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

impl From<io::Error> for SortFailure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Sorter {
    /// A sorter of no arcs. `folder` is where its file is, by default that of the system for temporary files; a run takes
    /// `run_bytes` of memory before it is sorted.
    pub fn new(folder: Option<PathBuf>, format: LineFormat, run_bytes: usize) -> Self {
        let (lines, arcs, runs) = (ArcLines::new(format), Arcs::default(), Vec::new());
        Self { folder, run_bytes, lines, arcs, count: 0, sorting: None, file: None, runs, sorted: None }
    }

    /// Whether all arcs have been added.
    pub fn has_ended(&self) -> bool {
        self.sorted.is_some()
    }

    /// The number of arcs so far.
    pub fn count(&self) -> u64 {
        self.count + if self.sorted.is_none() { self.arcs.len() as u64 } else { 0 }
    }

    /// The bytes of the temporary file.
    pub fn spooled_bytes(&self) -> u64 {
        self.runs.iter().map(Run::len).sum()
    }

    /// The run in progress, to be added to. [`Sorter::spill`] follows when it [is full](Sorter::is_full).
    pub fn arcs(&mut self) -> &mut Arcs {
        &mut self.arcs
    }

    /// Whether the run in progress has to be spilled.
    pub fn is_full(&self) -> bool {
        self.arcs.held_bytes() >= self.run_bytes
    }

    /// Reads the next bytes of lines of arcs. O(bytes); a full run is sorted in a separate thread.
    ///
    /// # Errors
    /// A line is malformed, a path occurs twice, or the file cannot be written.
    pub fn feed(&mut self, data: &[u8]) -> Result<(), SortFailure> {
        for slice in data.chunks(SLICE_BYTES) {
            self.lines.feed(slice, &mut self.arcs)?;
            if self.is_full() {
                self.spill()?;
            }
        }
        Ok(())
    }

    /// Notes that all arcs have been added, and waits until they are sorted.
    ///
    /// # Errors
    /// As [`Sorter::feed`].
    pub fn finish(&mut self) -> Result<(), SortFailure> {
        self.lines.finish(&mut self.arcs)?;
        if self.runs.is_empty() && self.sorting.is_none() {
            self.count = self.arcs.len() as u64;
            self.arcs.sort()?;
            self.sorted = Some(Sorted::Memory(Arc::new(std::mem::take(&mut self.arcs))));
            return Ok(());
        }
        if !self.arcs.is_empty() {
            self.spill()?;
        }
        self.wait()?;
        self.arcs = Arcs::default();
        if let Some(file) = &self.file {
            self.sorted = Some(Sorted::File(Arc::clone(file), self.runs.clone().into()));
        }
        Ok(())
    }

    /// Sorts the run in progress and writes it to the file, in a thread. Waits for the run before it.
    ///
    /// # Errors
    /// As [`Sorter::feed`], for the run before.
    pub fn spill(&mut self) -> Result<(), SortFailure> {
        let spare = self.wait()?;
        let mut arcs = std::mem::replace(&mut self.arcs, spare);
        self.count += arcs.len() as u64;
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                let file = Arc::new(RunFile::create(self.folder.as_deref())?);
                self.file.insert(file).clone()
            }
        };
        let sort = move || {
            arcs.sort()?;
            let run = file.append(&arcs)?;
            arcs.clear();
            Ok((arcs, run))
        };
        self.sorting = Some(thread::Builder::new().name("coregw-sort".to_owned()).spawn(sort)?);
        Ok(())
    }

    /// Waits for the run that is being sorted, and returns its memory.
    fn wait(&mut self) -> Result<Arcs, SortFailure> {
        let Some(sorting) = self.sorting.take() else {
            return Ok(Arcs::default());
        };
        let (arcs, run) = sorting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        self.runs.push(run);
        Ok(arcs)
    }

    /// A reader before the first arc.
    ///
    /// # Errors
    /// [`Error::Input`] before [`Sorter::finish`]; [`Error::Damaged`] if the file cannot be read.
    pub fn reader(&self) -> Result<SortedReader> {
        let sorted = self.sorted.as_ref().ok_or_else(|| Error::request("the arcs have not ended"))?;
        sorted.reader()
    }
}

impl SortedReader {
    /// The root of the map of all arcs that follow. O(n) hashing, in memory for some pages.
    ///
    /// # Errors
    /// [`Error::Input`] if two arcs have the same path, or paths are too long together; [`Error::Damaged`] if the file
    /// cannot be read. After an interrupt the root is of no use.
    pub fn root(mut self, suite: Suite, watch: &impl Watch) -> Result<RootCid> {
        let mut builder = MapBuilder::new(suite);
        while !watch.is_interrupted() && self.next(ARCS_AT_ONCE, |key, target| builder.push(key, target))? {
            drop(builder.take_pages());
        }
        Ok(builder.finish()?.root)
    }
}

/// Memory for the blocks of all runs together.
const MERGE_BYTES: usize = 48 << 20;
/// The largest block of one run.
const MAX_BLOCK: usize = 256 << 10;

/// Arcs that are sorted, and can be read in order any number of times.
enum Sorted {
    /// Few arcs, in memory.
    Memory(Arc<Arcs>),
    /// Runs in a file.
    File(Arc<RunFile>, Arc<[Run]>),
}

impl Sorted {
    /// A reader before the first arc.
    fn reader(&self) -> Result<SortedReader> {
        Ok(SortedReader(match self {
            Self::Memory(arcs) => Source::Memory { arcs: Arc::clone(arcs), next: 0 },
            Self::File(file, runs) => Source::Merge(Merge::new(Arc::clone(file), runs).map_err(unreadable)?),
        }))
    }
}

/// Reads sorted arcs in order.
pub struct SortedReader(Source);

/// Where a reader has its arcs from.
enum Source {
    Memory { arcs: Arc<Arcs>, next: usize },
    Merge(Merge),
}

impl SortedReader {
    /// Gives the next arcs to `take`, up to `count`. Returns whether there may be more.
    pub fn next(&mut self, count: usize, mut take: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<bool> {
        match &mut self.0 {
            Source::Memory { arcs, next } => {
                for (key, target) in arcs.iter_from(*next).take(count) {
                    take(key, target)?;
                    *next += 1;
                }
                Ok(*next < arcs.len())
            }
            Source::Merge(merge) => {
                for _ in 0..count {
                    let Some(first) = merge.first() else {
                        return Ok(false);
                    };
                    take(first.key(), first.target())?;
                    merge.advance().map_err(unreadable)?;
                }
                Ok(true)
            }
        }
    }
}

impl SortedArcs for SortedReader {
    fn push_next(&mut self, builder: &mut MapBuilder, count: usize) -> Result<bool> {
        self.next(count, |key, target| builder.push(key, target))
    }

    fn held_bytes(&self) -> usize {
        match &self.0 {
            Source::Memory { arcs, .. } => arcs.held_bytes(),
            Source::Merge(merge) => merge.heap.iter().map(|source| source.reader.held_bytes()).sum(),
        }
    }
}

fn unreadable(error: io::Error) -> Error {
    Error::damaged(format!("the temporary file of sorted arcs cannot be read: {error}"))
}

/// A run in the merge: its reader, and the eight bytes of its current key by which runs are compared first.
struct MergedRun {
    reader: RunReader,
    lead: u64,
}

/// The merge of runs: a binary heap of them, by their current keys.
struct Merge {
    file: Arc<RunFile>,
    heap: Vec<MergedRun>,
    /// How many bytes all keys have in common.
    shared: usize,
}

impl Merge {
    fn new(file: Arc<RunFile>, runs: &[Run]) -> io::Result<Self> {
        let block = (MERGE_BYTES / runs.len().max(1)).min(MAX_BLOCK);
        // All keys are between the least and the greatest, so they begin with what these two share.
        let least = runs.iter().map(|run| &run.first[..]).min().unwrap_or_default();
        let greatest = runs.iter().map(|run| &run.last[..]).max().unwrap_or_default();
        let shared = least.iter().zip(greatest).take_while(|(a, b)| a == b).count();
        let mut merge = Self { file, heap: Vec::with_capacity(runs.len()), shared };
        for run in runs {
            let mut reader = RunReader::new(run, block);
            if reader.advance(&merge.file)? {
                let lead = lead(reader.key(), shared);
                merge.heap.push(MergedRun { reader, lead });
            }
        }
        (0..merge.heap.len() / 2).rev().for_each(|at| merge.sink(at));
        Ok(merge)
    }

    /// The run whose current arc comes first.
    fn first(&self) -> Option<&RunReader> {
        self.heap.first().map(|source| &source.reader)
    }

    /// Goes to the next arc.
    fn advance(&mut self) -> io::Result<()> {
        let Some(first) = self.heap.first_mut() else {
            return Ok(());
        };
        if first.reader.advance(&self.file)? {
            first.lead = lead(first.reader.key(), self.shared);
        } else {
            self.heap.swap_remove(0);
        }
        self.sink(0);
        Ok(())
    }

    fn precedes(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.heap[a], &self.heap[b]);
        a.lead < b.lead || a.lead == b.lead && a.reader.key() < b.reader.key()
    }

    /// Moves a run down to its place in the heap.
    fn sink(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.precedes(child, least) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }
}

const HEAD: usize = 5;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;
/// The longest arc: a key and a target.
const MAX_ARC: usize = HEAD + coregw_core::key::MAX_KEY + 255;

/// A temporary file without a name, which disappears when it is closed, or the process ends.
struct RunFile {
    file: Mutex<File>,
}

impl RunFile {
    pub fn create(folder: Option<&Path>) -> io::Result<Self> {
        let file = folder.map_or_else(tempfile::tempfile, tempfile::tempfile_in)?;
        Ok(Self { file: Mutex::new(file) })
    }

    fn lock(&self) -> MutexGuard<'_, File> {
        // Every use seeks first, so a panic elsewhere leaves nothing inconsistent.
        locked(&self.file)
    }

    /// Appends the run of arcs that are sorted.
    pub fn append(&self, arcs: &Arcs) -> io::Result<Run> {
        let mut file = self.lock();
        let start = file.seek(SeekFrom::End(0))?;
        let (mut out, mut written) = (Vec::with_capacity(WRITE_BYTES + MAX_ARC), 0);
        let mut last: &[u8] = &[];
        for (key, target) in arcs.iter() {
            let shared = common_len(last, key);
            out.extend_from_slice(&(shared as u16).to_le_bytes());
            out.extend_from_slice(&((key.len() - shared) as u16).to_le_bytes());
            out.push(target.len() as u8);
            out.extend_from_slice(&key[shared..]);
            out.extend_from_slice(target);
            last = key;
            if out.len() >= WRITE_BYTES {
                file.write_all(&out)?;
                written += out.len() as u64;
                out.clear();
            }
        }
        file.write_all(&out)?;
        written += out.len() as u64;
        let first = arcs.iter().next().map(|(key, _)| key.to_vec()).unwrap_or_default();
        Ok(Run { start, end: start + written, first, last: last.to_vec() })
    }

    fn read_at(&self, start: u64, into: &mut [u8]) -> io::Result<()> {
        let mut file = self.lock();
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(into)
    }
}

/// Where a run is in its file, and its first and last key.
#[derive(Debug, Clone)]
struct Run {
    start: u64,
    end: u64,
    pub first: Vec<u8>,
    pub last: Vec<u8>,
}

impl Run {
    /// The number of bytes in the file.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// Reads the arcs of a run in order.
struct RunReader {
    /// What has been read and not been taken: `buffer[at..]`.
    buffer: Vec<u8>,
    at: usize,
    /// Where the file continues after the buffer.
    next: u64,
    end: u64,
    block: usize,
    key: Vec<u8>,
    target: (usize, usize),
}

impl RunReader {
    /// Creates a reader before the first arc, which reads `block` bytes at once.
    pub fn new(run: &Run, block: usize) -> Self {
        let block = block.max(MAX_ARC);
        Self { buffer: Vec::new(), at: 0, next: run.start, end: run.end, block, key: Vec::new(), target: (0, 0) }
    }

    /// Goes to the next arc. Returns whether there is one.
    pub fn advance(&mut self, file: &RunFile) -> io::Result<bool> {
        if self.buffer.len() - self.at < MAX_ARC && self.next < self.end {
            self.fill(file)?;
        }
        let rest = &self.buffer[self.at..];
        if rest.is_empty() {
            return Ok(false);
        }
        let head: &[u8; HEAD] = rest.first_chunk().ok_or_else(cut_short)?;
        let shared = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let own = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let target = HEAD + own;
        let end = target + usize::from(head[4]);
        if rest.len() < end || self.key.len() < shared {
            return Err(cut_short());
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(&rest[HEAD..target]);
        self.target = (self.at + target, self.at + end);
        self.at += end;
        Ok(true)
    }

    /// Moves what is left to the front, and reads the next block behind it.
    fn fill(&mut self, file: &RunFile) -> io::Result<()> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let left = self.buffer.len();
        let more = (self.end - self.next).min((self.block - left) as u64) as usize;
        self.buffer.resize(left + more, 0);
        file.read_at(self.next, &mut self.buffer[left..])?;
        self.next += more as u64;
        Ok(())
    }

    /// The bytes of memory of its block.
    pub fn held_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// The key of the current arc.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The target of the current arc.
    pub fn target(&self) -> &[u8] {
        &self.buffer[self.target.0..self.target.1]
    }
}

fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a run is cut short")
}
