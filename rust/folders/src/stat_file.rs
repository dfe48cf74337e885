//! The file of a stat cache: what was known of a folder's entries when it was added or restored last, in key order.
//!
//! ```text
//! "coregw stat 6\n" | CID of the rest, 36 bytes | folder | options | before | root | attributes | top | entry | ...
//! entry:  bytes of the path before that it shares | the others | flags | file: inode, size, mtime, ctime | targets
//! ```
//!
//! It is read from start to end, as often as needed, and never held in memory. A folder that is added and what was known
//! of it the last time are joined side by side. The files of a restore are complete in any order, and sorted first.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coregw_core::codec::Codec;
use coregw_core::payload::{Function, Hasher};
use coregw_core::{Cid, Error, Result, varint};

use crate::entries::FileState;
use crate::hashed::{Hashed, Recorded};
use crate::join::RESERVED_NAME;
use crate::metadata::FileStat;
use crate::survey::Survey;

const MAGIC: &[u8] = b"coregw stat 6\n";
const DIGEST_BYTES: usize = 36;
const BUFFER_BYTES: usize = 256 << 10;
/// The limit on a string or path in the file.
const MAX_TEXT_BYTES: u64 = 1 << 16;

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

/// What was known of a path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StatEntry {
    pub(crate) path: Vec<u8>,
    /// The state of a file whose target is known.
    pub stat: Option<Stat>,
    /// The target in the folder's map.
    pub target: Option<Cid>,
    /// The target in the map of attributes.
    pub record: Option<Cid>,
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
        let mut file = File::open(path).ok()?;
        let start = check(&mut file).ok()??;
        let file = Arc::new(file);
        let mut reader = StatEntries::new(&file, start..u64::MAX, BUFFER_BYTES);
        let header = reader.header().ok()?;
        let start = reader.at;
        (header.folder == folder && header.options == options).then_some(Self { file, header, start })
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
        while let Some(entry) = entries.next()? {
            if let (Some(stat), Some(target)) =
                (entry.stat.filter(|stat| stat.is_final(self.header.before)), entry.target)
            {
                take(&entry.path, stat, &target);
            }
        }
        Ok(())
    }
}

/// Where the checked bytes start; None if they have another checksum.
fn check(file: &mut File) -> io::Result<Option<u64>> {
    let mut head = [0; MAGIC.len() + DIGEST_BYTES];
    file.read_exact(&mut head)?;
    let mut hasher = hasher();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let (magic, digest) = head.split_at(MAGIC.len());
    let is_right = magic == MAGIC && hasher.cid().is_ok_and(|cid| cid.as_bytes() == digest);
    Ok(is_right.then_some(head.len() as u64))
}

fn hasher() -> Hasher {
    Hasher::new(Codec::RAW, Function::Sha2_256)
}

fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// A part of a file, of which any number of readers are in use.
struct Section {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Section {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut into[..most], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Reads entries in order.
pub(crate) struct StatEntries {
    reader: BufReader<Section>,
    at: u64,
    path: Vec<u8>,
}

impl StatEntries {
    fn new(file: &Arc<File>, bytes: std::ops::Range<u64>, buffer: usize) -> Self {
        let section = Section { file: Arc::clone(file), at: bytes.start, end: bytes.end };
        Self { reader: BufReader::with_capacity(buffer, section), at: bytes.start, path: Vec::new() }
    }

    fn header(&mut self) -> io::Result<Header> {
        let (folder, options) = (self.string()?, self.string()?);
        let before = self.number()?;
        Ok(Header { folder, options, before, root: self.string()?, attributes: self.string()?, top: self.string()? })
    }

