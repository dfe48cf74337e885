//! Proofs: creating them from stored trees, and verifying them.

pub(crate) mod query;
pub(crate) mod streamed;
pub(crate) mod streamed_keys;
pub mod verify;
