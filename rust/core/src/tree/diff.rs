//! What differs between two maps: both trees walked together, equal subtrees skipped (docs/protocol.md, *diff*).
//!
//! The walk is a value that can stop and go on, as the queries of `map`. For the gateway both trees come from pages;
//! for the verifier they are the two pruned trees that were sent.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::{Error, InputCode, Result};
use crate::id::cid::{Cid, Kind, RootCid};
use crate::key::{self as path, Window};
use crate::page::{NodeSource, Page};
use crate::proof::prove::{Progress, halt_error};
use crate::proof::verify;
use crate::tree::arena::{NodeId, PathBuffer, Side, State};
use crate::tree::{Halt, MAX_WANTED, Place, Step, Tree};

/// A key that leads to another target in the two maps. None stands for absence; one of the two is there.
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
    /// All differences of the window up to the last one here.
    pub entries: Vec<Difference>,
    /// Whether a difference of the window follows the last one.
    pub more: bool,
}

/// A subtree of one of the maps.
#[derive(Debug, Clone, Copy)]
struct At {
    id: NodeId,
    floor: u32,
    /// The bit before `floor`, if the path buffer does not hold it yet.
    turn: Option<Side>,
}

/// What the known bits of a subtree say of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// None is in the window.
    Outside,
    /// All are.
    Inside,
    Unknown,
}

/// One of the two trees, and the path to where the walk is in it.
struct Half {
    tree: Tree,
    path: PathBuffer,
}

impl Half {
    fn new(tree: Tree) -> Self {
        Self { tree, path: PathBuffer::default() }
    }

    /// Puts the node's own bits in the path. The number of bits that are known then.
    fn enter(&mut self, at: At) -> u32 {
        match self.tree.state(at.id) {
            State::Inner { bit, label, start, .. } => {
                self.path.put(at.floor, self.tree.arena.label(label, start, at.floor, bit));
                bit
            }
            State::Leaf { tail, .. } => {
                self.path.put(at.floor, self.tree.arena.tail(tail, at.floor));
                8 * (u32::from(tail.start) + u32::from(tail.len))
            }
            _ => 0,
        }
    }

    fn children(&self, at: At) -> Option<(u32, [At; 2])> {
        let State::Inner { bit, left, right, .. } = self.tree.state(at.id) else {
            return None;
        };
        let child = |id, side| At { id, floor: bit + 1, turn: Some(side) };
        Some((bit, [child(left, Side::Left), child(right, Side::Right)]))
    }
}

/// Compares the first `bits` bits of `path` with `bound`; equal if they agree as far as both go.
fn compare(path: &[u8], bits: u32, bound: &[u8]) -> Ordering {
    let whole = (bits / 8) as usize;
    let n = whole.min(bound.len());
    let first = path[..n].cmp(&bound[..n]);
    if first != Ordering::Equal || whole >= bound.len() || bits.is_multiple_of(8) {
        return first;
    }
    let mask = path::top_bits(bits % 8);
    (path[whole] & mask).cmp(&(bound[whole] & mask))
}

/// A pair of subtrees in the same place.
#[derive(Debug, Clone, Copy)]
struct Pair {
    sides: [Option<At>; 2],
    /// All below is known to be before the window's end.
    before_end: bool,
}

/// The two pairs that a pair falls into, the next last; None for an entry.
type Parts = Option<[[Option<At>; 2]; 2]>;

/// The walk through both trees.
struct Walk {
    window: Window,
    limit: usize,
    started: bool,
    /// The next pair last.
    ahead: Vec<Pair>,
    found: Differences,
}

impl Walk {
    fn new(window: Window, limit: usize) -> Self {
        Self { window, limit, started: false, ahead: Vec::new(), found: Differences::default() }
    }

