//! Differences between two maps: both trees are walked together, and equal subtrees skipped (docs/protocol.md, *diff*).
//!
//! ```text
//!      a          b         The walk visits pairs of subtrees in the same place, in key order.
//!     ╱ ╲        ╱ ╲        Equal digests: the pair is skipped.
//!    =   ●      =   ●       One side missing: every leaf of the other side is a difference.
//! ```

use std::cmp::Ordering;

use crate::bits::{PathBuffer, Side, bit, top_bits};
use crate::error::{Error, InputCode, Result};
use crate::id::cid::{Cid, Kind, RootCid};
use crate::interrupt::{Attempt, Failure, Interrupt};
use crate::key::{self, Window};
use crate::page::partial::{MAX_MISSING_PAGES, PartialTree, Place};
use crate::tree::arena::{NodeId, State};
use crate::tree::descent::BELOW_WHOLE_KEY;

/// A path with different targets in two maps. None means that the path is absent; at most one side is None.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The path.
    pub segments: Vec<String>,
    /// The target in the first map.
    pub before: Option<Cid>,
    /// The target in the second map.
    pub after: Option<Cid>,
}

/// One page of differences, in key order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Differences {
    /// All differences in the window up to the last one here.
    pub entries: Vec<Difference>,
    /// Whether the window has differences after the last one.
    pub more: bool,
}

/// A node of one of the trees.
#[derive(Debug, Clone, Copy)]
struct SideNode {
    id: NodeId,
    floor: u32,
    /// The bit before `floor`, if the path buffer does not hold it yet.
    turn: Option<Side>,
}

/// Whether the keys of a subtree are in the window, as far as its bits tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Membership {
    /// No key is.
    Outside,
    /// All keys are.
    Inside,
    Unknown,
}

/// One of the two trees, and the path to the current node in it.
pub(crate) struct Half {
    pub(crate) tree: PartialTree,
    path: PathBuffer,
}

impl Half {
    pub(crate) fn new(tree: PartialTree) -> Self {
        Self { tree, path: PathBuffer::default() }
    }

    /// Writes the node's own bits into the path. Returns the number of path bits that are known then.
    fn enter(&mut self, at: SideNode) -> u32 {
        match self.tree.state(at.id) {
            State::Inner { bit, label, .. } => {
                self.path.put(at.floor, self.tree.arena.label(&label, at.floor, bit));
                bit
            }
            State::Leaf { tail, .. } => {
                self.path.put(at.floor, self.tree.arena.tail(tail, at.floor));
                8 * tail.key_len() as u32
            }
            _ => 0,
        }
    }

    fn children(&self, at: SideNode) -> Option<(u32, [SideNode; 2])> {
        let State::Inner { bit, left, right, .. } = self.tree.state(at.id) else {
            return None;
        };
        let child = |id, side| SideNode { id, floor: bit + 1, turn: Some(side) };
        Some((bit, [child(left, Side::Left), child(right, Side::Right)]))
    }
}

/// Compares the first `bits` bits of `path` with `bound`; equal if one is a prefix of the other.
fn compare(path: &[u8], bits: u32, bound: &[u8]) -> Ordering {
    let whole = (bits / 8) as usize;
    let n = whole.min(bound.len());
    let first = path[..n].cmp(&bound[..n]);
    if first != Ordering::Equal || whole >= bound.len() || bits.is_multiple_of(8) {
        return first;
    }
    let mask = top_bits(bits % 8);
    (path[whole] & mask).cmp(&(bound[whole] & mask))
}

/// A pair of subtrees in the same place.
#[derive(Debug, Clone, Copy)]
struct Pair {
    sides: [Option<SideNode>; 2],
    /// Whether all keys below are known to be before the end of the window.
    before_end: bool,
}

/// The two pairs into which a pair is split, the next one last; None if it was a pair of leaves.
type Split = Option<[[Option<SideNode>; 2]; 2]>;

/// A diff in progress. Unlike other reads it continues after an interrupt: a diff can need many pages, one after the other,
/// and starting again after each would take as long as loading them.
pub(crate) struct Diff {
    window: Window,
    limit: usize,
    /// In reverse order: the next pair last.
    pending: Vec<Pair>,
    found: Differences,
}

/// Combines the outcomes of loading a node in each tree, so that the missing pages of both are asked for together.
fn both(a: Attempt<()>, b: Attempt<()>) -> Attempt<()> {
    match (a, b) {
        (Err(Interrupt::Pages(mut missing)), Err(Interrupt::Pages(more))) => {
            missing.extend(more);
            Err(Interrupt::Pages(missing))
        }
        // A failure, or a spent budget, comes first.
        (Err(Interrupt::Pages(_)), Err(other)) => Err(other),
        (a, b) => a.and(b),
    }
}

impl Diff {
    /// Creates a diff of a window, of at most `limit` differences, which is at least 1.
    pub(crate) fn new(window: Window, limit: usize) -> Self {
        let top = SideNode { id: PartialTree::TOP, floor: 0, turn: None };
        let top = Pair { sides: [Some(top); 2], before_end: window.hi.is_none() };
        Self { window, limit, pending: vec![top], found: Differences::default() }
    }

