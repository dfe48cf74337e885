//! Many resolves of one root, on all cores. The interpreter is let go while there is more than a little to do.

use std::sync::{Arc, Mutex, PoisonError};

use coregw_core as core;
use coregw_ops as ops;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cid::CidLike;
use crate::convert::Items;
use crate::detach::{self, Work};
use crate::engine::{PageCache, Turn};
use crate::errors::call;
use crate::parallel;

/// Resolves of many paths of one root. Runs like an `Operation`; each outcome is what a resolve of that path alone
/// would have answered.
///
/// Args:
///     cache: Where pages are found and kept.
///     root: The root of all paths.
///     max_lookups: Look-ups that one path may need.
///     max_bytes: The most bytes of all outcomes together.
#[pyclass(module = "coregw._core")]
pub struct ResolveBatch(ops::ResolveBatch);

#[pymethods]
impl ResolveBatch {
    #[new]
    fn new(cache: &PageCache, root: CidLike, max_lookups: usize, max_bytes: usize) -> Self {
        Self(ops::ResolveBatch::new(Arc::clone(&cache.0), root.0, max_lookups, max_bytes))
    }

    /// Adds a path. Raises `InvalidInput` for segments that are none.
    fn add(&mut self, segments: Items<String>) -> PyResult<()> {
        call(|| self.0.add(segments.0))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Goes on with paths that can, visiting some `budget` nodes in all: the response body, or what it needs.
    ///
    /// Raises `InvalidInput` if the root is a payload and a path leads on from it, `TooLarge` if the outcomes are too
    /// long, and `StoreDamaged` as `supply_pages`.
    fn run<'py>(&mut self, py: Python<'py>, budget: u64) -> PyResult<Turn<'py>> {
        let turn = detach::run(py, Work::Paths { count: self.0.len() }, || {
            let turns: Vec<_> = self.0.turns(budget).into_iter().map(Mutex::new).collect();
            parallel::map(&turns, |turn| turn.lock().unwrap_or_else(PoisonError::into_inner).run());
            drop(turns);
            self.0.need().map(|need| match need {
                Some(need) => Err(need),
                None => Ok(self.0.result()),
            })
        })?;
        Ok(Turn::of(py, turn))
    }

    /// Takes the pages of the last need, in its order. Raises `StoreDamaged`, naming the page, for a page that is
    /// None or does not have its digest.
    fn supply_pages(&mut self, py: Python<'_>, pages: Items<Option<Bound<'_, PyBytes>>>) -> PyResult<()> {
        let bytes: Vec<Option<&[u8]>> = pages.0.iter().map(|page| page.as_ref().map(|page| page.as_bytes())).collect();
        detach::run(py, Work::Pages { count: bytes.len() }, || {
            let supplied: Vec<_> = self.0.wanted().iter().zip(bytes).collect();
            let pages = parallel::map(&supplied, |(wanted, bytes)| wanted.parse(*bytes));
            self.0.supply_pages(pages.into_iter().collect::<core::Result<_>>()?)
        })
    }

    /// Says of each root of the last need whether the store has its record.
    fn supply_roots(&mut self, held: Items<bool>) -> PyResult<()> {
        call(|| self.0.supply_roots(&held.0))
    }
}
