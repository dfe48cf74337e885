//! Links of stored pages: for checks and collections of a whole store, which do not follow one tree.

use std::sync::{Mutex, PoisonError};

use core::internals::arena::{NodeId, State};
use core::{Digest, Page, RootCid};
use coregw_core as core;
use coregw_ops as ops;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyList};

use crate::convert::BytesLike;
use crate::detach::{self, Work};
use crate::engine::cache::root_bytes;
use crate::tuples;

struct Links {
    root: RootCid,
    pages: Vec<Digest>,
    roots: Vec<RootCid>,
    payloads: Vec<core::Cid>,
}

/// Check stored pages against their digests, and list what each leads to.
///
/// O(bytes) hashing, up to four times of a damaged page; the GIL is released for more than a few pages.
///
/// Args:
///     pages: Pairs of a digest (32 bytes) and the page that is stored under it.
///     payloads: Whether to list payloads, which are most of what pages lead to.
///
/// Returns:
///     For each pair a `PageLinks`, or None if the page is malformed or does not have the digest.
///
/// >>> page_links([(bytes(32), b"no page")])
/// [None]
#[pyfunction]
#[pyo3(signature = (pages, *, payloads = true))]
pub fn page_links<'py>(
    py: Python<'py>,
    pages: Vec<(BytesLike, BytesLike)>,
    payloads: bool,
) -> PyResult<Bound<'py, PyList>> {
    let found = detach::run(py, Work::Pages { count: pages.len() }, || {
        Ok(pages.iter().map(|(digest, page)| links(digest, page, payloads)).collect::<Vec<_>>())
    })?;
    let links = found.into_iter().map(|links| links.map(|links| named(py, &links)).transpose());
    PyList::new(py, links.collect::<PyResult<Vec<_>>>()?)
}

/// A page, where the keys of the inner pages below it begin, and the digests of these.
type Guide<'py> = (Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>, Vec<Bound<'py, PyBytes>>);

/// Return which inner pages below pages of maps lead to which keys, so that a store can follow a key through them.
///
/// Checks nothing, so the result is only a hint: malformed pages and those of lists are left out. O(bytes).
///
/// Args:
///     pages: Pairs of a digest (32 bytes) and the page.
///
/// Returns:
///     For each page above inner pages: its digest; the least key below each of these, in order; and their digests.
///
/// >>> page_guides([(bytes(32), b"no page")])
/// []
#[pyfunction]
pub fn page_guides<'py>(py: Python<'py>, pages: Vec<(BytesLike, BytesLike)>) -> PyResult<Vec<Guide<'py>>> {
    let found = detach::run(py, Work::Pages { count: pages.len() }, || {
        Ok(pages.iter().map(|(_, page)| core::inner_pages(page)).collect::<Vec<_>>())
    })?;
    let guides = pages.iter().zip(found).filter(|(_, inner)| !inner.is_empty());
    Ok(guides
        .map(|((digest, _), inner)| {
            let firsts = inner.iter().map(|page| PyBytes::new(py, &page.first)).collect();
            (PyBytes::new(py, digest), firsts, inner.iter().map(|page| PyBytes::new(py, &page.digest.0)).collect())
        })
        .collect())
}

/// Return the page that a difference makes of its base, the page whose digest is its first 32 bytes.
///
/// O(bytes). The digest of the result is not checked.
///
/// Returns:
///     The page; None if the difference is malformed, or to another page.
///
/// >>> apply_difference(bytes(32) + bytes([4, 8, 3]) + b"new", b"The old page")
/// b'The new'
#[pyfunction]
pub fn apply_difference<'py>(py: Python<'py>, difference: BytesLike, base: BytesLike) -> Option<Bound<'py, PyBytes>> {
    let made = core::PageDifference::read(&difference)?.apply(&base)?;
    Some(PyBytes::new(py, &made))
}

