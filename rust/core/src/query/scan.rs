//! Listings of maps (protocol section 4, `scan`).

use std::cmp::Ordering;

use crate::bits::{PathBuffer, Side, bit, top_bits};
use crate::id::cid::Cid;
use crate::interrupt::{Attempt, Failure, Interrupt};
use crate::key::{self, Key, Window};
use crate::page::partial::{MAX_MISSING_PAGES, PartialTree, Place, Visiting};
use crate::tree::arena::{NodeId, SHOWN, State};
use crate::tree::descent::{End, Landing, ToKey, descend};

/// One page of a listing: entries in key order, and whether more follow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The key and the target of each entry.
    pub entries: Vec<(Key, Cid)>,
    /// Whether the window has entries after the last one.
    pub more: bool,
}

/// Copying this many bytes of a key is about as much work as visiting a node.
const BYTES_PER_NODE: usize = 64;

/// What listing a key of so many bytes costs of the budget besides its node.
fn listing_cost(key_bytes: usize) -> u64 {
    (key_bytes / BYTES_PER_NODE) as u64
}

impl Listing {
    /// What the bytes of its keys have cost of the budget, at most. O(entries).
    pub fn key_cost(&self) -> u64 {
        self.entries.iter().map(|(key, _)| listing_cost(key.as_bytes().len())).sum()
    }

    /// The entries with decoded paths. O(bytes).
    pub fn decoded(&self) -> Vec<(Vec<String>, Cid)> {
        self.entries.iter().map(|(key, target)| (key::segments(key.as_bytes()), *target)).collect()
    }
}

/// Where the keys below a node are, as far as the node's bits tell.
enum Position {
    BeforeEnd,
    PastEnd,
    Unknown,
}

/// A subtree that the scan has not reached.
#[derive(Debug, Clone, Copy)]
struct Pending {
    id: NodeId,
    floor: u32,
    /// The bit before `floor`, if the path buffer does not hold it yet.
    turn: Option<Side>,
    /// Whether all keys below it are known to be in the window.
    inside: bool,
}

/// A scan in progress.
struct Scan<'w> {
    window: &'w Window,
    limit: usize,
    /// In reverse order: the next subtree last.
    pending: Vec<Pending>,
    path: PathBuffer,
    found: Listing,
}

/// Lists the entries of a window, at most `limit`, which is at least 1. O(depth + bytes of the entries).
///
/// A long key costs more of the budget, but only once, though a scan that is interrupted starts again.
pub(crate) fn scan(tree: &mut PartialTree, window: &Window, limit: usize) -> Attempt<Listing> {
    let path = PathBuffer(window.lo.clone().unwrap_or_default());
    let mut scan = Scan { window, limit, pending: Vec::new(), path, found: Listing::default() };
    scan.seek(tree)?;
    while let Some(&next) = scan.pending.last() {
        let is_new = !tree.node(next.id).has(SHOWN);
        tree.visit(next.id).map_err(|interrupt| scan.look_ahead(tree, interrupt))?;
        scan.pending.pop();
        if scan.is_done_at(tree, next) {
            break;
        }
        if let (true, State::Leaf { tail, .. }) = (is_new, tree.state(next.id)) {
            tree.budget = tree.budget.saturating_sub(listing_cost(tail.key_len()));
        }
    }
    Ok(scan.found)
}

