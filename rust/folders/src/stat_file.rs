//! The file of a stat cache: what was known of a folder's entries when it was added last, in key order.
//!
//! ```text
//! "coregw stat 5\n" | CID of the rest, 36 bytes | folder | options | began | root | attributes | top | entry | ...
//! entry:  bytes of the path before that it shares | the others | flags | file: inode, size, mtime, ctime | targets
//! ```
//!
//! It is read from start to end, as often as needed, and never held in memory.
//! A folder and what was known of it the last time are joined side by side.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use coregw_core::codec::Codec;
use coregw_core::payload::{Function, Hasher};
use coregw_core::{Cid, Error, Result, varint};

use crate::entries::FileState;
use crate::hashed::{Hashed, Recorded};
use crate::join::RESERVED_NAME;
use crate::survey::Survey;

const MAGIC: &[u8] = b"coregw stat 5\n";
const DIGEST_BYTES: usize = 36;
const BUFFER_BYTES: usize = 256 << 10;
/// The limit on a string or path in the file.
const MAX_TEXT_BYTES: u64 = 1 << 16;

const HAS_STATE: u8 = 1;
const HAS_TARGET: u8 = 2;
const HAS_RECORD: u8 = 4;

/// What the file system said of a file that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    inode: u64,
    size: u64,
    mtime: i64,
    ctime: i64,
}

impl Stat {
    pub(crate) fn of(state: &FileState) -> Self {
        let FileState { inode, size, mtime_ns: mtime, ctime_ns: ctime, .. } = *state;
        Self { inode, size, mtime, ctime }
    }

    /// Whether the file had not changed for some time at this time, in nanoseconds since 1970.
    pub fn is_older_than(&self, time: i64) -> bool {
        self.mtime < time && self.ctime < time
    }
}

/// What was known of a path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct OldEntry {
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
    /// When it was read, in nanoseconds since 1970.
    pub began: i64,
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
    file: File,
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
        let mut reader = OldEntries::new(file.try_clone().ok()?, start).ok()?;
        let header = reader.header().ok()?;
        let start = reader.at;
        (header.folder == folder && header.options == options).then_some(Self { file, header, start })
    }

    /// The entries, from the first one. Only one reader may be in use.
    pub(crate) fn entries(&self) -> io::Result<OldEntries> {
        OldEntries::new(self.file.try_clone()?, self.start)
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

/// Reads entries in order.
pub(crate) struct OldEntries {
    reader: BufReader<File>,
    at: u64,
    path: Vec<u8>,
}

impl OldEntries {
    fn new(mut file: File, at: u64) -> io::Result<Self> {
        file.seek(SeekFrom::Start(at))?;
        Ok(Self { reader: BufReader::with_capacity(BUFFER_BYTES, file), at, path: Vec::new() })
    }

    fn header(&mut self) -> io::Result<Header> {
        let (folder, options) = (self.string()?, self.string()?);
        let began = self.number()?;
        Ok(Header { folder, options, began, root: self.string()?, attributes: self.string()?, top: self.string()? })
    }

    /// The next entry; None at the end.
    pub fn next(&mut self) -> io::Result<Option<OldEntry>> {
        let Some(shared) = self.varint()? else { return Ok(None) };
        let others = self.string()?;
        self.path.truncate(usize::try_from(shared).map_err(|_| malformed())?);
        self.path.extend_from_slice(&others);
        let mut entry = OldEntry { path: self.path.clone(), ..OldEntry::default() };
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
            if count == 0 && self.reader.fill_buf_is_empty()? {
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

trait FillBuf {
    fn fill_buf_is_empty(&mut self) -> io::Result<bool>;
}

impl FillBuf for BufReader<File> {
    fn fill_buf_is_empty(&mut self) -> io::Result<bool> {
        io::BufRead::fill_buf(self).map(<[u8]>::is_empty)
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
            writer.push(&OldEntry { path, stat, target, record })?;
        }
    }
    writer.finish()
}

/// Writes a file, entry by entry.
struct StatWriter {
    out: BufWriter<File>,
    hasher: Hasher,
    bytes: Vec<u8>,
    path: Vec<u8>,
}

impl StatWriter {
    /// Creates a file, or empties the one that its caller has created.
    fn create(path: &Path, header: &Header, top: &[u8]) -> io::Result<Self> {
        let mut file = File::create(path)?;
        file.write_all(&[0; MAGIC.len() + DIGEST_BYTES])?;
        let out = BufWriter::with_capacity(BUFFER_BYTES, file);
        let mut writer = Self { out, hasher: hasher(), bytes: Vec::new(), path: Vec::new() };
        writer.string(&header.folder);
        writer.string(&header.options);
        writer.bytes.extend_from_slice(&header.began.to_le_bytes());
        writer.string(&header.root);
        writer.string(&header.attributes);
        writer.string(top);
        writer.write()?;
        Ok(writer)
    }

    /// Appends an entry. OldEntries come in key order.
    fn push(&mut self, entry: &OldEntry) -> io::Result<()> {
        let shared = entry.path.iter().zip(&self.path).take_while(|(a, b)| a == b).count();
        varint::write(&mut self.bytes, shared as u64);
        self.string(&entry.path[shared..]);
        self.path.clone_from(&entry.path);
        let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
        let cids = flag(entry.target.is_some(), HAS_TARGET) | flag(entry.record.is_some(), HAS_RECORD);
        self.bytes.push(flag(entry.stat.is_some(), HAS_STATE) | cids);
        if let Some(Stat { inode, size, mtime, ctime }) = entry.stat {
            for number in [inode as i64, size as i64, mtime, ctime] {
                self.bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        for cid in [entry.target, entry.record].iter().flatten() {
            self.string(cid.as_bytes());
        }
        self.write()
    }

    /// Writes the checksum.
    fn finish(self) -> io::Result<()> {
        let digest = self.hasher.cid().map_err(|_| malformed())?;
        let mut file = self.out.into_inner()?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&[MAGIC, digest.as_bytes()].concat())
    }

    fn string(&mut self, bytes: &[u8]) {
        varint::write(&mut self.bytes, bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    fn write(&mut self) -> io::Result<()> {
        self.hasher.update(&self.bytes);
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}

/// The entries of a survey joined with those of a cache, by path.
pub(crate) struct Joined<'a> {
    survey: &'a Survey,
    next: usize,
    /// The path of the next entry of the survey, if there is one.
    path: Vec<u8>,
    old: Option<OldEntries>,
    pending: Option<OldEntry>,
}

/// A path's place in the survey, and what was known of it; at least one of the two.
type Pair = (Option<usize>, Option<OldEntry>);

impl<'a> Joined<'a> {
    /// # Errors
    /// [`Error::Damaged`] if the cache cannot be read.
    pub fn new(survey: &'a Survey, cache: Option<&StatFile>) -> Result<Self> {
        let old = cache.map(StatFile::entries).transpose().map_err(unreadable)?;
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
        let of_old = |old: OldEntry| ([old.target, old.record.filter(|_| !recorded.is_nothing())], Some(old.path));
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
