//! The leaves of checked trees, as lines that a client sends instead of the nodes.

use coregw_core::internals::block::Block;
use coregw_core::{Cid, Error, Kind, Result, RootCid};

use super::blocks::changed;
use super::check::WholeTrees;
use crate::json;
use crate::run::Slot;

/// Bytes of lines at once, about.
const LINES_BYTES: usize = 256 << 10;

/// Lists the leaves below a node, which is the top of a tree, from left to right. O(leaves).
///
/// # Errors
/// [`Error::Damaged`] if the bytes of the CAR are not those that were checked.
pub(super) async fn list(slot: &Slot, trees: &mut WholeTrees, top: u32) -> Result<()> {
    let root = trees.root(top);
    let mut lines = Vec::new();
    let mut rest = vec![top];
    while let Some(at) = rest.pop() {
        let block = trees.blocks.get(&trees.index.nodes[at as usize]).await?;
        match block {
            Block::Empty => {}
            Block::Leaf { key, target, .. } if root.kind == Kind::Map => json::write_line(key, target, &mut lines)?,
            Block::Leaf { measure, target, .. } => write_element(measure, target, &mut lines)?,
            Block::Inner { children, .. } => {
                for sum in children.iter().rev() {
                    let child = RootCid { digest: sum.digest, ..root };
                    rest.push(trees.index.node(&child).ok_or_else(changed)?);
                }
            }
        }
        if lines.len() >= LINES_BYTES {
            slot.leaves(root, std::mem::take(&mut lines)).await;
        }
    }
    slot.leaves(root, lines).await;
    Ok(())
}

/// Appends the line of an element.
fn write_element(measure: u64, target: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let damaged = |why: &dyn std::fmt::Display| Error::damaged(format!("an element of a list: {why}"));
    let target = Cid::try_bytes(target).map_err(|why| damaged(&why))?.text();
    serde_json::to_writer(&mut *out, &(target, measure)).map_err(|error| damaged(&error))?;
    out.push(b'\n');
    Ok(())
}
