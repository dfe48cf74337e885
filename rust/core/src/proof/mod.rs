//! Proofs: the codec of pruned trees, proving, and verification.

mod lookup;
#[doc(hidden)]
pub mod prove;
#[doc(hidden)]
pub mod pruned;
mod reader;
pub(crate) mod trail;
pub mod verify;
