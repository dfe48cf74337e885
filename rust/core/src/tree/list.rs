//! Lists: `get`, `range`, `apply` and `build`, each once, for the gateway and the verifier alike (protocol section 4).
//!
//! Queries are values that can stop and go on, as in `map`.

use crate::error::{ConflictCode, Error, InputCode, Result};
use crate::id::cid::{Cid, Kind};
use crate::id::suite::{Digest, Suite};
use crate::proof::pruned;
use crate::proof::trail::{End, Move, Seek, View};
use crate::tree::arena::{NodeId, Side, State, Tail};
use crate::tree::build::{Builder, Built, Pages};
use crate::tree::node::{SUM_LIMIT, Summary};
use crate::tree::{Halt, MAX_WANTED, Place, Step, Tree};

const OTHER_SHAPE: &str = "a list whose counts do not fit its shape";
const NOT_A_LIST: Halt = Halt::Faulty(OTHER_SHAPE);

/// What leads to the element of an index, which is that below the node where the walk is.
#[derive(Debug)]
pub(crate) struct ToIndex(pub(crate) u64);

impl Seek for ToIndex {
    #[inline(always)]
    fn step(&mut self, view: &impl View, at: NodeId, _: u32) -> Move {
        if self.0 >= view.sum(at).count {
            return Move::End(End::Empty);
        }
        match view.arena().node(at).state {
            State::Leaf { .. } => Move::End(End::Found),
            State::Inner { bit, left, right, .. } => {
                let on_left = view.sum(left).count;
                let side = Side::of(self.0 >= on_left);
                if side == Side::Right {
                    self.0 -= on_left;
                }
                Move::down(bit, side, left, right)
            }
            _ => Move::Wrong(OTHER_SHAPE),
        }
    }
}

/// Goes down by counts to an element.
#[derive(Debug)]
pub(crate) struct Walk {
    at: NodeId,
    pub(crate) to: ToIndex,
    turns: Option<Vec<(NodeId, Side)>>,
}

impl Walk {
    pub(crate) fn from(top: NodeId, index: u64) -> Self {
        Self { at: top, to: ToIndex(index), turns: None }
    }

    fn noting_turns(top: NodeId, index: u64) -> Self {
        Self { at: top, to: ToIndex(index), turns: Some(Vec::new()) }
    }

    /// The element's leaf, or None if the list is shorter, which its top alone shows. O(log n).
    pub(crate) fn run(&mut self, tree: &mut Tree) -> Step<Option<NodeId>> {
        loop {
            tree.visit(self.at)?;
            if let Some(end) = self.step(tree)? {
                return Ok(end);
            }
        }
    }

    /// Goes as far as nodes can be had, without the proof showing them for that.
    fn look(&mut self, tree: &mut Tree) -> Step<()> {
        loop {
            tree.load(self.at)?;
            if self.step(tree)?.is_some() {
                return Ok(());
            }
        }
    }

    #[inline]
    fn step(&mut self, tree: &Tree) -> Step<Option<Option<NodeId>>> {
        match self.to.step(tree, self.at, 0) {
            Move::Down { side, to, .. } => {
                if let Some(turns) = &mut self.turns {
                    turns.push((self.at, side));
                }
                self.at = to;
                Ok(None)
            }
            Move::End(end) => Ok(Some((end == End::Found).then_some(self.at))),
            Move::Wrong(why) => Err(Halt::Faulty(why)),
        }
    }
}

/// What a range gives (protocol section 5, `list_range`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    /// Targets of the elements whose span of measure meets the range.
    pub segments: Vec<Cid>,
    /// Their measures.
    pub sizes: Vec<u64>,
    /// Where the first of them starts; None if there is none.
    pub offset: Option<u64>,
    /// Number of elements of the whole list.
    pub length: u64,
    /// Sum of all measures.
    pub total_size: u64,
}

/// The elements that a range of measure meets (protocol section 4, `range`).
#[derive(Debug)]
pub(crate) struct Range {
    start: u64,
    end: Option<u64>,
    max_segments: usize,
    /// Subtrees that meet the range and where they start, the next one last. None before the top was seen.
    ahead: Option<Vec<(NodeId, u64)>>,
    found: Span,
}

