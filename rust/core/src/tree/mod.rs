//! Tree nodes: their encodings, how they are held in memory, and the descent.

#[doc(hidden)]
pub mod arena;
#[doc(hidden)]
pub mod block;
#[doc(hidden)]
pub mod cut;
pub(crate) mod descent;
pub(crate) mod encoder;
#[doc(hidden)]
pub mod node;
pub(crate) mod pending;
#[doc(hidden)]
pub mod pruned;
pub(crate) mod reader;
#[doc(hidden)]
pub mod writer;
