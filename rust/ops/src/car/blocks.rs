//! The blocks of an imported CAR, read again from where the caller keeps its bytes.

use std::sync::Arc;

use coregw_core::internals::block::Block;
use coregw_core::{Cid, Error, Result};

use super::index::NodeRecord;
use crate::run::Slot;

/// Bytes to request at once: blocks that are read in succession are mostly adjacent.
const SPAN_BYTES: u64 = 16 << 10;

/// Access to the blocks of tree nodes.
pub(super) struct Blocks {
    slot: Arc<Slot>,
    /// Where `bytes` starts in the CAR.
    start: u64,
    bytes: Vec<u8>,
}

impl Blocks {
    pub(super) fn new(slot: Arc<Slot>) -> Self {
        Self { slot, start: 0, bytes: Vec::new() }
    }

    /// The block of a node.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the bytes are not those that were read before.
    pub(super) async fn get(&mut self, record: &NodeRecord) -> Result<Block<'_>> {
        if self.loaded(record).is_none() {
            self.start = record.offset;
            self.bytes = self.slot.bytes(record.offset..record.offset + SPAN_BYTES).await;
        }
        let root = record.root();
        let parse = |bytes| {
            let (cid, block) = Cid::split(bytes).ok()?;
            if cid == root.cid() { Block::read(root.kind, block).ok() } else { None }
        };
        self.loaded(record).and_then(parse).ok_or_else(changed)
    }

    fn loaded(&self, record: &NodeRecord) -> Option<&[u8]> {
        let at = usize::try_from(record.offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(at..)?.get(..usize::from(record.len))
    }
}

/// The error for a CAR whose bytes differ when they are read again.
pub(super) fn changed() -> Error {
    Error::damaged("the CAR changed while it was read")
}
