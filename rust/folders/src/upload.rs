//! The class `PayloadBatch`: payloads in memory, as the frames of the CAR that sends them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use core::{Cid, varint};
use coregw_core as core;
use coregw_ops::car;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::PyBytes;

use crate::convert::BytesLike;

/// A batch is full with so many bytes,
const BATCH_BYTES: usize = 4 << 20;
/// or with so many payloads: as many as a gateway takes in one question, and imports from memory.
pub(super) const BATCH_PAYLOADS: usize = 16_384;
/// The length of a CID of a payload with a hash of 32 bytes, and a codec of one byte.
const CID_BYTES: usize = 36;

/// Payloads that are collected.
#[derive(Default)]
pub(super) struct Draft {
    /// Their CIDs, one after the other.
    cids: Vec<u8>,
    /// The frame of each: length, CID, bytes.
    frames: Vec<u8>,
    /// Where each frame starts.
    starts: Vec<u32>,
}

impl Draft {
    pub(super) fn push(&mut self, cid: &Cid, bytes: &[u8]) {
        if self.frames.capacity() == 0 {
            self.frames.reserve(BATCH_BYTES + BATCH_BYTES / 8);
        }
        self.cids.extend_from_slice(cid.as_bytes());
        self.starts.push(self.frames.len() as u32);
        self.frames.extend_from_slice(&car::block_head(cid, bytes.len() as u64));
        self.frames.extend_from_slice(bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.frames.len() >= BATCH_BYTES || self.starts.len() >= BATCH_PAYLOADS
    }

    /// The digests of the payloads.
    fn digests(&self) -> impl Iterator<Item = [u8; 32]> {
        self.cids.chunks_exact(CID_BYTES).filter_map(|cid| cid.last_chunk().copied())
    }

    /// The frame of each payload.
    fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.starts.iter().skip(1).map(|&start| start as usize).chain([self.frames.len()]);
        self.starts.iter().zip(ends).map(|(&start, end)| &self.frames[start as usize..end])
    }
}

/// The length of the payload in a frame.
fn payload_len(frame: &[u8]) -> u64 {
    varint::read(frame).map_or(0, |(len, _)| len - CID_BYTES as u64)
}

/// Payloads that were read, some of which a gateway may hold. Made by `FolderUpload.next_batch`.
#[pyclass(frozen, module = "coregw._core")]
pub struct PayloadBatch {
    pub(super) number: u64,
    payloads: usize,
    draft: Mutex<Draft>,
}

impl PayloadBatch {
    pub(super) fn new(number: u64, draft: Draft) -> Self {
        Self { number, payloads: draft.starts.len(), draft: Mutex::new(draft) }
    }

    /// The digests of its payloads.
    pub(super) fn digests(&self, py: Python<'_>) -> Vec<[u8; 32]> {
        self.draft(py).digests().collect()
    }

    /// What is collected, with the GIL held: it is released while another thread has the lock.
    fn draft(&self, py: Python<'_>) -> MutexGuard<'_, Draft> {
        self.draft.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PayloadBatch {
    /// The number of payloads, at most 16,384.
    fn __len__(&self) -> usize {
        self.payloads
    }

    /// The binary CIDs of the payloads, one after the other.
    #[getter]
    fn cids<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.draft(py).cids)
    }

    /// Return a CAR of the payloads that are not held, and free the memory of all. O(bytes).
    ///
    /// Args:
    ///     held: A bit for each payload, the lowest one of a byte first: whether it is held.
    ///
    /// Returns:
    ///     The CAR; the number of payloads in it, and the sum of their lengths. An empty CAR if all are held.
    ///
    /// Raises:
    ///     ValueError: If `held` does not have one bit for each payload.
    fn car<'py>(&self, py: Python<'py>, held: BytesLike) -> PyResult<(Bound<'py, PyBytes>, usize, u64)> {
        if held.len() != self.payloads.div_ceil(8) {
            return Err(PyValueError::new_err("there is not one bit for each payload"));
        }
        let mut draft = self.draft(py);
        let is_held = |index: usize| held[index / 8] & (1 << (index % 8)) != 0;
        let missing = || draft.frames().enumerate().filter(|(index, _)| !is_held(*index)).map(|(_, frame)| frame);
        let (count, size) = missing().fold((0, 0), |(count, size), frame| (count + 1, size + frame.len()));
        let bytes = missing().map(payload_len).sum();
        let header = if count > 0 { car::payload_car_header() } else { &[] };
        let car = PyBytes::new_with(py, header.len() + size, |out| {
            let (first, mut rest) = out.split_at_mut(header.len());
            first.copy_from_slice(header);
            for frame in missing() {
                let (place, others) = rest.split_at_mut(frame.len());
                place.copy_from_slice(frame);
                rest = others;
            }
            Ok(())
        })?;
        (draft.frames, draft.starts) = (Vec::new(), Vec::new());
        Ok((car, count, bytes))
    }
}