    fn run(&mut self, halves: &mut [Half; 2]) -> Step<Differences> {
        if !self.started {
            let [a, b] = halves.each_mut().map(|half| half.tree.visit(Tree::TOP));
            a.and(b)?;
            let top = At { id: Tree::TOP, floor: 0, turn: None };
            self.ahead.push(Pair { sides: [Some(top); 2], before_end: self.window.hi.is_none() });
            self.started = true;
        }
        while let Some(&pair) = self.ahead.last() {
            let before = self.ahead.len();
            match self.step(halves, pair) {
                Ok(false) => {}
                Ok(true) => break,
                Err(halt) => {
                    if matches!(halt, Halt::Pages) {
                        self.want_ahead(halves);
                    }
                    return Err(halt);
                }
            }
            // What was pushed on the way stands in the place of the pair.
            self.ahead.remove(before - 1);
        }
        Ok(std::mem::take(&mut self.found))
    }

    /// Looks at a pair. True if the walk ends there. Changes nothing before all that it needs is visited.
    fn step(&mut self, halves: &mut [Half; 2], Pair { sides: mut pair, before_end }: Pair) -> Step<bool> {
        if let [Some(x), Some(y)] = pair
            && halves[0].tree.sum(x.id).digest == halves[1].tree.sum(y.id).digest
        {
            return Ok(false);
        }
        for (half, at) in halves.iter_mut().zip(&mut pair) {
            if let Some(At { floor, turn: Some(side), .. }) = *at {
                half.path.turn(floor - 1, side);
            }
        }
        let floors = pair.map(|at| at.map_or(0, |at| at.floor));
        if self.judge(halves, &mut pair, floors, false) {
            return Ok(true);
        }
        let mut halt = None;
        for (half, at) in halves.iter_mut().zip(&pair) {
            if let Some(at) = at
                && let Err(why) = half.tree.visit(at.id)
            {
                halt = Some(why);
            }
        }
        if let Some(halt) = halt {
            return Err(halt);
        }
        let mut known = [0, 0];
        for ((half, at), known) in halves.iter_mut().zip(&mut pair).zip(&mut known) {
            match *at {
                Some(there) if matches!(half.tree.state(there.id), State::Empty) => *at = None,
                Some(there) => *known = half.enter(there),
                None => {}
            }
        }
        if self.judge(halves, &mut pair, known, true) {
            return Ok(true);
        }
        let parts = match pair {
            [Some(x), Some(y)] => self.compare_nodes(halves, [x, y], known)?,
            [Some(x), None] => self.one_side(halves, 0, x),
            [None, Some(y)] => self.one_side(halves, 1, y),
            [None, None] => None,
        };
        let before_end = before_end || self.is_before_end(halves, &pair, known);
        self.ahead.extend(parts.into_iter().flatten().map(|sides| Pair { sides, before_end }));
        Ok(false)
    }

    /// Drops what is outside the window. True if a page is full and a difference is known to follow.
    fn judge(&mut self, halves: &[Half; 2], pair: &mut [Option<At>; 2], known: [u32; 2], whole: bool) -> bool {
        let mut verdicts = [Verdict::Inside; 2];
        for i in 0..2 {
            if let Some(at) = pair[i] {
                let is_key = whole && matches!(halves[i].tree.state(at.id), State::Leaf { .. });
                verdicts[i] = self.verdict(&halves[i].path.0, known[i], is_key);
                if verdicts[i] == Verdict::Outside {
                    pair[i] = None;
                }
            }
        }
        let full = self.found.entries.len() == self.limit;
        let certain = pair.iter().zip(verdicts).all(|(at, verdict)| at.is_none() || verdict == Verdict::Inside);
        if full && certain && pair.iter().any(Option::is_some) && !verdicts.contains(&Verdict::Outside) {
            self.found.more = true;
            return true;
        }
        false
    }

    fn verdict(&self, path: &[u8], bits: u32, is_key: bool) -> Verdict {
        let mut verdict = Verdict::Inside;
        if let Some(lo) = self.window.lo.as_deref() {
            match compare(path, bits, lo) {
                Ordering::Less => return Verdict::Outside,
                Ordering::Greater => {}
                Ordering::Equal if is_key => {
                    if self.window.skip_lo {
                        return Verdict::Outside;
                    }
                }
                Ordering::Equal => verdict = Verdict::Unknown,
            }
        }
        if let Some(hi) = self.window.hi.as_deref() {
            match compare(path, bits, hi) {
                Ordering::Less => {}
                Ordering::Greater => return Verdict::Outside,
                Ordering::Equal if bits as usize >= 8 * hi.len() => return Verdict::Outside,
                Ordering::Equal => verdict = Verdict::Unknown,
            }
        }
        verdict
    }

