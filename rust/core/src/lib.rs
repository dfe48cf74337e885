//! Authenticated maps and lists: trees, proofs, verification.
//!
//! A map or a list is one binary Merkle tree whose shape depends only on its content. One algorithm answers a query and
//! checks the answer: a proof is the tree, pruned to the nodes that the query visits, and the verifier runs the same query
//! on it. This crate has no I/O, clock, randomness or threads of its own.
//!
//! - [`Snapshot`] holds a whole tree in memory: it answers queries, applies changes, and proves both.
//! - [`Query`] and [`DiffQuery`] answer queries on trees that a store holds in [`Page`]s, without I/O: they are
//!   [interrupted](Interrupt) when pages are missing, and run again when the caller has supplied them.
//! - [`verify`] checks proofs.
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

mod bits;
mod error;
mod id;
mod interrupt;
pub mod key;
mod key_list;
mod page;
mod proof;
mod query;
mod snapshot;
mod tree;
mod workers;

/// The example of the README, so that it is compiled and run, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use error::{ConflictCode, Error, InputCode, Missing, Result};
pub use id::cid::{Cid, Kind, RootCid};
pub use id::suite::{Digest, Suite};
pub use id::{cid, codec, payload, varint};
pub use interrupt::Interrupt;
pub use key::{Key, PathKeys, Segments, Window};
pub use key_list::{KeyList, Keys, MAX_KEYS};
pub use page::cache::{PageCache, PageSource};
pub use page::difference::PageDifference;
pub use page::draft::EncodedPage;
pub use page::format::{InnerPage, MAX_PAGE, Page, inner_pages};
pub use proof::query::{Answer, Ask, DiffQuery, Element, Query};
pub use proof::verify;
pub use query::arcs::{ArcFault, Arcs};
pub use query::changes::{ListChange, ListChanges, ListChangesBuilder, MapChange, MapChanges, MapChangesBuilder};
pub use query::diff::{Difference, Differences, check_same_suite};
pub use query::fixed::{FixedSizes, Unchecked};
pub use query::new_map::MapBuilder;
pub use query::{list, map};
pub use snapshot::Snapshot;
pub use tree::node::{SUM_LIMIT, Summary};
pub use workers::{OneThread, Workers};

/// Tree internals for coregw-ops; not part of the stable interface.
#[doc(hidden)]
pub mod internals {
    pub use crate::bits::{common_len, lead, same_bits};
    pub use crate::tree::{block, cut, node, pruned, writer};

    pub mod arena {
        pub use crate::bits::{PathBuffer, Side};
        pub use crate::tree::arena::*;
    }
}
