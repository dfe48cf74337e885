//! Nodes side by side in one vector: the form in which proofs, pages and trees being changed are held.
//!
//! A node's bits before `floor` are those of the path that leads to it, and are not looked at here; `floor` is 0 at
//! the top and the parent's `bit + 1` elsewhere (protocol section 4), so callers carry it along.

use std::cell::Cell;

use crate::key::{self as path, common, top_bits};
use crate::tree::node::Summary;

/// The place of a node in its arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// A side of an inner node; in a map also the value of its bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

impl Side {
    #[inline]
    pub fn of(bit: bool) -> Self {
        if bit { Self::Right } else { Self::Left }
    }
}

/// A key's bytes from byte `start` on; those before are the path's.
#[derive(Debug, Clone, Copy)]
pub struct Tail {
    pub offset: u32,
    pub start: u16,
    pub len: u16,
}

impl Tail {
    pub const NONE: Self = Self { offset: 0, start: 0, len: 0 };
}

#[derive(Debug, Clone, Copy)]
pub enum State {
    /// The empty tree.
    Empty,
    /// Only the summary is here. In a page, `extent` and the number of the stub in the page are noted.
    Stub { extent: u32, ordinal: u32 },
    /// In a tree: the node is at `node` of the pinned page `page`, not yet copied.
    Remote { page: u32, node: NodeId },
    /// A leaf; a list's has an empty tail.
    Leaf { tail: Tail, target: u32, target_len: u8 },
    /// An inner node. Its label's bytes from byte `start` to the one that holds bit `bit - 1` are at `label`.
    Inner { bit: u32, label: u32, start: u16, left: NodeId, right: NodeId },
}

/// The query visited the node, or the page holds it.
pub const SHOWN: u8 = 1;
/// Made by a change or a build, not read.
pub const FRESH: u8 = 2;
/// Copied from the top of a page.
pub const PAGE_TOP: u8 = 4;
/// The left child stays in this node's page. Means something on fresh nodes only.
pub const KEEP_LEFT: u8 = 8;
/// The right child stays in this node's page. Means something on fresh nodes only.
pub const KEEP_RIGHT: u8 = 16;

#[derive(Debug, Clone, Copy)]
pub struct Node {
    pub sum: Summary,
    pub state: State,
    /// In a tree: the pinned page that the node was copied from.
    pub home: u32,
    /// Bytes of what hangs on the node in its page, its own label left out.
    pub weight: u16,
    /// Number of pages between the node's own and the lowest one below it.
    pub height: u8,
    pub flags: u8,
}

impl Node {
    pub fn new(sum: Summary, state: State) -> Self {
        Self { sum, state, home: u32::MAX, weight: 0, height: 0, flags: 0 }
    }

    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Where a key leaves a node's own bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parting {
    /// At this bit.
    At(u32),
    /// Nowhere; the key goes on below an inner node, or is the leaf's.
    Agrees,
    /// Nowhere, and the key has ended: no tree of keys has such a node (protocol section 3).
    Ends,
}

thread_local! {
    /// Memory of an arena that is done with, for the next one. To ask the allocator for some KiB and to give them back
    /// takes as long as hashing a node, and most proofs are that short.
    static SPARE: Cell<(Vec<Node>, Vec<u8>)> = const { Cell::new((Vec::new(), Vec::new())) };
}

/// What is kept of it at most, in bytes each.
const SPARE_LIMIT: usize = 64 << 10;

#[derive(Debug, Default)]
pub struct Arena {
    pub nodes: Vec<Node>,
    pub bytes: Vec<u8>,
    /// Of a proof: the number of nodes that are no stubs.
    pub shown: usize,
}

impl Arena {
    /// An empty arena in memory that another of this thread has left.
    pub fn spare() -> Self {
        let (nodes, bytes) = SPARE.try_with(Cell::take).unwrap_or_default();
        Self { nodes, bytes, shown: 0 }
    }

    /// Makes room for so many more nodes and bytes.
    #[inline]
    pub fn reserve(&mut self, nodes: usize, bytes: usize) {
        self.nodes.reserve_exact(nodes);
        self.bytes.reserve_exact(bytes);
    }

    /// Leaves its memory to the next arena of this thread.
    pub fn recycle(mut self) {
        if self.nodes.capacity() * size_of::<Node>() <= SPARE_LIMIT && self.bytes.capacity() <= SPARE_LIMIT {
            self.nodes.clear();
            self.bytes.clear();
            // A thread that ends has no use for it.
            let _ = SPARE.try_with(|spare| spare.set((self.nodes, self.bytes)));
        }
    }

