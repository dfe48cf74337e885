//! Arena of nodes: the form in which proofs, pages and trees under change are held in memory.
//!
//! A node's `floor` is 0 at the top and its parent's `bit + 1` elsewhere (protocol section 4). Its bits before `floor`
//! are those of the path, so callers pass `floor` along while they descend.

use std::cell::Cell;

use coregw_lanes::prefetch;

use crate::bits::Own;
use crate::id::suite::Digest;
use crate::tree::node::Summary;

/// The index of a node in its arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// A leaf's key from byte `start` on; the bytes before are those of the path.
#[derive(Debug, Clone, Copy)]
pub struct Tail {
    pub offset: u32,
    pub start: u16,
    pub len: u16,
}

impl Tail {
    pub const NONE: Self = Self { offset: 0, start: 0, len: 0 };

    /// The length of the whole key, in bytes.
    #[inline]
    pub fn key_len(self) -> usize {
        usize::from(self.start) + usize::from(self.len)
    }
}

/// Where an inner node's own bits are, from byte `start` of the path to the byte of bit `bit - 1`: at most four bytes are
/// in the node itself, so that most descents read no other memory, and more are at an offset in the arena.
#[derive(Debug, Clone, Copy)]
pub struct Label {
    start: u16,
    /// The bytes, or the offset.
    place: [u8; SHORT],
}

/// The maximum length of a label that is in its node, in bytes: that of an offset, and of a word.
const SHORT: usize = 4;

impl Label {
    /// The label of an inner node of a list, which has no bits of its own.
    pub const NONE: Self = Self { start: 0, place: [0; SHORT] };

    /// The label of a node with this bit. Its bytes, which end with the byte of bit `bit - 1`, are `own`; if they are more
    /// than four, they are also at this offset in the arena.
    #[inline]
    pub fn new(own: &[u8], bit: u32, offset: u32) -> Self {
        let mut place = [0; SHORT];
        match place.get_mut(..own.len()) {
            Some(few) => few.iter_mut().zip(own).for_each(|(to, from)| *to = *from),
            None => place = offset.to_ne_bytes(),
        }
        Self { start: (bit.div_ceil(8) as usize - own.len()) as u16, place }
    }

    /// The number of bytes that a label of this length takes in the arena.
    #[inline]
    pub fn stored_len(len: u32) -> u32 {
        if len > SHORT as u32 { len } else { 0 }
    }

    /// Where the bytes are in the arena; None if they are in the node.
    #[inline(always)]
    pub fn offset(self, bit: u32) -> Option<u32> {
        (bit.div_ceil(8) > u32::from(self.start) + SHORT as u32).then(|| u32::from_ne_bytes(self.place))
    }
}

#[derive(Debug, Clone, Copy)]
pub enum State {
    /// The empty node.
    Empty,
    /// A pruned subtree: only its summary is known. A page also stores its `extent`; `ordinal` numbers a page's stubs.
    Stub { extent: u32, ordinal: u32 },
    /// In a partial tree: the node is `node` of the page number `page`, and has not been copied yet.
    Remote { page: u32, node: NodeId },
    /// In a partial tree: as `Remote`, but that page was released. The summary and what a cut depends on are known.
    Released { page: u32, node: NodeId, extent: u32 },
    /// A leaf. In a list its tail is empty.
    Leaf { tail: Tail, target: u32, target_len: u8 },
    /// An inner node. In a list, its bit is 0.
    Inner { bit: u32, label: Label, left: NodeId, right: NodeId },
}

impl State {
    /// Whether the node has to be loaded before its children or its target are known.
    #[inline]
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Remote { .. } | Self::Stub { .. } | Self::Released { .. })
    }
}

/// The query has visited the node, or the page contains it.
pub const SHOWN: u8 = 1;
/// Created by a change or a build.
pub const FRESH: u8 = 2;
/// The top node of a page.
pub const PAGE_TOP: u8 = 4;
/// The left child belongs to the same page. Valid on fresh nodes only.
pub const KEEP_LEFT: u8 = 8;
/// The right child belongs to the same page. Valid on fresh nodes only.
pub const KEEP_RIGHT: u8 = 16;

/// A node, without the measure of its summary: one line of a processor's cache, since a proof reads a dozen nodes from
/// pages that are in no cache.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub struct Node {
    /// The digest and the count of its [`Summary`].
    pub digest: Digest,
    pub count: u64,
    pub state: State,
    /// Bytes that the node and its descendants take in its page, without its own label.
    pub weight: u16,
    /// Number of page levels below the node's own page.
    pub height: u8,
    pub flags: u8,
}

