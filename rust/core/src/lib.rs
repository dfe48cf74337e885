//! Authenticated maps and lists: trees, proofs, verification.
//!
//! A map or a list is one binary Merkle tree whose shape depends only on its content. One algorithm answers a query
//! and checks it: a proof is the tree with everything pruned that the query does not visit, and the verifier runs
//! the same query on it. This crate is pure: no I/O, no clock, no randomness, no threads of its own.
//!
//! ```
//! use coregw_core::{Arcs, Cid, Key, Snapshot, Suite, verify};
//!
//! let target = Cid::from_text("bafkreiceznzqyqqeqcqeo62qlltiv5ii7oips3hq5rkmnliwsso5ij7rhi")?;
//! let key = Key::from_text("docs/readme")?;
//! let mut arcs = Arcs::default();
//! arcs.push(&key, &target);
//! let map = Snapshot::map(Suite::Sha2_256, arcs)?;
//!
//! let (_, proof) = map.key(&key)?;
//! let proven = verify::key(&map.root(), &key, &proof(), verify::PROOF_LIMIT)?;
//! assert_eq!(proven, Some(target));
//! # Ok::<(), coregw_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod error;
mod id;
pub mod key;
mod page;
mod proof;
mod snapshot;
mod tree;

pub use error::{ConflictCode, Error, InputCode, Missing, Result};
pub use id::cid::{Cid, Kind, RootCid};
pub use id::suite::{Digest, Suite};
pub use id::{cid, codec, payload, varint};
pub use key::{Key, Window};
pub use page::{MAX_PAGE, NodeSource, Page, PageCache};
pub use proof::prove::{Element, Progress};
pub use proof::verify;
pub use snapshot::Snapshot;
pub use tree::arcs::Arcs;
pub use tree::diff::{Difference, Differences, verify_diff};
pub use tree::node::SUM_LIMIT;
pub use tree::{list, map};

/// What coregw-ops builds on: no part of the stable interface.
#[doc(hidden)]
pub mod internals {
    pub use crate::page::cut;
    pub use crate::proof::{prove, pruned};
    pub use crate::tree::{arena, block, diff, node};
}