impl Scan<'_> {
    /// Descends to the start of the window; the subtrees to the right of the path are pending.
    fn seek(&mut self, tree: &mut PartialTree) -> Attempt<()> {
        let Some(lo) = self.window.lo.as_deref() else {
            let inside = self.window.hi.is_none();
            self.pending.push(Pending { id: PartialTree::TOP, floor: 0, turn: None, inside });
            return Ok(());
        };
        let mut path = Visiting::<true>::new(tree);
        let Landing { id, floor, end } = descend(&mut path, PartialTree::TOP, 0, &mut ToKey(lo))?;
        for (id, side) in path.steps {
            if let (Side::Left, State::Inner { bit, right, .. }) = (side, tree.state(id)) {
                self.pending.push(Pending { id: right, floor: bit + 1, turn: Some(Side::Right), inside: false });
            }
        }
        let is_first = match end {
            End::Found => !self.window.skip_lo,
            End::Diverges(at) => !bit(lo, at),
            End::Empty => false,
        };
        if is_first {
            self.pending.push(Pending { id, floor, turn: None, inside: false });
        }
        Ok(())
    }

    /// Reads a visited node. Returns whether the scan ends there.
    fn is_done_at(&mut self, tree: &PartialTree, next: Pending) -> bool {
        if let Some(side) = next.turn {
            self.path.turn(next.floor - 1, side);
        }
        let full = self.found.entries.len() == self.limit;
        match tree.state(next.id) {
            State::Inner { bit, label, left, right } => {
                self.path.put(next.floor, tree.arena.label(&label, next.floor, bit));
                let position = self.position(bit);
                match position {
                    Position::PastEnd => return true,
                    Position::BeforeEnd if full => {
                        self.found.more = true;
                        return true;
                    }
                    _ => {}
                }
                let inside = matches!(position, Position::BeforeEnd);
                self.pending.push(Pending { id: right, floor: bit + 1, turn: Some(Side::Right), inside });
                self.pending.push(Pending { id: left, floor: bit + 1, turn: Some(Side::Left), inside });
                false
            }
            State::Leaf { tail, .. } => {
                self.path.put(next.floor, tree.arena.tail(tail, next.floor));
                let key = &self.path.0[..tail.key_len()];
                if self.window.hi.as_deref().is_some_and(|hi| key >= hi) {
                    return true;
                }
                if full {
                    self.found.more = true;
                    return true;
                }
                let target = Cid::trusted(tree.arena.target(next.id));
                self.found.entries.push((Key::trusted(key), target));
                false
            }
            _ => true,
        }
    }

    /// Compares the first `bit` bits of the path with the end of the window.
    fn position(&self, bit: u32) -> Position {
        let Some(hi) = self.window.hi.as_deref() else {
            return Position::BeforeEnd;
        };
        let whole = (bit / 8) as usize;
        let n = whole.min(hi.len());
        match self.path.0[..n].cmp(&hi[..n]) {
            Ordering::Less => return Position::BeforeEnd,
            Ordering::Greater => return Position::PastEnd,
            Ordering::Equal if n == hi.len() => return Position::PastEnd,
            Ordering::Equal => {}
        }
        let mask = top_bits(bit % 8);
        let (ours, theirs) = (self.path.0.get(whole).map_or(0, |b| b & mask), hi[whole] & mask);
        match ours.cmp(&theirs) {
            Ordering::Less => Position::BeforeEnd,
            Ordering::Greater => Position::PastEnd,
            Ordering::Equal => Position::Unknown,
        }
    }

    /// Adds the other pages that the scan is sure to need to those that are missing now.
    fn look_ahead(&self, tree: &PartialTree, interrupt: Interrupt<Failure>) -> Interrupt<Failure> {
        let Interrupt::Pages(mut missing) = interrupt else {
            return interrupt;
        };
        let mut room = (self.limit - self.found.entries.len()) as u64 + 1;
        let sure = self.pending.iter().rev().take_while(|next| next.inside);
        let mut rest: Vec<Place> = sure.map(|next| Place::Here(next.id)).collect();
        rest.reverse();
        while let Some(place) = rest.pop() {
            if room == 0 || missing.len() >= MAX_MISSING_PAGES {
                break;
            }
            let count = tree.sum_at(&place).count;
            match tree.children_ahead(place, &mut missing) {
                Some((_, [left, right])) => rest.extend([right, left]),
                None => room = room.saturating_sub(count),
            }
        }
        Interrupt::Pages(missing)
    }
}
