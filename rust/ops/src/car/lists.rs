//! A CAR of lists that are in memory, as a client sends them.

use coregw_core::internals::arena::{NodeId, State};
use coregw_core::{Error, Kind, Result, RootCid, Snapshot};

use super::format::{block_head, car_header};

/// The CAR whose roots are these lists, with the nodes of their trees. O(nodes).
///
/// # Errors
/// [`Error::Input`] if one of them is a map.
pub fn lists_car(lists: &[Snapshot]) -> Result<Vec<u8>> {
    let roots: Vec<_> = lists.iter().map(|list| list.root().cid()).collect();
    let mut out = car_header(&roots);
    let mut block = Vec::new();
    for list in lists {
        let root = list.root();
        if root.kind != Kind::List {
            return Err(Error::request(format!("{root} is not a list")));
        }
        for page in list.pages() {
            for (id, node) in (0..).map(NodeId).zip(&page.arena.nodes) {
                match node.state {
                    // Its node is in another page.
                    State::Stub { .. } => continue,
                    State::Remote { .. } | State::Released { .. } => {
                        return Err(Error::damaged("a tree in memory lacks a page"));
                    }
                    State::Leaf { .. } | State::Inner { .. } | State::Empty => {}
                }
                block.clear();
                page.write_block(id, &[], &mut block);
                let name = RootCid { digest: node.digest, ..root }.cid();
                out.extend_from_slice(&block_head(&name, block.len() as u64));
                out.extend_from_slice(&block);
            }
        }
    }
    Ok(out)
}