    /// Whether all keys below a visited pair are before the end of a window that has one.
    fn is_before_end(&self, halves: &[Half; 2], pair: &[Option<At>; 2], known: [u32; 2]) -> bool {
        let Some(hi) = self.window.hi.as_deref() else { return true };
        (0..2).all(|i| pair[i].is_none() || compare(&halves[i].path.0, known[i], hi) == Ordering::Less)
    }

    /// Asks for the pages of what will be visited next, not only for those that are missing now.
    ///
    /// Of each pair that differs there is an entry at least; where there are more, a page of entries may be full before
    /// the walk comes to all that was asked for.
    fn want_ahead(&self, halves: &mut [Half; 2]) {
        let mut room = (self.limit - self.found.entries.len()) as u64;
        // What is ahead in key order is behind the window's start: the walk is there, or past it.
        let sure = self.ahead.iter().rev().skip(1).take_while(|pair| pair.before_end);
        let mut rest: Vec<_> = sure.map(|pair| pair.sides.map(|at| at.map(|at| Place::Here(at.id)))).collect();
        rest.reverse();
        while let Some(pair) = rest.pop() {
            if room == 0 || halves.iter().map(|half| half.tree.supply.wanted.len()).sum::<usize>() >= MAX_WANTED {
                return;
            }
            let [x, y] = [0, 1].map(|i| pair[i].as_ref().map(|place| halves[i].tree.sum_at(place)));
            if let (Some(x), Some(y)) = (x, y)
                && x.digest == y.digest
            {
                continue;
            }
            let mut below = halves.iter_mut().zip(pair).map(|(half, place)| half.tree.children_ahead(place?));
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
    }

    /// Two visited nodes: one entry, or smaller pairs, the next last.
    fn compare_nodes(&mut self, halves: &[Half; 2], [x, y]: [At; 2], known: [u32; 2]) -> Step<Parts> {
        let again = |at: At| Some(At { turn: None, ..at });
        let (a, b) = (&halves[0].path.0, &halves[1].path.0);
        Ok(Some(match compare_bits(a, known[0], b, known[1]) {
            Ordering::Less => [[None, again(y)], [again(x), None]],
            Ordering::Greater => [[again(x), None], [None, again(y)]],
            Ordering::Equal => match (halves[0].children(x), halves[1].children(y)) {
                (Some((bx, [xl, xr])), Some((by, [yl, yr]))) if bx == by => {
                    [[Some(xr), Some(yr)], [Some(xl), Some(yl)]]
                }
                (Some((bx, [xl, xr])), _) if bx < known[1] => {
                    let (l, r) = if path::bit(b, bx) { (None, again(y)) } else { (again(y), None) };
                    [[Some(xr), r], [Some(xl), l]]
                }
                (_, Some((by, [yl, yr]))) if by < known[0] => {
                    let (l, r) = if path::bit(a, by) { (None, again(x)) } else { (again(x), None) };
                    [[r, Some(yr)], [l, Some(yl)]]
                }
                (None, None) if known[0] == known[1] => {
                    self.add(halves, [Some(x), Some(y)]);
                    return Ok(None);
                }
                _ => return Err(Halt::Faulty("a node below a whole key")),
            },
        }))
    }

    /// A visited node that has nothing in its place in the other tree.
    fn one_side(&mut self, halves: &[Half; 2], side: usize, at: At) -> Parts {
        let put = |at: At| if side == 0 { [Some(at), None] } else { [None, Some(at)] };
        let Some((_, [left, right])) = halves[side].children(at) else {
            self.add(halves, put(at));
            return None;
        };
        Some([put(right), put(left)])
    }

    fn add(&mut self, halves: &[Half; 2], leaves: [Option<At>; 2]) {
        let [before, after] = [0, 1].map(|i| leaves[i].map(|at| Cid::trusted(halves[i].tree.arena.target(at.id))));
        let side = usize::from(before.is_none());
        if let Some(at) = leaves[side]
            && let State::Leaf { tail, .. } = halves[side].tree.state(at.id)
        {
            let len = usize::from(tail.start) + usize::from(tail.len);
            let segments = path::segments(&halves[side].path.0[..len]);
            self.found.entries.push(Difference { segments, before, after });
        }
    }
}

/// Compares two paths as far as the bits of both are known.
fn compare_bits(a: &[u8], a_bits: u32, b: &[u8], b_bits: u32) -> Ordering {
    let bits = a_bits.min(b_bits);
    compare(a, bits, &b[..b.len().min(bits.div_ceil(8) as usize)])
}

/// A diff of two stored maps, on its way.
pub struct DiffQuery {
    roots: [RootCid; 2],
    halves: [Half; 2],
    walk: Walk,
    done: Option<Differences>,
}

impl DiffQuery {
    pub fn open(roots: [RootCid; 2], source: &Arc<dyn NodeSource>, window: Window, limit: usize) -> Self {
        let halves = roots.map(|root| Half::new(Tree::open(&root, Arc::clone(source))));
        Self { roots, halves, walk: Walk::new(window, limit), done: None }
    }

