//! Small values, each a type with its invariant: varints, CIDs, codecs, suites, payload CIDs.

pub mod cid;
pub mod codec;
pub(crate) mod function;
pub mod payload;
pub(crate) mod suite;
pub mod varint;
