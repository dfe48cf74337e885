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

mod arcs;
mod arena;
mod batch;
mod block;
mod build;
pub mod car;
pub mod cid;
pub mod codec;
mod cut;
mod deltas;
mod diff;
mod diffing;
mod error;
pub mod json;
pub mod list;
mod lookup;
pub mod map;
mod memory;
mod messages;
mod node;
mod ops;
mod page;
mod paging;
pub mod path;
pub mod payload;
pub mod prooflist;
mod prove;
mod pruned;
mod question;
mod reader;
mod resolving;
mod scan;
mod suite;
mod trail;
mod transition;
mod tree;
pub mod varint;
pub mod verify;
mod writes;
mod writing;

pub use arcs::Arcs;
pub use batch::{ResolveBatch, Turn, WantedPage};
pub use cid::{Cid, Kind, RootCid};
pub use deltas::MAX_DELTAS;
pub use diff::{Difference, Differences, verify_diff};
pub use diffing::DiffRequest;
pub use error::{ConflictCode, Error, InputCode, Missing, Result};
pub use memory::Snapshot;
pub use node::SUM_LIMIT;
pub use ops::{Need, Operation};
pub use page::{MAX_PAGE, NodeSource, Page, PageCache};
pub use path::{Key, Window};
pub use prove::{Element, Progress};
pub use suite::{Digest, Suite};
pub use transition::verify_transition;
pub use writes::{Build, Mutation};