impl Node {
    pub fn new(sum: &Summary, state: State) -> Self {
        const { assert!(size_of::<Self>() == 64, "a line of the cache") };
        Self { digest: sum.digest, count: sum.count, state, weight: 0, height: 0, flags: 0 }
    }

    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

thread_local! {
    /// Per-thread free list of one arena's buffers: allocating and freeing a few KiB costs as much as hashing a node,
    /// and most proofs are that short (figures in docs/benchmarks/profiling.md).
    static SPARE: Cell<(Vec<Node>, Vec<u64>, Vec<u8>)> = const { Cell::new((Vec::new(), Vec::new(), Vec::new())) };
}

/// Larger buffers are freed.
const MAX_SPARE_BYTES: usize = 64 << 10;

#[derive(Debug, Default, Clone)]
pub struct Arena {
    pub nodes: Vec<Node>,
    /// The measures of the first nodes; those of all others, as of all nodes of a map, are their counts.
    measures: Vec<u64>,
    pub bytes: Vec<u8>,
    /// In a proof, the number of nodes that are not stubs.
    pub shown: usize,
}

impl Arena {
    /// Creates an empty arena in recycled buffers, if this thread has some.
    pub fn spare() -> Self {
        let (nodes, measures, bytes) = SPARE.try_with(Cell::take).unwrap_or_default();
        Self { nodes, measures, bytes, shown: 0 }
    }

    /// The memory of the nodes and their bytes.
    pub fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.measures.capacity() * size_of::<u64>() + self.bytes.capacity()
    }

    /// Reserves capacity for more nodes and bytes.
    #[inline]
    pub fn reserve(&mut self, nodes: usize, bytes: usize) {
        self.nodes.reserve_exact(nodes);
        self.bytes.reserve_exact(bytes);
    }

    /// Recycles the buffers for the next arena of this thread.
    pub fn recycle(mut self) {
        if self.nodes.capacity() * size_of::<Node>() <= MAX_SPARE_BYTES && self.bytes.capacity() <= MAX_SPARE_BYTES {
            self.truncate(0, 0);
            // Fails only while the thread is being torn down.
            let _ = SPARE.try_with(|spare| spare.set((self.nodes, self.measures, self.bytes)));
        }
    }

    /// Copies the arena to buffers without spare capacity; `shrink_to_fit` would not always release memory.
    pub fn exact(self) -> Self {
        let exact = self.clone();
        self.recycle();
        exact
    }

    #[inline]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    #[inline]
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    /// The summary of the tree below a node.
    #[inline]
    pub fn sum(&self, id: NodeId) -> Summary {
        let Node { digest, count, .. } = *self.node(id);
        Summary { count, measure: self.measure(id), digest }
    }

    /// The measure of the tree below a node.
    #[inline]
    pub fn measure(&self, id: NodeId) -> u64 {
        self.measures.get(id.0 as usize).copied().unwrap_or_else(|| self.node(id).count)
    }

    /// Changes the summary of a node.
    #[inline]
    pub fn set_sum(&mut self, id: NodeId, sum: &Summary) {
        let node = self.node_mut(id);
        (node.count, node.digest) = (sum.count, sum.digest);
        self.set_measure(id, sum.measure);
    }

    /// Replaces a node.
    pub fn replace(&mut self, id: NodeId, node: Node, measure: u64) {
        *self.node_mut(id) = node;
        self.set_measure(id, measure);
    }

    /// Sets the measure of a node after its count.
    #[inline]
    fn set_measure(&mut self, id: NodeId, measure: u64) {
        let at = id.0 as usize;
        if at >= self.measures.len() {
            if measure == self.node(id).count {
                return;
            }
            if self.measures.is_empty() {
                self.measures.reserve_exact(self.nodes.capacity());
            }
            let counts = self.nodes[self.measures.len()..=at].iter().map(|node| node.count);
            self.measures.extend(counts);
        }
        self.measures[at] = measure;
    }

