//! `FolderListing`: the proven listings of a folder's two maps, joined and passed on as they come.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use core::{Error, Kind, RootCid};
use coregw_core as core;
use coregw_folders::{self as folder, FolderEntry, FolderJoin, PathKind};
use coregw_ops as ops;
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::{PyString, PyTuple};

use super::attributes::Attributes;
use super::batch::Files;
use super::lock::locked;
use super::plan::{Placement, Plan, TOP};
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
///     xattrs: Whether attributes have the extended ones.
///
/// Raises:
///     InvalidInput: If `root` is not the root of a map (code ``kind_mismatch``).
#[pyclass(frozen, module = "coregw._core")]
pub struct FolderListing {
    state: Mutex<ListingState>,
    records: Arc<Mutex<Records>>,
}

struct ListingState {
    root: RootCid,
    join: FolderJoin,
    /// How far the folder's map and the map of attributes are listed.
    listed: [Listed; 2],
    /// The file or link that came last: nothing may be below it.
    leaf: Vec<String>,
}

/// Which of the two maps a page is of.
#[derive(Clone, Copy)]
enum Side {
    Files,
    Records,
}

/// How far a map is listed.
#[derive(Clone, PartialEq, Eq)]
enum Listed {
    /// Up to this path; to no path yet.
    After(Option<Vec<String>>),
    Whole,
}

/// The long records of a tree, which any number of paths of any of its maps may share, and the objects of these.
struct Records {
    decoded: folder::Records,
    /// By the address of the attributes, which are kept for it.
    objects: HashMap<usize, (Arc<folder::Attributes>, Py<PyAny>)>,
}

/// Objects that are kept.
const MAX_OBJECTS: usize = 1 << 16;

#[pymethods]
impl FolderListing {
    #[new]
    #[pyo3(signature = (root, xattrs = true))]
    fn new(root: CidLike, xattrs: bool) -> PyResult<Self> {
        let records = Records { decoded: folder::Records::new(xattrs), objects: HashMap::new() };
        Self::with(&root, Arc::new(Mutex::new(records)))
    }

    /// Return the listing of a map that is nested in the same tree. Both know the same records that are payloads.
    ///
    /// Raises:
    ///     InvalidInput: If `root` is not the root of a map (code ``kind_mismatch``).
    fn nested(&self, root: CidLike) -> PyResult<Self> {
        Self::with(&root, Arc::clone(&self.records))
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
    ///     InvalidInput: If the request is malformed or not for the page that follows the last one, or the reserved
    ///         path does not name a map of the folder's suite.
    ///     ProofError: If anything is wrong in the result.
    fn add_files(&self, py: Python<'_>, request: BytesLike, result: BytesLike) -> PyResult<PageTuple> {
        self.add(py, &request, &result, Side::Files)
    }

    /// Verify the next page of the map of attributes, and add it. As `add_files`.
    ///
    /// Raises:
    ///     InvalidInput: If the request is malformed or not for the page that follows the last one, no map of
    ///         attributes is listed, or a target is not a record.
    ///     ProofError: If anything is wrong in the result.
    fn add_records(&self, py: Python<'_>, request: BytesLike, result: BytesLike) -> PyResult<PageTuple> {
        self.add(py, &request, &result, Side::Records)
    }

    /// The root of the map of attributes, if its path is listed.
    #[getter]
    fn attributes_root<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyString>> {
        let root = self.attached(py).join.attributes_root();
        root.map(|root| text(py, &root.cid()))
    }

    /// Whether more of the folder's map has to be listed to know whether there is a map of attributes.
    #[getter]
    fn may_have_attributes(&self, py: Python<'_>) -> bool {
        self.attached(py).join.may_have_attributes()
    }

    /// Entries that wait for the other listing: those of the folder's map, and those of the map of attributes.
    #[getter]
    fn waiting(&self, py: Python<'_>) -> (usize, usize) {
        self.attached(py).join.waiting()
    }

    /// The records that are payloads and not here yet, as CIDs, each once.
    #[getter]
    fn missing_records<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyString>> {
        let missing: Vec<_> = self.attached(py).join.missing_records().copied().collect();
        missing.iter().map(|target| text(py, target)).collect()
    }

    /// Supply a record that is a payload, whose bytes are verified.
    ///
    /// Raises:
    ///     InvalidInput: If it is not a record.
    fn supply_record(&self, py: Python<'_>, target: CidLike, payload: BytesLike) -> PyResult<()> {
        detach::run(py, Work::Unbounded, || {
            let (mut state, mut records) = (locked(&self.state), locked(&self.records));
            state.join.supply_record(&mut records.decoded, &target.0, &payload)
        })
    }

    /// Return the entries that are joined, and forget them: as far as both listings have come. O(entries).
    ///
    /// Returns:
    ///     Tuples of the fields of `coregw.folders.attributes.FolderEntry`, in key order.
    ///
    /// Raises:
    ///     InvalidInput: If a record contradicts the folder's map (code ``invalid_path``); the message names the path.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Vec<EntryTuple<'py>>> {
        let entries = detach::run(py, Work::Unbounded, || {
            let (mut state, mut entries) = (locked(&self.state), Vec::new());
            while let Some(entry) = state.join.next_entry()? {
                entries.push(entry);
            }
            Ok(entries)
        })?;
        entries.into_iter().map(|entry| self.tuple(py, entry)).collect()
    }
}