    /// Finds the differences between two maps. O(differences x depth).
    pub(crate) fn run(&mut self, halves: &mut [Half; 2]) -> Attempt<Differences> {
        let [a, b] = halves.each_mut().map(|half| half.tree.visit(PartialTree::TOP));
        both(a, b)?;
        while let Some(&pair) = self.pending.last() {
            let at = self.pending.len() - 1;
            match self.is_done_at(halves, pair) {
                Ok(false) => {
                    self.pending.remove(at);
                }
                Ok(true) => break,
                Err(interrupt) => return Err(self.look_ahead(halves, interrupt)),
            }
        }
        Ok(std::mem::take(&mut self.found))
    }
    /// Compares a pair, and pushes the pairs into which it is split. Returns whether the diff ends there. Before an interrupt,
    /// it changes nothing.
    fn is_done_at(&mut self, halves: &mut [Half; 2], Pair { sides: mut pair, before_end }: Pair) -> Attempt<bool> {
        if let [Some(x), Some(y)] = pair
            && halves[0].tree.sum(x.id).digest == halves[1].tree.sum(y.id).digest
        {
            return Ok(false);
        }
        for (half, at) in halves.iter_mut().zip(&mut pair) {
            if let Some(SideNode { floor, turn: Some(side), .. }) = *at {
                half.path.turn(floor - 1, side);
            }
        }
        let floors = pair.map(|at| at.map_or(0, |at| at.floor));
        if self.clip(halves, &mut pair, floors, false) {
            return Ok(true);
        }
        let [a, b] = [0, 1].map(|i| pair[i].map_or(Ok(()), |node| halves[i].tree.visit(node.id)));
        both(a, b)?;
        let mut known = [0, 0];
        for ((half, at), known) in halves.iter_mut().zip(&mut pair).zip(&mut known) {
            match *at {
                Some(there) if matches!(half.tree.state(there.id), State::Empty) => *at = None,
                Some(there) => *known = half.enter(there),
                None => {}
            }
        }
        if self.clip(halves, &mut pair, known, true) {
            return Ok(true);
        }
        let split = match pair {
            [Some(x), Some(y)] => self.compare_nodes(halves, [x, y], known)?,
            [Some(x), None] => self.one_side(halves, 0, x),
            [None, Some(y)] => self.one_side(halves, 1, y),
            [None, None] => None,
        };
        let before_end = before_end || self.is_before_end(halves, &pair, known);
        self.pending.extend(split.into_iter().flatten().map(|sides| Pair { sides, before_end }));
        Ok(false)
    }

    /// Drops the sides that are outside the window. Returns whether the page is full and a difference is known to follow.
    fn clip(&mut self, halves: &[Half; 2], pair: &mut [Option<SideNode>; 2], known: [u32; 2], visited: bool) -> bool {
        let mut memberships = [Membership::Inside; 2];
        for i in 0..2 {
            if let Some(at) = pair[i] {
                let is_key = visited && matches!(halves[i].tree.state(at.id), State::Leaf { .. });
                memberships[i] = self.membership(&halves[i].path.0, known[i], is_key);
                if memberships[i] == Membership::Outside {
                    pair[i] = None;
                }
            }
        }
        let full = self.found.entries.len() == self.limit;
        let certain =
            pair.iter().zip(memberships).all(|(at, membership)| at.is_none() || membership == Membership::Inside);
        if full && certain && pair.iter().any(Option::is_some) && !memberships.contains(&Membership::Outside) {
            self.found.more = true;
            return true;
        }
        false
    }

    fn membership(&self, path: &[u8], bits: u32, is_key: bool) -> Membership {
        let mut membership = Membership::Inside;
        if let Some(lo) = self.window.lo.as_deref() {
            match compare(path, bits, lo) {
                Ordering::Less => return Membership::Outside,
                Ordering::Greater => {}
                Ordering::Equal if is_key => {
                    if self.window.skip_lo {
                        return Membership::Outside;
                    }
                }
                Ordering::Equal => membership = Membership::Unknown,
            }
        }
        if let Some(hi) = self.window.hi.as_deref() {
            match compare(path, bits, hi) {
                Ordering::Less => {}
                Ordering::Greater => return Membership::Outside,
                Ordering::Equal if bits as usize >= 8 * hi.len() => return Membership::Outside,
                Ordering::Equal => membership = Membership::Unknown,
            }
        }
        membership
    }

    /// Whether all keys below a visited pair are before the end of the window.
    fn is_before_end(&self, halves: &[Half; 2], pair: &[Option<SideNode>; 2], known: [u32; 2]) -> bool {
        let Some(hi) = self.window.hi.as_deref() else { return true };
        (0..2).all(|i| pair[i].is_none() || compare(&halves[i].path.0, known[i], hi) == Ordering::Less)
    }