impl Range {
    pub(crate) fn new(start: u64, end: Option<u64>, max_segments: usize) -> Self {
        Self { start, end, max_segments, ahead: None, found: Span::default() }
    }

    fn meets(&self, from: u64, measure: u64) -> bool {
        let end = self.end.unwrap_or(u64::MAX).min(self.found.total_size);
        from < end && from + measure > self.start && end > self.start
    }

    /// Goes on to the end of the range. O(log n + segments).
    pub(crate) fn run(&mut self, tree: &mut Tree) -> Step<Span> {
        if self.ahead.is_none() {
            tree.visit(Tree::TOP)?;
            let top = *tree.sum(Tree::TOP);
            (self.found.length, self.found.total_size) = (top.count, top.measure);
            self.ahead = Some(if self.meets(0, top.measure) { vec![(Tree::TOP, 0)] } else { Vec::new() });
        }
        let mut ahead = self.ahead.take().unwrap_or_default();
        while let Some(&(id, from)) = ahead.last() {
            if let Err(halt) = tree.visit(id) {
                if matches!(halt, Halt::Pages) {
                    self.want_ahead(tree, &ahead);
                }
                self.ahead = Some(ahead);
                return Err(halt);
            }
            ahead.pop();
            match tree.state(id) {
                State::Inner { left, right, .. } => {
                    let (l, r) = (tree.sum(left).measure, tree.sum(right).measure);
                    let sides = [(right, from + l, r), (left, from, l)];
                    ahead.extend(sides.iter().filter(|s| self.meets(s.1, s.2)).map(|s| (s.0, s.1)));
                }
                State::Leaf { .. } => {
                    if self.found.segments.len() == self.max_segments {
                        return Err(Halt::Full("the range has more segments than one answer may have"));
                    }
                    self.found.offset.get_or_insert(from);
                    self.found.segments.push(Cid::trusted(tree.arena.target(id)));
                    self.found.sizes.push(tree.sum(id).measure);
                }
                _ => return Err(NOT_A_LIST),
            }
        }
        Ok(std::mem::take(&mut self.found))
    }

    /// Asks for all pages on the way, not only for the one that is missing now: each is sure to be visited.
    fn want_ahead(&self, tree: &mut Tree, ahead: &[(NodeId, u64)]) {
        let mut rest: Vec<(Place, u64)> = ahead.iter().map(|&(id, from)| (Place::Here(id), from)).collect();
        while let Some((place, from)) = rest.pop() {
            if tree.supply.wanted.len() >= MAX_WANTED {
                return;
            }
            if let Some((_, [left, right])) = tree.children_ahead(place) {
                let [l, r] = [&left, &right].map(|place| tree.sum_at(place).measure);
                let sides = [(right, from + l, r), (left, from, l)];
                rest.extend(sides.into_iter().filter(|s| self.meets(s.1, s.2)).map(|s| (s.0, s.1)));
            }
        }
    }
}

/// One change of a list: the element before and after. None stands for absence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The coordinate.
    pub index: u64,
    /// The target that is there now, and its size if that is to be checked too.
    pub before: Option<(Cid, Option<u64>)>,
    /// The target and size that are to be there.
    pub after: Option<(Cid, u64)>,
}

/// Changes in index order, one an index.
#[derive(Debug, Clone)]
pub struct Changes(Vec<Change>);

impl Changes {
    /// Sorts and checks what can be checked without the list.
    ///
    /// # Errors
    /// [`Error::Input`] for no changes at all, or a size that is 0 or past 2^53 - 1; [`Error::Conflict`] for an index
    /// twice or a change of nothing.
    pub fn new(mut changes: Vec<Change>) -> Result<Self> {
        if changes.is_empty() {
            return Err(Error::input(InputCode::InvalidRequest, "there are no changes"));
        }
        changes.sort_by_key(|change| change.index);
        for (i, change) in changes.iter().enumerate() {
            let index = change.index;
            let sizes = [change.before.and_then(|b| b.1), change.after.map(|a| a.1)];
            if sizes.into_iter().flatten().any(|size| size == 0 || size >= SUM_LIMIT) {
                return Err(Error::request(format!("index {index}: a size is at least 1 and below 2^53")));
            }
            let why = if i > 0 && changes[i - 1].index == index {
                "the coordinate is changed twice"
            } else if change.before.is_none() && change.after.is_none() {
                "before and after are both absent: a change of nothing"
            } else {
                continue;
            };
            return Err(Error::conflict(ConflictCode::InvalidChange, format!("index {index}: {why}")));
        }
        Ok(Self(changes))
    }

