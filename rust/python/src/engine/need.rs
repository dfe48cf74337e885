//! The class `Need`: what an operation waits for.

use coregw_core as core;
use coregw_ops as ops;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cid::Cid;
use crate::engine::cache::root_bytes;

/// What an `Operation` waits for. Exactly one of its attributes is set; `budget` is False unless it is the one.
#[pyclass(frozen, module = "coregw._core")]
pub struct Need(ops::Need);

/// Digests or binary CIDs.
type Names<'py> = Vec<Bound<'py, PyBytes>>;
/// Pairs of a digest and what belongs to it.
type Pairs<'py> = Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>;
/// Pages, differences of some of them to others, the roots to record, and the roots that must be held meanwhile.
type PagesAndRoots<'py> = (Pairs<'py>, Pairs<'py>, Names<'py>, Names<'py>);

#[pymethods]
impl Need {
    /// Digests (32 bytes each) of pages: read them, and pass them to `supply_pages` in this order; or None.
    #[getter]
    fn pages<'py>(&self, py: Python<'py>) -> Option<Names<'py>> {
        match &self.0 {
            ops::Need::Pages(wanted) => Some(wanted.iter().map(|page| PyBytes::new(py, &page.digest.0)).collect()),
            _ => None,
        }
    }

    /// Binary root CIDs: pass to `supply_roots` whether the store has a record of each, in this order; or None.
    #[getter]
    fn roots<'py>(&self, py: Python<'py>) -> Option<Names<'py>> {
        match &self.0 {
            ops::Need::Roots(roots) => Some(names(py, roots)),
            _ => None,
        }
    }

    /// Binary root CIDs: renew those that the store holds, and pass to `supply_roots` which these are; or None.
    #[getter]
    fn renewal<'py>(&self, py: Python<'py>) -> Option<Names<'py>> {
        match &self.0 {
            ops::Need::Renewal(roots) => Some(names(py, roots)),
            _ => None,
        }
    }

    /// Binary CIDs of roots, one for each page of the need, which is in the tree of that root; or None.
    #[getter]
    fn trees<'py>(&self, py: Python<'py>) -> Option<Names<'py>> {
        match &self.0 {
            ops::Need::Pages(wanted) => Some(wanted.iter().map(|page| root_bytes(py, &page.root)).collect()),
            _ => None,
        }
    }

    /// The (start, end) of bytes of the CAR: pass them to `supply_bytes`, fewer where it ends; or None.
    #[getter]
    fn span(&self) -> Option<(u64, u64)> {
        match &self.0 {
            ops::Need::Bytes(range) => Some((range.start, range.end)),
            _ => None,
        }
    }

    /// Whether the budget of nodes is spent: call `poll` again, best in a worker thread.
    #[getter]
    fn budget(&self) -> bool {
        matches!(self.0, ops::Need::Budget)
    }

    /// Bytes, and payloads whose blocks follow them: send both, then call `poll`; or None.
    #[getter]
    fn output<'py>(&self, py: Python<'py>) -> Option<(Bound<'py, PyBytes>, Vec<Cid>)> {
        match &self.0 {
            ops::Need::Output { bytes, payloads } => {
                Some((PyBytes::new(py, bytes), payloads.iter().copied().map(Cid).collect()))
            }
            _ => None,
        }
    }

    /// The root of a tree in a CAR, and lines of its leaves in order: use them, then call `poll`; or None.
    #[getter]
    fn leaves<'py>(&self, py: Python<'py>) -> Option<(Cid, Bound<'py, PyBytes>)> {
        match &self.0 {
            ops::Need::Leaves { root, lines } => Some((Cid(root.cid()), PyBytes::new(py, lines))),
            _ => None,
        }
    }

    /// The (start, end) of blocks (CID and data) of the CAR: store their payloads, then call `poll`; or None.
    #[getter]
    fn payloads(&self) -> Option<Vec<(u64, u64)>> {
        match &self.0 {
            ops::Need::Payloads(blocks) => Some(blocks.iter().map(|block| (block.start, block.end)).collect()),
            _ => None,
        }
    }

    /// Pages, differences, and roots to store durably if further roots are held; then call `poll`; or None.
    ///
    /// The pages are (digest, page) pairs. Of some, there are differences by digest, which may be stored instead
    /// (`apply_difference`).
    #[getter]
    fn store<'py>(&self, py: Python<'py>) -> Option<PagesAndRoots<'py>> {
        match &self.0 {
            ops::Need::Store { pages, differences, roots, requires } => {
                Some((pairs(py, pages), pairs(py, differences), names(py, roots), names(py, requires)))
            }
            _ => None,
        }
    }

    fn __repr__(&self) -> String {
        match &self.0 {
            ops::Need::Pages(wanted) => format!("<Need {} pages>", wanted.len()),
            ops::Need::Roots(roots) => format!("<Need {} roots>", roots.len()),
            ops::Need::Renewal(roots) => format!("<Need renewal of {} roots>", roots.len()),
            ops::Need::Bytes(range) => format!("<Need bytes {} to {}>", range.start, range.end),
            ops::Need::Budget => "<Need budget>".to_owned(),
            ops::Need::Output { bytes, .. } => format!("<Need output of {} bytes>", bytes.len()),
            ops::Need::Leaves { root, lines } => format!("<Need use of {} bytes of leaves of {root}>", lines.len()),
            ops::Need::Payloads(blocks) => format!("<Need storage of {} payloads>", blocks.len()),
            ops::Need::Store { pages, roots, .. } => {
                format!("<Need storage of {} pages and {} roots>", pages.len(), roots.len())
            }
        }
    }
}

/// Digests of pages, and the pages or differences that belong to them.
pub(crate) fn pairs<'py>(py: Python<'py>, all: &[(core::Digest, impl AsRef<[u8]>)]) -> Pairs<'py> {
    all.iter().map(|(digest, each)| (PyBytes::new(py, &digest.0), PyBytes::new(py, each.as_ref()))).collect()
}

fn names<'py>(py: Python<'py>, roots: &[core::RootCid]) -> Names<'py> {
    roots.iter().map(|root| root_bytes(py, root)).collect()
}

/// What `poll` returns.
#[derive(IntoPyObject)]
pub enum Polled<'py> {
    Done(Bound<'py, PyBytes>),
    Needs(Need),
}

impl<'py> Polled<'py> {
    pub fn of(py: Python<'py>, progress: ops::Progress) -> Self {
        match progress {
            ops::Progress::Done(response) => Self::Done(PyBytes::new(py, &response)),
            ops::Progress::Needs(need) => Self::Needs(Need(need)),
        }
    }
}
