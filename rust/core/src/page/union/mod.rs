//! The descents to several keys of a map, made on the pages themselves, and the multiproof that they give.
//!
//! A proof is the nodes in preorder, and so is the order of visits: the proof is written while nodes are visited.

mod pages;

use std::collections::BTreeSet;
use std::ops::{Deref, Range};

use crate::bits::Side;
use crate::id::cid::{Cid, Kind};
use crate::id::suite::{Digest, Suite};
use crate::interrupt::{Attempt, Failure, Interrupt};
use crate::key_list::Keys;
use crate::page::format::Page;
use crate::page::partial::MAX_MISSING_PAGES;
use crate::page::path::{Finder, OnPage};
use crate::query::keys::{Branch, Descents, Fork, MAX_APPROACHED, Preorder};
use crate::tree::arena::State;
use crate::tree::descent::{End, Landing, Nodes, Shape, Step, ToKey, Visited, descend};
use crate::tree::writer;
use pages::{Pages, Scout};

/// The length of a multiproof for each key that it is expected to have, in bytes: a leaf, and some stubs. Longer proofs
/// of few keys are moved once while they grow.
const BYTES_PER_KEY: usize = 512;

/// A part of a proof.
enum Piece {
    Bytes(Vec<u8>),
    /// Not visited yet, since a page is missing or the budget is spent.
    Branch(Branch<OnPage>),
}

/// The nodes that were visited, and the proof that they give.
pub(crate) struct UnionNodes<P, F> {
    pages: Pages<P, F>,
    /// The number of nodes that may still be visited.
    pub(crate) budget: u64,
    /// The node that was visited last.
    last: OnPage,
    /// The proof: first these pieces, then the bytes that are being written.
    pieces: Vec<Piece>,
    bytes: Vec<u8>,
    /// The length of all pieces of bytes.
    cut_bytes: usize,
    missing: BTreeSet<Digest>,
    /// The bits at which the descent to a single key turned left, and the right children, from the top down.
    right: Vec<(u32, OnPage)>,
}

/// The union of the descents to several keys. After an interrupt it continues where it stopped, or with the branches that
/// were put off.
pub(crate) struct PageUnion<P, F> {
    pub(crate) nodes: UnionNodes<P, F>,
    keys: Keys,
    targets: Vec<Option<Cid>>,
    /// The descents in progress.
    descents: Option<Descents<OnPage>>,
    /// What follows them in the proof.
    rest: std::vec::IntoIter<Piece>,
}

/// The top of the tree, before its page is found.
const TOP: OnPage = OnPage { page: u32::MAX, node: Page::TOP };

impl<P: Deref<Target = Page>, F: Finder<P>> PageUnion<P, F> {
    pub(crate) fn new(suite: Suite, top: Digest, finder: F, keys: Keys) -> Self {
        let nodes = UnionNodes {
            pages: Pages { suite, top, finder, list: Vec::new(), found: Vec::new() },
            budget: u64::MAX,
            last: TOP,
            pieces: Vec::new(),
            bytes: Vec::with_capacity(BYTES_PER_KEY * keys.len()),
            cut_bytes: 0,
            missing: BTreeSet::new(),
            right: Vec::new(),
        };
        let rest = vec![Piece::Branch(keys.all(TOP))].into_iter();
        Self { nodes, targets: vec![None; keys.len()], keys, descents: None, rest }
    }

    /// Where its pages come from.
    pub(crate) fn finder(&mut self) -> &mut F {
        &mut self.nodes.pages.finder
    }

    /// Descends to all keys, and returns their targets in the order in which they were asked. O(visited nodes + keys).
    pub(crate) fn run(&mut self) -> Attempt<Vec<Option<Cid>>> {
        self.release();
        let Self { nodes, keys, targets, descents, rest } = self;
        loop {
            if let Some(descents) = descents {
                keys.get(nodes, descents, targets)?;
            }
            *descents = None;
            *descents = match rest.next() {
                None => break,
                Some(Piece::Branch(branch)) if nodes.missing.len() < MAX_MISSING_PAGES => Some(Descents::new(branch)),
                Some(piece) => {
                    nodes.keep(piece);
                    None
                }
            };
        }
        if nodes.missing.is_empty() {
            return Ok(std::mem::take(targets));
        }
        // What was written last follows the branches that were put off.
        nodes.cut();
        *rest = std::mem::take(&mut nodes.pieces).into_iter();
        nodes.pages.found.clear();
        Err(Interrupt::Pages(std::mem::take(&mut nodes.missing)))
    }

