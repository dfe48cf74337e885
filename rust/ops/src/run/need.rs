//! Needs of an operation: pages, roots, bytes, time, space, storage.

use std::ops::Range;
use std::sync::Arc;

use coregw_core::{Cid, Digest, Page, PageDifference, Result, RootCid};

/// What an operation waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// Stored pages: answer with [`supply_pages`](crate::Operation::supply_pages).
    Pages(Vec<WantedPage>),
    /// Whether the store has a record of each of these roots: answer with [`supply_roots`](crate::Operation::supply_roots).
    Roots(Vec<RootCid>),
    /// Whether the store holds each of these roots and has renewed them, since the response will say that they are stored:
    /// answer with [`supply_roots`](crate::Operation::supply_roots).
    Renewal(Vec<RootCid>),
    /// Bytes of the CAR that is imported, fewer where it ends: answer with [`supply_bytes`](crate::Operation::supply_bytes).
    Bytes(Range<u64>),
    /// More time, since the budget of nodes is spent: poll again.
    Budget,
    /// Space for output: send these bytes, then each of these payloads as a block, and poll again.
    Output {
        /// The next bytes.
        bytes: Vec<u8>,
        /// Payloads whose blocks follow them.
        payloads: Vec<Cid>,
    },
    /// Space for leaves of a tree in a CAR, from left to right: use them, and poll again. Each tree has at least one.
    Leaves {
        /// The root of the tree.
        root: RootCid,
        /// JSON lines: `["path","CID"]` of a map, `["CID",measure]` of a list.
        lines: Vec<u8>,
    },
    /// Payloads to store: the ranges of their blocks (CID and data) in the CAR that is imported. Poll again when the
    /// store has them.
    Payloads(Vec<Range<u64>>),
    /// Pages to store, and then the records of these roots, durably. Poll again when that is done.
    Store {
        /// Pages by digest.
        pages: Vec<(Digest, Vec<u8>)>,
        /// Differences of some of the pages to others, by digest: a store may keep these instead.
        differences: Vec<(Digest, PageDifference)>,
        /// Roots that are held from then on.
        roots: Vec<RootCid>,
        /// Roots that must be held when the records are written: their trees have pages that the new ones share.
        requires: Vec<RootCid>,
    },
}

/// A page that an operation waits for, and a root of the tree that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedPage {
    /// The root, which determines the kind and suite of the page.
    pub root: RootCid,
    /// The digest under which the page is stored.
    pub digest: Digest,
}

impl WantedPage {
    /// Parses the stored bytes and checks their digest; `None` means that the store does not have the page. O(bytes).
    ///
    /// # Errors
    /// [`Error::Damaged`](coregw_core::Error::Damaged), naming the page, if it is missing or its bytes do not have its
    /// digest.
    pub fn parse(&self, bytes: Option<&[u8]>) -> Result<Arc<Page>> {
        Page::of_store(&self.root, &self.digest, bytes)
    }
}

/// What an operation will look for in the tree of a root for which it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookahead {
    /// The root of a map.
    pub root: RootCid,
    /// Keys of the map, or where its listing begins: with the empty one, at the first key.
    pub keys: Vec<Vec<u8>>,
}
