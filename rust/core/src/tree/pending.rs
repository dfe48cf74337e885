//! Nodes whose digests are computed together, one level after the other.
//!
//! ```text
//! level 2        ●              added after its children, so that no digest is missing when its level is hashed
//!              ╱   ╲
//! level 1     ●     ●           hashed together: none contains the digest of another
//!            ╱ ╲   ╱ ╲
//! level 0   ●   ▢ ●   ●         leaves, and nodes whose children have their digests
//! ```

use std::ops::Range;

use coregw_lanes as lanes;

use crate::id::cid::Kind;
use crate::id::suite::{Digest, Suite};
use crate::id::varint;
use crate::tree::encoder::{Encoder, Line};
use crate::tree::node::{Encoding, Summary};

/// The bytes of encodings after which they are hashed: enough nodes to fill the lanes on most levels, few enough to stay
/// in the CPU's caches.
const MAX_PENDING_BYTES: usize = 128 << 10;

/// The place of a node that does not wait: its digest is known.
pub(crate) const KNOWN: u32 = u32::MAX;

/// The bytes of the padded encoding of a node, typically.
const TYPICAL_ENCODING: usize = 2 * lanes::BLOCK_BYTES;

/// The bytes of an encoding besides a key or prefix and a target: at most a tag, the varint of a bit, and of two children
/// their counts, measures and digests; in a leaf, the varint of a length.
const MAX_REST: usize = 1 + varint::MAX_LEN + 2 * (2 * varint::MAX_LEN + 32);

/// The bytes that encodings take for each byte of a pruned tree, typically.
const BYTES_PER_BYTE: usize = 4;

/// What is missing in the encoding of an inner node: the digests of children that wait, too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Below {
    /// The places of the children, or [`KNOWN`].
    places: [u32; 2],
    /// Bytes between the digest of the left child and that of the right one, which ends the encoding.
    between: u16,
}

impl Below {
    /// Of a leaf.
    pub(crate) const NOTHING: Self = Self { places: [KNOWN; 2], between: 0 };

    /// Of an inner node with these children, given their places and the totals of the right one.
    #[inline]
    pub(crate) fn of(kind: Kind, places: [u32; 2], right: &Summary) -> Self {
        let measure = match kind {
            Kind::Map => 0,
            Kind::List => varint::len(right.measure),
        };
        Self { places, between: (varint::len(right.count) + measure) as u16 }
    }
}

/// A node that waits for its digest.
#[derive(Debug, Clone, Copy)]
struct Waiting<T> {
    node: T,
    /// Where its encoding starts.
    start: u32,
    len: u16,
    level: u16,
    below: Below,
}

impl<T> Waiting<T> {
    fn encoding(&self) -> Range<usize> {
        self.start as usize..self.start as usize + usize::from(self.len)
    }
}

/// Nodes that wait for their digests, each with a note for the caller.
pub(crate) struct PendingNodes<T> {
    suite: Suite,
    /// Whether nodes of one level are hashed several at a time.
    is_wide: bool,
    /// The length of `bytes` from which on they should be hashed.
    max_bytes: usize,
    /// The encodings, each with its padding, up to `end`.
    encodings: Line,
    waiting: Vec<Waiting<T>>,
    /// Their digests, in the same order.
    digests: Vec<Digest>,
    /// Places in `waiting`, by level.
    order: Vec<u32>,
    /// How many nodes are on each level, then where the next one of each goes in `order`.
    levels: Vec<u32>,
}

impl<T: Copy> PendingNodes<T> {
    /// For nodes of any number.
    pub(crate) fn new(suite: Suite) -> Self {
        Self {
            suite,
            is_wide: suite == Suite::Sha2_256 && lanes::is_wide(),
            max_bytes: MAX_PENDING_BYTES,
            encodings: Line::default(),
            waiting: Vec::new(),
            digests: Vec::new(),
            order: Vec::new(),
            levels: Vec::new(),
        }
    }

    /// For the nodes of a pruned tree of so many bytes, if hashing them together is faster than one by one. Takes memory
    /// in proportion to these bytes.
    pub(crate) fn of_pruned(suite: Suite, tree_bytes: usize) -> Option<Self> {
        let mut pending = Some(Self::new(suite)).filter(|pending| pending.is_wide)?;
        pending.max_bytes = (BYTES_PER_BYTE * tree_bytes).min(MAX_PENDING_BYTES);
        pending.encodings.buffer.reserve_exact(pending.max_bytes + 2 * lanes::PADDING_BYTES);
        Some(pending)
    }

    /// Reserves memory for the nodes of a tree of so many leaves that wait at a time.
    pub(crate) fn reserve(&mut self, leaves: usize) {
        let nodes = (2 * leaves).min(self.max_bytes / TYPICAL_ENCODING) + 1;
        self.encodings.buffer.reserve_exact(nodes * TYPICAL_ENCODING + MAX_REST + lanes::PADDING_BYTES);
        self.waiting.reserve_exact(nodes);
        self.digests.reserve_exact(nodes);
        self.order.reserve_exact(nodes);
    }

    /// Adds the node whose encoding `encoder` holds, and returns its place. O(bytes).
    #[inline]
    pub(crate) fn add(&mut self, node: T, encoder: &mut Encoder, below: Below) -> u32 {
        let (start, len) = (self.encodings.end, encoder.encoding().len());
        let blocks = encoder.padded();
        self.make_room(blocks.as_flattened().len());
        let (room, end) = (&mut self.encodings.buffer[start..], start + blocks.as_flattened().len());
        match blocks {
            // Most nodes have two blocks. Copies of constant length are inlined.
            [first, second] => {
                room[..lanes::BLOCK_BYTES].copy_from_slice(first);
                room[lanes::BLOCK_BYTES..][..lanes::BLOCK_BYTES].copy_from_slice(second);
            }
            blocks => room[..end - start].copy_from_slice(blocks.as_flattened()),
        }
        self.encodings.end = end;
        self.wait(node, start, len, below)
    }

