//! The way to one key or one element, walked on the pages themselves, and the proof that it shows.
//!
//! Most questions are of this kind, and a [`Tree`](crate::tree::Tree) would copy each node only for the proof to be
//! written from the copy. What a step is, is said once for both ([`Seek`]); how a node is written is in `pruned`.

use std::ops::Deref;

use crate::id::cid::{Cid, Kind};
use crate::id::suite::{Digest, Suite};
use crate::id::varint;
use crate::page::Page;
use crate::proof::prove::Element;
use crate::proof::pruned;
use crate::tree::arena::{Arena, NodeId, Side, State};
use crate::tree::node::Summary;
use crate::tree::{Halt, Step};

/// Nodes in hand: those of a page, or of a tree.
pub(crate) trait View {
    fn arena(&self) -> &Arena;
    /// What the node says of all that is below it.
    fn sum(&self, id: NodeId) -> &Summary;
}

impl View for Arena {
    #[inline(always)]
    fn arena(&self) -> &Arena {
        self
    }

    #[inline(always)]
    fn sum(&self, id: NodeId) -> &Summary {
        &self.node(id).sum
    }
}

/// Where a walk ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// At the leaf that is sought.
    Found,
    /// At the empty node, or at the top of a list that is too short.
    Empty,
    /// Where the key parts from the node, at this bit.
    Parts(u32),
}