    /// Drops the pages that no visit to come reads, since all branches of keys that lead to them are done. Between two
    /// calls, as many pages are added as a run visits. O(pages + branches to come).
    fn release(&mut self) {
        const DROPPED: u32 = u32::MAX;
        let mut numbers = vec![DROPPED; self.nodes.pages.list.len()];
        self.pages_to_come(&mut |page| {
            if let Some(number) = numbers.get_mut(*page as usize) {
                *number = 0;
            }
        });
        let (mut kept, mut all) = (0, numbers.iter_mut());
        self.nodes.pages.list.retain(|_| match all.next() {
            Some(number) if *number != DROPPED => {
                *number = kept;
                kept += 1;
                true
            }
            _ => false,
        });
        self.pages_to_come(&mut |page| *page = numbers.get(*page as usize).copied().unwrap_or(*page));
        self.nodes.last = TOP;
    }

    /// Gives the number of each page that a visit to come reads, and the invalid one of the top before it is found.
    fn pages_to_come(&mut self, see: &mut impl FnMut(&mut u32)) {
        let Self { nodes, descents, rest, .. } = self;
        descents.iter_mut().flat_map(Descents::branches).for_each(|branch| see(&mut branch.id.page));
        for piece in rest.as_mut_slice().iter_mut().chain(&mut nodes.pieces) {
            if let Piece::Branch(branch) = piece {
                see(&mut branch.id.page);
            }
        }
        for (stub, page) in &mut nodes.pages.found {
            see(&mut stub.page);
            page.iter_mut().for_each(&mut *see);
        }
    }
}

impl<P: Deref<Target = Page>, F: Finder<P>> UnionNodes<P, F> {
    /// The memory of what is written of the proof, in bytes. O(1).
    pub(crate) fn proof_bytes(&self) -> usize {
        self.bytes.capacity() + self.cut_bytes
    }

    /// Visits a node that is not a stub of its page, writes it, and returns what it says about the way down.
    #[inline(always)]
    fn show(&mut self, id: OnPage, floor: u32) -> Attempt<Shape<'_, OnPage>> {
        self.budget -= 1;
        self.last = id;
        let arena = &self.pages.list[id.page as usize].arena;
        writer::write_shown(&mut self.bytes, Kind::Map, arena, id.node, floor);
        let on_page = |node| OnPage { page: id.page, node };
        Ok(match arena.shape(id.node, floor).ok_or(Failure::Stub)? {
            Shape::Inner { bit, label, children: [left, right] } => {
                Shape::Inner { bit, label, children: [on_page(left), on_page(right)] }
            }
            Shape::Leaf { tail, key_len } => Shape::Leaf { tail, key_len },
            Shape::Empty => Shape::Empty,
        })
    }

    /// Leaves a place in the proof for a branch, until these pages are there.
    #[cold]
    fn put_off(&mut self, branch: &Branch<OnPage>, missing: BTreeSet<Digest>) {
        self.missing.extend(missing);
        self.keep(Piece::Branch(branch.clone()));
    }

    /// Appends a piece to the proof.
    #[cold]
    fn keep(&mut self, piece: Piece) {
        self.cut();
        self.pieces.push(piece);
    }

    /// Makes a piece of the bytes that were written.
    fn cut(&mut self) {
        if !self.bytes.is_empty() {
            // The buffer may be much longer than what is in it.
            self.bytes.shrink_to_fit();
            self.cut_bytes += self.bytes.len();
            self.pieces.push(Piece::Bytes(std::mem::take(&mut self.bytes)));
        }
    }

    /// Takes the proof. Call it once, after the answer. O(bytes) if there were interrupts, else O(1).
    pub(crate) fn take_proof(&mut self) -> Vec<u8> {
        if self.pieces.is_empty() {
            return std::mem::take(&mut self.bytes);
        }
        self.cut();
        let pieces = std::mem::take(&mut self.pieces);
        let bytes = pieces.iter().map(|piece| if let Piece::Bytes(bytes) = piece { &bytes[..] } else { &[] });
        bytes.collect::<Vec<_>>().concat()
    }
}

/// The levels of nodes that are loaded ahead: enough for most maps.
const MAX_LEVELS_AHEAD: usize = 40;

/// The descent to a single key, which writes the proof on the way.
struct Alone<'u, P, F> {
    nodes: &'u mut UnionNodes<P, F>,
    /// What is left of the branch: its node comes next, or was visited last.
    branch: &'u mut Branch<OnPage>,
}

