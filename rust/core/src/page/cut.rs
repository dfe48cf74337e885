//! Where a tree is cut into pages: height first, from the bottom up.
//!
//! The rule for a node with children of heights a and b, h the larger: children of height h stay in the node's page
//! if all fits in [`PAGE_LIMIT`]; else they are cut off and the node has height h + 1. A child of a lower height is
//! cut, unless it is tiny and fits. So the cut depends on the subtree alone, and equal subtrees are equal pages.

use crate::id::cid::Kind;
use crate::id::varint;
use crate::tree::arena::{Arena, KEEP_LEFT, KEEP_RIGHT, Node, NodeId, State};

/// The most that hangs on the top of a page, in bytes; the top's own label comes on top of it.
pub const PAGE_LIMIT: u32 = 8192;
/// Below this, in bytes, a child of a lower height may stay.
const TINY: u32 = 200;
/// Tag and number in front of a label or tail, at their longest. A fixed figure keeps the rule simple.
const HEAD: u32 = 4;

/// What the rule looks at in a child.
#[derive(Debug, Clone, Copy)]
pub struct Child {
    height: u8,
    /// Bytes in the parent's page if it stays.
    kept: u32,
    /// Bytes of its stub if it is cut.
    cut: u32,
}

/// Bytes of a label or tail that holds bits `floor` to `extent - 1`.
fn label_len(floor: u32, extent: u32) -> u32 {
    if extent <= floor { 0 } else { extent.div_ceil(8) - floor / 8 }
}

impl Child {
    /// `floor` is the parent's `bit + 1`; `extent` is the bits that the child says by itself.
    pub fn of(node: &Node, kind: Kind, floor: u32, extent: u32) -> Self {
        let own = match kind {
            Kind::Map => label_len(floor, extent),
            Kind::List => 0,
        };
        let measure = match kind {
            Kind::Map => 0,
            Kind::List => varint::len(node.sum.measure),
        };
        let noted = varint::len(node.height.into()) + varint::len(node.weight.into()) + varint::len(extent.into());
        let cut = 1 + varint::len(node.sum.count) + measure + 32 + noted;
        Self { height: node.height, kept: HEAD + own + u32::from(node.weight), cut: cut as u32 }
    }
}

/// What the rule decides for a node.
struct Decision {
    keep: [bool; 2],
    height: u8,
    weight: u32,
}

fn decide(children: [Child; 2]) -> Decision {
    let height = children[0].height.max(children[1].height);
    let weigh = |keep: [bool; 2]| -> u32 {
        children.iter().zip(keep).map(|(child, keep)| if keep { child.kept } else { child.cut }).sum()
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

/// The weight of a leaf with a target of that length.
pub fn leaf_weight(kind: Kind, measure: u64, target_len: usize) -> u16 {
    let measure = match kind {
        Kind::Map => 0,
        Kind::List => varint::len(measure),
    };
    (measure + 1 + target_len) as u16
}

/// Decides what stays with a fresh inner node, whose children are decided, and notes it there.
pub fn apply(node: &mut Node, children: [Child; 2]) {
    let decision = decide(children);
    node.height = decision.height;
    node.weight = decision.weight as u16;
    node.flags &= !(KEEP_LEFT | KEEP_RIGHT);
    node.flags |= if decision.keep[0] { KEEP_LEFT } else { 0 } | if decision.keep[1] { KEEP_RIGHT } else { 0 };
}

/// Notes height and weight of a leaf, or of a node read from a page, where what stays with it can be seen.
pub fn note(arena: &mut Arena, kind: Kind, id: NodeId) {
    let State::Inner { bit, left, right, .. } = arena.node(id).state else {
        arena.node_mut(id).weight = leaf_weight(kind, arena.node(id).sum.measure, arena.target(id).len());
        return;
    };
    let ids = [left, right];
    let children = ids.map(|id| Child::of(arena.node(id), kind, bit + 1, arena.extent(id)));
    let keep = ids.map(|id| !matches!(arena.node(id).state, State::Stub { .. }));
    let high = children[0].height.max(children[1].height);
    let raised = children.iter().zip(keep).any(|(child, keep)| child.height == high && !keep);
    let weight: u32 = children.iter().zip(keep).map(|(child, keep)| if keep { child.kept } else { child.cut }).sum();
    let node = arena.node_mut(id);
    node.height = high.saturating_add(u8::from(raised));
    node.weight = weight.min(u32::from(u16::MAX)) as u16;
}
