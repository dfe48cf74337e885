//! Listings of maps: `scan`, once for the gateway and the verifier alike (protocol section 4).

use crate::id::cid::Cid;
use crate::key::{self as path, Window};
use crate::proof::trail::End;
use crate::tree::arena::{NodeId, PathBuffer, Side, State};
use crate::tree::map::Walk;
use crate::tree::{Halt, MAX_WANTED, Place, Step, Tree};

/// What a scan gives: the entries of one page of a listing, in key order, and whether more follow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Segments and target of each entry.
    pub entries: Vec<(Vec<String>, Cid)>,
    /// Whether an entry of the window follows the last one.
    pub more: bool,
}

/// What a node's known bits say of all that is below it.
enum Verdict {
    Before,
    Past,
    Unknown,
}

/// A subtree that the scan has not looked at.
#[derive(Debug, Clone, Copy)]
struct Ahead {
    id: NodeId,
    floor: u32,
    /// The bit before `floor`, if the path buffer does not hold it yet.
    turn: Option<Side>,
    /// All below it is known to be in the window.
    inside: bool,
}

/// A listing of a window of keys (protocol section 4, `scan`).
#[derive(Debug)]
pub(crate) struct Scan {
    window: Window,
    limit: usize,
    seek: Option<Walk>,
    /// The next subtree last.
    ahead: Vec<Ahead>,
    path: PathBuffer,
    found: Listing,
}

impl Scan {
    /// `limit` is at least 1.
    pub(crate) fn new(window: Window, limit: usize) -> Self {
        let mut scan = Self {
            seek: None,
            limit,
            ahead: Vec::new(),
            path: PathBuffer(window.lo.clone().unwrap_or_default()),
            found: Listing::default(),
            window,
        };
        match scan.window.lo {
            Some(_) => scan.seek = Some(Walk::noting_turns(Tree::TOP)),
            None => {
                let inside = scan.window.hi.is_none();
                scan.ahead.push(Ahead { id: Tree::TOP, floor: 0, turn: None, inside });
            }
        }
        scan
    }

    /// Goes on to the end of the page. O(depth + entries).
    pub(crate) fn run(&mut self, tree: &mut Tree) -> Step<Listing> {
        if let Some(walk) = &mut self.seek {
            let lo = self.window.lo.as_deref().unwrap_or_default();
            let end = walk.run(tree, lo)?;
            let (at, floor) = (walk.at, walk.floor);
            for (id, side) in walk.turns.take().unwrap_or_default() {
                if let (Side::Left, State::Inner { bit, right, .. }) = (side, tree.state(id)) {
                    self.ahead.push(Ahead { id: right, floor: bit + 1, turn: Some(Side::Right), inside: false });
                }
            }
            let first = match end {
                End::Found => !self.window.skip_lo,
                End::Parts(bit) => !path::bit(lo, bit),
                End::Empty => false,
            };
            if first {
                self.ahead.push(Ahead { id: at, floor, turn: None, inside: false });
            }
            self.seek = None;
        }
        while let Some(&next) = self.ahead.last() {
            match tree.visit(next.id) {
                Err(Halt::Pages) => {
                    self.want_ahead(tree);
                    return Err(Halt::Pages);
                }
                other => other?,
            }
            self.ahead.pop();
            if self.next(tree, next) {
                break;
            }
        }
        Ok(std::mem::take(&mut self.found))
    }

    /// Looks at a visited node. True if the scan ends there.
    fn next(&mut self, tree: &Tree, next: Ahead) -> bool {
        if let Some(side) = next.turn {
            self.path.turn(next.floor - 1, side);
        }
        let full = self.found.entries.len() == self.limit;
        match tree.state(next.id) {
            State::Inner { bit, label, start, left, right } => {
                self.path.put(next.floor, tree.arena.label(label, start, next.floor, bit));
                let verdict = self.judge_prefix(bit);
                match verdict {
                    Verdict::Past => return true,
                    Verdict::Before if full => {
                        self.found.more = true;
                        return true;
                    }
                    _ => {}
                }
                let inside = matches!(verdict, Verdict::Before);
                self.ahead.push(Ahead { id: right, floor: bit + 1, turn: Some(Side::Right), inside });
                self.ahead.push(Ahead { id: left, floor: bit + 1, turn: Some(Side::Left), inside });
                false
            }
            State::Leaf { tail, .. } => {
                let len = usize::from(tail.start) + usize::from(tail.len);
                self.path.put(next.floor, tree.arena.tail(tail, next.floor));
                let key = &self.path.0[..len];
                if self.window.hi.as_deref().is_some_and(|hi| key >= hi) {
                    return true;
                }
                if full {
                    self.found.more = true;
                    return true;
                }
                let target = Cid::trusted(tree.arena.target(next.id));
                self.found.entries.push((path::segments(key), target));
                false
            }
            _ => true,
        }
    }

    /// Compares the first `bit` bits of the path with the end of the window.
    fn judge_prefix(&self, bit: u32) -> Verdict {
        let Some(hi) = self.window.hi.as_deref() else {
            return Verdict::Before;
        };
        let whole = (bit / 8) as usize;
        let n = whole.min(hi.len());
        match self.path.0[..n].cmp(&hi[..n]) {
            std::cmp::Ordering::Less => return Verdict::Before,
            std::cmp::Ordering::Greater => return Verdict::Past,
            std::cmp::Ordering::Equal if n == hi.len() => return Verdict::Past,
            std::cmp::Ordering::Equal => {}
        }
        let mask = path::top_bits(bit % 8);
        let (ours, theirs) = (self.path.0.get(whole).map_or(0, |b| b & mask), hi[whole] & mask);
        match ours.cmp(&theirs) {
            std::cmp::Ordering::Less => Verdict::Before,
            std::cmp::Ordering::Greater => Verdict::Past,
            std::cmp::Ordering::Equal => Verdict::Unknown,
        }
    }

    /// Asks for the pages of all that is surely visited next, not only for the one that is missing now.
    fn want_ahead(&self, tree: &mut Tree) {
        let mut room = (self.limit - self.found.entries.len()) as u64 + 1;
        let sure = self.ahead.iter().rev().take_while(|next| next.inside);
        let mut rest: Vec<Place> = sure.map(|next| Place::Here(next.id)).collect();
        rest.reverse();
        while let Some(place) = rest.pop() {
            if room == 0 || tree.supply.wanted.len() >= MAX_WANTED {
                return;
            }
            let count = tree.sum_at(&place).count;
            match tree.children_ahead(place) {
                Some((_, [left, right])) => rest.extend([right, left]),
                None => room = room.saturating_sub(count),
            }
        }
    }
}
