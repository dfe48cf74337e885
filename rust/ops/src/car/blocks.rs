//! The blocks of an imported CAR, read again from where the caller keeps its bytes.

use std::sync::Arc;

use coregw_core::internals::block::Block;
use coregw_core::{Cid, Error, Result};

use super::index::NodeRecord;
use crate::run::Slot;

/// The limit on the bytes that are requested at once, unless a block is longer.
const MAX_SPAN_BYTES: u64 = 16 << 10;
/// How many times the bytes of the blocks that were used last are requested with the next block.
const READ_AHEAD: u64 = 4;

/// Access to the blocks of tree nodes.
///
/// Blocks that are read in succession are mostly adjacent, but a CAR may have them in any order: what is read ahead is in
/// proportion to what was used.
pub(super) struct Blocks {
    slot: Arc<Slot>,
    /// Where `bytes` starts in the CAR.
    start: u64,
    bytes: Vec<u8>,
    /// Where the last block ends.
    last: u64,
    /// Bytes of blocks that were used of `bytes`.
    used: u64,
}

impl Blocks {
    pub(super) fn new(slot: Arc<Slot>) -> Self {
        Self { slot, start: 0, bytes: Vec::new(), last: 0, used: 0 }
    }

    /// The block of a node.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the bytes are not those that were read before.
    pub(super) async fn get(&mut self, record: &NodeRecord) -> Result<Block<'_>> {
        if self.loaded(record).is_none() {
            let span = self.span(record);
            self.start = record.offset;
            self.bytes = self.slot.bytes(record.offset..record.offset + span).await;
            self.used = 0;
        }
        self.last = record.offset + u64::from(record.len);
        self.used += u64::from(record.len);
        let root = record.root();
        let parse = |bytes| {
            let (cid, block) = Cid::split(bytes).ok()?;
            if cid == root.cid() { Block::read(root.kind, block).ok() } else { None }
        };
        self.loaded(record).and_then(parse).ok_or_else(changed)
    }

    /// The bytes to request of a block that is not loaded, and after it if the last one came shortly before.
    fn span(&self, record: &NodeRecord) -> u64 {
        let (len, ahead) = (u64::from(record.len), READ_AHEAD * self.used);
        let is_next = record.offset.checked_sub(self.last).is_some_and(|gap| gap <= ahead);
        if is_next { ahead.min(MAX_SPAN_BYTES).max(len) } else { len }
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
