//! `files_match`: whether files have the bytes that payloads name.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use core::Cid;
use core::payload::Check;
use coregw_core as core;
use pyo3::prelude::*;

use crate::cid::CidLike;
use crate::detach::{self, Work};
use crate::files::signals::Signals;
use crate::{files, parallel};

const READ_BYTES: usize = 256 << 10;

/// A payload and its size, if that is known.
type Part = (Cid, Option<u64>);
type PartLike = (CidLike, Option<u64>);

/// Return whether each of these files consists of its payloads. O(bytes), on all cores, with the GIL released.
///
/// A file that is missing, can't be read or is not a regular file does not match. Symbolic links are not followed.
///
/// Args:
///     files: The files: the path of each, and its payloads in order, as CIDs and sizes. The size of the last one may
///         be None.
///     progress: Called about every 50 milliseconds with the number of bytes that were read since, in the caller's
///         thread. An exception that it raises ends the work.
///
/// Raises:
///     KeyboardInterrupt: If the process gets SIGINT meanwhile, in the main thread.
///
/// >>> files_match([("/does/not/exist", [("bafkqaaa", 0)])])
/// [False]
#[pyfunction]
#[pyo3(signature = (files, progress = None), text_signature = "(files, progress=None)")]
pub fn files_match(
    py: Python<'_>,
    files: Vec<(PathBuf, Vec<PartLike>)>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<bool>> {
    let files: Vec<(PathBuf, Vec<Part>)> = files
        .into_iter()
        .map(|(path, parts)| (path, parts.into_iter().map(|(cid, size)| (cid.0, size)).collect()))
        .collect();
    let signals = Signals::with_progress(progress);
    let compare = |(path, parts): &(PathBuf, Vec<Part>)| matches(path, parts, &signals).unwrap_or(false);
    let found = detach::run(py, Work::Unbounded, || Ok(parallel::map_watched(&files, compare, &|| signals.look())))?;
    signals.result()?;
    Ok(found)
}

fn matches(path: &Path, parts: &[Part], signals: &Signals) -> io::Result<bool> {
    let mut file = files::open(path)?;
    let state = file.metadata()?;
    let known: Option<u64> = parts.iter().map(|(_, size)| *size).sum();
    if !state.is_file() || known.is_some_and(|known| known != state.len()) {
        return Ok(false);
    }
    let mut buffer = vec![0; READ_BYTES.min(usize::try_from(state.len()).unwrap_or(READ_BYTES)).max(1)];
    for (cid, size) in parts {
        let mut check = Check::new(cid);
        let mut left = size.unwrap_or(u64::MAX);
        while left > 0 {
            let want = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let count = match file.read(&mut buffer[..want]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if count == 0 || signals.is_interrupted_after(count as u64) {
                break;
            }
            check.update(&buffer[..count]);
            left -= count as u64;
        }
        if !check.is_match() {
            return Ok(false);
        }
    }
    Ok(file.read(&mut buffer[..1])? == 0)
}
