//! What a partial tree knows of pages that it does not hold any more, and of loads that it will undo.

use crate::id::suite::Digest;
use crate::tree::arena::{Arena, Node, NodeId};

/// The memory for pages that a change holds, in bytes.
const MAX_HELD_BYTES: usize = 8 << 20;

/// The pages that a partial tree has released, and the size of those that it holds.
pub(crate) struct Released {
    /// When the pages that are held take more bytes than this, they are released.
    pub(crate) max_held_bytes: usize,
    /// Digests of released pages, and the number under which a page is held again.
    pub(crate) pages: Vec<(Digest, Option<u32>)>,
    /// The released pages that are held again.
    pub(crate) regained: Vec<u32>,
    /// Nodes before this one refer to no page that is held, unless they are copied from it.
    pub(crate) scanned: usize,
    /// The size in memory of the pages that are held.
    pub(crate) held_bytes: usize,
}

impl Default for Released {
    fn default() -> Self {
        let (pages, regained) = (Vec::new(), Vec::new());
        Self { max_held_bytes: MAX_HELD_BYTES, pages, regained, scanned: 0, held_bytes: 0 }
    }
}

/// How to undo what was loaded since some moment.
#[derive(Default)]
pub(crate) struct Undo {
    /// Nodes that were there then, as they were, with their measures.
    pub(crate) before: Vec<(NodeId, Node, u64)>,
    /// The number of nodes, bytes and pages then, and the size of the pages. No nodes: nothing is recorded.
    pub(crate) nodes: usize,
    pub(crate) bytes: usize,
    pub(crate) pages: usize,
    pub(crate) held_bytes: usize,
}

impl Undo {
    /// Records a node that is about to be loaded.
    #[inline]
    pub(crate) fn note(&mut self, id: NodeId, arena: &Arena) {
        if (id.0 as usize) < self.nodes {
            self.before.push((id, *arena.node(id), arena.measure(id)));
        }
    }
}
