//! Lists that are to be sent after their chunks.

use std::collections::VecDeque;

use super::super::contents::Chunk;

/// Chunks of lists that wait to be sent, beyond which they are sent before all files are read.
const MAX_CHUNKS: usize = 1 << 16;
/// Lists that are sent at once: readers of CARs accept headers with 1,400 roots.
const LISTS_AT_ONCE: usize = 500;

/// The lists that wait, in the order in which their files were read.
#[derive(Default)]
pub(super) struct WaitingLists {
    /// The chunks of each, and the number of the last batch that may have one of them.
    lists: VecDeque<(Vec<Chunk>, u64)>,
    chunks: usize,
}

impl WaitingLists {
    /// Adds a list. Its chunks are in batches up to the one of this number.
    pub(super) fn push(&mut self, chunks: Vec<Chunk>, batch: u64) {
        self.chunks += chunks.len();
        self.lists.push_back((chunks, batch));
    }

    /// Takes the next lists whose chunks are in batches before `acknowledged`; none while there are few. If `all`, it
    /// does not matter how many there are, and all chunks are acknowledged.
    pub(super) fn take(&mut self, acknowledged: u64, all: bool) -> Vec<Vec<Chunk>> {
        let mut taken = Vec::new();
        let is_due = all || self.chunks > MAX_CHUNKS;
        while is_due && taken.len() < LISTS_AT_ONCE {
            let is_next = self.lists.front().is_some_and(|(_, batch)| all || *batch < acknowledged);
            let Some((chunks, _)) = is_next.then(|| self.lists.pop_front()).flatten() else { break };
            self.chunks -= chunks.len();
            taken.push(chunks);
        }
        taken
    }
}
