//! Batches: many payloads, or many paths of one root, in one request (protocol section 5, *batches*).

mod error;
mod payloads;
mod resolves;

pub use error::BatchError;
pub use payloads::{CasBatch, read_get_batch};
