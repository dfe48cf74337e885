//! The records of a folder's map of attributes, and `join_folder`, which joins them with the files.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use core::{InputCode, SUM_LIMIT};
use coregw_core as core;
use coregw_folders::attributes::MODE_BITS;
use coregw_folders::join::is_top;
use coregw_folders::{Attributes, Entry, FolderEntry, FolderJoin, PathKind};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyIterator, PyString, PyTuple};

use crate::cid::CidLike;
use crate::convert::{ArgumentError, BytesLike, Items, unsigned};
use crate::errors::call;
use crate::{cid, tuples};

/// Return the record of what is known of a path of a folder (protocol section 7), and the CID that names it.
///
/// O(bytes). The arguments are the fields of `Attributes`, so ``encode_attributes(*attributes)`` encodes a decoded
/// record again.
///
/// Args:
///     kind: ``file``, ``link`` (a symbolic link) or ``folder``.
///     size: The size of a file in bytes.
///     mode: The permission bits of a file or folder, at most ``0o7777``.
///     mtime_ns: The time of the last modification, in nanoseconds since 1970.
///     link: The target of a symbolic link: 1 to 4,095 bytes.
///     owner: The numeric ids of the owner and the group.
///     xattrs: Extended attributes by name.
///
/// Returns:
///     The target in the map of attributes as text, and the record. The record is a payload to be stored unless the
///     target is an identity CID.
///
/// Raises:
///     InvalidInput: If an argument is out of range, or does not fit the kind.
///
/// >>> target, record = encode_attributes("file", size=5, mode=0o755)
/// >>> Cid(target).hash_name, record.hex(" ")
/// ('identity', 'a2 64 6d 6f 64 65 19 01 ed 64 73 69 7a 65 05')
#[pyfunction]
#[pyo3(signature = (kind = "file", size = None, mode = None, mtime_ns = None, link = None, owner = None, xattrs = None),
       text_signature = "(kind='file', size=None, mode=None, mtime_ns=None, link=None, owner=None, xattrs=None)")]
#[allow(clippy::too_many_arguments)] // the fields of `Attributes`
pub fn encode_attributes<'py>(
    py: Python<'py>,
    kind: &str,
    size: Option<&Bound<'py, PyAny>>,
    mode: Option<&Bound<'py, PyAny>>,
    mtime_ns: Option<&Bound<'py, PyAny>>,
    link: Option<BytesLike>,
    owner: Option<&Bound<'py, PyAny>>,
    xattrs: Option<BTreeMap<String, BytesLike>>,
) -> PyResult<(Bound<'py, PyString>, Bound<'py, PyBytes>)> {
    let entry = match (kind, link.as_deref()) {
        ("file", None) => Entry::File,
        ("link", Some(target)) => Entry::Link(target.to_vec()),
        ("folder", None) => Entry::Folder,
        ("file" | "link" | "folder", _) => {
            return Err(refused("attributes: a symbolic link, and nothing else, has a link").into());
        }
        _ => return Err(refused("attributes: the kind is file, link or folder").into()),
    };
    let attributes = Attributes {
        entry,
        size: number(size, "size", SUM_LIMIT - 1)?,
        mode: number(mode, "mode", MODE_BITS.into())?.map(|mode| mode as u16),
        mtime: in_range(mtime_ns, "mtime_ns", "is from -2^63 to 2^63 - 1")?,
        owner: ids(owner)?,
        xattrs: xattrs.unwrap_or_default().into_iter().map(|(name, value)| (name, value.to_vec())).collect(),
    };
    let record = call(|| attributes.record())?;
    Ok((cid::text(py, &record.target), PyBytes::new(py, &record.bytes)))
}

fn refused(what: &str) -> ArgumentError {
    ArgumentError::input(InputCode::InvalidRequest, what)
}

