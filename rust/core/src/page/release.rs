//! What a partial tree does without the pages that its nodes were copied from, so that a long change holds few at a time.
//!
//! ```text
//! holding a page                              after its release
//!   ●  Inner, copied                            ●  Inner, copied
//!  ╱ ╲                                         ╱ ╲
//! ●   ○  Remote: on the page                  ●   ○  Released: summary, extent, and the digest of the page
//!     ▢  Remote: a stub of the page               ▢  Stub
//! ```
//!
//! What a change visits stays in memory: it is what the proof shows.

use std::sync::Arc;

use crate::id::suite::Digest;
use crate::interrupt::Attempt;
use crate::page::format::Page;
use crate::page::held::{Released, Undo};
use crate::page::partial::PartialTree;
use crate::tree::arena::{NodeId, State};

impl PartialTree {
    /// Keeps a page, and returns its number.
    pub(crate) fn hold(&mut self, page: Arc<Page>) -> u32 {
        self.released.held_bytes += page.memory();
        self.pages.push(page);
        self.pages.len() as u32 - 1
    }

    /// Whether the pages that are held take more memory than a change may hold.
    pub(crate) fn holds_too_much(&self) -> bool {
        self.released.held_bytes > self.released.max_held_bytes && self.may_lack_pages()
    }

    /// Releases the pages that are held and those that were supplied, if they take too much memory. O(nodes added since the
    /// last release).
    pub(crate) fn release_pages(&mut self) {
        if !self.holds_too_much() {
            return;
        }
        let first = self.released.pages.len() as u32;
        for id in (self.released.scanned as u32..self.arena.nodes.len() as u32).map(NodeId) {
            let State::Remote { page, node: there } = self.state(id) else {
                continue;
            };
            let arena = &self.pages[page as usize].arena;
            let (source, extent) = (arena.node(there), arena.extent(there));
            self.arena.set_sum(id, &arena.sum(there));
            let node = self.arena.node_mut(id);
            (node.height, node.weight) = (source.height, source.weight);
            node.state = match source.state {
                State::Stub { .. } => State::Stub { extent, ordinal: 0 },
                _ => State::Released { page: first + page, node: there, extent },
            };
        }
        self.forget_regained(0);
        self.released.pages.extend(self.pages.drain(..).map(|page| (page.digest(), None)));
        self.released.scanned = self.arena.nodes.len();
        self.released.held_bytes = 0;
        self.supply.clear();
    }

    /// Holds a released page again, and returns its number.
    pub(crate) fn regain(&mut self, released: u32) -> Attempt<u32> {
        let (digest, held) = self.released.pages[released as usize];
        if let Some(number) = held {
            return Ok(number);
        }
        let page = self.page_at(&digest, None)?;
        let number = self.hold(page);
        self.released.pages[released as usize].1 = Some(number);
        self.released.regained.push(released);
        Ok(number)
    }

    /// The page that has to be held before a node of it can be copied; None if it is held.
    pub(crate) fn released_page(&self, released: u32) -> Option<Digest> {
        let (digest, held) = self.released.pages[released as usize];
        held.is_none().then_some(digest)
    }

    /// Forgets which released pages are held again, from this number of pages on.
    fn forget_regained(&mut self, first: usize) {
        let Released { pages, regained, .. } = &mut self.released;
        regained.retain(|&released| {
            let held = &mut pages[released as usize].1;
            *held = held.filter(|&number| (number as usize) < first);
            held.is_some()
        });
    }

    /// Starts to record what is loaded, for [`PartialTree::undo_loads`]. Continues if it is recorded already.
    pub(crate) fn record_loads(&mut self) {
        if self.undo.nodes == 0 {
            self.undo.nodes = self.arena.nodes.len();
            self.undo.bytes = self.arena.bytes.len();
            self.undo.pages = self.pages.len();
            self.undo.held_bytes = self.released.held_bytes;
        }
    }

    /// Makes the tree what it was before the loads that were recorded.
    pub(crate) fn undo_loads(&mut self) {
        let Undo { before, nodes, bytes, pages, held_bytes } = std::mem::take(&mut self.undo);
        for (id, node, measure) in before.into_iter().rev() {
            self.arena.replace(id, node, measure);
        }
        self.arena.truncate(nodes, bytes);
        self.forget_regained(pages);
        self.pages.truncate(pages);
        self.released.held_bytes = held_bytes;
    }
}

#[cfg(test)]
#[path = "../../tests/unit/page_release.rs"]
mod tests;