    /// Adds other pages that the diff will need to those that are missing now.
    ///
    /// A pair that differs gives at least one difference. If it gives more, the page of differences may be full before the
    /// diff reaches everything that was asked for.
    fn look_ahead(&self, halves: &[Half; 2], interrupt: Interrupt<Failure>) -> Interrupt<Failure> {
        let Interrupt::Pages(mut missing) = interrupt else {
            return interrupt;
        };
        let mut room = (self.limit - self.found.entries.len()) as u64;
        // What is pending comes after the start of the window, which the diff has reached.
        let sure = self.pending.iter().rev().skip(1).take_while(|pair| pair.before_end);
        let mut rest: Vec<_> = sure.map(|pair| pair.sides.map(|at| at.map(|at| Place::Here(at.id)))).collect();
        rest.reverse();
        while let Some(pair) = rest.pop() {
            if room == 0 || missing.len() >= MAX_MISSING_PAGES {
                break;
            }
            let [x, y] = [0, 1].map(|i| pair[i].as_ref().map(|place| halves[i].tree.sum_at(place)));
            if let (Some(x), Some(y)) = (x, y)
                && x.digest == y.digest
            {
                continue;
            }
            let mut below = halves.iter().zip(pair).map(|(half, place)| half.tree.children_ahead(place?, &mut missing));
            match [below.next().flatten(), below.next().flatten()] {
                [Some((bx, [xl, xr])), Some((by, [yl, yr]))] if bx == by => {
                    rest.extend([[Some(xr), Some(yr)], [Some(xl), Some(yl)]]);
                }
                [Some((_, [left, right])), None] if y.is_none() => {
                    rest.extend([[Some(right), None], [Some(left), None]])
                }
                [None, Some((_, [left, right]))] if x.is_none() => {
                    rest.extend([[None, Some(right)], [None, Some(left)]])
                }
                _ => {
                    room = room.saturating_sub(if x.is_some() && y.is_some() {
                        1
                    } else {
                        x.or(y).map_or(0, |sum| sum.count)
                    })
                }
            }
        }
        Interrupt::Pages(missing)
    }

    /// Compares two visited nodes.
    fn compare_nodes(&mut self, halves: &[Half; 2], [x, y]: [SideNode; 2], known: [u32; 2]) -> Attempt<Split> {
        let again = |at: SideNode| Some(SideNode { turn: None, ..at });
        let (a, b) = (&halves[0].path.0, &halves[1].path.0);
        Ok(Some(match compare_bits(a, known[0], b, known[1]) {
            Ordering::Less => [[None, again(y)], [again(x), None]],
            Ordering::Greater => [[again(x), None], [None, again(y)]],
            Ordering::Equal => match (halves[0].children(x), halves[1].children(y)) {
                (Some((bx, [xl, xr])), Some((by, [yl, yr]))) if bx == by => {
                    [[Some(xr), Some(yr)], [Some(xl), Some(yl)]]
                }
                (Some((bx, [xl, xr])), _) if bx < known[1] => {
                    let (l, r) = if bit(b, bx) { (None, again(y)) } else { (again(y), None) };
                    [[Some(xr), r], [Some(xl), l]]
                }
                (_, Some((by, [yl, yr]))) if by < known[0] => {
                    let (l, r) = if bit(a, by) { (None, again(x)) } else { (again(x), None) };
                    [[r, Some(yr)], [l, Some(yl)]]
                }
                (None, None) if known[0] == known[1] => {
                    self.add(halves, [Some(x), Some(y)]);
                    return Ok(None);
                }
                _ => return Err(Failure::Invalid(BELOW_WHOLE_KEY).into()),
            },
        }))
    }

    /// Splits a visited node that has no counterpart in the other tree.
    fn one_side(&mut self, halves: &[Half; 2], side: usize, at: SideNode) -> Split {
        let put = |at: SideNode| if side == 0 { [Some(at), None] } else { [None, Some(at)] };
        let Some((_, [left, right])) = halves[side].children(at) else {
            self.add(halves, put(at));
            return None;
        };
        Some([put(right), put(left)])
    }

    fn add(&mut self, halves: &[Half; 2], leaves: [Option<SideNode>; 2]) {
        let [before, after] = [0, 1].map(|i| leaves[i].map(|at| Cid::trusted(halves[i].tree.arena.target(at.id))));
        let side = usize::from(before.is_none());
        if let Some(at) = leaves[side]
            && let State::Leaf { tail, .. } = halves[side].tree.state(at.id)
        {
            let segments = key::segments(&halves[side].path.0[..tail.key_len()]);
            self.found.entries.push(Difference { segments, before, after });
        }
    }
}

/// Compares two paths as far as both are known.
fn compare_bits(a: &[u8], a_bits: u32, b: &[u8], b_bits: u32) -> Ordering {
    let bits = a_bits.min(b_bits);
    compare(a, bits, &b[..b.len().min(bits.div_ceil(8) as usize)])
}

/// Checks that two roots can be compared: both are maps, and of one suite, since equal subtrees are found by their digests.
///
/// # Errors
/// [`InputCode::KindMismatch`] otherwise.
pub fn check_same_suite(roots: [&RootCid; 2]) -> Result<()> {
    for root in roots {
        RootCid::of(&root.cid(), Kind::Map)?;
    }
    match roots[0].suite == roots[1].suite {
        true => Ok(()),
        false => Err(Error::input(InputCode::KindMismatch, "the two maps have different suites")),
    }
}
