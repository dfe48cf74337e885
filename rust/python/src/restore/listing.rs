//! `FolderListing`: the proven listings of a folder's two maps, joined and passed on as they come.

use std::sync::Mutex;

use core::{Kind, RootCid};
use coregw_core as core;
use coregw_ops as ops;
use coregw_ops::folder::{FolderEntry, FolderJoin, PathKind};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::attributes::Attributes;
use super::lock::locked;
use super::plan::{Placement, Plan, refused};
use super::writing::Writing;
use crate::cid::{CidLike, text};
use crate::convert::BytesLike;
use crate::detach::{self, Work};
use crate::errors::call;
use crate::files::attributes::to_python;

/// The name of the folder for incomplete files in a destination: `coregw.client.folders.partial.INSIDE`.
const INCOMPLETE: &str = ".coregw.partial";

/// Segments, kind, target, attributes: the fields of `coregw.folders.attributes.FolderEntry`.
pub(super) type EntryTuple<'py> =
    (Bound<'py, PyTuple>, &'static str, Option<Bound<'py, PyString>>, Option<Bound<'py, PyAny>>);

/// The number of entries of a page; the last path, if others follow.
type PageTuple = (usize, Option<Vec<String>>);

/// The listings of a folder's two maps (protocol section 7), verified and joined page by page.
///
/// Args:
///     root: The root of the folder's map.
///
/// Raises:
///     InvalidInput: If `root` is not the root of a map (code ``kind_mismatch``).
#[pyclass(frozen, module = "coregw._core")]
pub struct FolderListing {
    state: Mutex<ListingState>,
}

struct ListingState {
    join: FolderJoin,
    /// The file or link that came last: nothing may be below it.
    leaf: Vec<String>,
}

#[pymethods]
impl FolderListing {
    #[new]
    fn new(root: CidLike) -> PyResult<Self> {
        let root = call(|| RootCid::of(&root.0, Kind::Map))?;
        Ok(Self { state: Mutex::new(ListingState { join: FolderJoin::new(root), leaf: Vec::new() }) })
    }

    /// Verify the next page of the folder's map, and add it. O(depth + entries) hashes, with the GIL released.
    ///
    /// Args:
    ///     request: The `core.scan` request that the caller sent, as JSON.
    ///     result: The result that it received, as JSON.
    ///
    /// Returns:
    ///     The number of entries, and the last path if others follow.
    ///
    /// Raises:
    ///     InvalidInput: If the request is malformed, or the reserved path does not name a map of the folder's suite.
    ///     ProofError: If anything is wrong in the result.
    fn add_files(&self, py: Python<'_>, request: BytesLike, result: BytesLike) -> PyResult<PageTuple> {
        self.add(py, &request, &result, FolderJoin::add_files)
    }

    /// Verify the next page of the map of attributes, and add it. As `add_files`.
    ///
    /// Raises:
    ///     InvalidInput: If the request is malformed, or a target is not a record.
    ///     ProofError: If anything is wrong in the result.
    fn add_records(&self, py: Python<'_>, request: BytesLike, result: BytesLike) -> PyResult<PageTuple> {
        self.add(py, &request, &result, FolderJoin::add_records)
    }

    /// The root of the map of attributes, if its path is listed.
    #[getter]
    fn attributes_root<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyString>> {
        locked(&self.state).join.attributes_root().map(|root| text(py, &root.cid()))
    }

    /// Whether more of the folder's map has to be listed to know whether there is a map of attributes.
    #[getter]
    fn may_have_attributes(&self) -> bool {
        locked(&self.state).join.may_have_attributes()
    }

    /// Entries that wait for the other listing: those of the folder's map, and those of the map of attributes.
    #[getter]
    fn waiting(&self) -> (usize, usize) {
        locked(&self.state).join.waiting()
    }

    /// The records that are payloads and not here yet, as CIDs.
    #[getter]
    fn missing_records<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyString>> {
        locked(&self.state).join.missing_records().map(|target| text(py, target)).collect()
    }

    /// Supply a record that is a payload, whose bytes are verified.
    ///
    /// Raises:
    ///     InvalidInput: If it is not a record.
    fn supply_record(&self, target: CidLike, payload: BytesLike) -> PyResult<()> {
        call(|| locked(&self.state).join.supply_record(&target.0, &payload))
    }

