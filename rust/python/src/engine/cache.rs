//! The class `PageCache`, and roots and their blocks in binary form.

use std::sync::Arc;

use coregw_core as core;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cid::{Cid, CidLike};
use crate::convert::BytesLike;
use crate::errors::{call, invalid};

/// What is known about one store: parsed pages by digest, and roots that it holds. Threads share it without the GIL.
///
/// Args:
///     max_bytes: Bound of the memory for pages, in bytes.
///     max_roots: How many roots are remembered.
///
/// >>> cache = PageCache(1 << 20)
/// >>> len(cache), cache.max_bytes
/// (0, 1048576)
#[pyclass(frozen, module = "coregw._core")]
pub struct PageCache(pub Arc<core::PageCache>);

#[pymethods]
impl PageCache {
    #[new]
    #[pyo3(signature = (max_bytes, max_roots = 0))]
    fn new(max_bytes: u64, max_roots: usize) -> Self {
        Self(Arc::new(core::PageCache::new(max_bytes, max_roots)))
    }

    /// Remember that the store holds a root, so that operations do not ask for it.
    ///
    /// Args:
    ///     root: The binary CID of the root.
    ///     generation: `generation`, as it was before the store was asked.
    ///
    /// Raises:
    ///     InvalidInput: If the CID is not a root.
    fn remember(&self, root: CidLike, generation: u64) -> PyResult<()> {
        self.0.remember(root_of(&root)?, generation);
        Ok(())
    }

    /// How often roots have expired. What was read from the store in an earlier generation is not known any more.
    #[getter]
    fn generation(&self) -> u64 {
        self.0.generation()
    }

    /// Begin another generation: some roots have expired. For any thread.
    fn expire(&self) {
        self.0.expire();
    }

    /// Return whether the store is known to hold a root, given as binary CID.
    ///
    /// Raises:
    ///     InvalidInput: If the CID is not a root.
    fn is_held(&self, root: CidLike) -> PyResult<bool> {
        Ok(self.0.is_held(&root_of(&root)?).is_some())
    }

    /// Return what a tree is known to be made of by changes: the root of its base, of the base of that, and so on.
    ///
    /// Raises:
    ///     InvalidInput: If the CID is not a root.
    fn bases(&self, root: CidLike) -> PyResult<Vec<Cid>> {
        Ok(self.0.bases(&root_of(&root)?).into_iter().map(|base| Cid(base.cid())).collect())
    }

    /// Bound of the memory for pages, in bytes.
    #[getter]
    fn max_bytes(&self) -> u64 {
        self.0.max_bytes()
    }

    /// Memory of the cached pages, in bytes.
    #[getter]
    fn used_bytes(&self) -> u64 {
        self.0.used_bytes()
    }

    /// Number of lookups that found their page.
    #[getter]
    fn hits(&self) -> u64 {
        self.0.hits()
    }

    /// Number of lookups that did not find their page.
    #[getter]
    fn misses(&self) -> u64 {
        self.0.misses()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// The root that a CID names. Raises `InvalidInput` for the CID of a payload.
pub fn root_of(cid: &CidLike) -> PyResult<core::RootCid> {
    cid.0.root().ok_or_else(|| invalid(core::InputCode::KindMismatch, format!("{} is a payload, not a root", cid.0)))
}

/// The binary CID of a root.
pub fn root_bytes<'py>(py: Python<'py>, root: &core::RootCid) -> Bound<'py, PyBytes> {
    PyBytes::new(py, root.cid().as_bytes())
}

/// Return the block that a root CID names: the encoding of the tree's top node (protocol sections 1 and 3).
///
/// Args:
///     root: A root CID.
///     page: The stored page with its digest.
///
/// Raises:
///     InvalidInput: If the CID is not a root.
///     StoreDamaged: If the page does not have the root's digest.
#[pyfunction]
pub fn root_block<'py>(py: Python<'py>, root: CidLike, page: BytesLike) -> PyResult<Bound<'py, PyBytes>> {
    let root = root_of(&root)?;
    let block = call(|| Ok(core::Page::parse(&page, root.kind, root.suite, &root.digest)?.top_block()))?;
    Ok(PyBytes::new(py, &block))
}
