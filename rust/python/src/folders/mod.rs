//! Folders of this machine, as `coregw-folders` reads and writes them.
//!
//! Names are bytes and files are opened without following links, so most of it needs a Unix (`unsupported`).

pub mod attributes;
pub mod chunks;
#[cfg(unix)]
pub mod hashed;
#[cfg(unix)]
pub mod listing;
#[cfg(unix)]
pub mod restore;
#[cfg(unix)]
pub mod survey;
#[cfg(unix)]
pub mod upload;