    /// Return the entries that are joined, and forget them: as far as both listings have come. O(entries).
    ///
    /// Returns:
    ///     Tuples of the fields of `coregw.folders.attributes.FolderEntry`, in key order.
    ///
    /// Raises:
    ///     InvalidInput: If a record contradicts the folder's map (code ``invalid_path``); the message names the path.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Vec<EntryTuple<'py>>> {
        let mut state = locked(&self.state);
        let mut taken = Vec::new();
        while let Some(entry) = call(|| state.join.next_entry())? {
            taken.push(tuple(py, entry)?);
        }
        Ok(taken)
    }
}

impl FolderListing {
    fn add(
        &self,
        py: Python<'_>,
        request: &[u8],
        result: &[u8],
        add: impl FnOnce(&mut FolderJoin, Vec<(Vec<String>, core::Cid)>, bool) -> core::Result<()> + Send,
    ) -> PyResult<PageTuple> {
        detach::run(py, Work::Json { bytes: request.len() + result.len() }, || {
            let (listing, _) = ops::verify_scan(request, result)?;
            let (entries, more) = (listing.decoded(), listing.more);
            if more && entries.is_empty() {
                return Err(core::Error::proof("a listing says that more entries follow, but is empty"));
            }
            let last = if more { entries.last().map(|(segments, _)| segments.clone()) } else { None };
            let count = entries.len();
            add(&mut locked(&self.state).join, entries, more)?;
            Ok((count, last))
        })
    }

    /// Adds what is joined to what a writer writes, and returns the other entries.
    pub(super) fn add_to(
        &self,
        work: &Writing,
        base: &[String],
        placement: Placement,
    ) -> core::Result<Vec<FolderEntry>> {
        let ListingState { join, leaf } = &mut *locked(&self.state);
        let mut plan = work.plan_mut();
        let mut others = Vec::new();
        while let Some(mut entry) = join.next_entry()? {
            let mut path = std::mem::take(&mut entry.segments);
            if !base.is_empty() {
                path.splice(..0, base.iter().cloned());
            }
            if path.first().is_some_and(|first| first == INCOMPLETE) {
                return Err(refused(&path[..1], "is the name of the folder for incomplete files"));
            }
            if !leaf.is_empty() && path.starts_with(leaf) {
                return Err(refused(leaf, "it is both a file and a folder"));
            }
            if matches!(entry.kind, PathKind::File | PathKind::Link) {
                leaf.clone_from(&path);
            }
            if !add_entry(work, &mut plan, &path, &entry, placement)? {
                others.push(FolderEntry { segments: path, ..entry });
            }
        }
        Ok(others)
    }
}

/// Adds an entry that is a folder, or a file of one payload.
fn add_entry(
    work: &Writing,
    plan: &mut Plan,
    path: &[String],
    entry: &FolderEntry,
    placement: Placement,
) -> core::Result<bool> {
    let known = entry.attributes.as_ref();
    let attributes = known
        .map_or_else(Attributes::default, |known| Attributes { mode: known.mode.map(u32::from), mtime: known.mtime });
    match (entry.kind, &entry.target) {
        (PathKind::File, Some(target)) if target.root().is_none() => {
            let part = (*target, known.and_then(|known| known.size));
            work.add_file(plan, path, (&[part], None), attributes, placement)?;
            Ok(true)
        }
        (PathKind::Folder, _) => {
            let number = plan.folder(path)?;
            if path.len() == 1 && work.is_moved {
                return Ok(false);
            }
            plan.folders[number as usize].attributes = attributes;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// An entry with its path, as the fields of a `FolderEntry`.
pub(super) fn tuple(py: Python<'_>, entry: FolderEntry) -> PyResult<EntryTuple<'_>> {
    let kind = match entry.kind {
        PathKind::File => "file",
        PathKind::Link => "link",
        PathKind::Folder => "folder",
        PathKind::Map => "map",
    };
    let segments = PyTuple::new(py, entry.segments)?;
    let attributes = entry.attributes.map(|attributes| to_python(py, attributes)).transpose()?;
    Ok((segments, kind, entry.target.map(|target| text(py, &target)), attributes))
}
