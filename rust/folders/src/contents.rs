//! The contents of one file: read once, cut into chunks, hashed.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::chunks::{self, MAX_CHUNK_BYTES};
use core::codec::Codec;
use core::payload::{self, Function};
use core::{Cid, Digest, Result as CoreResult, Snapshot, Suite};
use coregw_core as core;
use rustix::fs::{self, FileType, OFlags, Stat};

use crate::beneath;
use crate::entries::FileState;

/// How often a file is read that changes while it is read.
const MAX_READS: usize = 3;
/// The memory that a thread reads into: several chunks, so that the rest of one is rarely moved.
const BUFFER_BYTES: usize = 8 * MAX_CHUNK_BYTES;

/// A chunk of a file: the digest of its payload, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    digest: Digest,
    /// The number of its bytes.
    pub len: u32,
}

impl Chunk {
    /// A chunk of these bytes.
    fn of(cid: &Cid, bytes: &[u8]) -> Self {
        Self { digest: Digest(cid.digest().try_into().unwrap_or_default()), len: bytes.len() as u32 }
    }

    /// The payload's CID.
    pub fn cid(&self) -> Cid {
        Cid::of_payload(Codec::RAW.number(), FUNCTION, &self.digest.0)
    }
}

/// A file that was read.
pub struct Contents {
    /// The target in the folder's map.
    pub target: Cid,
    /// The state in which the file was opened; its size is the number of bytes that were read.
    pub state: FileState,
    /// At least one chunk; the only one of a file that is one payload.
    pub chunks: Vec<Chunk>,
}

/// Why a file was not read.
pub enum Unread {
    /// The reason, for the report of skipped files.
    Skipped(String),
    /// A signal handler raised an exception.
    Interrupted,
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self::Skipped(beneath::why(&error))
    }
}

impl From<core::Error> for Unread {
    fn from(error: core::Error) -> Self {
        Self::Skipped(error.to_string())
    }
}

/// Reads a file that `open` opens, and returns its contents.
///
/// Its size says how many bytes to read, unless more follow and it has not changed. A file that changes meanwhile is read
/// again. If it has the same bytes up to the size that it had at first, it only grew, or its times changed: then these
/// bytes are one version of it. `take` gets the CID and the bytes of each chunk each time, and returns whether to end.
/// O(bytes), in 2 MiB of memory.
///
/// # Errors
/// Why there is no one version: the file cannot be read, is not a regular file, or keeps changing.
fn read(
    open: impl Fn() -> io::Result<File>,
    suite: Suite,
    buffer: &mut Vec<u8>,
    take: &mut impl FnMut(&Cid, &[u8]) -> bool,
) -> Result<Contents, Unread> {
    let mut last: Option<(FileState, Vec<Chunk>)> = None;
    let mut has_size = true;
    for _ in 0..MAX_READS {
        let (mut file, state) = open_regular(open()?)?;
        let size = if has_size { state.size } else { u64::MAX };
        let limit = last.as_ref().map_or(size, |last| last.0.size.min(size));
        let mut found = Vec::new();
        let read = each_chunk(&mut file, limit, buffer, &mut |bytes| {
            let cid = payload::cid(bytes, Codec::RAW, FUNCTION)?;
            if take(&cid, bytes) {
                return Err(Unread::Interrupted);
            }
            found.push(Chunk::of(&cid, bytes));
            Ok(())
        })?;
        let is_all = limit == size && (read == limit || !has_size);
        if is_all && has_size && file.read(&mut [0])? > 0 && FileState::of(&stat(&file)?) == state {
            // It has not grown: as in /proc, its size is not the number of its bytes.
            has_size = false;
            continue;
        }
        let is_unchanged = is_all && FileState::of(&stat(&file)?) == state;
        match last {
            Some((state, chunks)) if chunks == found => return contents(suite, state, chunks),
            _ if is_unchanged => return contents(suite, state.with_size(read), found),
            _ => last = Some((state.with_size(read), found)),
        }
    }
    Err(Unread::Skipped("it keeps changing".to_owned()))
}

/// As `read`, into memory that the thread keeps. `take` may run code that reads files in the same thread: that has memory
/// of its own.
pub fn read_here(
    open: impl Fn() -> io::Result<File>,
    suite: Suite,
    take: &mut impl FnMut(&Cid, &[u8]) -> bool,
) -> Result<Contents, Unread> {
    thread_local!(static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) });
    let mut buffer = BUFFER.take();
    let read = read(open, suite, &mut buffer, take);
    BUFFER.set(buffer);
    read
}

/// The hash function of payloads.
const FUNCTION: Function = Function::Sha2_256;

/// Opens a file for reading. Does not follow a symbolic link, and does not block on a named pipe.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32).open(path)
}

fn stat(file: &File) -> io::Result<Stat> {
    Ok(fs::fstat(file)?)
}

fn open_regular(file: File) -> Result<(File, FileState), Unread> {
    let found = stat(&file)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(Unread::Skipped("not a regular file".to_owned()));
    }
    Ok((file, FileState::of(&found)))
}

/// Gives the chunks of the next `limit` bytes to `take`, at least one. Returns how many bytes there were.
fn each_chunk(
    file: &mut File,
    limit: u64,
    buffer: &mut Vec<u8>,
    take: &mut impl FnMut(&[u8]) -> Result<(), Unread>,
) -> Result<u64, Unread> {
    let (mut total, mut from, mut has_more) = (0, 0, limit > 0);
    buffer.clear();
    for count in 0_u64.. {
        if has_more && buffer.len() - from < MAX_CHUNK_BYTES {
            buffer.drain(..from);
            from = 0;
            let wanted = (limit - total).min((BUFFER_BYTES - buffer.len()) as u64);
            let read = file.by_ref().take(wanted).read_to_end(buffer)? as u64;
            total += read;
            has_more = read == wanted && total < limit;
        }
        let len = chunks::next_chunk(&buffer[from..], if has_more { limit } else { total });
        if len == 0 && count > 0 {
            break;
        }
        take(&buffer[from..from + len])?;
        from += len;
    }
    Ok(total)
}

/// The contents of a file with these chunks.
fn contents(suite: Suite, state: FileState, chunks: Vec<Chunk>) -> Result<Contents, Unread> {
    Ok(Contents { target: target(suite, &chunks)?, state, chunks })
}

/// The target of a file with these chunks: one payload, or a list measured in bytes.
fn target(suite: Suite, chunks: &[Chunk]) -> CoreResult<Cid> {
    match chunks {
        [only] => Ok(only.cid()),
        many => Ok(list_of(suite, many)?.root().cid()),
    }
}

/// The target of a file of these bytes. O(bytes).
pub fn target_of(bytes: &[u8], suite: Suite) -> CoreResult<Cid> {
    let (mut found, mut rest) = (Vec::new(), bytes);
    while found.is_empty() || !rest.is_empty() {
        let (chunk, after) = rest.split_at(chunks::next_chunk(rest, bytes.len() as u64));
        found.push(Chunk::of(&payload::cid(chunk, Codec::RAW, FUNCTION)?, chunk));
        rest = after;
    }
    target(suite, &found)
}

/// The list of a file's chunks, measured in bytes. O(chunks).
pub fn list_of(suite: Suite, chunks: &[Chunk]) -> CoreResult<Snapshot> {
    let elements: Vec<_> = chunks.iter().map(|chunk| (chunk.cid(), u64::from(chunk.len))).collect();
    Snapshot::list(suite, &elements)
}
