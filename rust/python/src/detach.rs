//! Release of the GIL: the one rule, and what each kind of work costs.
//!
//! Work of more than about 50 µs runs detached. Shorter work keeps the GIL, because getting it back can cost far more
//! than the work: a detach and attach take 30 ns while no other thread runs Python code, but while one does, the caller
//! waits for a whole switch interval. With one other busy thread, a payload of 32 KiB was hashed in 20 µs attached
//! and in 5,100 µs detached.
//!
//! Costs are estimates for a slow machine, per byte or item; measured figures are given where they differ. An estimate
//! that is off by a factor of two moves only the size from which the GIL is released.

use std::panic::{AssertUnwindSafe, catch_unwind};

use coregw_core as core;
use pyo3::prelude::*;

use crate::errors::{call, settle};

/// Work that is estimated to take longer than this runs with the GIL released.
const MAX_ATTACHED_NANOSECONDS: u64 = 50_000;

const NODE_NANOSECONDS: u64 = 100;

/// Nodes that an operation visits before it releases the GIL: the budget of its first, attached slice.
pub const MAX_ATTACHED_NODES: u64 = MAX_ATTACHED_NANOSECONDS / NODE_NANOSECONDS;

/// A kind of work and how much of it there is.
#[derive(Debug, Clone, Copy)]
pub enum Work {
    /// Hashing payload or block bytes. Measured with SHA instructions: SHA-256 0.6 ns, BLAKE3 0.2 ns.
    Hash { bytes: usize },
    /// Parsing JSON and decoding and replaying the proofs in it. Measured without proofs: 1 ns.
    Json { bytes: usize },
    /// Parsing JSON whose members become keys, CIDs and tree nodes: arcs, changes.
    JsonArcs { bytes: usize },
    /// Replaying one proof. Measured: 3 to 13 ns.
    ProofBytes { bytes: usize },
    /// Replaying many inclusion or absence proofs. Measured: 2 µs.
    Proofs { count: usize },
    /// Building or changing a tree in memory, or proving keys in it. Measured: 0.3 to 1 µs, and up to 30 µs for each
    /// change of a map with 100,000 keys.
    Items { count: usize },
    /// Listing entries or elements in order. Measured: 0.1 to 0.6 µs.
    Entries { count: usize },
    /// Parsing pages of a store. Measured: 8 to 19 µs.
    Pages { count: usize },
    /// Work whose size is not known in advance, or that is rarely short.
    Unbounded,
}

impl Work {
    /// About how long it takes.
    #[inline]
    const fn nanoseconds(self) -> u64 {
        let (count, each) = match self {
            Self::Hash { bytes } => return (bytes as u64).saturating_mul(3) / 2,
            Self::Json { bytes } => (bytes, 3),
            Self::JsonArcs { bytes } => (bytes, 12),
            Self::ProofBytes { bytes } => (bytes, 6),
            Self::Proofs { count } => (count, 3_000),
            Self::Items { count } => (count, 2_000),
            Self::Entries { count } => (count, 400),
            Self::Pages { count } => (count, 16_000),
            Self::Unbounded => return u64::MAX,
        };
        (count as u64).saturating_mul(each)
    }

    /// Whether it runs with the GIL released.
    #[inline]
    pub const fn is_long(self) -> bool {
        self.nanoseconds() > MAX_ATTACHED_NANOSECONDS
    }
}

/// Runs `task`, with the GIL released if `work` is long, so that other Python threads run meanwhile. A panic becomes
/// a `CoregwError`.
#[inline]
pub fn run<T: Send>(py: Python<'_>, work: Work, task: impl FnOnce() -> core::Result<T> + Send) -> PyResult<T> {
    if work.is_long() { settle(py.detach(|| catch_unwind(AssertUnwindSafe(task)))) } else { call(task) }
}
