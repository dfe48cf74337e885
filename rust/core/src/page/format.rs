//! The format of a page: a pruned tree, named by the digest of its top node.
//!
//! Pages are storage, not protocol. Each stub of a page is the top node of another page.

use std::sync::Arc;

use coregw_lanes::prefetch;

use crate::bits::{PathBuffer, Side, top_bits};
use crate::error::{Error, Result};
use crate::id::cid::{Kind, RootCid};
use crate::id::suite::{Digest, Suite};
use crate::interrupt::Fault;
use crate::page::links::Links;
use crate::tree::arena::{Arena, NodeId, State};
use crate::tree::node::{Encoding, ListInner, ListLeaf, MapInner, MapLeaf, Tag};
use crate::tree::pruned::{self, Form, VisitLimits};
use crate::tree::reader::PrunedReader;
use crate::tree::writer;

/// The maximum size of a stored page, in bytes: the limit of the cut, and the longest label or leaf of a top node.
pub const MAX_PAGE: usize = 8192 + crate::key::MAX_KEY + 256;

/// The bytes of a node in a page, in the mean.
const NODE_BYTES: usize = 28;

/// A parsed page with all its digests.
#[derive(Debug)]
pub struct Page {
    #[doc(hidden)]
    pub kind: Kind,
    #[doc(hidden)]
    pub suite: Suite,
    #[doc(hidden)]
    pub arena: Arena,
    /// The pages that the stubs stand for, by ordinal, if a whole tree is in memory; otherwise empty.
    pub(crate) next: Vec<Arc<Page>>,
    /// Those that were found, otherwise.
    pub(crate) links: Links<Self>,
}

/// The trees that a page may belong to.
const TREES: [(Kind, Suite); 4] = [
    (Kind::Map, Suite::Sha2_256),
    (Kind::List, Suite::Sha2_256),
    (Kind::Map, Suite::Blake3),
    (Kind::List, Suite::Blake3),
];

impl Page {
    #[doc(hidden)]
    pub const TOP: NodeId = NodeId(0);

    /// A page with the pages that its stubs stand for, or none, and without links.
    pub(crate) fn new(kind: Kind, suite: Suite, arena: Arena, next: Vec<Arc<Self>>) -> Self {
        Self { kind, suite, arena, next, links: Links::default() }
    }

    /// A page that notes the pages below it as they are found.
    pub(crate) fn linking(kind: Kind, suite: Suite, arena: Arena) -> Self {
        let mut page = Self::new(kind, suite, arena, Vec::new());
        page.links = Links::of(page.stubs().count());
        page
    }

    /// Parses a stored page and checks its digest. O(bytes) hashing.
    ///
    /// # Errors
    /// [`Error::Damaged`] that names the page, if it is malformed or another page.
    pub fn parse(bytes: &[u8], kind: Kind, suite: Suite, digest: &Digest) -> Result<Self> {
        if bytes.len() > MAX_PAGE {
            return Err(Error::damaged(format!("page {digest} has {} bytes; the limit is {MAX_PAGE}", bytes.len())));
        }
        let mut arena = Arena::spare();
        pruned::decode(&mut arena, bytes, kind, suite, Form::Page, VisitLimits::NONE)
            .map_err(|fault| Error::damaged(format!("page {digest}: {} (byte {})", fault.why, fault.at)))?;
        let arena = arena.exact(); // the cache keeps it
        // The digest of a stub is unverified.
        if matches!(arena.node(Self::TOP).state, State::Stub { .. }) {
            return Err(Error::damaged(format!("page {digest} shows no node")));
        }
        let page = Self::linking(kind, suite, arena);
        match page.digest() == *digest {
            true => Ok(page),
            false => Err(Error::damaged(format!("page {digest} has the digest {}", page.digest()))),
        }
    }

    /// Parses what a store returned for a page of the tree of `root`.
    ///
    /// # Errors
    /// [`Error::Damaged`] that names the page, if it is missing, malformed or another page.
    pub fn of_store(root: &RootCid, digest: &Digest, bytes: Option<&[u8]>) -> Result<Arc<Self>> {
        let bytes = bytes.ok_or_else(|| Error::damaged(format!("page {digest} of {root} is missing")))?;
        Ok(Arc::new(Self::parse(bytes, root.kind, root.suite, digest)?))
    }

    /// Parses a stored page of a tree of any kind and suite, which the page does not say, and returns the root that has its
    /// top node. None if it is malformed or another page. O(bytes) hashing, up to four times of a damaged page.
    pub fn of_any_tree(bytes: &[u8], digest: &Digest) -> Option<(RootCid, Self)> {
        TREES.iter().find_map(|&(kind, suite)| {
            let page = Self::parse(bytes, kind, suite, digest).ok()?;
            Some((RootCid { kind, suite, digest: *digest }, page))
        })
    }

    /// Checks that the page belongs to a tree of this kind and suite.
    #[inline]
    pub(crate) fn check_is_of(&self, kind: Kind, suite: Suite) -> Result<()> {
        if self.kind == kind && self.suite == suite {
            return Ok(());
        }
        Err(Error::damaged(format!("page {} belongs to a tree of another kind or suite", self.digest())))
    }

