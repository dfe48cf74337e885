//! Check that the nodes of a CAR form complete trees: what each records of its children is compared with the children.
//!
//! A map's nodes contain all bits of their path, and a list's shape follows from its counts, so a tree is right if each
//! node fits its parent. Children are visited once for each node, however often it is referenced: a few blocks can
//! represent a list of 2^50 elements. On the way back up, the page cuts are noted; they depend only on what is below.

use std::sync::Arc;

use coregw_core::internals::arena::{Node, PathBuffer, Side, State};
use coregw_core::internals::block::Block;
use coregw_core::internals::cut::{self, Child};
use coregw_core::internals::node::Summary;
use coregw_core::internals::same_bits;
use coregw_core::{Cid, Error, Kind, Result, RootCid};

use super::blocks::Blocks;
use super::index::{CHECKED, FOUND, Index, NodeRecord};
use crate::run::Slot;

/// The complete trees of a CAR.
pub(super) struct WholeTrees {
    pub(super) blocks: Blocks,
    pub(super) index: Index,
    /// The roots of the header, then those nested in them whose top node is here, each once.
    pub(super) found: Vec<u32>,
    /// Leaves whose payload is not here.
    pub(super) missing_payloads: u64,
    /// Leaves whose target is a root, but not one of `found`.
    pub(super) missing_roots: u64,
}

impl WholeTrees {
    /// The roots that were found.
    pub(super) fn roots(&self) -> impl ExactSizeIterator<Item = RootCid> + '_ {
        self.found.iter().map(|&at| self.root(at))
    }

    /// The root of a tree whose top node this is.
    pub(super) fn root(&self, top: u32) -> RootCid {
        self.index.nodes[top as usize].root()
    }

    fn find(&mut self, at: u32) {
        let record = &mut self.index.nodes[at as usize];
        if !record.has(FOUND) {
            record.flags |= FOUND;
            self.found.push(at);
        }
    }
}

/// Checks that the blocks have all of `roots`, and the trees of those that are maps or lists and of the roots nested in
/// them.
///
/// # Errors
/// [`Error::Input`], naming the block at which a tree is wrong or incomplete, or which belongs to none.
pub(super) async fn check(slot: Arc<Slot>, roots: &[Cid], index: Index) -> Result<WholeTrees> {
    let mut trees =
        WholeTrees { blocks: Blocks::new(slot), index, found: Vec::new(), missing_payloads: 0, missing_roots: 0 };
    for (i, cid) in roots.iter().enumerate() {
        let is_there = match cid.root() {
            Some(root) => trees.index.node(&root).map(|at| trees.find(at)).is_some(),
            None => cid.identity().is_some() || trees.index.has_payload(cid),
        };
        if !is_there {
            return Err(Error::request(format!("root {i}, {cid}, is not among the blocks")));
        }
    }
    let mut walk = Walk { trees, path: PathBuffer::default() };
    let mut begun = 0;
    while let Some(&top) = walk.trees.found.get(begun) {
        walk.check_tree(top).await?;
        begun += 1;
    }
    let unchecked = walk.trees.index.nodes.iter().filter(|record| !record.has(CHECKED));
    match unchecked.min_by_key(|record| record.number) {
        None => Ok(walk.trees),
        Some(stray) => Err(Error::request(format!("{}: it is not reachable from any root", stray.place()))),
    }
}

/// An inner node whose children are being checked.
struct OpenNode {
    at: u32,
    bit: u32,
    children: [Summary; 2],
}

struct Walk {
    trees: WholeTrees,
    /// The path to the node that is being checked; of a map only.
    path: PathBuffer,
}

impl Walk {
    async fn check_tree(&mut self, top: u32) -> Result<()> {
        // Open nodes, each with the number of its children that were visited.
        let mut open: Vec<(OpenNode, usize)> = self.enter(top, None).await?.map(|node| (node, 0)).into_iter().collect();
        while let Some((node, visited)) = open.last_mut() {
            let side = match visited {
                0 => Side::Left,
                1 => Side::Right,
                _ => {
                    self.close(node);
                    open.pop();
                    continue;
                }
            };
            let sum = node.children[*visited];
            *visited += 1;
            let at = self.child(node, side, &sum)?;
            let inner = self.enter(at, Some((node.bit, &sum))).await?;
            open.extend(inner.map(|node| (node, 0)));
        }
        Ok(())
    }

