//! `chunk_sizes`: how the bytes of a file are cut.

use coregw_folders::chunks;
use pyo3::prelude::*;

use crate::convert::BytesLike;
use crate::detach::{self, Work};

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
pub fn chunk_sizes(py: Python<'_>, data: BytesLike) -> PyResult<Vec<usize>> {
    detach::run(py, Work::Hash { bytes: data.len() }, || {
        let mut sizes = Vec::new();
        let mut rest = &*data;
        while !rest.is_empty() || sizes.is_empty() {
            let len = chunks::next_chunk(rest, data.len() as u64);
            sizes.push(len);
            rest = &rest[len..];
        }
        Ok(sizes)
    })
}
