//! The arcs of a folder's maps as lines, the body of `POST /v1/roots`.

use std::sync::Arc;

use core::{Cid, Key, Result};
use coregw_core as core;
use coregw_folders::ATTRIBUTES_PATH;
use coregw_ops::json;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::super::hashed::Recorded;
use super::reading::Reading;
use crate::detach::{self, Work};

/// Entries between two looks at how much was written.
const ENTRIES_AT_ONCE: usize = 64;

/// Which map's arcs are written.
pub(super) enum Which {
    /// The folder's map; with the root of its map of attributes, until that is written.
    Files(Option<Cid>),
    /// The map of attributes.
    Records(Recorded),
}

/// Iterates over the arcs of a folder's map in chunks of lines.
#[pyclass(module = "coregw._core")]
pub struct FolderLines {
    pub(super) reading: Arc<Reading>,
    pub(super) which: Which,
    pub(super) next: usize,
    pub(super) size: usize,
}

#[pymethods]
impl FolderLines {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let chunk = detach::run(py, Work::Unbounded, || self.chunk())?;
        Ok((!chunk.is_empty()).then(|| PyBytes::new(py, &chunk)))
    }
}

impl FolderLines {
    fn chunk(&mut self) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(self.size + (16 << 10));
        if let Which::Files(attributes) = &mut self.which
            && let Some(root) = attributes.take()
        {
            json::write_line(Key::from_text(ATTRIBUTES_PATH)?.as_bytes(), root.as_bytes(), &mut out)?;
        }
        let count = self.reading.state.entries.len();
        let hashed = self.reading.hashed();
        while self.next < count && out.len() < self.size {
            for index in self.next..count.min(self.next + ENTRIES_AT_ONCE) {
                let target = match self.which {
                    Which::Files(_) => hashed.targets.get(index),
                    Which::Records(recorded) => hashed.record(index, recorded)?.map(|record| record.target),
                };
                if let Some(target) = target {
                    json::write_line(hashed.state.key(index)?.as_bytes(), target.as_bytes(), &mut out)?;
                }
            }
            self.next += ENTRIES_AT_ONCE;
        }
        Ok(out)
    }
}
