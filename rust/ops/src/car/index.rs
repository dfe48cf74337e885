//! Where the blocks of a CAR lie: a few dozen bytes each, in order of digest once all are there.
//!
//! Leaves out the blocks themselves, which stay where the caller put the CAR.

use coregw_core::{Cid, Kind, RootCid};
use coregw_core::{Digest, Suite};

/// The node, and all below it, is known to be right.
pub(super) const DONE: u8 = 1;
/// The node is the top of a root that was found.
pub(super) const ROOT: u8 = 2;
/// The node's page is made, or waits for that.
pub(super) const PAGE: u8 = 4;
/// As of `arena`.
pub(super) const KEEP_LEFT: u8 = coregw_core::internals::arena::KEEP_LEFT;
/// As of `arena`.
pub(super) const KEEP_RIGHT: u8 = coregw_core::internals::arena::KEEP_RIGHT;
const LIST: u8 = 32;
const BLAKE3: u8 = 64;

/// A tree node, and what its page will note of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeRecord {
    pub(super) digest: Digest,
    /// Where its CID begins.
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

    /// The CID under which the node is in the CAR.
    pub(super) fn root(&self) -> RootCid {
        let kind = if self.flags & LIST == 0 { Kind::Map } else { Kind::List };
        let suite = if self.flags & BLAKE3 == 0 { Suite::Sha2_256 } else { Suite::Blake3 };
        RootCid { kind, suite, digest: self.digest }
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A payload: its key, where its CID begins, and the bytes of CID and payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct PayloadRecord {
    key: Digest,
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl PayloadRecord {
    pub(super) fn new(cid: &Cid, offset: u64, len: u32) -> Self {
        Self { key: payload_key(cid), offset, len }
    }
}

/// Stands for a multihash, which may be longer.
pub(super) fn payload_key(cid: &Cid) -> Digest {
    Suite::Sha2_256.digest(cid.multihash())
}

/// All blocks, each once. Looking one up takes O(log n).
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) nodes: Vec<NodeRecord>,
    pub(super) payloads: Vec<PayloadRecord>,
}

impl Index {
    /// Brings the records in order; of a block that comes again only the first stays. O(n log n), in place.
    pub(super) fn sort(&mut self) {
        self.nodes.sort_unstable_by(|a, b| a.digest.cmp(&b.digest).then(a.offset.cmp(&b.offset)));
        self.nodes.dedup_by(|again, first| again.root() == first.root());
        self.payloads.sort_unstable_by(|a, b| a.key.cmp(&b.key).then(a.offset.cmp(&b.offset)));
        self.payloads.dedup_by(|again, first| again.key == first.key);
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
