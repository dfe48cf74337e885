//! `hash_files` and `chunk_sizes`: the targets of single files, and how their bytes are cut.

use std::path::PathBuf;

use core::Suite;
use coregw_core as core;
use coregw_ops::folder::chunks;
use pyo3::prelude::*;

use crate::detach::{self, Work};
use crate::errors::call;
use crate::{cid, parallel, tuples};

use super::contents::{self, Contents, Unread};
use super::signals::Signals;

/// Hash files on all cores, with the GIL released, and return the target that each has in a folder's map.
///
/// O(bytes). Files are read as by `hash_survey`; symbolic links are not followed.
///
/// Args:
///     files: The paths of the files.
///     suite: The hash function of lists: ``sha2-256`` or ``blake3``.
///     progress: Called about every 50 milliseconds with the number of bytes that were read since, in the caller's
///         thread. An exception that it raises ends the work.
///
/// Returns:
///     For each file ``HashedFile(target, size, chunks, failure)``. `failure` is None, or why there is no target.
///
/// Raises:
///     InvalidInput: If `suite` is another.
///     KeyboardInterrupt: If the process gets SIGINT meanwhile, in the main thread.
///
/// >>> hash_files(["/does/not/exist"])[0].failure
/// 'no such file or directory'
#[pyfunction]
#[pyo3(
    signature = (files, suite = "sha2-256", progress = None),
    text_signature = "(files, suite='sha2-256', progress=None)"
)]
pub fn hash_files<'py>(
    py: Python<'py>,
    files: Vec<PathBuf>,
    suite: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let suite = call(|| Suite::from_name(suite))?;
    let signals = Signals::with_progress(progress);
    let read = |file: &PathBuf| contents::read_here(file, suite, &|bytes| signals.is_interrupted_after(bytes));
    let hashed = detach::run(py, Work::Unbounded, || Ok(parallel::map_watched(&files, read, &|| signals.look())))?;
    signals.result()?;
    hashed.into_iter().map(|read| into_python(py, read)).collect()
}

fn into_python(py: Python<'_>, read: Result<Contents, Unread>) -> PyResult<Bound<'_, PyAny>> {
    let (target, size, chunks, failure) = match read {
        Ok(Contents { target, state, chunks }) => {
            let chunks = chunks.iter().map(|chunk| (cid::text(py, &chunk.cid), chunk.len)).collect::<Vec<_>>();
            (Some(cid::text(py, &target)), state.size, chunks, None)
        }
        Err(Unread::Skipped(why)) => (None, 0, Vec::new(), Some(why)),
        Err(Unread::Interrupted) => (None, 0, Vec::new(), Some("interrupted".to_owned())),
    };
    tuples::HASHED_FILE.instance(py, (target, size, chunks, failure))
}

/// Return the lengths of the chunks into which the bytes of a file are cut (protocol section 7).
///
/// O(bytes); the GIL is released above 32 KiB. A file of at most 262,144 bytes is one chunk; a longer one is cut by its
/// content, so that after a change most chunks are the same.
///
/// Args:
///     data: All bytes of the file.
///
/// >>> chunk_sizes(bytes(262_144)), chunk_sizes(bytes(262_145)), chunk_sizes(b"")
/// ([262144], [262144, 1], [0])
#[pyfunction]
pub fn chunk_sizes(py: Python<'_>, data: &[u8]) -> PyResult<Vec<usize>> {
    detach::run(py, Work::Hash { bytes: data.len() }, || {
        let mut sizes = Vec::new();
        let mut rest = data;
        while !rest.is_empty() || sizes.is_empty() {
            let len = chunks::next_chunk(rest, data.len() as u64);
            sizes.push(len);
            rest = &rest[len..];
        }
        Ok(sizes)
    })
}
