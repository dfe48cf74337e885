//! Operations on stored trees: request JSON in, response JSON and CARs out.
//!
//! Everything here is pure, as is `coregw-core` below it: an operation says which pages and roots it needs, and its
//! caller fetches them.
#![forbid(unsafe_code)]

mod batch;
pub mod car;
mod deltas;
mod diffing;
pub mod json;
mod messages;
mod ops;
pub mod prooflist;
mod question;
mod resolving;
mod transition;
mod writes;
mod writing;

pub use batch::{ResolveBatch, Turn, WantedPage};
pub use deltas::MAX_DELTAS;
pub use diffing::DiffRequest;
pub use ops::{Need, Operation};
pub use transition::verify_transition;
pub use writes::{Build, Mutation};