    /// Goes on as far as it can, visiting at most `budget` nodes of each tree.
    pub fn run(&mut self, budget: u64) -> Result<Progress> {
        for half in &mut self.halves {
            half.tree.budget = budget;
            half.tree.supply.wanted.clear();
        }
        match self.walk.run(&mut self.halves) {
            Ok(done) => {
                self.done = Some(done);
                Ok(Progress::Done)
            }
            Err(Halt::Pages) => {
                let [a, b] = &self.halves;
                Ok(Progress::Pages(a.tree.supply.wanted.union(&b.tree.supply.wanted).copied().collect()))
            }
            Err(Halt::Budget) => Ok(Progress::Budget),
            Err(halt) => Err(halt_error(halt, &self.roots[0])),
        }
    }

    pub fn supply(&mut self, pages: &[Arc<Page>]) {
        for half in &mut self.halves {
            half.tree.supply.add(pages.iter().map(Arc::clone));
        }
    }

    /// The differences and the proofs of both trees, once it is done.
    pub fn answer(&mut self) -> Option<(Differences, [Vec<u8>; 2])> {
        let done = self.done.take()?;
        Some((done, self.halves.each_ref().map(|half| half.tree.proof())))
    }
}

/// Equal subtrees are known by equal digests, so the two maps must be of one suite.
pub fn check_roots(roots: [&RootCid; 2]) -> Result<()> {
    for root in roots {
        RootCid::of(&root.cid(), Kind::Map)?;
    }
    match roots[0].suite == roots[1].suite {
        true => Ok(()),
        false => Err(Error::input(InputCode::KindMismatch, "the two maps are of different suites")),
    }
}

/// The differences between two maps in a window, complete up to the last one. O(differences x depth) hashes.
///
/// # Errors
/// [`Error::Proof`] if the proofs do not prove it; [`Error::Input`] if a root is no map or `entries` is 0.
pub fn verify_diff(
    roots: [&RootCid; 2],
    window: Window,
    entries: usize,
    proofs: [&[u8]; 2],
    limit: usize,
) -> Result<Differences> {
    if entries == 0 {
        return Err(Error::request("limit: a page has at least 1 entry"));
    }
    check_roots(roots)?;
    let open = |i: usize| {
        let tree = verify::open(roots[i], proofs[i], limit).map_err(|error| error.in_step(i))?;
        Ok(Half::new(tree))
    };
    let mut halves = [open(0)?, open(1)?];
    let found = Walk::new(window, entries).run(&mut halves).map_err(verify::refuse)?;
    for (i, half) in halves.iter().enumerate() {
        verify::check_all_visited(&half.tree).map_err(|error| error.in_step(i))?;
    }
    Ok(found)
}