    /// The same in memory of its own size: while it grew it had up to twice of that. Allocators may ignore a vector
    /// that shrinks, so it is copied.
    pub fn exact(self) -> Self {
        let exact = Self { nodes: self.nodes.to_vec(), bytes: self.bytes.to_vec(), shown: self.shown };
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

    /// Arenas are bounded far below 2^32 nodes and bytes by the limits on proofs, pages and requests.
    #[inline]
    pub fn push(&mut self, node: Node) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).expect("an arena holds less than 2^32 nodes"));
        self.nodes.push(node);
        id
    }

    /// Appends bytes and says where they are.
    #[inline]
    pub fn store(&mut self, bytes: &[u8]) -> u32 {
        let at = u32::try_from(self.bytes.len()).expect("an arena holds less than 2^32 bytes");
        self.bytes.extend_from_slice(bytes);
        at
    }

    /// The target of a leaf; empty for any other node.
    #[inline]
    pub fn target(&self, id: NodeId) -> &[u8] {
        match self.node(id).state {
            State::Leaf { target, target_len, .. } => &self.bytes[target as usize..][..usize::from(target_len)],
            _ => &[],
        }
    }

    /// A leaf's tail from byte `floor / 8` on. Bits before `floor` mean nothing.
    #[inline]
    pub fn tail(&self, tail: Tail, floor: u32) -> &[u8] {
        let all = &self.bytes[tail.offset as usize..][..usize::from(tail.len)];
        &all[(floor / 8) as usize - usize::from(tail.start)..]
    }

    /// An inner node's label from byte `floor / 8` on; empty if `floor` is `bit`. Stray bits mean nothing.
    #[inline]
    pub fn label(&self, label: u32, start: u16, floor: u32, bit: u32) -> &[u8] {
        if floor == bit {
            return &[];
        }
        let first = (floor / 8) as usize;
        &self.bytes[label as usize + first - usize::from(start)..][..bit.div_ceil(8) as usize - first]
    }

    /// The bits that a node says by itself: an inner node's `bit`, a leaf's key length in bits.
    pub fn extent(&self, id: NodeId) -> u32 {
        match self.node(id).state {
            State::Inner { bit, .. } => bit,
            State::Leaf { tail, .. } => 8 * (u32::from(tail.start) + u32::from(tail.len)),
            State::Stub { extent, .. } => extent,
            State::Empty | State::Remote { .. } => 0,
        }
    }

    /// Where `key`, which led here, leaves a leaf's own bits from `floor` on. It agrees only if it is the leaf's key.
    pub fn leaf_parting(&self, tail: Tail, floor: u32, key: &[u8]) -> Parting {
        leaf_parting(self.tail(tail, floor), floor, usize::from(tail.start) + usize::from(tail.len), key)
    }
}

/// Where `key` leaves a leaf's tail, which starts at byte `floor / 8` of the `len` bytes of the leaf's key.
#[inline(always)]
pub fn leaf_parting(tail: &[u8], floor: u32, len: usize, key: &[u8]) -> Parting {
    match parting(tail, floor, 8 * len as u32, key) {
        Parting::Ends if len == key.len() => Parting::Agrees,
        Parting::Agrees => Parting::Ends,
        other => other,
    }
}

/// Compares bits `floor` to `end - 1`, which `own` holds from byte `floor / 8` on, with those of `key`.
#[inline(always)]
pub fn parting(own: &[u8], floor: u32, end: u32, key: &[u8]) -> Parting {
    if let Some((&first, rest)) = own.split_first() {
        let from = (floor / 8) as usize;
        let theirs = key.get(from..).unwrap_or_default();
        let Some((&their_first, their_rest)) = theirs.split_first() else {
            return Parting::Ends;
        };
        // The last byte may hold stray bits behind the end; a byte that is whole has none.
        let last = if end.is_multiple_of(8) { 0xff } else { top_bits(end % 8) };
        let x = (first ^ their_first) & !top_bits(floor % 8) & if rest.is_empty() { last } else { 0xff };
        if x != 0 {
            return Parting::At(8 * from as u32 + x.leading_zeros());
        }
        if let Some((&ours, whole)) = rest.split_last() {
            let n = common(whole, their_rest);
            let x = match (whole.get(n), their_rest.get(n)) {
                (_, None) => return Parting::Ends,
                (Some(ours), Some(theirs)) => ours ^ theirs,
                (None, Some(theirs)) => (ours ^ theirs) & last,
            };
            if x != 0 {
                return Parting::At(8 * (from + 1 + n) as u32 + x.leading_zeros());
            }
        }
    }
    if end as usize >= 8 * key.len() { Parting::Ends } else { Parting::Agrees }
}

/// The path from the top to a node: bits before the node's `floor` are right, what follows is left over.
#[derive(Debug, Default)]
pub struct PathBuffer(pub Vec<u8>);

impl PathBuffer {
    #[inline]
    fn reach(&mut self, bytes: usize) {
        if self.0.len() < bytes {
            self.0.resize(bytes, 0);
        }
    }

    /// Puts in `own`, the bits from `floor` on, which start at byte `floor / 8`.
    #[inline]
    pub fn put(&mut self, floor: u32, own: &[u8]) {
        self.reach((floor / 8) as usize + own.len());
        path::put(&mut self.0, floor, own);
    }

    /// Puts in the one bit that leads to a child.
    #[inline]
    pub fn turn(&mut self, bit: u32, side: Side) {
        self.reach((bit / 8) as usize + 1);
        path::turn(&mut self.0, bit, side == Side::Right);
    }
}
