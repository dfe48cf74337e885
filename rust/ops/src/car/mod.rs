//! Roots as CARv1 files: a header that names them, then blocks, each preceded by its length and its CID.
//!
//! ```text
//! | varint | header (DAG-CBOR)                 | varint | CID | bytes | varint | CID | bytes | ...
//!            {"roots": [root, ...], "version": 1}   one block: a tree node, or a payload
//! ```
//!
//! `export` writes the nodes of a held root from its pages. An import has three stages: `reader` reads the bytes as they
//! arrive (by `frames`, which `payloads` shares) and checks the hash of every block; `check` reads the nodes again and checks that they form complete trees; `pages`
//! reads them once more and makes the pages to store. `leaves` lists the leaves of checked trees instead, for a client that
//! has them made elsewhere. The bytes themselves stay with the caller. `complete` tells whether
//! there is nothing to import, because everything below a root is held.

mod blocks;
mod check;
mod complete;
mod export;
mod format;
mod frames;
mod import;
mod index;
mod leaves;
mod lists;
mod pages;
mod payloads;
mod reader;

pub use export::BlockPlace;
pub use format::{block_cid, block_head, car_header, payload_car_header};
pub use lists::lists_car;
pub use payloads::{PayloadPart, PayloadReader};
pub use reader::{CarLimits, CarReader};
