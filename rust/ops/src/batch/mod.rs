//! Batches: many CIDs, or many paths of one root, in one request (protocol section 5).

mod cids;
mod error;
mod pages;
mod payloads;
mod resolves;

pub use cids::read_cids;
pub use error::BatchError;
pub use pages::read_get_pages;
pub use payloads::{read_get_batch, read_has_batch};