    /// Adds a node, whose key or prefix and target have so many bytes together, and returns its place. O(bytes).
    #[inline]
    pub(crate) fn encode(&mut self, node: T, encoding: &impl Encoding, variable: usize, below: Below) -> u32 {
        self.make_room(variable + MAX_REST + lanes::PADDING_BYTES);
        let start = self.encodings.end;
        self.encodings.start = start;
        encoding.write(&mut self.encodings);
        let len = self.encodings.end - start;
        self.encodings.end = start + self.encodings.padded().as_flattened().len();
        self.wait(node, start, len, below)
    }

    /// Ensures that so many bytes can be written after the last encoding.
    #[inline]
    fn make_room(&mut self, bytes: usize) {
        let Line { buffer, end, .. } = &mut self.encodings;
        if buffer.len() < *end + bytes {
            buffer.resize((*end + bytes).max((2 * buffer.len()).min(buffer.capacity())), 0);
        }
    }

    #[inline]
    fn wait(&mut self, node: T, start: usize, len: usize, below: Below) -> u32 {
        // A place that is not held is `KNOWN`.
        let above = |place: u32| self.waiting.get(place as usize).map_or(0, |child| child.level + 1);
        let level = above(below.places[0]).max(above(below.places[1]));
        let place = self.waiting.len() as u32;
        self.waiting.push(Waiting { node, start: start as u32, len: len as u16, level, below });
        place
    }

    /// Whether so many nodes wait that they should be hashed.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.encodings.end >= self.max_bytes
    }

    /// The bytes of memory that nodes take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.encodings.end + self.waiting.len() * size_of::<Waiting<T>>()
    }

    /// Computes the digests of all nodes. O(bytes).
    pub(crate) fn hash(&mut self) {
        self.digests.resize(self.waiting.len(), Digest::ZERO);
        if !self.is_wide {
            return (0..self.waiting.len()).for_each(|place| self.hash_one(place));
        }
        self.sort();
        let mut start = 0;
        while let Some(&first) = self.order.get(start) {
            let level = self.waiting[first as usize].level;
            let group = self.order[start..].iter().take(lanes::LANES);
            let count = group.take_while(|&&at| self.waiting[at as usize].level == level).count();
            self.hash_group(start..start + count);
            start += count;
        }
    }

    /// The nodes with their encodings and digests, in the order in which they were added. Call it after
    /// [`PendingNodes::hash`].
    pub(crate) fn hashed(&self) -> impl Iterator<Item = (T, &[u8], Digest)> {
        let waiting = self.waiting.iter().zip(&self.digests);
        waiting.map(|(waiting, digest)| (waiting.node, &self.encodings.buffer[waiting.encoding()], *digest))
    }

    /// The digest of the node at a place. Call it after [`PendingNodes::hash`].
    pub(crate) fn digest(&self, place: u32) -> Option<Digest> {
        self.digests.get(place as usize).copied()
    }

    /// Forgets all nodes, and keeps the memory for others.
    pub(crate) fn clear(&mut self) {
        self.encodings.end = 0;
        self.waiting.clear();
        self.digests.clear();
    }

    /// Writes the digests of its children into an encoding.
    #[inline]
    fn link(&mut self, place: usize) {
        let Below { places: [left, right], between } = self.waiting[place].below;
        let encoding = &mut self.encodings.buffer[self.waiting[place].encoding()];
        for (place, from_end) in [(left, 64 + usize::from(between)), (right, 32)] {
            if place != KNOWN {
                let at = encoding.len() - from_end;
                encoding[at..at + 32].copy_from_slice(&self.digests[place as usize].0);
            }
        }
    }

    /// Hashes the node at a place, whose children have their digests.
    fn hash_one(&mut self, place: usize) {
        self.link(place);
        self.digests[place] = match self.suite {
            Suite::Sha2_256 => Digest(lanes::hash_one(self.padded(place))),
            Suite::Blake3 => self.suite.digest(&self.encodings.buffer[self.waiting[place].encoding()]),
        };
    }

    /// The encoding of the node at a place, padded for SHA-256.
    #[inline]
    fn padded(&self, place: usize) -> &[[u8; lanes::BLOCK_BYTES]] {
        let Waiting { start, len, .. } = self.waiting[place];
        &self.encodings.buffer[start as usize..].as_chunks().0[..lanes::blocks(len.into())]
    }

    /// Hashes nodes of one level.
    fn hash_group(&mut self, group: Range<usize>) {
        for at in group.clone() {
            self.link(self.order[at] as usize);
        }
        let group = &self.order[group];
        let (mut messages, mut digests): ([&[_]; lanes::LANES], _) = ([&[]; lanes::LANES], [[0; 32]; lanes::LANES]);
        for (message, &at) in messages.iter_mut().zip(group) {
            *message = self.padded(at as usize);
        }
        lanes::hash_padded(&messages[..group.len()], &mut digests[..group.len()]);
        for (&at, digest) in group.iter().zip(digests) {
            self.digests[at as usize] = Digest(digest);
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

#[cfg(test)]
#[path = "../../tests/unit/tree_pending.rs"]
mod tests;
