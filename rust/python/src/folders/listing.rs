//! `FolderListing`: the proven listings of a folder's two maps, joined and passed on as they come.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coregw_core as core;
use coregw_folders::listing::{Listing, Side, Wanted};
use coregw_folders::parallel::locked;
use coregw_folders::plan::Placement;
use coregw_folders::writer::Writing;
use coregw_folders::{self as folder, FolderEntry};
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::PyString;

use crate::cid::{CidLike, text};
use crate::convert::BytesLike;
use crate::detach::{self, Work};
use crate::errors::call;

use super::attributes::{EntryTuple, entry_tuple, to_python};

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
    state: Mutex<Listing>,
    records: Arc<Mutex<Records>>,
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
        let root = self.attached(py).join().attributes_root();
        root.map(|root| text(py, &root.cid()))
    }

    /// Whether more of the folder's map has to be listed to know whether there is a map of attributes.
    #[getter]
    fn may_have_attributes(&self, py: Python<'_>) -> bool {
        self.attached(py).join().may_have_attributes()
    }

    /// Entries that wait for the other listing: those of the folder's map, and those of the map of attributes.
    #[getter]
    fn waiting(&self, py: Python<'_>) -> (usize, usize) {
        self.attached(py).join().waiting()
    }

    /// The records that are payloads and not here yet, as CIDs, each once.
    #[getter]
    fn missing_records<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyString>> {
        let missing: Vec<_> = self.attached(py).join().missing_records().copied().collect();
        missing.iter().map(|target| text(py, target)).collect()
    }

    /// What is recorded of the folder itself: an `Attributes`. None without a record, and until it is joined.
    #[getter]
    fn top<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let known = self.attached(py).join().top().map(Arc::clone);
        known.map(|known| to_python(py, &known)).transpose()
    }

    /// Supply a record that is a payload, whose bytes are verified.
    ///
    /// Raises:
    ///     InvalidInput: If it is not a record.
    fn supply_record(&self, py: Python<'_>, target: CidLike, payload: BytesLike) -> PyResult<()> {
        detach::run(py, Work::Unbounded, || {
            let (mut state, mut records) = (locked(&self.state), locked(&self.records));
            state.join().supply_record(&mut records.decoded, &target.0, &payload)
        })
    }

    /// Return the entries that are joined, and forget them: as far as both listings have come. O(entries).
    ///
    /// Returns:
    ///     Tuples of the fields of `coregw.folders.tree.FolderEntry`, in key order.
    ///
    /// Raises:
    ///     InvalidInput: If a record contradicts the folder's map (code ``invalid_path``); the message names the path.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Vec<EntryTuple<'py>>> {
        let entries = detach::run(py, Work::Unbounded, || {
            let (mut state, mut entries) = (locked(&self.state), Vec::new());
            while let Some(entry) = state.join().next_entry()? {
                entries.push(entry);
            }
            Ok(entries)
        })?;
        entries.into_iter().map(|entry| self.tuple(py, entry)).collect()
    }
}

impl FolderListing {
    fn with(root: &CidLike, records: Arc<Mutex<Records>>) -> PyResult<Self> {
        let state = call(|| Listing::new(&root.0))?;
        Ok(Self { state: Mutex::new(state), records })
    }

    /// The state, with the GIL held: it is released while another thread has the lock. No Python object is made meanwhile.
    fn attached(&self, py: Python<'_>) -> MutexGuard<'_, Listing> {
        self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    /// The records of the tree, as `attached`.
    fn shared(&self, py: Python<'_>) -> MutexGuard<'_, Records> {
        self.records.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, py: Python<'_>, request: &[u8], result: &[u8], side: Side) -> PyResult<PageTuple> {
        detach::run(py, Work::Unbounded, || {
            let next = locked(&self.state).next_page(side)?;
            let page = next.verify(request, result)?;
            locked(&self.state).add(&mut locked(&self.records).decoded, page)
        })
    }

    /// Adds what is joined to what a writer writes, and returns what else it needs.
    pub(super) fn add_to(&self, work: &Writing, below: u32, placement: Placement) -> core::Result<Wanted> {
        locked(&self.state).add_to(work, below, placement)
    }

    /// An entry, as the fields of a `FolderEntry`.
    fn tuple<'py>(&self, py: Python<'py>, mut entry: FolderEntry) -> PyResult<EntryTuple<'py>> {
        let attributes = entry.attributes.take().map(|attributes| self.attributes(py, attributes)).transpose()?;
        entry_tuple(py, entry, attributes)
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