impl FolderListing {
    fn with(root: &CidLike, records: Arc<Mutex<Records>>) -> PyResult<Self> {
        let root = call(|| RootCid::of(&root.0, Kind::Map))?;
        let listed = [Listed::After(None), Listed::After(None)];
        let state = ListingState { root, join: FolderJoin::new(root), listed, leaf: Vec::new() };
        Ok(Self { state: Mutex::new(state), records })
    }

    /// The state, with the GIL held: it is released while another thread has the lock. No Python object is made meanwhile.
    fn attached(&self, py: Python<'_>) -> MutexGuard<'_, ListingState> {
        self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    /// The records of the tree, as `attached`.
    fn shared(&self, py: Python<'_>) -> MutexGuard<'_, Records> {
        self.records.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, py: Python<'_>, request: &[u8], result: &[u8], side: Side) -> PyResult<PageTuple> {
        detach::run(py, Work::Unbounded, || {
            let (root, before) = {
                let state = locked(&self.state);
                let root = match side {
                    Side::Files => Some(state.root),
                    Side::Records => state.join.attributes_root(),
                };
                (root, state.listed[side as usize].clone())
            };
            let root = root.ok_or_else(|| Error::request("no map of attributes is listed"))?;
            let Listed::After(after) = &before else {
                return Err(Error::request(format!("all of the map {root} is listed")));
            };
            let listing = ops::verify_page(&root, after.as_deref(), request, result)?;
            let (entries, more) = (listing.decoded(), listing.more);
            if more && entries.is_empty() {
                return Err(Error::proof("a listing says that more entries follow, but is empty"));
            }
            let last = if more { entries.last().map(|(segments, _)| segments.clone()) } else { None };
            let count = entries.len();
            let mut state = locked(&self.state);
            if state.listed[side as usize] != before {
                return Err(Error::request("another thread has added a page meanwhile"));
            }
            match side {
                Side::Files => state.join.add_files(entries, more)?,
                Side::Records => state.join.add_records(&mut locked(&self.records).decoded, entries, more)?,
            }
            state.listed[side as usize] = if more { Listed::After(last.clone()) } else { Listed::Whole };
            Ok((count, last))
        })
    }

    /// Adds what is joined to what a writer writes, and returns the other entries.
    pub(super) fn add_to(&self, work: &Writing, below: u32, placement: Placement) -> core::Result<Vec<FolderEntry>> {
        let ListingState { join, leaf, .. } = &mut *locked(&self.state);
        let (mut files, mut plan) = work.planned();
        let mut others = Vec::new();
        while let Some(entry) = join.next_entry()? {
            let path = &entry.segments;
            if below == TOP && path.first().is_some_and(|first| first == INCOMPLETE) {
                return Err(plan.refused(below, &path[..1], "is the name of the folder for incomplete files"));
            }
            if !leaf.is_empty() && path.starts_with(leaf) {
                return Err(plan.refused(below, leaf, "it is both a file and a folder"));
            }
            if matches!(entry.kind, PathKind::File | PathKind::Link) {
                leaf.clone_from(path);
            }
            if !add_entry(work, (&mut plan, &mut files), below, &entry, placement)? {
                others.push(entry);
            }
        }
        Ok(others)
    }

    /// An entry, as the fields of a `FolderEntry`.
    pub(super) fn tuple<'py>(&self, py: Python<'py>, entry: FolderEntry) -> PyResult<EntryTuple<'py>> {
        let kind = match entry.kind {
            PathKind::File => "file",
            PathKind::Link => "link",
            PathKind::Folder => "folder",
            PathKind::Map => "map",
        };
        let segments = PyTuple::new(py, entry.segments)?;
        let attributes = entry.attributes.map(|attributes| self.attributes(py, attributes)).transpose()?;
        Ok((segments, kind, entry.target.map(|target| text(py, &target)), attributes))
    }

    /// The object of some attributes: one for all paths that share them.
    fn attributes<'py>(&self, py: Python<'py>, shared: Arc<folder::Attributes>) -> PyResult<Bound<'py, PyAny>> {
        let key = Arc::as_ptr(&shared) as usize;
        let known = self.shared(py).objects.get(&key).map(|(_, object)| object.clone_ref(py));
        if let Some(object) = known {
            return Ok(object.into_bound(py));
        }
        let object = to_python(py, &shared)?;
        if Arc::strong_count(&shared) > 1 {
            let mut records = self.shared(py);
            if records.objects.len() >= MAX_OBJECTS {
                records.objects.clear();
            }
            records.objects.insert(key, (shared, object.clone().unbind()));
        }
        Ok(object)
    }
}

/// Adds an entry that is a folder, or a file of one payload.
fn add_entry(
    work: &Writing,
    (plan, files): (&mut Plan, &mut Files),
    below: u32,
    entry: &FolderEntry,
    placement: Placement,
) -> core::Result<bool> {
    let (path, known) = (&entry.segments, entry.attributes.as_deref());
    let attributes = known.map_or_else(Attributes::default, |known| {
        let is_executable = known.is_exec_bit();
        let mode = known.mode.filter(|_| !is_executable).map(u32::from);
        Attributes { mode, mtime: known.mtime, is_executable }
    });
    match (entry.kind, &entry.target) {
        (PathKind::File, Some(target)) if target.root().is_none() => {
            let part = (*target, known.and_then(|known| known.size));
            work.add_file((plan, files), (below, path), (&[part], None), attributes, placement)?;
            Ok(true)
        }
        (PathKind::Folder, _) => {
            let number = plan.folder(below, path)?;
            plan.folders[number as usize].attributes = attributes;
            Ok(below != TOP || path.len() > 1 || !work.is_moved)
        }
        _ => Ok(false),
    }
}