fn number(value: Option<&Bound<'_, PyAny>>, name: &str, most: u64) -> Result<Option<u64>, ArgumentError> {
    let Some(value) = value else { return Ok(None) };
    match unsigned(value, format_args!("{name} is an int"))? {
        Some(number) if number <= most => Ok(Some(number)),
        _ => Err(refused(&format!("attributes: {name} is from 0 to {most}"))),
    }
}

/// The ids of an owner and a group, a pair of ints.
fn ids(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<(u32, u32)>> {
    let Some(value) = value else { return Ok(None) };
    let (user, group): (Bound<'_, PyAny>, Bound<'_, PyAny>) = value.extract()?;
    let id = |value| in_range(Some(value), "each id of owner", "is from 0 to 2^32 - 1");
    Ok(id(&user)?.zip(id(&group)?))
}

/// An int as Rust has it. Python's `OverflowError` says less than `rule`.
fn in_range<'py, T>(value: Option<&Bound<'py, PyAny>>, name: &str, rule: &str) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    let Some(value) = value else { return Ok(None) };
    if value.is_instance_of::<PyBool>() {
        return Err(ArgumentError::Type(format!("{name} is an int, not bool")).into());
    }
    value.extract().map(Some).map_err(|error: PyErr| {
        let is_out_of_range = error.is_instance_of::<PyOverflowError>(value.py());
        if is_out_of_range { refused(&format!("attributes: {name} {rule}")).into() } else { error }
    })
}

/// Return what a record of a folder's map of attributes says (protocol section 7). O(bytes).
///
/// Args:
///     target: The record's target in the map of attributes.
///     payload: The payload that `target` names; not needed for an identity CID, which holds the record.
///
/// Returns:
///     ``Attributes(kind, size, mode, mtime_ns, link, owner, xattrs)``; None for what is unknown.
///
/// Raises:
///     InvalidInput: If it is not a record in its one encoding, `target` is not the record's one CID, or `payload` is
///         needed and missing.
///
/// >>> decode_attributes(encode_attributes("link", link=b"go")[0]).link
/// b'go'
#[pyfunction]
#[pyo3(signature = (target, payload = None), text_signature = "(target, payload=None)")]
pub fn decode_attributes<'py>(
    py: Python<'py>,
    target: CidLike,
    payload: Option<BytesLike>,
) -> PyResult<Bound<'py, PyAny>> {
    let attributes = call(|| Attributes::of_record(&target.0, payload.as_deref()))?;
    to_python(py, &attributes)
}

/// An `Attributes`.
pub(crate) fn to_python<'py>(py: Python<'py>, attributes: &Attributes) -> PyResult<Bound<'py, PyAny>> {
    let (kind, link) = match &attributes.entry {
        Entry::File => ("file", None),
        Entry::Link(target) => ("link", Some(PyBytes::new(py, target))),
        Entry::Folder => ("folder", None),
    };
    let xattrs = PyDict::new(py);
    for (name, value) in &attributes.xattrs {
        xattrs.set_item(name, PyBytes::new(py, value))?;
    }
    let &Attributes { size, mode, mtime, owner, .. } = attributes;
    tuples::ATTRIBUTES.instance(py, (kind, size, mode, mtime, link, owner, xattrs))
}

/// Segments, kind, target, attributes: the fields of `coregw.folders.tree.FolderEntry`.
pub(crate) type EntryTuple<'py> =
    (Bound<'py, PyTuple>, &'static str, Option<Bound<'py, PyString>>, Option<Bound<'py, PyAny>>);

/// An entry, with the object of its attributes.
pub(crate) fn entry_tuple<'py>(
    py: Python<'py>,
    entry: FolderEntry,
    attributes: Option<Bound<'py, PyAny>>,
) -> PyResult<EntryTuple<'py>> {
    let kind = match entry.kind {
        PathKind::File => "file",
        PathKind::Link => "link",
        PathKind::Folder => "folder",
        PathKind::Map => "map",
    };
    Ok((PyTuple::new(py, entry.segments)?, kind, entry.target.map(|target| cid::text(py, &target)), attributes))
}

