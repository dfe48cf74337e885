//! Folders as maps (protocol section 7): what the targets of their paths are, and what is known of each path; and folders
//! of this machine, which are read, hashed, uploaded, restored and compared.
//!
//! ```text
//! folder's map    bin/go → payload          map of attributes    bin      → {"folder": true, "mode": 493}
//!                 .coregw/attributes → ─────────────────────→    bin/go   → {"mode": 493, "size": 5}
//!                                                                bin/now  → {"link": "go"}
//! ```
//!
//! Names are bytes, and files are opened without following links, so what touches files needs a Unix.
#![forbid(unsafe_code)]

pub mod attributes;
pub mod chunks;
pub mod join;
pub mod parallel;
pub mod roots;
pub mod sort;
pub mod watch;

#[cfg(unix)]
pub mod beneath;
#[cfg(unix)]
pub mod changes;
#[cfg(unix)]
pub mod compare;
#[cfg(unix)]
pub mod contents;
#[cfg(unix)]
pub mod entries;
#[cfg(unix)]
pub mod hashed;
#[cfg(unix)]
mod ignores;
#[cfg(unix)]
pub mod lane;
#[cfg(unix)]
pub mod listing;
#[cfg(unix)]
pub mod metadata;
#[cfg(unix)]
pub mod plan;
#[cfg(unix)]
pub mod reading;
#[cfg(unix)]
pub mod removal;
#[cfg(unix)]
pub mod restore;
#[cfg(unix)]
pub mod rights;
#[cfg(unix)]
pub mod stat_file;
#[cfg(unix)]
pub mod survey;
#[cfg(unix)]
pub mod symlinks;
#[cfg(unix)]
pub mod top;
#[cfg(unix)]
pub mod update;
#[cfg(unix)]
pub mod upload;
#[cfg(unix)]
pub mod walk;
#[cfg(unix)]
pub mod writer;

pub use attributes::{Attributes, Entry, Record};
pub use join::{ATTRIBUTES_PATH, FolderEntry, FolderJoin, PathKind, RESERVED_NAME, Records};
pub use roots::{FolderRoots, build};
