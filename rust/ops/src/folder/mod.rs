//! Folders as maps (protocol section 7): what the targets of their paths are, and what is known of each path.
//!
//! ```text
//! folder's map    bin/go → payload          map of attributes    bin      → {"folder": true, "mode": 493}
//!                 .coregw/attributes → ─────────────────────→    bin/go   → {"mode": 493, "size": 5}
//!                                                                bin/now  → {"link": "go"}
//! ```

pub mod attributes;

use coregw_core::{Arcs, Key, Result, RootCid, Snapshot, Suite};

pub use attributes::{Attributes, Entry, Record};

/// The reserved path of a folder's map that names the map of attributes.
pub const ATTRIBUTES_PATH: &str = ".coregw/attributes";
/// The reserved first segment: no file or folder of that name is part of a folder.
pub const RESERVED_NAME: &str = ".coregw";

/// The trees of a folder, whole and in memory.
#[derive(Debug)]
pub struct Folder {
    /// The folder's map, with the reserved path if there are attributes.
    pub files: Snapshot,
    /// The map of attributes, unless it is empty.
    pub attributes: Option<Snapshot>,
}

impl Folder {
    /// Builds the maps of a folder from the targets of its files and the records of its paths. O(n log n).
    ///
    /// # Errors
    /// [`coregw_core::Error::Input`] if a path occurs twice in one of them, or a map is too large.
    pub fn build(suite: Suite, mut files: Arcs, attributes: Arcs) -> Result<Self> {
        let attributes = if attributes.is_empty() { None } else { Some(Snapshot::map(suite, attributes)?) };
        if let Some(attributes) = &attributes {
            files.push(&Key::from_text(ATTRIBUTES_PATH)?, &attributes.root().cid());
        }
        Ok(Self { files: Snapshot::map(suite, files)?, attributes })
    }

    /// The folder's root.
    pub fn root(&self) -> RootCid {
        self.files.root()
    }
}