    /// Number of coordinates changed.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: [`Changes::new`] refuses that.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The changes made: replacements, then appends or one truncation (protocol section 4, list `apply`).
#[derive(Debug)]
pub(crate) struct Apply {
    changes: Changes,
    ahead: Option<Vec<Walk>>,
    /// The `get` walks that are done.
    checked: usize,
    /// The changes that are made.
    made: usize,
    top: NodeId,
}

impl Apply {
    pub(crate) fn new(changes: Changes) -> Self {
        Self { changes, ahead: None, checked: 0, made: 0, top: Tree::TOP }
    }

    /// The new top, its digest computed. O(changes x log n).
    pub(crate) fn run(&mut self, tree: &mut Tree) -> Step<NodeId> {
        if tree.may_lack_pages() {
            self.look_ahead(tree)?;
        }
        while let Some(change) = self.changes.0.get(self.checked) {
            check(tree, change)?;
            self.checked += 1;
        }
        let count = tree.sum(Tree::TOP).count;
        let keep = self.check_shape(count)?;
        while let Some(change) = self.changes.0.get(self.made) {
            if let Some((target, size)) = change.after {
                let leaf = fresh_leaf(tree, &target, size);
                self.top = match change.index < count {
                    true => replace(tree, self.top, change.index, leaf)?,
                    false => append(tree, self.top, leaf)?,
                };
            }
            self.made += 1;
        }
        if keep < count {
            self.top = truncate(tree, self.top, keep)?;
        }
        tree.seal(self.top);
        Ok(self.top)
    }

    fn look_ahead(&mut self, tree: &mut Tree) -> Step<()> {
        let all = || self.changes.0.iter().map(|change| Walk::from(Tree::TOP, change.index)).collect();
        let mut missing = false;
        for walk in self.ahead.get_or_insert_with(all) {
            match walk.look(tree) {
                Err(Halt::Pages) => missing = true,
                other => other?,
            }
        }
        if missing { Err(Halt::Pages) } else { Ok(()) }
    }

