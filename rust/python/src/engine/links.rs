//! Links of stored pages: for checks and collections of a whole store, which do not follow one tree.

use core::internals::arena::{NodeId, State};
use core::{Digest, Page, RootCid};
use coregw_core as core;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::convert::BytesLike;
use crate::detach::{self, Work};
use crate::engine::cache::root_bytes;
use crate::tuples;

struct Links {
    root: RootCid,
    pages: Vec<Digest>,
    targets: Vec<core::Cid>,
}

/// Check stored pages against their digests, and list what each leads to.
///
/// O(bytes) hashing, up to four times of a damaged page; the GIL is released for more than a few pages.
///
/// Args:
///     pages: Pairs of a digest (32 bytes) and the page that is stored under it.
///
/// Returns:
///     For each pair a `PageLinks`, or None if the page is malformed or does not have the digest.
///
/// >>> page_links([(bytes(32), b"no page")])
/// [None]
#[pyfunction]
pub fn page_links<'py>(py: Python<'py>, pages: Vec<(BytesLike, BytesLike)>) -> PyResult<Bound<'py, PyList>> {
    let found = detach::run(py, Work::Pages { count: pages.len() }, || {
        Ok(pages.iter().map(|(digest, page)| links(digest, page)).collect::<Vec<_>>())
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

fn links(digest: &[u8], page: &[u8]) -> Option<Links> {
    let digest = Digest(digest.try_into().ok()?);
    let (root, page) = Page::of_any_tree(page, &digest)?;
    let leaves = (0..page.arena.nodes.len() as u32).map(NodeId);
    let leaves = leaves.filter(|&id| matches!(page.arena.node(id).state, State::Leaf { .. }));
    let targets = leaves.map(|id| core::Cid::trusted(page.arena.target(id))).collect();
    Some(Links { root, pages: page.stubs().collect(), targets })
}

fn named<'py>(py: Python<'py>, links: &Links) -> PyResult<Bound<'py, PyAny>> {
    let pages: Vec<_> = links.pages.iter().map(|digest| PyBytes::new(py, &digest.0)).collect();
    let roots: Vec<_> = links.targets.iter().filter_map(core::Cid::root).map(|root| root_bytes(py, &root)).collect();
    let payloads = links.targets.iter().filter(|target| target.root().is_none() && target.identity().is_none());
    let payloads: Vec<_> = payloads.map(|target| PyBytes::new(py, target.multihash())).collect();
    tuples::PAGE_LINKS.instance(py, (root_bytes(py, &links.root), pages, roots, payloads))
}
