//! Where a tree is cut into pages: height first, from the bottom up.
//!
//! A node's *height* is the number of page levels below its page. Let `h` be the larger height of its two children:
//!
//! ```text
//!      ●  height h            if everything fits in PAGE_LIMIT, children of height h stay in the node's page
//!     ╱ ╲
//!    ●   ▢  cut: lower        children of a lower height are cut off, unless they are tiny and fit
//!
//!      ●  height h + 1        otherwise children of height h are cut off too
//!     ╱ ╲
//!    ▢   ▢
//! ```
//!
//! The cut depends on the subtree alone, so equal subtrees have equal pages.

use crate::bits::own_len;
use crate::id::cid::Kind;
use crate::id::varint;
use crate::tree::arena::{Arena, KEEP_LEFT, KEEP_RIGHT, Node, NodeId, State};

/// The maximum size of a page in bytes, without the label of its top node.
pub const PAGE_LIMIT: u32 = 8192;
/// Children of a lower height that take fewer bytes may stay.
const TINY: u32 = 200;
/// The maximum length of the tag and the varint before a label or tail. A constant keeps the rule simple.
const HEAD: u32 = 4;

/// What the rule needs to know of a child.
#[derive(Debug, Clone, Copy)]
pub struct Child {
    height: u8,
    weight: u16,
    extent: u32,
    count: u64,
    /// Bytes that its measure takes, in a list.
    measure_len: u8,
    /// Bytes that it takes in the parent's page if it stays.
    kept: u32,
}

impl Child {
    /// Describes a child; `floor` is its parent's `bit + 1`, and `extent` the number of path bits that it determines.
    pub fn of(node: &Node, measure: u64, kind: Kind, floor: u32, extent: u32) -> Self {
        let own = match kind {
            Kind::Map => own_len(floor, extent),
            Kind::List => 0,
        };
        let measure_len = match kind {
            Kind::Map => 0,
            Kind::List => varint::len(measure) as u8,
        };
        let kept = HEAD + own + u32::from(node.weight);
        Self { height: node.height, weight: node.weight, extent, count: node.count, measure_len, kept }
    }

    /// Bytes of its own label or tail, without those above its floor.
    pub fn own_bytes(&self) -> u32 {
        self.kept - HEAD - u32::from(self.weight)
    }

    /// Bytes of its stub if it is cut off. Most children stay, so it is computed where it is needed.
    fn cut(&self) -> u32 {
        let noted = varint::len(self.height.into()) + varint::len(self.weight.into()) + varint::len(self.extent.into());
        (1 + varint::len(self.count) + usize::from(self.measure_len) + 32 + noted) as u32
    }
}

/// The decision for a node.
struct Decision {
    keep: [bool; 2],
    height: u8,
    weight: u32,
}

fn decide(children: [Child; 2]) -> Decision {
    let height = children[0].height.max(children[1].height);
    let weigh = |keep: [bool; 2]| -> u32 {
        children.iter().zip(keep).map(|(child, keep)| if keep { child.kept } else { child.cut() }).sum()
    };
    let high = children.map(|child| child.height == height);
    let tiny = children.map(|child| child.kept < TINY);
    let plans = [
        ([high[0] || tiny[0], high[1] || tiny[1]], height),
        (high, height),
        (tiny, height.saturating_add(1)),
        ([tiny[0], false], height.saturating_add(1)),
    ];
    for (keep, height) in plans {
        let weight = weigh(keep);
        if weight <= PAGE_LIMIT {
            return Decision { keep, height, weight };
        }
    }
    Decision { keep: [false; 2], height: height.saturating_add(1), weight: weigh([false; 2]) }
}

/// The weight of a leaf whose target has this length.
pub fn leaf_weight(kind: Kind, measure: u64, target_len: usize) -> u16 {
    let measure = match kind {
        Kind::Map => 0,
        Kind::List => varint::len(measure),
    };
    (measure + 1 + target_len) as u16
}

/// Decides which children stay in the page of a fresh inner node, and records it in the node.
pub fn apply(node: &mut Node, children: [Child; 2]) {
    let decision = decide(children);
    node.height = decision.height;
    node.weight = decision.weight as u16;
    node.flags &= !(KEEP_LEFT | KEEP_RIGHT);
    node.flags |= if decision.keep[0] { KEEP_LEFT } else { 0 } | if decision.keep[1] { KEEP_RIGHT } else { 0 };
}

/// Computes height and weight of a leaf, or of an inner node of a page, whose children show what was cut.
pub fn measure(arena: &mut Arena, kind: Kind, id: NodeId) {
    let State::Inner { bit, left, right, .. } = arena.node(id).state else {
        arena.node_mut(id).weight = leaf_weight(kind, arena.measure(id), arena.target(id).len());
        return;
    };
    let ids = [left, right];
    let children = ids.map(|id| Child::of(arena.node(id), arena.measure(id), kind, bit + 1, arena.extent(id)));
    let keep = ids.map(|id| !matches!(arena.node(id).state, State::Stub { .. }));
    let high = children[0].height.max(children[1].height);
    let raised = children.iter().zip(keep).any(|(child, keep)| child.height == high && !keep);
    let weight: u32 = children.iter().zip(keep).map(|(child, keep)| if keep { child.kept } else { child.cut() }).sum();
    let node = arena.node_mut(id);
    node.height = high.saturating_add(u8::from(raised));
    node.weight = weight.min(u32::from(u16::MAX)) as u16;
}

#[cfg(test)]
#[path = "../../tests/unit/tree_cut.rs"]
mod tests;
