//! The file of a stat cache: what was known of a folder's entries when it was added or restored last, in key order.
//!
//! ```text
//! "coregw stat 6\n" | CID of the rest, 36 bytes | folder | options | before | root | attributes | top | entry | ...
//! entry:  bytes of the path before that it shares | the others | flags | file: inode, size, mtime, ctime | targets
//! ```
//!
//! It is read from start to end, as often as needed, and never held in memory. The files of a restore are complete in
//! any order, and sorted first.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coregw_core::codec::Codec;
use coregw_core::payload::{Function, Hasher};
use coregw_core::{Cid, varint};

use crate::entries::FileState;
use crate::hashed::{Hashed, Recorded};
use crate::metadata::FileStat;

const MAGIC: &[u8] = b"coregw stat 6\n";
const DIGEST_BYTES: usize = 36;
/// What is before the checked bytes.
const HEAD_BYTES: u64 = (MAGIC.len() + DIGEST_BYTES) as u64;
const BUFFER_BYTES: usize = 256 << 10;
/// The limit on a string or path in the file.
const MAX_TEXT_BYTES: u64 = 1 << 16;
/// More than an entry or the header can take: at most five strings and some numbers.
const MAX_ENTRY_BYTES: usize = 6 * MAX_TEXT_BYTES as usize;

/// The coarsest timestamps of common file systems (FAT).
const COARSE_NANOSECONDS: i64 = 2_000_000_000;

const HAS_STATE: u8 = 1;
const HAS_TARGET: u8 = 2;
const HAS_RECORD: u8 = 4;

/// What the file system said of a file that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The number of the inode.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// The time of modification, in nanoseconds since 1970.
    pub mtime: i64,
    /// The time of change, in nanoseconds since 1970.
    pub ctime: i64,
}

impl Stat {
    pub(crate) fn of(state: &FileState) -> Self {
        let FileState { inode, size, mtime_ns: mtime, ctime_ns: ctime, .. } = *state;
        Self { inode, size, mtime, ctime }
    }

    /// Whether changes after the time `before`, in nanoseconds since 1970, have other times than these: a file that
    /// changed just before it was noted may have changed again just after.
    ///
    /// Times without fractions of a second are exact to two seconds (FAT), also on a file system that is mounted in a
    /// folder whose own times are finer.
    pub fn is_final(&self, before: i64) -> bool {
        let is_coarse = self.ctime % 1_000_000_000 == 0;
        self.mtime < before && self.ctime < before.saturating_sub(if is_coarse { COARSE_NANOSECONDS } else { 0 })
    }
}

impl From<FileStat> for Stat {
    fn from(found: FileStat) -> Self {
        let time = |time: i128| i64::try_from(time).unwrap_or(i64::MAX);
        Self { inode: found.inode, size: found.size as u64, mtime: time(found.mtime), ctime: time(found.ctime) }
    }
}

/// What the file says of the whole folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// The absolute path of the folder.
    pub folder: Vec<u8>,
    /// Whatever else the targets depend on.
    pub options: Vec<u8>,
    /// No change after its files were noted has an earlier time, in nanoseconds since 1970.
    pub before: i64,
    /// The root of the folder's map.
    pub root: Vec<u8>,
    /// The root of its map of attributes, or nothing.
    pub attributes: Vec<u8>,
    /// The target of the record of the folder itself, or nothing.
    pub top: Vec<u8>,
}

impl Header {
    /// The target of the record of the folder itself.
    pub(crate) fn top_record(&self) -> Option<Cid> {
        Cid::try_bytes(&self.top).ok()
    }
}

/// A file whose checksum is right.
pub struct StatFile {
    file: Arc<File>,
    /// What it says of the whole folder.
    pub header: Header,
    /// Where the entries begin.
    start: u64,
}

impl StatFile {
    /// Opens and checks a file. None if it is missing, damaged, or of another folder, options or version. O(bytes).
    pub fn open(path: &Path, folder: &[u8], options: &[u8]) -> Option<Self> {
        let opened = Self::open_unchecked(path, folder, options)?;
        is_intact(&opened.file).ok()?.then_some(opened)
    }

