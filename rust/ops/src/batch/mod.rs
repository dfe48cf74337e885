//! Batches: many CIDs, or many paths of one root, in one request (protocol section 5).

mod cids;
mod error;
mod payloads;
mod resolves;

pub use cids::read_cids;
pub use error::BatchError;
pub use payloads::{read_get_batch, read_has_batch};