/// Where a walk goes from a node.
pub(crate) enum Move {
    /// To a child; the other one is `beside`.
    Down {
        bit: u32,
        side: Side,
        to: NodeId,
        beside: NodeId,
    },
    End(End),
    /// No tree has such a node there.
    Wrong(&'static str),
}

impl Move {
    #[inline(always)]
    pub(crate) fn down(bit: u32, side: Side, left: NodeId, right: NodeId) -> Self {
        let (to, beside) = if side == Side::Left { (left, right) } else { (right, left) };
        Self::Down { bit, side, to, beside }
    }
}

/// What a walk seeks.
pub(crate) trait Seek {
    /// One step, from a node that is in hand.
    fn step(&mut self, view: &impl View, at: NodeId, floor: u32) -> Move;
}

/// Where the pages of a trail come from.
pub(crate) trait Pages<P> {
    /// The page of this digest, which is behind the stub of this number on a page, or the tree's first.
    fn page(&mut self, behind: Option<(&P, u32)>, digest: &Digest) -> Step<P>;
}

/// Pages that hold on to each other.
pub(crate) struct Linked;

impl<'a> Pages<&'a Page> for Linked {
    #[inline]
    fn page(&mut self, behind: Option<(&&'a Page, u32)>, _: &Digest) -> Step<&'a Page> {
        behind.and_then(|(page, ordinal)| page.next.get(ordinal as usize)).map(Deref::deref).ok_or(Halt::Pages)
    }
}

/// A node that was passed, and where from it.
struct Turn {
    page: u32,
    node: NodeId,
    floor: u32,
    side: Side,
    beside: NodeId,
}

/// A walk on pages. It can stop where a page or its budget is missing, and go on.
pub(crate) struct Trail<P> {
    kind: Kind,
    suite: Suite,
    pages: Vec<P>,
    turns: Vec<Turn>,
    /// The node that comes next, on the last page; behind the end, the last node.
    at: NodeId,
    floor: u32,
}

/// Turns on the way to most keys.
const TURNS: usize = 32;

impl<P: Deref<Target = Page>> Trail<P> {
    /// A walk that starts at the top page of a tree, or where that is not in hand, with asking for it.
    pub(crate) fn new(kind: Kind, suite: Suite, top: Option<P>) -> Self {
        let mut pages = Vec::with_capacity(4);
        pages.extend(top);
        Self { kind, suite, pages, turns: Vec::with_capacity(TURNS), at: Page::TOP, floor: 0 }
    }

    /// Goes to the end. The top page has the digest `top`. O(depth).
    #[inline]
    pub(crate) fn run(
        &mut self,
        seek: &mut impl Seek,
        pages: &mut impl Pages<P>,
        top: &Digest,
        budget: &mut u64,
    ) -> Step<End> {
        while *budget > 0 {
            self.enter(pages, top)?;
            let page = self.pages.len() as u32 - 1;
            let arena = &self.pages[page as usize].arena;
            let (mut at, mut floor) = (self.at, self.floor);
            let end = loop {
                if *budget == 0 || matches!(arena.node(at).state, State::Stub { .. }) {
                    break None;
                }
                *budget -= 1;
                match seek.step(arena, at, floor) {
                    Move::Down { bit, side, to, beside } => {
                        self.turns.push(Turn { page, node: at, floor, side, beside });
                        (at, floor) = (to, bit + 1);
                    }
                    Move::End(end) => break Some(Ok(end)),
                    Move::Wrong(why) => break Some(Err(Halt::Faulty(why))),
                }
            };
            (self.at, self.floor) = (at, floor);
            if let Some(end) = end {
                return end;
            }
        }
        Err(Halt::Budget)
    }

    /// Makes sure that the next node is in hand: where it is a stub, the page behind it.
    fn enter(&mut self, pages: &mut impl Pages<P>, top: &Digest) -> Step<()> {
        let page = match self.pages.last() {
            None => pages.page(None, top)?,
            Some(page) => {
                let node = page.arena.node(self.at);
                let State::Stub { ordinal, .. } = node.state else {
                    return Ok(());
                };
                pages.page(Some((page, ordinal)), &node.sum.digest)?
            }
        };
        page.check_is_of(self.kind, self.suite).map_err(Halt::Damaged)?;
        self.pages.push(page);
        self.at = Page::TOP;
        Ok(())
    }

    /// Room for the proof: mostly enough.
    fn room(&self, last: &Arena) -> usize {
        let top = self.top();
        let stub = 1 + varint::len(top.count) + if self.kind == Kind::List { varint::len(top.measure) } else { 0 } + 32;
        // An inner node is a tag, a short gap, and one more byte of the path, since labels begin and end within bytes.
        let path = last.extent(self.at) as usize / 8 + 1;
        (self.turns.len() + 2) * (stub + 3) + path + last.target(self.at).len()
    }

    /// The page of the leaf that was found.
    fn found(&self, end: End) -> Option<&Arena> {
        self.pages.last().filter(|_| end == End::Found).map(|page| &page.arena)
    }

    /// The target that a key leads to.
    #[inline]
    pub(crate) fn target(&self, end: End) -> Option<Cid> {
        self.found(end).map(|arena| Cid::trusted(arena.target(self.at)))
    }

    /// The element of an index.
    pub(crate) fn element(&self, end: End) -> Element {
        let size = self.found(end).map(|arena| arena.node(self.at).sum.measure);
        Element { target: self.target(end), size, length: self.top().count }
    }

    /// What the top says of the whole tree.
    fn top(&self) -> Summary {
        self.pages.first().map_or(Summary::UNKNOWN, |page| page.arena.node(Page::TOP).sum)
    }

    /// The tree with everything pruned that was not passed, once the walk is at its end. O(bytes).
    pub(crate) fn proof(&self) -> Vec<u8> {
        let Some(last) = self.pages.last().map(|page| &page.arena) else {
            return Vec::new();
        };
        let mut proof = Vec::with_capacity(self.room(last));
        let (kind, out) = (self.kind, &mut proof);
        for turn in &self.turns {
            let arena = &self.pages[turn.page as usize].arena;
            pruned::write_shown(out, kind, arena, turn.node, turn.floor);
            if turn.side == Side::Right {
                pruned::write_stub(out, kind, &arena.node(turn.beside).sum);
            }
        }
        pruned::write_shown(out, kind, last, self.at, self.floor);
        if let State::Inner { left, right, .. } = last.node(self.at).state {
            pruned::write_stub(out, kind, &last.node(left).sum);
            pruned::write_stub(out, kind, &last.node(right).sum);
        }
        for turn in self.turns.iter().rev().filter(|turn| turn.side == Side::Left) {
            pruned::write_stub(out, kind, &self.pages[turn.page as usize].arena.node(turn.beside).sum);
        }
        proof
    }
}

#[cfg(test)]
mod tests;
