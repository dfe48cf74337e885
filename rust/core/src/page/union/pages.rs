//! The pages of a union of descents, and the steps that scouts take on them ahead of the visits.

use std::collections::BTreeSet;
use std::ops::Deref;

use coregw_lanes::prefetch;

use crate::bits;
use crate::id::cid::Kind;
use crate::id::suite::{Digest, Suite};
use crate::interrupt::{Attempt, Failure, Interrupt};
use crate::page::format::Page;
use crate::page::path::{Finder, OnPage};
use crate::tree::arena::{Node, State};

/// The rounds that the head of another page takes to be loaded: its address was not translated before.
const FAR: u8 = 2;

/// A node on the way to a key, ahead of the visits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scout<'k> {
    /// The key that it goes ahead to.
    pub(super) key: &'k [u8],
    pub(super) id: OnPage,
    /// The number of rounds since the page that its node, a stub, stands for was prefetched; 0 before.
    pub(super) rounds: u8,
}

/// The pages of a union, numbered as they were found.
pub(super) struct Pages<P, F> {
    pub(super) suite: Suite,
    pub(super) top: Digest,
    pub(super) finder: F,
    pub(super) list: Vec<P>,
    /// Stubs and the numbers of their pages, found on the approach and not visited yet. None: the page is missing.
    pub(super) found: Vec<(OnPage, Option<u32>)>,
}

impl<P: Deref<Target = Page>, F: Finder<P>> Pages<P, F> {
    /// Finds the node itself: if it is a stub of its page, or the top, the first node of the page that this stands for.
    #[inline(always)]
    pub(super) fn resolve(&mut self, id: OnPage) -> Attempt<OnPage> {
        let is_on_page = self.list.get(id.page as usize).is_some_and(|page| !is_stub(&page.arena.node(id.node).state));
        if is_on_page {
            return Ok(id);
        }
        let page = match self.found.iter().position(|(stub, _)| *stub == id) {
            Some(at) => match self.found.swap_remove(at).1 {
                Some(page) => page,
                None => return Err(Interrupt::Pages(BTreeSet::from([*link(&self.list, &self.top, id).1]))),
            },
            None => self.find(id)?,
        };
        Ok(OnPage { page, node: Page::TOP })
    }

    /// Takes a step towards the key: prefetches what the visits of the node and of its child will read. Returns false at
    /// the end of the way.
    #[inline(always)]
    pub(super) fn go_ahead(&mut self, scout: &mut Scout<'_>) -> bool {
        let Some(page) = self.list.get(scout.id.page as usize) else {
            return self.find_ahead(scout);
        };
        let arena = &page.arena;
        match arena.node(scout.id.node).state {
            State::Inner { bit, left, right, .. } => {
                let [next, sibling] = if bits::bit(scout.key, bit) { [right, left] } else { [left, right] };
                prefetch(arena.node(next));
                prefetch(arena.node(sibling));
                scout.id.node = next;
                true
            }
            State::Stub { ordinal, .. } if scout.rounds < FAR => {
                if scout.rounds == 0 {
                    page.prefetch_below(ordinal);
                }
                scout.rounds += 1;
                true
            }
            State::Stub { .. } => self.find_ahead(scout),
            State::Leaf { tail, target, target_len } => {
                // In a page that was read, the target follows the tail: all lines of a tail that is not longer than one.
                arena.prefetch_bytes(tail.offset);
                arena.prefetch_bytes(target);
                arena.prefetch_bytes(target + u32::from(target_len.saturating_sub(1)));
                false
            }
            _ => false,
        }
    }

    /// Finds the page that a stub stands for, and keeps it for the visit. Returns false if the page is missing.
    fn find_ahead(&mut self, scout: &mut Scout<'_>) -> bool {
        let page = match self.found.iter().find(|(id, _)| *id == scout.id) {
            Some((_, page)) => *page,
            None => {
                let page = match self.find(scout.id) {
                    Ok(page) => Some(page),
                    Err(Interrupt::Pages(_)) => None,
                    Err(_) => return false, // the visit finds the same
                };
                self.found.push((scout.id, page));
                page
            }
        };
        let Some(page) = page else {
            return false;
        };
        prefetch(self.list[page as usize].arena.node(Page::TOP));
        (scout.id, scout.rounds) = (OnPage { page, node: Page::TOP }, 0);
        true
    }

    /// Finds the page that a stub, or the top, stands for, and numbers it.
    fn find(&mut self, id: OnPage) -> Attempt<u32> {
        let (link, digest) = link(&self.list, &self.top, id);
        let page = self.finder.find(link, digest)?;
        page.check_is_of(Kind::Map, self.suite).map_err(Failure::Damaged)?;
        self.finder.leave(&page);
        self.list.push(page);
        Ok(self.list.len() as u32 - 1)
    }
}

/// The page of a stub and its ordinal, None for the top, and the digest of the page that it stands for.
fn link<'p, P: Deref<Target = Page>>(
    pages: &'p [P],
    top: &'p Digest,
    id: OnPage,
) -> (Option<(&'p P, u32)>, &'p Digest) {
    match pages.get(id.page as usize).map(|page| (page, page.arena.node(id.node))) {
        Some((page, Node { state: State::Stub { ordinal, .. }, digest, .. })) => (Some((page, *ordinal)), digest),
        _ => (None, top),
    }
}

fn is_stub(state: &State) -> bool {
    matches!(state, State::Stub { .. })
}
