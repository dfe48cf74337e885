//! Index of the blocks of a CAR: a few dozen bytes for each, sorted by digest once all are known.

use coregw_core::internals::arena;
use coregw_core::{Cid, Digest, Kind, RootCid, Suite};

/// Flag: the node and everything below it is checked.
pub(super) const CHECKED: u8 = 1;
/// Flag: the node is the top of a root that was found.
pub(super) const FOUND: u8 = 2;
/// Flag: the node is the top of a page that is made or queued.
pub(super) const PAGE_TOP: u8 = 4;
/// Flag: the left child is in the node's page, as in `arena`.
pub(super) const KEEP_LEFT: u8 = arena::KEEP_LEFT;
/// Flag: the right child is in the node's page, as in `arena`.
pub(super) const KEEP_RIGHT: u8 = arena::KEEP_RIGHT;
const LIST: u8 = 32;
const BLAKE3: u8 = 64;

/// A tree node: where its block is, and what its page notes about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeRecord {
    pub(super) digest: Digest,
    /// Where its CID starts.
    pub(super) offset: u64,
    /// Its number among the blocks, from 0.
    pub(super) number: u32,
    pub(super) extent: u32,
    /// Bytes of CID and block.
    pub(super) len: u16,
    pub(super) weight: u16,
    pub(super) height: u8,
    pub(super) flags: u8,
}

impl NodeRecord {
    pub(super) fn new(root: &RootCid, offset: u64, number: u32, len: u16) -> Self {
        let list = if root.kind == Kind::List { LIST } else { 0 };
        let flags = list | if root.suite == Suite::Blake3 { BLAKE3 } else { 0 };
        Self { digest: root.digest, offset, number, extent: 0, len, weight: 0, height: 0, flags }
    }

    /// The CID that names the node in the CAR.
    pub(super) fn root(&self) -> RootCid {
        let kind = if self.flags & LIST == 0 { Kind::Map } else { Kind::List };
        let suite = if self.flags & BLAKE3 == 0 { Suite::Sha2_256 } else { Suite::Blake3 };
        RootCid { kind, suite, digest: self.digest }
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The node and its place, for error messages.
    pub(super) fn place(&self) -> String {
        format!("block {} ({}, in the bytes from {})", self.number, self.root(), self.offset)
    }
}

/// A payload: its key, where its CID starts, and the bytes of CID and payload together.
#[derive(Debug, Clone, Copy)]
pub(super) struct PayloadRecord {
    pub(super) key: Digest,
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl PayloadRecord {
    pub(super) fn new(cid: &Cid, offset: u64, len: u32) -> Self {
        Self { key: payload_key(cid), offset, len }
    }
}

/// A key of fixed length for a multihash.
pub(super) fn payload_key(cid: &Cid) -> Digest {
    Suite::Sha2_256.digest(cid.multihash())
}

/// All blocks, each once. Lookups take O(log n).
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) nodes: Vec<NodeRecord>,
    pub(super) payloads: Vec<PayloadRecord>,
}

impl Index {
    /// Sorts the records in place; of a block that occurs several times, only the first is kept. O(n log n).
    pub(super) fn sort(&mut self) {
        self.nodes.sort_unstable_by(|a, b| a.digest.cmp(&b.digest).then(a.offset.cmp(&b.offset)));
        self.nodes.dedup_by(|again, first| again.root() == first.root());
        self.payloads.sort_unstable_by(|a, b| a.key.cmp(&b.key).then(a.offset.cmp(&b.offset)));
        self.payloads.dedup_by(|again, first| again.key == first.key);
    }

    /// The bytes of memory that the records take.
    pub(super) fn held_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<NodeRecord>() + self.payloads.capacity() * size_of::<PayloadRecord>()
    }

    pub(super) fn node(&self, root: &RootCid) -> Option<u32> {
        let at = self.nodes.binary_search_by(|record| record.digest.cmp(&root.digest)).ok()?;
        (self.nodes[at].root() == *root).then_some(at as u32)
    }

    pub(super) fn has_payload(&self, cid: &Cid) -> bool {
        let key = payload_key(cid);
        self.payloads.binary_search_by(|record| record.key.cmp(&key)).is_ok()
    }
}
