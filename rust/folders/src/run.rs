//! Sorted runs in a temporary file: how one is written, and read again from its beginning.
//!
//! ```text
//! arc   | shared u16 | rest u16 | target u8 | rest of the key | target |      integers are little-endian
//! ```
//!
//! `shared` is how many bytes the key has in common with the one before it in the run.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use coregw_core::Arcs;

const HEAD: usize = 5;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;
/// The longest arc: a key and a target.
const MAX_ARC: usize = HEAD + coregw_core::key::MAX_KEY + 255;

/// A temporary file without a name, which disappears when it is closed, or the process ends.
pub struct RunFile {
    file: Mutex<File>,
}

impl RunFile {
    pub fn create(folder: Option<&Path>) -> io::Result<Self> {
        let file = folder.map_or_else(tempfile::tempfile, tempfile::tempfile_in)?;
        Ok(Self { file: Mutex::new(file) })
    }

    fn lock(&self) -> MutexGuard<'_, File> {
        // Every use seeks first, so a panic elsewhere leaves nothing inconsistent.
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
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

fn common_len(a: &[u8], b: &[u8]) -> usize {
    let (words, others) = (a.as_chunks::<8>().0.iter(), b.as_chunks::<8>().0.iter());
    let whole = 8 * words.zip(others).take_while(|(a, b)| a == b).count();
    whole + a[whole..].iter().zip(&b[whole..]).take_while(|(a, b)| a == b).count()
}

/// Where a run is in its file, and its first and last key.
#[derive(Debug, Clone)]
pub struct Run {
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
pub struct RunReader {
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
