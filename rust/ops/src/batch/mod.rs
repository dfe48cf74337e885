//! Batches: many payloads, or many paths of one root, in one request (protocol section 5, *batches*).

mod cids;
mod error;
mod payloads;
mod resolves;

pub use cids::read_cids;
pub use error::BatchError;
pub use payloads::{CasBatch, read_get_batch};
