//! `hash_files`: the targets of files, as `coregw add` stores them, computed on all cores.

pub mod attributes;
pub mod signals;
pub mod upload;

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use core::codec::Codec;
use core::payload::{self, Function};
use core::{Cid, Snapshot, Suite};
use coregw_core as core;
use pyo3::prelude::*;

use crate::detach::{self, Work};
use crate::errors::call;
use crate::{parallel, tuples};

use signals::Signals;

/// The size of a chunk of a long file (docs/decisions/0031).
const CHUNK_BYTES: usize = 1 << 20;
/// How often a file is read that changes while it is read.
const MAX_READS: usize = 3;

/// Hash files on all cores, with the GIL released, and return the target that each has in a folder's map.
///
/// O(bytes). A file of at most 1 MiB is one raw payload; a longer one is a list of payloads of 1 MiB, the last one
/// shorter, measured in bytes. Payloads are hashed with SHA-256. Each thread holds one chunk in memory. Symbolic links
/// are not followed.
///
/// Args:
///     files: The paths of the files.
///     suite: The hash function of lists: ``sha2-256`` or ``blake3``.
///
/// Returns:
///     For each file ``HashedFile(target, size, chunks, failure)``. `failure` is None, or why there is no target: the
///     operating system's error number, ``"not a regular file"``, or ``"changing"`` for a file that changed during each
///     of 3 reads.
///
/// Raises:
///     InvalidInput: If `suite` is another.
///     KeyboardInterrupt: If the process gets SIGINT meanwhile, in the main thread.
///
/// >>> hash_files(["/does/not/exist"])[0].failure
/// 2
#[pyfunction]
#[pyo3(signature = (files, suite = "sha2-256"), text_signature = "(files, suite='sha2-256')")]
pub fn hash_files<'py>(py: Python<'py>, files: Vec<PathBuf>, suite: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let suite = call(|| Suite::from_name(suite))?;
    let signals = Signals::new();
    let hashed = detach::run(py, Work::Unbounded, || {
        Ok(parallel::map_each(&files, |file| hash(file, suite, &|| signals.is_interrupted())))
    })?;
    signals.result()?;
    hashed.into_iter().map(|hashed| hashed.into_python(py)).collect()
}

/// What is known of a file after it was read.
struct Hashed {
    target: Option<Cid>,
    size: u64,
    chunks: Vec<Cid>,
    failure: Option<Failure>,
}

#[derive(IntoPyObject)]
enum Failure {
    Errno(i32),
    Reason(&'static str),
}

impl Hashed {
    fn into_python<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let target = self.target.map(|cid| cid.text());
        let chunks: Vec<_> = self.chunks.iter().map(Cid::text).collect();
        tuples::HASHED_FILE.instance(py, (target, self.size, chunks, self.failure))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        error.raw_os_error().map_or(Self::Reason("unreadable"), Self::Errno)
    }
}

fn hash(file: &Path, suite: Suite, is_interrupted: &impl Fn() -> bool) -> Hashed {
    let hashed = read_one_version(file, is_interrupted).map(|(chunks, size)| {
        let target = match &chunks[..] {
            [one] => Ok(*one),
            many => list(suite, many, size),
        };
        target.map(|target| Hashed { target: Some(target), size, chunks, failure: None })
    });
    let failed = |failure| Hashed { target: None, size: 0, chunks: Vec::new(), failure: Some(failure) };
    match hashed {
        Ok(Ok(hashed)) => hashed,
        Ok(Err(_)) => failed(Failure::Reason("too large")),
        Err(failure) => failed(failure),
    }
}

/// The list of a file's chunks, measured in bytes.
fn list(suite: Suite, chunks: &[Cid], size: u64) -> core::Result<Cid> {
    let last = size - (chunks.len() as u64 - 1) * CHUNK_BYTES as u64;
    let sizes = std::iter::repeat_n(CHUNK_BYTES as u64, chunks.len() - 1).chain([last]);
    let elements: Vec<_> = chunks.iter().copied().zip(sizes).collect();
    Ok(Snapshot::list(suite, &elements)?.root().cid())
}

/// The payloads of the chunks of a file that did not change while it was read, at least one, and the file's size.
fn read_one_version(path: &Path, is_interrupted: &impl Fn() -> bool) -> Result<(Vec<Cid>, u64), Failure> {
    for _ in 0..MAX_READS {
        let mut file = open(path)?;
        let before = file.metadata()?;
        if !before.is_file() {
            return Err(Failure::Reason("not a regular file"));
        }
        let chunks = read_chunks(&mut file, before.len(), is_interrupted)?;
        if state(&file.metadata()?) == state(&before) {
            return Ok(chunks);
        }
    }
    Err(Failure::Reason("changing"))
}

fn read_chunks(file: &mut File, size: u64, is_interrupted: &impl Fn() -> bool) -> Result<(Vec<Cid>, u64), Failure> {
    let mut chunk = Vec::with_capacity(usize::try_from(size).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES));
    let (mut chunks, mut total) = (Vec::new(), 0);
    loop {
        if is_interrupted() {
            return Err(Failure::Reason("interrupted"));
        }
        chunk.clear();
        file.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
        if !chunk.is_empty() || chunks.is_empty() {
            total += chunk.len() as u64;
            let digest = payload::cid(&chunk, Codec::RAW, Function::Hash(Suite::Sha2_256));
            chunks.push(digest.map_err(|_| Failure::Reason("unreadable"))?);
        }
        if chunk.len() < CHUNK_BYTES {
            return Ok((chunks, total));
        }
    }
}

/// Opens a file for reading. Does not follow a symbolic link, and does not block on a named pipe.
#[cfg(unix)]
pub(crate) fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

#[cfg(not(unix))]
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

/// What is the same before and after a read if the file was not changed meanwhile.
#[cfg(unix)]
fn state(file: &Metadata) -> [i64; 6] {
    use std::os::unix::fs::MetadataExt as _;
    let whole = |n: u64| n as i64;
    [whole(file.ino()), whole(file.size()), file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()]
}

#[cfg(not(unix))]
fn state(file: &Metadata) -> (u64, Option<std::time::SystemTime>) {
    (file.len(), file.modified().ok())
}