/// Return the difference that makes of one page what two differences make of it, one after the other. O(bytes).
///
/// Args:
///     first: A difference.
///     second: A difference to the page that the first one makes.
///     size: The size in bytes of the page that both make.
///
/// Returns:
///     The difference; None if one is malformed, or if it takes more than an eighth of the page.
///
/// >>> joined = join_differences(bytes(32) + bytes([1, 1, 1]) + b"x", bytes(32) + bytes([2, 1, 1]) + b"y", 400)
/// >>> apply_difference(joined, b"abcd")
/// b'axyd'
#[pyfunction]
pub fn join_differences<'py>(
    py: Python<'py>,
    first: BytesLike,
    second: BytesLike,
    size: usize,
) -> Option<Bound<'py, PyBytes>> {
    let joined = core::PageDifference::read(&first)?.join(&core::PageDifference::read(&second)?);
    joined.is_short(size).then(|| PyBytes::new(py, joined.as_ref()))
}

/// A set of keys in a bounded number of bytes, which may claim to hold others, and never denies one that was added.
///
/// With 16 bits of memory for each key, one in 1,000 claims is false; with 8 bits, one in 40. The hash is keyed at
/// random, so nobody can choose keys that the filter confuses. Threads may share one.
///
/// Args:
///     size: Its size in bytes.
///
/// >>> keys = KeyFilter(1024)
/// >>> keys.add([b"key"])
/// >>> keys.may_hold([b"key", b"another"])
/// [True, False]
#[pyclass(frozen, module = "coregw")]
pub struct KeyFilter(Mutex<ops::KeyFilter>);

#[pymethods]
impl KeyFilter {
    #[new]
    #[pyo3(signature = (size))]
    fn new(size: usize) -> Self {
        Self(Mutex::new(ops::KeyFilter::new(size)))
    }

    /// Add keys. O(1) each.
    fn add(&self, py: Python<'_>, keys: Vec<BytesLike>) {
        let mut filter = self.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        keys.iter().for_each(|key| filter.add(key));
    }

    /// Add the multihashes of the payloads that pages lead to.
    ///
    /// O(bytes) hashing, up to four times of a damaged page; the GIL is released for more than a few pages.
    ///
    /// Args:
    ///     pages: Pairs of a digest (32 bytes) and the page that is stored under it.
    ///
    /// Returns:
    ///     For each pair whether the page has the digest. If not, nothing of it was added.
    fn add_payloads_of(&self, py: Python<'_>, pages: Vec<(BytesLike, BytesLike)>) -> PyResult<Vec<bool>> {
        detach::run(py, Work::Pages { count: pages.len() }, || {
            let add = |found: Links| {
                let mut filter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                found.payloads.iter().for_each(|payload| filter.add(payload.multihash()));
            };
            Ok(pages.iter().map(|(digest, page)| links(digest, page, true).map(add).is_some()).collect())
        })
    }

    /// Return whether each key may have been added. O(1) each.
    fn may_hold(&self, py: Python<'_>, keys: Vec<BytesLike>) -> Vec<bool> {
        let filter = self.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        keys.iter().map(|key| filter.may_hold(key)).collect()
    }
}

fn links(digest: &[u8], page: &[u8], with_payloads: bool) -> Option<Links> {
    let digest = Digest(digest.try_into().ok()?);
    let (root, page) = Page::of_any_tree(page, &digest)?;
    let mut links = Links { root, pages: page.stubs().collect(), roots: Vec::new(), payloads: Vec::new() };
    let leaves = (0..page.arena.nodes.len() as u32).map(NodeId);
    for id in leaves.filter(|&id| matches!(page.arena.node(id).state, State::Leaf { .. })) {
        let target = core::Cid::trusted(page.arena.target(id));
        match target.root() {
            Some(root) => links.roots.push(root),
            None if with_payloads && target.identity().is_none() => links.payloads.push(target),
            None => {}
        }
    }
    Some(links)
}

fn named<'py>(py: Python<'py>, links: &Links) -> PyResult<Bound<'py, PyAny>> {
    let pages: Vec<_> = links.pages.iter().map(|digest| PyBytes::new(py, &digest.0)).collect();
    let roots: Vec<_> = links.roots.iter().map(|root| root_bytes(py, root)).collect();
    let payloads: Vec<_> = links.payloads.iter().map(|target| PyBytes::new(py, target.multihash())).collect();
    tuples::PAGE_LINKS.instance(py, (root_bytes(py, &links.root), pages, roots, payloads))
}