    /// As [`StatFile::open`], but whether it is damaged is not known. O(1).
    pub fn open_unchecked(path: &Path, folder: &[u8], options: &[u8]) -> Option<Self> {
        let file = Arc::new(File::open(path).ok()?);
        let mut magic = [0; MAGIC.len()];
        file.read_exact_at(&mut magic, 0).ok()?;
        let mut reader = StatEntries::new(&file, HEAD_BYTES..u64::MAX, BUFFER_BYTES);
        let header = reader.take(|fields| fields.header()).ok()??;
        let start = reader.position();
        let is_right = magic == MAGIC && header.folder == folder && header.options == options;
        is_right.then_some(Self { file, header, start })
    }

    /// The entries, from the first one.
    pub(crate) fn entries(&self) -> StatEntries {
        StatEntries::new(&self.file, self.start..u64::MAX, BUFFER_BYTES)
    }

    /// Gives `take` the path, state and target of each file whose state says whether it has changed since. O(entries).
    ///
    /// # Errors
    /// The file cannot be read; what was taken before is right.
    pub fn each_final(&self, mut take: impl FnMut(&[u8], Stat, &Cid)) -> io::Result<()> {
        let mut entries = self.entries();
        while entries.advance()? {
            let stat = entries.stat.filter(|stat| stat.is_final(self.header.before));
            if let (Some(stat), Some(target)) = (stat, entries.target()) {
                take(&entries.path, stat, &target);
            }
        }
        Ok(())
    }
}

/// Whether the checksum is that of what follows it.
fn is_intact(file: &File) -> io::Result<bool> {
    let mut digest = [0; DIGEST_BYTES];
    file.read_exact_at(&mut digest, MAGIC.len() as u64)?;
    let mut hasher = hasher();
    let (mut buffer, mut at) = (vec![0; BUFFER_BYTES], HEAD_BYTES);
    loop {
        match file.read_at(&mut buffer, at) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(&buffer[..count]);
                at += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hasher.cid().is_ok_and(|cid| cid.as_bytes() == digest))
}

fn hasher() -> Hasher {
    Hasher::new(Codec::RAW, Function::Sha2_256)
}

fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Reads entries in order. Nothing is allocated for an entry.
pub(crate) struct StatEntries {
    file: Arc<File>,
    /// What has not been read yet.
    rest: Range<u64>,
    /// What has been read and not been taken: `buffer[at..]`.
    buffer: Vec<u8>,
    at: usize,
    block: usize,
    /// The path of the entry that was taken last.
    pub path: Vec<u8>,
    /// The state of its file, if the target of that is known.
    pub stat: Option<Stat>,
    /// Where its targets are in the buffer.
    target: Option<Range<usize>>,
    record: Option<Range<usize>>,
}

impl StatEntries {
    fn new(file: &Arc<File>, bytes: Range<u64>, block: usize) -> Self {
        Self {
            file: Arc::clone(file),
            rest: bytes,
            buffer: Vec::new(),
            at: 0,
            block,
            path: Vec::new(),
            stat: None,
            target: None,
            record: None,
        }
    }

    /// The binary CID of the target in the folder's map.
    pub fn target_bytes(&self) -> Option<&[u8]> {
        self.target.clone().map(|bytes| &self.buffer[bytes])
    }

    /// The binary CID of the target in the map of attributes.
    pub fn record_bytes(&self) -> Option<&[u8]> {
        self.record.clone().map(|bytes| &self.buffer[bytes])
    }

    /// The target in the folder's map.
    pub fn target(&self) -> Option<Cid> {
        self.target_bytes().and_then(|bytes| Cid::try_bytes(bytes).ok())
    }