impl<P: Deref<Target = Page>, F: Finder<P>> Nodes for Alone<'_, P, F> {
    type Id = OnPage;
    type Counts = ();

    #[inline(always)]
    fn visit(&mut self, id: OnPage, floor: u32) -> Attempt<Visited<'_, OnPage, ()>> {
        (self.branch.id, self.branch.floor) = (id, floor);
        if self.nodes.budget == 0 {
            return Err(Interrupt::Budget);
        }
        let id = self.nodes.pages.resolve(id)?;
        Ok(Visited { shape: self.nodes.show(id, floor)?, counts: () })
    }

    #[inline(always)]
    fn step(&mut self, Step { bit, side, sibling, .. }: Step<OnPage>) -> Attempt<()> {
        match side {
            Side::Left => self.nodes.right.push((bit, sibling)),
            Side::Right => self.nodes.pass(sibling)?,
        }
        Ok(())
    }
}

impl<P: Deref<Target = Page>, F: Finder<P>> Preorder for UnionNodes<P, F> {
    type Id = OnPage;

    #[inline(always)]
    fn visit(&mut self, branch: &Branch<OnPage>) -> Attempt<Option<Shape<'_, OnPage>>> {
        if self.budget == 0 {
            return Err(Interrupt::Budget);
        }
        if self.missing.len() >= MAX_MISSING_PAGES {
            self.put_off(branch, BTreeSet::new());
            return Ok(None);
        }
        match self.pages.resolve(branch.id) {
            Err(Interrupt::Pages(pages)) => {
                self.put_off(branch, pages);
                Ok(None)
            }
            found => self.show(found?, branch.floor).map(Some),
        }
    }

    /// Goes ahead to a few keys, one level of all of them at a time, so that their nodes are loaded to the processor's
    /// caches at the same time. The visits, which follow one path after the other, would wait for each node. What is read
    /// here was prefetched a level before.
    fn approach(&mut self, keys: &Keys, branch: &Branch<OnPage>) {
        self.pages.found.clear();
        if self.budget == 0 || self.missing.len() >= MAX_MISSING_PAGES {
            return;
        }
        let scout = |place| Scout { key: keys.key(place), id: branch.id, rounds: 0 };
        let mut scouts = [scout(branch.keys.start); MAX_APPROACHED];
        scouts.iter_mut().zip(branch.keys.clone()).for_each(|(at, place)| *at = scout(place));
        let mut left = &mut scouts[..branch.keys.len().min(MAX_APPROACHED)];
        for _ in 0..MAX_LEVELS_AHEAD {
            let mut at = 0;
            while at < left.len() {
                if self.pages.go_ahead(&mut left[at]) {
                    at += 1;
                } else {
                    // The last one takes the place of one that has arrived.
                    let last = left.len() - 1;
                    left[at] = left[last];
                    left = &mut left[..last];
                }
            }
        }
    }

    #[inline(always)]
    fn follow(
        &mut self,
        key: &[u8],
        branch: &mut Branch<OnPage>,
        forks: &mut Vec<Fork<OnPage>>,
    ) -> Attempt<Option<bool>> {
        if self.missing.len() >= MAX_MISSING_PAGES {
            return Ok(None);
        }
        let (id, floor) = (branch.id, branch.floor);
        let interrupt = match descend(&mut Alone { nodes: self, branch }, id, floor, &mut ToKey(key)) {
            Ok(Landing { end, .. }) => {
                let last = self.last;
                if let State::Inner { left, right, .. } =
                    self.pages.list[last.page as usize].arena.node(last.node).state
                {
                    self.pass(OnPage { node: left, ..last })?;
                    self.pass(OnPage { node: right, ..last })?;
                }
                while let Some((_, id)) = self.right.pop() {
                    self.pass(id)?;
                }
                return Ok(Some(end == End::Found));
            }
            Err(interrupt) => interrupt,
        };
        let Range { end, .. } = branch.keys;
        forks.extend(self.right.drain(..).map(|(bit, id)| {
            let right = Branch { id, floor: bit + 1, keys: end..end };
            Fork { bit, right: Some(right) }
        }));
        match interrupt {
            Interrupt::Pages(pages) => {
                self.put_off(branch, pages);
                Ok(Some(false))
            }
            other => Err(other),
        }
    }

    fn target(&self) -> Cid {
        Cid::trusted(self.pages.list[self.last.page as usize].arena.target(self.last.node))
    }

    #[inline(always)]
    fn pass(&mut self, id: OnPage) -> Attempt<()> {
        writer::write_stub(&mut self.bytes, Kind::Map, &self.pages.list[id.page as usize].arena, id.node);
        Ok(())
    }

    fn turn(&mut self, _: u32) {}

    fn close(&mut self, _: u32) -> Attempt<()> {
        Ok(())
    }
}
