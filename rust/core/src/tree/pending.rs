//! Nodes whose digests are computed together, one level after the other.
//!
//! ```text
//! level 2        ●              added after its children, so that no digest is missing when its level is hashed
//!              ╱   ╲
//! level 1     ●     ●           hashed together: none contains the digest of another
//!            ╱ ╲   ╱ ╲
//! level 0   ●   ▢ ●   ●         leaves, and nodes whose children have their digests
//! ```

use coregw_lanes as lanes;

use crate::id::suite::{Digest, Suite};
use crate::id::varint;
use crate::tree::arena::{Arena, Node, NodeId, State};

/// The bytes of encodings after which they are hashed: enough nodes to fill the lanes on most levels, few enough to stay
/// in the CPU's caches.
const MAX_PENDING_BYTES: usize = 128 << 10;

/// A node that waits for its digest.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    node: NodeId,
    /// Where its encoding starts.
    start: u32,
    len: u16,
    /// In an inner node: where the digest of its left child starts in the encoding; that of its right child ends it.
    left: u16,
    level: u16,
}

/// The bytes that encodings take for each byte of a pruned tree, typically.
const BYTES_PER_BYTE: usize = 4;

/// Nodes that wait for their digests. Meanwhile the `home` of each is its place here.
pub(crate) struct PendingNodes {
    /// The length of `bytes` from which on they are hashed.
    max_bytes: usize,
    /// The encodings, each with room for its padding.
    bytes: Vec<u8>,
    waiting: Vec<Waiting>,
    /// Places in `waiting`, by level.
    order: Vec<u32>,
    /// How many nodes are on each level, then where the next one of each goes in `order`.
    levels: Vec<u32>,
}

/// The `home` of nodes that do not wait.
const NONE: u32 = u32::MAX;

impl PendingNodes {
    /// For the nodes of a pruned tree of so many bytes, if hashing them together is faster than one by one. Takes memory
    /// in proportion to these bytes.
    pub(crate) fn new(suite: Suite, tree_bytes: usize) -> Option<Self> {
        let is_faster = suite == Suite::Sha2_256 && lanes::is_wide();
        let max_bytes = (BYTES_PER_BYTE * tree_bytes).min(MAX_PENDING_BYTES);
        is_faster.then(|| Self {
            max_bytes,
            bytes: Vec::with_capacity(max_bytes + 2 * lanes::PADDING_BYTES),
            waiting: Vec::new(),
            order: Vec::new(),
            levels: Vec::new(),
        })
    }

    /// Adds a node, whose children have their digests or wait for them, too. O(bytes).
    #[inline]
    pub(crate) fn add(&mut self, arena: &mut Arena, node: NodeId, encoding: &[u8], is_list: bool) {
        let (mut left, mut level) = (0, 0);
        if let State::Inner { left: l, right: r, .. } = arena.node(node).state {
            let right = arena.node(r);
            let between = varint::len(right.sum.count) + if is_list { varint::len(right.sum.measure) } else { 0 };
            left = (encoding.len() - between - 2 * 32) as u16;
            // The `home` of a stub is a page.
            let above = |child: &Node| match child.state {
                State::Stub { .. } => 0,
                _ => self.waiting.get(child.home as usize).map_or(0, |child| child.level + 1),
            };
            level = above(arena.node(l)).max(above(right));
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(encoding);
        self.bytes.extend_from_slice(&[0; lanes::PADDING_BYTES]);
        let padded = lanes::pad(&mut self.bytes[start..], encoding.len()).len();
        self.bytes.truncate(start + lanes::BLOCK_BYTES * padded);
        arena.node_mut(node).home = self.waiting.len() as u32;
        self.waiting.push(Waiting { node, start: start as u32, len: encoding.len() as u16, left, level });
        if self.bytes.len() >= self.max_bytes {
            self.hash(arena);
        }
    }

    /// Computes the digests of all nodes that wait. O(bytes).
    pub(crate) fn hash(&mut self, arena: &mut Arena) {
        self.sort();
        let mut start = 0;
        while let Some(&first) = self.order.get(start) {
            let level = self.waiting[first as usize].level;
            let group = self.order[start..].iter().take(lanes::LANES);
            let count = group.take_while(|&&at| self.waiting[at as usize].level == level).count();
            self.hash_group(arena, start..start + count);
            start += count;
        }
        self.bytes.clear();
        self.waiting.clear();
    }

    /// Hashes nodes of one level.
    fn hash_group(&mut self, arena: &mut Arena, group: std::ops::Range<usize>) {
        let group = &self.order[group];
        for &at in group {
            let Waiting { node, start, len, left, .. } = self.waiting[at as usize];
            if let State::Inner { left: l, right: r, .. } = arena.node(node).state {
                let encoding = &mut self.bytes[start as usize..][..usize::from(len)];
                encoding[usize::from(left)..][..32].copy_from_slice(&arena.node(l).sum.digest.0);
                encoding[usize::from(len) - 32..].copy_from_slice(&arena.node(r).sum.digest.0);
            }
        }
        let (mut messages, mut digests): ([&[_]; lanes::LANES], _) = ([&[]; lanes::LANES], [[0; 32]; lanes::LANES]);
        for (message, &at) in messages.iter_mut().zip(group) {
            let Waiting { start, len, .. } = self.waiting[at as usize];
            *message = &self.bytes[start as usize..].as_chunks().0[..lanes::blocks(len.into())];
        }
        lanes::hash_padded(&messages[..group.len()], &mut digests[..group.len()]);
        for (&at, digest) in group.iter().zip(digests) {
            let node = arena.node_mut(self.waiting[at as usize].node);
            node.sum.digest = Digest(digest);
            node.home = NONE;
        }
    }

    /// Sorts the nodes by level, by counting.
    fn sort(&mut self) {
        self.levels.clear();
        for waiting in &self.waiting {
            let level = usize::from(waiting.level);
            if self.levels.len() <= level {
                self.levels.resize(level + 1, 0);
            }
            self.levels[level] += 1;
        }
        let mut next = 0;
        for level in &mut self.levels {
            next += std::mem::replace(level, next);
        }
        self.order.clear();
        self.order.resize(self.waiting.len(), 0);
        for (at, waiting) in self.waiting.iter().enumerate() {
            let next = &mut self.levels[usize::from(waiting.level)];
            self.order[*next as usize] = at as u32;
            *next += 1;
        }
    }
}