    /// Goes to the next entry; false at the end.
    pub fn advance(&mut self) -> io::Result<bool> {
        let Some(entry) = self.take(|fields| fields.entry())? else { return Ok(false) };
        if entry.shared > self.path.len() {
            return Err(malformed());
        }
        self.path.truncate(entry.shared);
        self.path.extend_from_slice(&self.buffer[entry.others]);
        (self.stat, self.target, self.record) = (entry.stat, entry.target, entry.record);
        Ok(true)
    }

    /// Where what has not been taken begins in the file.
    fn position(&self) -> u64 {
        self.rest.start - (self.buffer.len() - self.at) as u64
    }

    /// Takes what `parse` finds, reading on while that is not complete; None at the end of the file.
    fn take<T>(&mut self, parse: impl Fn(&mut Fields<'_>) -> Option<T>) -> io::Result<Option<T>> {
        loop {
            let mut fields = Fields { bytes: &self.buffer, at: self.at };
            if let Some(parsed) = parse(&mut fields) {
                self.at = fields.at;
                return Ok(Some(parsed));
            }
            let pending = self.buffer.len() - self.at;
            if pending > MAX_ENTRY_BYTES {
                return Err(malformed());
            }
            if !self.fill()? {
                return if pending == 0 { Ok(None) } else { Err(malformed()) };
            }
        }
    }

    /// Reads the next block. False at the end.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let held = self.buffer.len();
        let most = self.block.min(usize::try_from(self.rest.end - self.rest.start).unwrap_or(usize::MAX));
        self.buffer.resize(held + most, 0);
        let count = loop {
            match self.file.read_at(&mut self.buffer[held..], self.rest.start) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.buffer.truncate(held + count);
        self.rest.start += count as u64;
        Ok(count > 0)
    }
}

/// An entry of the file, whose strings are in the buffer that it was parsed in.
struct ParsedEntry {
    shared: usize,
    others: Range<usize>,
    stat: Option<Stat>,
    target: Option<Range<usize>>,
    record: Option<Range<usize>>,
}

/// Bytes that are parsed field by field; each is None if it is malformed or not complete.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    fn header(&mut self) -> Option<Header> {
        let [folder, options] = [self.string()?, self.string()?];
        let before = self.number()?;
        let [root, attributes, top] = [self.string()?, self.string()?, self.string()?];
        let [folder, options, root, attributes, top] =
            [folder, options, root, attributes, top].map(|bytes| self.bytes[bytes].to_vec());
        Some(Header { folder, options, before, root, attributes, top })
    }

    fn entry(&mut self) -> Option<ParsedEntry> {
        let shared = usize::try_from(self.varint()?).ok()?;
        let others = self.string()?;
        let [flags] = self.array()?;
        let stat = if flags & HAS_STATE == 0 {
            None
        } else {
            let (inode, size) = (self.number()? as u64, self.number()? as u64);
            Some(Stat { inode, size, mtime: self.number()?, ctime: self.number()? })
        };
        let target = if flags & HAS_TARGET == 0 { None } else { Some(self.string()?) };
        let record = if flags & HAS_RECORD == 0 { None } else { Some(self.string()?) };
        Some(ParsedEntry { shared, others, stat, target, record })
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.bytes[self.at..].first_chunk()?;
        self.at += N;
        Some(*bytes)
    }

    fn number(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    fn varint(&mut self) -> Option<u64> {
        let (number, len) = varint::read(&self.bytes[self.at..]).ok()?;
        self.at += len;
        Some(number)
    }

    fn string(&mut self) -> Option<Range<usize>> {
        let len = self.varint().filter(|&len| len <= MAX_TEXT_BYTES)? as usize;
        let start = self.at;
        self.at += self.bytes[start..].get(..len)?.len();
        Some(start..self.at)
    }
}