/// Join the listings of a folder's two maps (protocol section 7).
///
/// Args:
///     files: Paths and targets of the folder's map, in key order, as it is listed. The reserved path is left out.
///     records: Paths and attributes of the map of attributes, in key order. That of the folder itself, at the reserved
///         name, is left out.
///
/// Returns:
///     An iterator over every path once, in key order: tuples of segments, kind, target and attributes. It asks for
///     files and records as it needs them, and raises `InvalidInput` with the code ``invalid_path`` if a record
///     contradicts the folder's map.
///
/// >>> list(join_folder([(["a"], "bafkqaaa")], []))
/// [(('a',), 'file', 'bafkqaaa', None)]
#[pyfunction]
pub fn join_folder(files: &Bound<'_, PyAny>, records: &Bound<'_, PyAny>) -> PyResult<JoinedFolder> {
    let (files, records) = (files.try_iter()?.unbind(), records.try_iter()?.unbind());
    let join = FolderJoin::of_decoded();
    Ok(JoinedFolder { join, files: Some(files), records: Some(records), attributes: VecDeque::new() })
}

/// Iterates over the paths of a folder. Made by `join_folder`.
#[pyclass(module = "coregw._core")]
pub struct JoinedFolder {
    join: FolderJoin,
    /// What is left of the listings.
    files: Option<Py<PyIterator>>,
    records: Option<Py<PyIterator>>,
    /// The objects of the records that wait.
    attributes: VecDeque<Py<PyAny>>,
}

#[pymethods]
impl JoinedFolder {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<EntryTuple<'py>>> {
        let entry = loop {
            while self.join.waiting().0 == 0 && self.files.is_some() {
                let next = next_of(py, &mut self.files)?;
                let page = next.map(|(path, target): (Items<String>, CidLike)| (path.0, target.0));
                call(|| self.join.add_files(page.into_iter().collect(), self.files.is_some()))?;
            }
            if self.join.waiting().1 == 0 && self.records.is_some() {
                let next = next_of(py, &mut self.records)?;
                let page = next.map(|(path, attributes): (Items<String>, Bound<'_, PyAny>)| {
                    let known = Attributes { entry: entry_of(&attributes)?, ..Attributes::default() };
                    if !is_top(&path.0) {
                        self.attributes.push_back(attributes.unbind());
                    }
                    PyResult::Ok((path.0, Arc::new(known)))
                });
                self.join.add_decoded(page.transpose()?.into_iter().collect(), self.records.is_some());
            }
            match call(|| self.join.next_entry())? {
                Some(entry) => break entry,
                // The record of the folder itself was the last one that had come.
                None if self.files.is_some() || self.records.is_some() => {}
                None => return Ok(None),
            }
        };
        let attributes = entry.attributes.as_ref().and_then(|_| self.attributes.pop_front());
        entry_tuple(py, entry, attributes.map(|attributes| attributes.into_bound(py))).map(Some)
    }
}

/// The next item of a listing, which is none after its end.
fn next_of<'py, T>(py: Python<'py>, listing: &mut Option<Py<PyIterator>>) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    let next = listing.as_ref().and_then(|items| items.bind(py).clone().next()).transpose()?;
    if next.is_none() {
        *listing = None;
    }
    next.map(|item| item.extract()).transpose()
}

/// What the path of an `Attributes` is. The target of a link does not matter here.
fn entry_of(attributes: &Bound<'_, PyAny>) -> PyResult<Entry> {
    match attributes.getattr("kind")?.extract()? {
        "file" => Ok(Entry::File),
        "link" => Ok(Entry::Link(Vec::new())),
        "folder" => Ok(Entry::Folder),
        _ => Err(refused("attributes: the kind is file, link or folder").into()),
    }
}