    /// The digest of the top node, which names the page.
    pub fn digest(&self) -> Digest {
        self.arena.node(Self::TOP).digest
    }

    /// Encodes the page for a store.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.arena.nodes.len() * NODE_BYTES);
        writer::encode_to(&mut out, &self.arena, self.kind, Self::TOP, Form::Page, |id| (&self.arena, id));
        out
    }

    /// Encodes the top node (protocol section 3): the block that its root CID names.
    pub fn top_block(&self) -> Vec<u8> {
        let path = match &self.arena.node(Self::TOP).state {
            State::Leaf { tail, .. } => self.arena.tail(*tail, 0),
            State::Inner { bit, label, .. } => self.arena.label(label, 0, *bit),
            _ => &[],
        };
        let mut out = Vec::new();
        self.write_block(Self::TOP, path, &mut out);
        out
    }

    /// Appends the encoding of a node that is not a stub (protocol section 3). In a map, `path` is its key, or the bytes
    /// of its prefix; in a list it is empty.
    #[doc(hidden)]
    pub fn write_block(&self, id: NodeId, path: &[u8], out: &mut Vec<u8>) {
        let sum = |id| self.arena.sum(id);
        let target = self.arena.target(id);
        match (self.kind, self.arena.node(id).state) {
            (Kind::Map, State::Leaf { .. }) => MapLeaf { key: path, target }.write(out),
            (Kind::Map, State::Inner { bit, left, right, .. }) => {
                MapInner { bit, path, children: [&sum(left), &sum(right)] }.write(out);
            }
            (Kind::List, State::Leaf { .. }) => ListLeaf { measure: self.arena.measure(id), target }.write(out),
            (Kind::List, State::Inner { left, right, .. }) => {
                ListInner { children: [&sum(left), &sum(right)] }.write(out);
            }
            (Kind::Map, _) => Tag(0x00).write(out),
            (Kind::List, _) => Tag(0x10).write(out),
        }
    }

    /// The digests of the page's stubs, which name the pages below.
    pub fn stubs(&self) -> impl Iterator<Item = Digest> + '_ {
        self.arena.nodes.iter().filter(|node| matches!(node.state, State::Stub { .. })).map(|node| node.digest)
    }

    /// Prefetches the head of the page that a stub stands for, if it is linked.
    #[inline]
    pub(crate) fn prefetch_below(&self, ordinal: u32) {
        match self.next.get(ordinal as usize) {
            Some(page) => prefetch(&**page),
            None => self.links.prefetch(ordinal),
        }
    }

    /// The memory that the page takes, in bytes.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.arena.memory() + self.links.memory()
    }
}

/// A page that leads to further pages, as the page above it shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerPage {
    /// No key below this page is less, and all keys to the left of it are. Ends with the bits that are known.
    pub first: Vec<u8>,
    /// The digest under which the page is stored.
    pub digest: Digest,
}

/// The inner pages below a stored page of a map, in the order of their keys: none of a list, or of a malformed page.
///
/// Checks no digest, so it serves for hints alone. O(bytes).
pub fn inner_pages(page: &[u8]) -> Vec<InnerPage> {
    read_inner_pages(page).unwrap_or_default()
}

fn read_inner_pages(page: &[u8]) -> Result<Vec<InnerPage>, Fault> {
    let mut reader = PrunedReader { bytes: page, at: 0 };
    let (mut found, mut path, mut floor) = (Vec::new(), PathBuffer::default(), 0);
    let mut owed: Vec<u32> = Vec::new(); // the bits of the nodes whose right child has not begun
    loop {
        match reader.take(1)? {
            [0x02] => {
                let (bit, label) = reader.map_inner(floor)?;
                path.put(floor, label);
                path.turn(bit, Side::Left);
                owed.push(bit);
                floor = bit + 1;
                continue;
            }
            [0x01] => {
                reader.map_tail(floor)?;
                reader.target()?;
            }
            [0x03] => {
                let (_, digest) = reader.map_stub()?;
                let height = reader.varint()?;
                let (_weight, _extent) = (reader.varint()?, reader.varint()?);
                if height > 0 {
                    found.push(InnerPage { first: first_key(&path, floor), digest: digest_at(page, digest) });
                }
            }
            _ => return Ok(Vec::new()),
        }
        let Some(bit) = owed.pop() else { return Ok(found) };
        path.turn(bit, Side::Right);
        floor = bit + 1;
    }
}

/// The bits before `floor`, and zeros to the end of the byte.
fn first_key(path: &PathBuffer, floor: u32) -> Vec<u8> {
    let mut key = path.0[..floor.div_ceil(8) as usize].to_vec();
    if let Some(last) = key.last_mut()
        && !floor.is_multiple_of(8)
    {
        *last &= top_bits(floor % 8);
    }
    key
}

fn digest_at(page: &[u8], at: u32) -> Digest {
    let mut digest = Digest::ZERO;
    digest.0.copy_from_slice(&page[at as usize..][..32]);
    digest
}

#[cfg(test)]
#[path = "../../tests/unit/page_format.rs"]
mod tests;
