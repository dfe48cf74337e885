//! CARs of what `coregw add` sends: parts of files, read again and checked, and the trees of lists.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use core::payload;
use coregw_core as core;
use coregw_ops::car;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::contents::open;
use crate::cid::CidLike;
use crate::detach::{self, Work};
use crate::list::List;
use crate::parallel;

/// A part of a file that is a payload: its file, its first byte, its length, and its CID.
type FilePart = (PathBuf, u64, u32, CidLike);

/// Return a CAR of payloads that are parts of files, which are read and checked on all cores with the GIL released.
///
/// O(bytes).
///
/// Args:
///     parts: For each payload its file, the offset of its first byte, its length in bytes, and its CID.
///
/// Returns:
///     The CAR, and the indices of the parts that could not be read or have another hash. If there are any, the CAR is
///     empty: make another one without them.
///
/// >>> files_car([("/does/not/exist", 0, 5, payload_cid(b"hello"))])
/// (b'', [0])
#[pyfunction]
pub fn files_car(py: Python<'_>, parts: Vec<FilePart>) -> PyResult<(Bound<'_, PyBytes>, Vec<usize>)> {
    let header = car::payload_car_header();
    let heads: Vec<_> = parts.iter().map(|part| car::block_head(&part.3.0, part.2.into())).collect();
    let size = parts.iter().zip(&heads).map(|(part, head)| head.len() + part.2 as usize).sum::<usize>();
    let mut failed = Vec::new();
    let car = PyBytes::new_with(py, header.len() + size, |bytes| {
        failed = detach::run(py, Work::Unbounded, || Ok(fill(bytes, header, &heads, &parts)))?;
        Ok(())
    })?;
    Ok(if failed.is_empty() { (car, failed) } else { (PyBytes::new(py, b""), failed) })
}

/// Writes the CAR, and returns which parts failed.
fn fill(bytes: &mut [u8], header: &[u8], heads: &[Vec<u8>], parts: &[FilePart]) -> Vec<usize> {
    let (start, mut rest) = bytes.split_at_mut(header.len());
    start.copy_from_slice(header);
    let mut places = Vec::with_capacity(parts.len());
    for (part, head) in parts.iter().zip(heads) {
        let (place, others) = rest.split_at_mut(head.len() + part.2 as usize);
        let (before, data) = place.split_at_mut(head.len());
        before.copy_from_slice(head);
        places.push((part, Mutex::new(data)));
        rest = others;
    }
    let read = parallel::map(&places, |(part, data)| {
        let mut data = data.lock().unwrap_or_else(PoisonError::into_inner);
        read(part, &mut data).is_ok() && payload::matches(&part.3.0, &data)
    });
    read.iter().enumerate().filter(|(_, is_right)| !**is_right).map(|(index, _)| index).collect()
}

fn read((file, offset, ..): &FilePart, data: &mut [u8]) -> io::Result<()> {
    let file = open(file)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    read_at(&file, data, *offset)
}

#[cfg(unix)]
fn read_at(file: &File, data: &mut [u8], offset: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt as _;
    file.read_exact_at(data, offset)
}

#[cfg(not(unix))]
fn read_at(mut file: &File, data: &mut [u8], offset: u64) -> io::Result<()> {
    use std::io::{Read as _, Seek as _};
    file.seek(io::SeekFrom::Start(offset))?;
    file.read_exact(data)
}

/// Return a CAR whose roots are these lists, with the nodes of their trees. O(nodes).
///
/// Args:
///     lists: At most 1,400, so that readers accept the header.
///
/// >>> small = List([payload_cid(b"a")], [1])
/// >>> reader = CarReader(1, 10)
/// >>> reader.feed(lists_car([small]))
/// >>> reader.roots == [small.root]
/// True
#[pyfunction]
pub fn lists_car<'py>(py: Python<'py>, lists: Vec<PyRef<'py, List>>) -> PyResult<Bound<'py, PyBytes>> {
    let lists: Vec<_> = lists.iter().map(|list| list.0.clone()).collect();
    let car = detach::run(py, Work::Unbounded, || car::lists_car(&lists))?;
    Ok(PyBytes::new(py, &car))
}
