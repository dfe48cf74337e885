//! Operations on stored trees: request JSON in; response JSON, bare proofs and CARs out.
//!
//! Each operation is one `async fn`, written as if everything were in memory, in the module of its name. What it lacks it
//! parks as a [`Need`]; the caller of [`Operation::poll`] meets the need and polls again ([`run`]). Nothing here does I/O,
//! reads a clock or starts a thread.
//!
//! ```
//! use std::sync::Arc;
//! use coregw_core::{OneThread, PageCache};
//! use coregw_ops::{Need, Operation, Progress};
//!
//! let cache = Arc::new(PageCache::new(1 << 20, 100));
//! let mut operation = Operation::create_root(cache, br#"{"arcs": {}}"#, &OneThread)?;
//! let response = loop {
//!     match operation.poll(4096)? {
//!         Progress::Done(response) => break response,
//!         Progress::Needs(Need::Roots(roots)) => operation.supply_roots(vec![false; roots.len()])?,
//!         Progress::Needs(Need::Store { .. }) => {} // here a store would write the pages, then the records
//!         Progress::Needs(_) => {}
//!     }
//! };
//! assert!(response.starts_with(b"{\"root\":"));
//! # Ok::<(), coregw_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod batch;
pub mod car;
pub mod cbor;
mod create_root;
mod dags;
mod diff;
mod fixed_list;
mod join;
pub mod json;
mod key_filter;
mod map_proof;
mod message;
mod mutate;
mod read;
mod resolve;
pub mod run;
mod scan;
mod transition;
mod trees;
mod verdict;

/// The example of the README, so that it is compiled and run, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use batch::{BatchError, read_cids, read_get_batch, read_get_pages, read_has_batch};
pub use create_root::SortedArcs;
pub use dags::is_linkless;
pub use diff::DiffRequest;
pub use join::ForEach;
pub use key_filter::KeyFilter;
pub use map_proof::{MapProofForm, MapProofOutcome, verify_map_proof};
pub use message::delta::MAX_DELTAS;
pub use read::{ReadOutcome, verify_read};
pub use resolve::verify_resolve;
pub use run::{Lookahead, Need, Operation, Progress, WantedPage};
pub use scan::{verify_page, verify_scan};
pub use transition::verify_transition;
pub use verdict::{read_verdict, resolve_verdict};