    /// The next entry; None at the end.
    pub fn next(&mut self) -> io::Result<Option<StatEntry>> {
        let Some(shared) = self.varint()? else { return Ok(None) };
        let others = self.string()?;
        self.path.truncate(usize::try_from(shared).map_err(|_| malformed())?);
        self.path.extend_from_slice(&others);
        let mut entry = StatEntry { path: self.path.clone(), ..StatEntry::default() };
        let [flags] = self.array()?;
        if flags & HAS_STATE != 0 {
            let (inode, size) = (self.number()? as u64, self.number()? as u64);
            entry.stat = Some(Stat { inode, size, mtime: self.number()?, ctime: self.number()? });
        }
        let mut cid = |flag: u8| match flags & flag {
            0 => Ok(None),
            _ => Cid::try_bytes(&self.string()?).map(Some).map_err(|_| malformed()),
        };
        (entry.target, entry.record) = (cid(HAS_TARGET)?, cid(HAS_RECORD)?);
        Ok(Some(entry))
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn number(&mut self) -> io::Result<i64> {
        self.array().map(i64::from_le_bytes)
    }

    fn string(&mut self) -> io::Result<Vec<u8>> {
        let len = self.varint()?.filter(|&len| len <= MAX_TEXT_BYTES).ok_or_else(malformed)?;
        let mut bytes = vec![0; len as usize];
        self.reader.read_exact(&mut bytes)?;
        self.at += len;
        Ok(bytes)
    }

    /// A number of seven bits a byte; None at the end of the file.
    fn varint(&mut self) -> io::Result<Option<u64>> {
        let mut bytes = [0; varint::MAX_LEN];
        for count in 0..bytes.len() {
            if count == 0 && self.reader.fill_buf()?.is_empty() {
                return Ok(None);
            }
            [bytes[count]] = self.array()?;
            if bytes[count] < 0x80 {
                return varint::read(&bytes[..=count]).map(|(number, _)| Some(number)).map_err(|_| malformed());
            }
        }
        Err(malformed())
    }
}

/// Writes what is known of a folder to a new file. O(entries).
///
/// # Errors
/// Those of the file system. A record that is too long is left out; there is no root of it either.
pub fn write(file: &Path, header: &Header, hashed: &Hashed, recorded: Recorded) -> io::Result<()> {
    let top = hashed.top_record(recorded).ok().flatten();
    let mut writer = StatWriter::create(file, header, top.as_ref().map_or(&[], |record| record.target.as_bytes()))?;
    for index in 0..hashed.survey.entries.count() {
        let target = hashed.targets.get(index);
        let record = hashed.record(index, recorded).ok().flatten().map(|record| record.target);
        if target.is_some() || record.is_some() {
            let stat = target.map(|_| Stat::of(&hashed.now(index)));
            let path = hashed.survey.entries.path(index).into_os_string().into_encoded_bytes();
            writer.push(&path, stat, [target.as_ref(), record.as_ref()].map(|cid| cid.map(Cid::as_bytes)))?;
        }
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
        file.write_all(&[0; MAGIC.len() + DIGEST_BYTES])?;
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
        let mut entries = StatEntries::new(file, start..end, RUN_BUFFER_BYTES);
        heap.extend(entries.next()?.map(|entry| Reverse(Next { entry, entries })));
    }
    while let Some(mut first) = heap.peek_mut() {
        let Next { entry, entries } = &mut first.0;
        writer.push(&entry.path, entry.stat, [entry.target.as_ref().map(Cid::as_bytes), None])?;
        match entries.next()? {
            Some(next) => *entry = next,
            None => _ = std::collections::binary_heap::PeekMut::pop(first),
        }
    }
    Ok(())
}

/// The next entry of a run, by which runs are ordered, and those after it.
struct Next {
    entry: StatEntry,
    entries: StatEntries,
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.entry.path, &other.entry.path)
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

/// The entries of a survey joined with those of a cache, by path.
pub(crate) struct Joined<'a> {
    survey: &'a Survey,
    next: usize,
    /// The path of the next entry of the survey, if there is one.
    path: Vec<u8>,
    old: Option<StatEntries>,
    pending: Option<StatEntry>,
}

/// A path's place in the survey, and what was known of it; at least one of the two.
type Pair = (Option<usize>, Option<StatEntry>);

impl<'a> Joined<'a> {
    /// # Errors
    /// [`Error::Damaged`] if the cache cannot be read.
    pub fn new(survey: &'a Survey, cache: Option<&StatFile>) -> Result<Self> {
        let old = cache.map(StatFile::entries);
        let mut joined = Self { survey, next: 0, path: Vec::new(), old, pending: None };
        joined.find_path();
        joined.read_old()?;
        Ok(joined)
    }