    /// Finds a child of an open node, and extends the path to it.
    fn child(&mut self, parent: &OpenNode, side: Side, sum: &Summary) -> Result<u32> {
        let record = &self.trees.index.nodes[parent.at as usize];
        let root = RootCid { digest: sum.digest, ..record.root() };
        if root.kind == Kind::Map {
            self.path.turn(parent.bit, side);
        }
        self.trees.index.node(&root).ok_or_else(|| {
            let side = if side == Side::Left { "left" } else { "right" };
            Error::request(format!("{}: its {side} child, {root}, is not among the blocks", record.place()))
        })
    }

    /// Checks a node against its parent's branching bit and the summary that the parent records of it. Returns the node
    /// if its children have to be visited.
    async fn enter(&mut self, at: u32, parent: Option<(u32, &Summary)>) -> Result<Option<OpenNode>> {
        let trees = &mut self.trees;
        let record = &mut trees.index.nodes[at as usize];
        let kind = record.root().kind;
        let block = trees.blocks.get(record).await?;
        let (own, extent) = block.own();
        if let Some((bit, sum)) = parent {
            check_child(record, &block, &self.path, bit, sum)?;
        }
        if record.has(CHECKED) {
            return Ok(None);
        }
        record.extent = if kind == Kind::Map { extent } else { 0 };
        let target = match block {
            Block::Inner { bit, children, .. } => {
                self.path.put(0, own);
                return Ok(Some(OpenNode { at, bit, children }));
            }
            Block::Leaf { measure, target, .. } => {
                record.weight = cut::leaf_weight(kind, measure, target.len());
                Some(Cid::trusted(target))
            }
            Block::Empty => None,
        };
        record.flags |= CHECKED;
        if let Some(target) = target {
            self.note_target(&target);
        }
        Ok(None)
    }

    fn note_target(&mut self, target: &Cid) {
        match target.root() {
            Some(nested) => match self.trees.index.node(&nested) {
                Some(top) => self.trees.find(top),
                None => self.trees.missing_roots += 1,
            },
            // An identity CID contains its payload.
            None if target.identity().is_some() || self.trees.index.has_payload(target) => {}
            None => self.trees.missing_payloads += 1,
        }
    }

    /// Notes, for an inner node whose children are checked, which of them stay in its page.
    fn close(&mut self, open: &OpenNode) {
        let index = &mut self.trees.index;
        let root = index.nodes[open.at as usize].root();
        let children = open.children.map(|sum| {
            let record = index.node(&RootCid { digest: sum.digest, ..root }).map(|at| index.nodes[at as usize]);
            let mut node = Node::new(&sum, State::Empty);
            (node.height, node.weight) = record.map_or((0, 0), |record| (record.height, record.weight));
            Child::of(&node, sum.measure, root.kind, open.bit + 1, record.map_or(0, |record| record.extent))
        });
        let mut node = Node::new(&Summary::UNKNOWN, State::Empty);
        cut::apply(&mut node, children);
        let record = &mut index.nodes[open.at as usize];
        (record.height, record.weight) = (node.height, node.weight);
        record.flags |= CHECKED | node.flags;
    }
}

/// Checks a node against what its parent, which branches at this bit, records of it.
fn check_child(record: &NodeRecord, block: &Block<'_>, path: &PathBuffer, bit: u32, sum: &Summary) -> Result<()> {
    if block.amounts() != (sum.count, sum.measure) {
        return Err(Error::request(format!(
            "{}: its count or measure differs from what its parent records",
            record.place()
        )));
    }
    let (own, extent) = block.own();
    if record.root().kind == Kind::Map && (extent <= bit || !same_bits(own, &path.0, bit + 1)) {
        return Err(Error::request(format!("{}: its keys do not belong below its parent", record.place())));
    }
    Ok(())
}