/// Writes what is known of a folder to a new file. O(entries).
///
/// # Errors
/// Those of the file system. A record that is too long is left out; there is no root of it either.
pub fn write(file: &Path, header: &Header, hashed: &Hashed, recorded: Recorded) -> io::Result<()> {
    let top = hashed.top_record(recorded).ok().flatten();
    let mut writer = StatWriter::create(file, header, top.as_ref().map_or(&[], |record| record.target.as_bytes()))?;
    let mut cursor = hashed.survey.entries.cursor();
    while let Some(index) = cursor.index() {
        let target = hashed.targets.get(index);
        let record = hashed.record(index, recorded).ok().flatten().map(|record| record.target);
        if target.is_some() || record.is_some() {
            let stat = target.map(|_| Stat::of(&hashed.now(index)));
            let cids = [target.as_ref(), record.as_ref()].map(|cid| cid.map(Cid::as_bytes));
            writer.push(cursor.path(), stat, cids)?;
        }
        cursor.advance();
    }
    writer.finish()
}

/// Encodes entries, each after the one before it.
#[derive(Default)]
struct Encoder {
    bytes: Vec<u8>,
    path: Vec<u8>,
}

impl Encoder {
    fn push(&mut self, path: &[u8], stat: Option<Stat>, [target, record]: [Option<&[u8]>; 2]) {
        let shared = path.iter().zip(&self.path).take_while(|(a, b)| a == b).count();
        varint::write(&mut self.bytes, shared as u64);
        self.string(&path[shared..]);
        self.path.truncate(shared);
        self.path.extend_from_slice(&path[shared..]);
        let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
        let cids = flag(target.is_some(), HAS_TARGET) | flag(record.is_some(), HAS_RECORD);
        self.bytes.push(flag(stat.is_some(), HAS_STATE) | cids);
        if let Some(Stat { inode, size, mtime, ctime }) = stat {
            for number in [inode as i64, size as i64, mtime, ctime] {
                self.bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        for cid in [target, record].iter().flatten() {
            self.string(cid);
        }
    }

    fn string(&mut self, bytes: &[u8]) {
        varint::write(&mut self.bytes, bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }
}

/// Writes a file, entry by entry.
struct StatWriter {
    out: BufWriter<File>,
    hasher: Hasher,
    encoder: Encoder,
}

impl StatWriter {
    /// Creates a file, or empties the one that its caller has created.
    fn create(path: &Path, header: &Header, top: &[u8]) -> io::Result<Self> {
        let mut file = File::create(path)?;
        file.write_all(&[0; HEAD_BYTES as usize])?;
        let out = BufWriter::with_capacity(BUFFER_BYTES, file);
        let mut writer = Self { out, hasher: hasher(), encoder: Encoder::default() };
        writer.encoder.string(&header.folder);
        writer.encoder.string(&header.options);
        writer.encoder.bytes.extend_from_slice(&header.before.to_le_bytes());
        writer.encoder.string(&header.root);
        writer.encoder.string(&header.attributes);
        writer.encoder.string(top);
        writer.write()?;
        Ok(writer)
    }

    /// Appends an entry. Entries come in key order.
    fn push(&mut self, path: &[u8], stat: Option<Stat>, cids: [Option<&[u8]>; 2]) -> io::Result<()> {
        self.encoder.push(path, stat, cids);
        self.write()
    }

    /// Writes the checksum.
    fn finish(self) -> io::Result<()> {
        let digest = self.hasher.cid().map_err(|_| malformed())?;
        let mut file = self.out.into_inner()?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&[MAGIC, digest.as_bytes()].concat())
    }

    fn write(&mut self) -> io::Result<()> {
        self.hasher.update(&self.encoder.bytes);
        self.out.write_all(&self.encoder.bytes)?;
        self.encoder.bytes.clear();
        Ok(())
    }
}

/// Files that are sorted before more of them are taken, in some 10 MB of memory.
const RUN_FILES: usize = 1 << 16;
const RUN_BUFFER_BYTES: usize = 32 << 10;

/// Files in any order, sorted for a file; with a temporary one if there are many.
pub struct StatSorter {
    /// Where the temporary file is.
    folder: PathBuf,
    run: Vec<Noted>,
    run_files: usize,
    runs: Option<Runs>,
}

/// A file's path, state and target.
struct Noted {
    path: Box<[u8]>,
    stat: Stat,
    target: Box<[u8]>,
}

/// Entries in key order, from the start to the end of each run.
struct Runs {
    file: File,
    ends: Vec<u64>,
}

impl StatSorter {
    /// Nothing is noted yet. The temporary file is in `folder`, and gets as many files at a time as `run_files`.
    pub fn new(folder: PathBuf, run_files: Option<usize>) -> Self {
        Self { folder, run: Vec::new(), run_files: run_files.unwrap_or(RUN_FILES), runs: None }
    }

    /// Notes a file: a state in which it had the bytes of its target. A path that is too long is left out.
    ///
    /// # Errors
    /// The temporary file cannot be written.
    pub fn add(&mut self, path: &[u8], stat: Stat, target: &Cid) -> io::Result<()> {
        if path.len() as u64 > MAX_TEXT_BYTES {
            return Ok(());
        }
        self.run.push(Noted { path: path.into(), stat, target: target.as_bytes().into() });
        if self.run.len() >= self.run_files { self.spill() } else { Ok(()) }
    }

    fn sort(&mut self) {
        self.run.sort_unstable_by(|a, b| compare(&a.path, &b.path));
    }

    /// Writes the run to the temporary file.
    fn spill(&mut self) -> io::Result<()> {
        self.sort();
        let runs = match &mut self.runs {
            Some(runs) => runs,
            None => self.runs.insert(Runs { file: tempfile::tempfile_in(&self.folder)?, ends: Vec::new() }),
        };
        let mut encoder = Encoder::default();
        let mut end = runs.ends.last().copied().unwrap_or_default();
        for Noted { path, stat, target } in self.run.drain(..) {
            encoder.push(&path, Some(stat), [Some(&target), None]);
            if encoder.bytes.len() >= BUFFER_BYTES {
                runs.file.write_all(&encoder.bytes)?;
                end += encoder.bytes.len() as u64;
                encoder.bytes.clear();
            }
        }
        runs.file.write_all(&encoder.bytes)?;
        runs.ends.push(end + encoder.bytes.len() as u64);
        Ok(())
    }

    /// Writes all files that were noted to a new file. O(n log n).
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(mut self, file: &Path, header: &Header) -> io::Result<()> {
        let mut writer = StatWriter::create(file, header, &header.top)?;
        if self.runs.is_some() && !self.run.is_empty() {
            self.spill()?;
        }
        self.sort();
        for Noted { path, stat, target } in &self.run {
            writer.push(path, Some(*stat), [Some(target), None])?;
        }
        if let Some(Runs { file, ends }) = self.runs {
            merge(&Arc::new(file), &ends, &mut writer)?;
        }
        writer.finish()
    }
}

/// Appends the entries of all runs, in key order.
fn merge(file: &Arc<File>, ends: &[u64], writer: &mut StatWriter) -> io::Result<()> {
    let starts = [0].into_iter().chain(ends.iter().copied());
    let mut heap = BinaryHeap::new();
    for (start, &end) in starts.zip(ends) {
        let mut run = StatEntries::new(file, start..end, RUN_BUFFER_BYTES);
        if run.advance()? {
            heap.push(Reverse(Next(run)));
        }
    }
    while let Some(mut first) = heap.peek_mut() {
        let Reverse(Next(run)) = &mut *first;
        writer.push(&run.path, run.stat, [run.target_bytes(), None])?;
        if !run.advance()? {
            _ = std::collections::binary_heap::PeekMut::pop(first);
        }
    }
    Ok(())
}

/// A run at its next entry, by which runs are ordered.
struct Next(StatEntries);

impl Ord for Next {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0.path, &other.0.path)
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Next {}

/// The order of the keys of two paths: a folder comes before what is in it, and that before the folder's siblings.
pub(crate) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    if a == b {
        return Ordering::Equal;
    }
    let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(key).cmp(b.iter().map(key))
}