    /// Appends leave no gap, removals are a suffix, and only one of the two happens. The count that is kept.
    fn check_shape(&self, count: u64) -> Step<u64> {
        let refuse = |at: usize, why: &str| {
            let why = format!("index {}: {why}", self.changes.0[at].index);
            Err(Halt::Conflict { code: ConflictCode::InvalidChange, why })
        };
        let (mut next, mut keep, mut removed) = (count, count, None);
        for (at, change) in self.changes.0.iter().enumerate() {
            if change.index >= count {
                if change.index != next {
                    return refuse(at, &format!("an append that leaves a gap; the next index is {next}"));
                }
                if removed.is_some() {
                    return refuse(at, "appends and removals together");
                }
                next += 1;
            } else if change.after.is_none() {
                keep = keep.min(change.index);
                removed = Some(at);
            } else if removed.is_some() {
                return refuse(at, "a replacement behind a removal; only the end of a list can be removed");
            }
        }
        let removals = self.changes.0.iter().filter(|change| change.after.is_none()).count() as u64;
        match removed {
            Some(at) if removals != count - keep => refuse(at, "removals that are not the end of the list"),
            _ => Ok(keep),
        }
    }
}

/// Compares a change with the element that is there now.
fn check(tree: &mut Tree, change: &Change) -> Step<()> {
    let found = Walk::from(Tree::TOP, change.index).run(tree)?;
    let is = found.map(|id| (Cid::trusted(tree.arena.target(id)), tree.sum(id).measure));
    let refuse = |code, why: String| {
        let why = format!("index {}: {why}", change.index);
        Err(Halt::Conflict { code, why })
    };
    let agrees = match (&change.before, &is) {
        (None, None) => true,
        (Some((target, size)), Some((there, measure))) => target == there && size.is_none_or(|size| size == *measure),
        _ => false,
    };
    if !agrees {
        let show = |element: Option<(Cid, Option<u64>)>| match element {
            None => "nothing".to_owned(),
            Some((cid, None)) => cid.text(),
            Some((cid, Some(size))) => format!("{cid} of size {size}"),
        };
        let there = show(is.map(|(cid, size)| (cid, Some(size))));
        return refuse(ConflictCode::BeforeMismatch, format!("{there} is there now, not {}", show(change.before)));
    }
    if is.is_some() && is == change.after {
        return refuse(ConflictCode::InvalidChange, "before and after are the same: a change of nothing".into());
    }
    Ok(())
}

fn fresh_leaf(tree: &mut Tree, target: &Cid, measure: u64) -> NodeId {
    let (offset, target_len) = (tree.arena.store(target.as_bytes()), target.as_bytes().len() as u8);
    let sum = Summary { count: 1, measure, digest: Digest::ZERO };
    tree.push_fresh(sum, State::Leaf { tail: Tail::NONE, target: offset, target_len })
}

fn replace(tree: &mut Tree, top: NodeId, index: u64, leaf: NodeId) -> Step<NodeId> {
    let mut walk = Walk::noting_turns(top, index);
    walk.run(tree)?.ok_or(NOT_A_LIST)?;
    tree.graft(&walk.turns.unwrap_or_default(), leaf)
}

fn inner(tree: &mut Tree, left: NodeId, right: NodeId) -> Step<NodeId> {
    let sum = pruned::join(tree.sum(left), tree.sum(right), |_, _| Digest::ZERO)
        .ok_or(Halt::Full("the counts or measures would sum to 2^53 or more"))?;
    Ok(tree.push_fresh(sum, State::Inner { bit: 0, label: 0, start: 0, left, right }))
}

/// Hangs a leaf behind the last one: down the right spine as long as the counts are no powers of two.
fn append(tree: &mut Tree, top: NodeId, leaf: NodeId) -> Step<NodeId> {
    let mut turns = Vec::new();
    let mut at = top;
    loop {
        match tree.sum(at).count {
            0 => return Ok(leaf),
            n if n.is_power_of_two() => break,
            _ => {}
        }
        tree.visit(at)?;
        let State::Inner { right, .. } = tree.state(at) else {
            return Err(NOT_A_LIST);
        };
        turns.push((at, Side::Right));
        at = right;
    }
    let joined = inner(tree, at, leaf)?;
    tree.graft(&turns, joined)
}

/// Keeps the first `keep` elements, fewer than there are.
fn truncate(tree: &mut Tree, top: NodeId, keep: u64) -> Step<NodeId> {
    if keep == 0 {
        return Ok(tree.push_fresh(Summary { count: 0, measure: 0, digest: Digest::ZERO }, State::Empty));
    }
    let mut turns = Vec::new();
    let (mut at, mut keep) = (top, keep);
    while keep < tree.sum(at).count {
        tree.visit(at)?;
        let State::Inner { left, right, .. } = tree.state(at) else {
            return Err(NOT_A_LIST);
        };
        let on_left = tree.sum(left).count;
        if keep > on_left {
            turns.push((at, Side::Right));
            keep -= on_left;
            at = right;
        } else {
            at = left;
        }
    }
    tree.graft(&turns, at)
}

/// Builds the list of these elements: targets of section 1 and their sizes, at least 1. O(n) hashing.
pub(crate) fn build<'a>(suite: Suite, elements: impl Iterator<Item = (&'a [u8], u64)>, pages: Pages) -> Step<Built> {
    let mut builder = Builder::new(Kind::List, suite, Vec::new(), pages);
    for (target, measure) in elements {
        let digest = builder.encoder.list_leaf(measure, target);
        let (offset, target_len) = (builder.tree.arena.store(target), target.len() as u8);
        let sum = Summary { count: 1, measure, digest };
        builder.leaf(sum, State::Leaf { tail: Tail::NONE, target: offset, target_len });
        // The counts of whole subtrees from the left are falling powers of two.
        while builder.last_two_equal() {
            builder.join(0, 0)?;
        }
    }
    while builder.open() > 1 {
        builder.join(0, 0)?;
    }
    builder.finish()
}