    /// The next path, in key order.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the cache cannot be read.
    pub fn next(&mut self) -> Result<Option<Pair>> {
        let is_there = self.next < self.survey.entries.count();
        let order = match &self.pending {
            Some(old) if is_there => compare(&self.path, &old.path),
            Some(_) => Ordering::Greater,
            None if is_there => Ordering::Less,
            None => return Ok(None),
        };
        let index = (order != Ordering::Greater).then_some(self.next);
        let old = if order == Ordering::Less { None } else { self.pending.take() };
        if index.is_some() {
            self.next += 1;
            self.find_path();
        }
        if old.is_some() {
            self.read_old()?;
        }
        Ok(Some((index, old)))
    }

    fn find_path(&mut self) {
        self.path.clear();
        // Paths are compared with those of the cache only.
        if self.old.is_some() && self.next < self.survey.entries.count() {
            self.path.extend_from_slice(self.survey.entries.path(self.next).as_os_str().as_bytes());
        }
    }

    fn read_old(&mut self) -> Result<()> {
        self.pending = match &mut self.old {
            Some(old) => old.next().map_err(unreadable)?,
            None => None,
        };
        Ok(())
    }
}

fn unreadable(error: io::Error) -> Error {
    Error::damaged(format!("the cache of files' states cannot be read: {error}"))
}

/// The order of the keys of two paths: a folder comes before what is in it, and that before the folder's siblings.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(key).cmp(b.iter().map(key))
}

/// A path, and its targets before and after.
pub type Change = (String, Option<Cid>, Option<Cid>);

/// The changes of the folder's map and of its map of attributes since the cache was written; None if there are more
/// than `most`. Those of attributes are left out if nothing is recorded. O(entries).
///
/// # Errors
/// [`Error::Damaged`] if the cache cannot be read; [`Error::Input`] if a record is too long.
pub fn changes(hashed: &Hashed, cache: &StatFile, recorded: Recorded, most: usize) -> Result<Option<[Vec<Change>; 2]>> {
    let mut found = [Vec::new(), Vec::new()];
    let before = cache.header.top_record().filter(|_| !recorded.is_nothing());
    let after = hashed.top_record(recorded)?.map(|record| record.target);
    if before != after {
        found[1].push((RESERVED_NAME.to_owned(), before, after));
    }
    let mut joined = Joined::new(&hashed.survey, Some(cache))?;
    while let Some((index, old)) = joined.next()? {
        let of_old = |old: StatEntry| ([old.target, old.record.filter(|_| !recorded.is_nothing())], Some(old.path));
        let (before, path) = old.map_or(([None; 2], None), of_old);
        let mut after = [None; 2];
        if let Some(index) = index {
            after = [hashed.targets.get(index), hashed.record(index, recorded)?.map(|record| record.target)];
        }
        if before == after {
            continue;
        }
        let path = match (path, index) {
            (Some(path), _) => String::from_utf8_lossy(&path).into_owned(),
            (None, Some(index)) => hashed.survey.entries.path(index).to_string_lossy().into_owned(),
            (None, None) => continue,
        };
        for ((changes, before), after) in found.iter_mut().zip(before).zip(after) {
            if before != after {
                changes.push((path.clone(), before, after));
            }
        }
        if found.iter().map(Vec::len).sum::<usize>() > most {
            return Ok(None);
        }
    }
    Ok(Some(found))
}
