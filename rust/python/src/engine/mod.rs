//! Extension of a gateway's engine: operations on stored trees, the page cache, and CARs.

pub mod batch;
pub mod cache;
pub mod car;
pub mod links;
pub mod need;
pub mod operation;