    /// Appends a node with its measure.
    ///
    /// # Panics
    /// With 2^32 nodes; the limits on proofs, pages and requests keep arenas far smaller.
    #[inline]
    pub fn push(&mut self, node: Node, measure: u64) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).expect("an arena holds less than 2^32 nodes"));
        self.nodes.push(node);
        self.set_measure(id, measure);
        id
    }

    /// Drops all nodes and bytes but the first ones.
    pub fn truncate(&mut self, nodes: usize, bytes: usize) {
        self.nodes.truncate(nodes);
        self.measures.truncate(nodes);
        self.bytes.truncate(bytes);
    }

    /// Drops the capacity that is not used.
    pub fn shrink(&mut self) {
        self.nodes.shrink_to_fit();
        self.measures.shrink_to_fit();
        self.bytes.shrink_to_fit();
    }

    /// Appends bytes and returns their offset. Panics as `push` does.
    #[inline]
    pub fn store(&mut self, bytes: &[u8]) -> u32 {
        let at = u32::try_from(self.bytes.len()).expect("an arena holds less than 2^32 bytes");
        self.bytes.extend_from_slice(bytes);
        at
    }

    /// Appends the nodes and bytes of another arena, and returns where they start. O(nodes + bytes). Panics as `push` does.
    pub fn append(&mut self, other: &Self) -> (NodeId, u32) {
        let start = NodeId(self.nodes.len() as u32);
        let bytes = self.store(&other.bytes);
        let moved = |id: NodeId| NodeId(start.0 + id.0);
        for (at, node) in (0..).map(NodeId).zip(&other.nodes) {
            let state = match node.state {
                State::Leaf { tail, target, target_len } => {
                    let tail = Tail { offset: bytes + tail.offset, ..tail };
                    State::Leaf { tail, target: bytes + target, target_len }
                }
                State::Inner { bit, label, left, right } => {
                    let place = label.offset(bit).map_or(label.place, |offset| (bytes + offset).to_ne_bytes());
                    State::Inner { bit, label: Label { place, ..label }, left: moved(left), right: moved(right) }
                }
                other => other,
            };
            self.push(Node { state, ..*node }, other.measure(at));
        }
        (start, bytes)
    }

    /// Stores the label of a node with this bit; `own` ends with the byte of bit `bit - 1`. Panics as `push` does.
    #[inline]
    pub fn store_label(&mut self, own: &[u8], bit: u32) -> Label {
        let offset = if Label::stored_len(own.len() as u32) > 0 { self.store(own) } else { 0 };
        Label::new(own, bit, offset)
    }

    /// Stores the label that a node with this bit has in another arena. Panics as `push` does.
    #[inline]
    pub fn copy_label(&mut self, from: &Self, label: Label, bit: u32) -> Label {
        let Some(offset) = label.offset(bit) else {
            return label;
        };
        let len = bit.div_ceil(8) as usize - usize::from(label.start);
        Label { place: self.store(&from.bytes[offset as usize..][..len]).to_ne_bytes(), ..label }
    }

    /// Stores the tail and the target that a leaf has in another arena, and returns its state here. Panics as `push` does.
    #[inline]
    pub fn copy_leaf(&mut self, from: &Self, id: NodeId, tail: Tail, target_len: u8) -> State {
        let target = self.store(from.target(id));
        let bytes = &from.bytes[tail.offset as usize..][..usize::from(tail.len)];
        State::Leaf { tail: Tail { offset: self.store(bytes), ..tail }, target, target_len }
    }

    /// Prefetches the bytes at an offset: a tail or target that is about to be read.
    #[inline(always)]
    pub fn prefetch_bytes(&self, offset: u32) {
        if let Some(first) = self.bytes.get(offset as usize) {
            prefetch(first);
        }
    }

    /// The target of a leaf; empty for other nodes.
    #[inline]
    pub fn target(&self, id: NodeId) -> &[u8] {
        match self.node(id).state {
            State::Leaf { target, target_len, .. } => &self.bytes[target as usize..][..usize::from(target_len)],
            _ => &[],
        }
    }

    /// A leaf's tail from byte `floor / 8` on; bits before `floor` are unspecified.
    #[inline]
    pub fn tail(&self, tail: Tail, floor: u32) -> &[u8] {
        let all = &self.bytes[tail.offset as usize..][..usize::from(tail.len)];
        &all[(floor / 8) as usize - usize::from(tail.start)..]
    }

    /// An inner node's label from byte `floor / 8` on; empty if `floor` is `bit`. Bits outside `floor..bit` are unspecified.
    #[inline]
    pub fn label<'a>(&'a self, label: &'a Label, floor: u32, bit: u32) -> &'a [u8] {
        // In a list, whose nodes have no bits of their own, `floor` may be past `bit`.
        if floor >= bit {
            return &[];
        }
        let first = (floor / 8) as usize;
        let bytes = label.offset(bit).map_or(&label.place[..], |offset| &self.bytes[offset as usize..]);
        &bytes[first - usize::from(label.start)..][..bit.div_ceil(8) as usize - first]
    }

    /// An inner node's own bits: a word if they are in the node, so that no length has to be predicted.
    #[inline(always)]
    pub(crate) fn own<'a>(&'a self, label: &'a Label, floor: u32, bit: u32) -> Own<'a> {
        if label.offset(bit).is_some() {
            return Own::Bytes(self.label(label, floor, bit));
        }
        // If there are no bits, the label may start after `floor`, or end before it; then the word does not matter.
        let skipped = (floor / 8).saturating_sub(u32::from(label.start));
        Own::Word(u32::from_be_bytes(label.place).wrapping_shl(8 * skipped))
    }

    /// The number of path bits that the node determines: an inner node's `bit`, a leaf's key length in bits.
    pub fn extent(&self, id: NodeId) -> u32 {
        match self.node(id).state {
            State::Inner { bit, .. } => bit,
            State::Leaf { tail, .. } => 8 * tail.key_len() as u32,
            State::Stub { extent, .. } | State::Released { extent, .. } => extent,
            State::Empty | State::Remote { .. } => 0,
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/tree_arena.rs"]
mod tests;
