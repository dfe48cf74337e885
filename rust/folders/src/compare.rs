//! `files_match`: whether files have the bytes that payloads name.

use std::io::{self, Read};
use std::path::{Component, PathBuf};

use core::Cid;
use core::payload::Check;
use coregw_core as core;
use pyo3::prelude::*;

use crate::cid::CidLike;
use crate::detach::{self, Work};
use crate::errors::call;
use crate::files::beneath::Beneath;
use crate::files::signals::Signals;
use crate::files::survey::os_error;
use crate::parallel;

use super::batch::known_size;

const READ_BYTES: usize = 256 << 10;

/// A payload and its size, if that is known.
type Part = (Cid, Option<u64>);
type PartLike = (CidLike, Option<u64>);

/// Return whether each of these files consists of its payloads. O(bytes), on all cores, with the GIL released.
///
/// A file that is missing, can't be read, is not a regular file or is not below `top` does not match. No symbolic link
/// below `top` is followed, also if it is put there meanwhile.
///
/// Args:
///     top: The folder that the files are below. Its own path may lead through links.
///     files: The files: the path of each, relative to `top`, and its payloads in order, as CIDs and sizes. The size
///         of the last one may be None.
///     progress: Called about every 50 milliseconds with the number of bytes that were read since, in the caller's
///         thread. An exception that it raises ends the work.
///
/// Raises:
///     TooLarge: If the sizes of a file's payloads sum to 2^63 or more.
///     OSError: If `top` can't be opened.
///     KeyboardInterrupt: If the process gets SIGINT meanwhile, in the main thread.
///
/// >>> files_match("/", [("does/not/exist", [("bafkqaaa", 0)])])
/// [False]
#[pyfunction]
#[pyo3(signature = (top, files, progress = None), text_signature = "(top, files, progress=None)")]
pub fn files_match(
    py: Python<'_>,
    top: PathBuf,
    files: Vec<(PathBuf, Vec<PartLike>)>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<bool>> {
    let files = files.into_iter().map(|(path, parts)| {
        let parts: Vec<Part> = parts.into_iter().map(|(cid, size)| (cid.0, size)).collect();
        let place = path.to_string_lossy();
        let size = call(|| known_size(&parts).map_err(|error| error.within(&place)))?;
        let size = parts.iter().all(|(_, size)| size.is_some()).then_some(size);
        Ok(ComparedFile { path, parts, size })
    });
    let files = files.collect::<PyResult<Vec<_>>>()?;
    let beneath = Beneath::new(&top).map_err(|error| os_error(&top, &error))?;
    let signals = Signals::with_progress(progress);
    let compare = |file: &ComparedFile| matches(&beneath, file, &signals).unwrap_or(false);
    let found = detach::run(py, Work::Unbounded, || Ok(parallel::map_watched(&files, compare, &|| signals.look())))?;
    signals.result()?;
    Ok(found)
}

/// A file to compare: the path, its payloads, and its size if that is known.
struct ComparedFile {
    path: PathBuf,
    parts: Vec<Part>,
    size: Option<u64>,
}

fn matches(
    beneath: &Beneath,
    ComparedFile { path, parts, size }: &ComparedFile,
    signals: &Signals,
) -> io::Result<bool> {
    if !path.components().all(|each| matches!(each, Component::Normal(_))) {
        return Ok(false);
    }
    let mut file = beneath.open(path)?;
    let state = file.metadata()?;
    if !state.is_file() || size.is_some_and(|size| size != state.len()) {
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
