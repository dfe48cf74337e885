//! Maps: `get`, `apply` and `build`, each once, for the gateway and the verifier alike (protocol section 4).
//!
//! A query is a value that can stop and go on: its `run` returns a halt when it needs pages or its budget is spent,
//! and picks up where it was when it is called again.

use crate::error::{ConflictCode, Error, InputCode, Result};
use crate::id::cid::{Cid, Kind, RootCid};
use crate::id::suite::{Digest, Suite};
use crate::key::{self as path, Key, first_difference};
use crate::proof::pruned;
use crate::proof::trail::{End, Move, Seek, View};
use crate::tree::arcs::{Arcs, Span};
use crate::tree::arena::{self, Arena, NodeId, Parting, PathBuffer, Side, State, Tail};
use crate::tree::build::{Builder, Built, Pages};
use crate::tree::node::Summary;
use crate::tree::{Halt, Step, Tree};

pub use crate::tree::scan::Listing;

const BELOW: &str = "a node below a whole key";
const NO_KEY_HERE: Halt = Halt::Faulty(BELOW);

/// A walk towards a key: compares it with each node's bits and goes down by its own (protocol section 3).
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) at: NodeId,
    pub(crate) floor: u32,
    /// The nodes passed and the sides taken, where that is asked for.
    pub(crate) turns: Option<Vec<(NodeId, Side)>>,
}

impl Walk {
    pub(crate) fn from(top: NodeId) -> Self {
        Self { at: top, floor: 0, turns: None }
    }

    pub(crate) fn noting_turns(top: NodeId) -> Self {
        Self { at: top, floor: 0, turns: Some(Vec::new()) }
    }

    /// Goes to the end. O(depth).
    #[inline]
    pub(crate) fn run(&mut self, tree: &mut Tree, key: &[u8]) -> Step<End> {
        let (mut at, mut floor) = (self.at, self.floor);
        let end = loop {
            if let Err(halt) = tree.visit(at) {
                break Err(halt);
            }
            match step(&tree.arena, at, floor, key) {
                Move::Down { bit, side, to, .. } => {
                    if let Some(turns) = &mut self.turns {
                        turns.push((at, side));
                    }
                    (at, floor) = (to, bit + 1);
                }
                Move::End(end) => break Ok(end),
                Move::Wrong(why) => break Err(Halt::Faulty(why)),
            }
        };
        (self.at, self.floor) = (at, floor);
        end
    }

    /// Goes as far as nodes can be had, without the proof showing them for that.
    fn look(&mut self, tree: &mut Tree, key: &[u8]) -> Step<()> {
        loop {
            tree.load(self.at)?;
            match step(&tree.arena, self.at, self.floor, key) {
                Move::Down { bit, to, .. } => (self.at, self.floor) = (to, bit + 1),
                Move::End(_) => return Ok(()),
                Move::Wrong(why) => return Err(Halt::Faulty(why)),
            }
        }
    }
}

/// What leads to a key.
pub(crate) struct ToKey<'a>(pub(crate) &'a [u8]);

impl Seek for ToKey<'_> {
    #[inline(always)]
    fn step(&mut self, view: &impl View, at: NodeId, floor: u32) -> Move {
        step(view.arena(), at, floor, self.0)
    }
}

/// One step of a walk, from a node that is in hand.
#[inline(always)]
fn step(arena: &Arena, at: NodeId, floor: u32, key: &[u8]) -> Move {
    match arena.node(at).state {
        State::Inner { bit, label, start, left, right } => {
            let own = arena.label(label, start, floor, bit);
            match arena::parting(own, floor, bit, key) {
                Parting::At(bit) => Move::End(End::Parts(bit)),
                Parting::Ends => Move::Wrong(BELOW),
                Parting::Agrees => Move::down(bit, Side::of(path::bit(key, bit)), left, right),
            }
        }
        State::Leaf { tail, .. } => match arena.leaf_parting(tail, floor, key) {
            Parting::At(bit) => Move::End(End::Parts(bit)),
            Parting::Agrees => Move::End(End::Found),
            Parting::Ends => Move::Wrong(BELOW),
        },
        State::Empty => Move::End(End::Empty),
        State::Stub { .. } | State::Remote { .. } => Move::Wrong(BELOW),
    }
}

/// Look-up of one key.
#[derive(Debug)]
pub(crate) struct Get {
    walk: Walk,
}

impl Get {
    pub(crate) fn new() -> Self {
        Self { walk: Walk::from(Tree::TOP) }
    }

    /// The leaf of the key, or None if the map has no such key.
    #[inline]
    pub(crate) fn run(&mut self, tree: &mut Tree, key: &[u8]) -> Step<Option<NodeId>> {
        Ok((self.walk.run(tree, key)? == End::Found).then_some(self.walk.at))
    }
}

/// One change of a map: what the key leads to before and after. None stands for absence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The coordinate.
    pub key: Key,
    /// The target that is there now.
    pub before: Option<Cid>,
    /// The target that is to be there.
    pub after: Option<Cid>,
}

/// Changes in key order, one a key, each of which changes something.
#[derive(Debug, Clone)]
pub struct Changes(Vec<Change>);

impl Changes {
    /// Sorts and checks.
    ///
    /// # Errors
    /// [`Error::Input`] for no changes at all; [`Error::Conflict`] for a key twice or a change of nothing.
    pub fn new(mut changes: Vec<Change>) -> Result<Self> {
        if changes.is_empty() {
            return Err(Error::input(InputCode::InvalidRequest, "there are no changes"));
        }
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        let invalid = |change: &Change, why: &str| {
            Err(Error::conflict(ConflictCode::InvalidChange, format!("{:?}: {why}", change.key.text())))
        };
        for (i, change) in changes.iter().enumerate() {
            if i > 0 && changes[i - 1].key == change.key {
                return invalid(change, "the coordinate is changed twice");
            }
            if change.before == change.after {
                return invalid(change, "before and after are the same: a change of nothing");
            }
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

/// The changes made, one after the other, on the tree as it changes (protocol section 4, map `apply`).
#[derive(Debug)]
pub(crate) struct Apply {
    changes: Changes,
    /// Walks on the tree as it was, to ask for all pages at once.
    ahead: Option<Vec<Walk>>,
    done: usize,
    top: NodeId,
}

impl Apply {
    pub(crate) fn new(changes: Changes) -> Self {
        Self { changes, ahead: None, done: 0, top: Tree::TOP }
    }

    /// The new top, its digest computed. O(changes x depth).
    pub(crate) fn run(&mut self, tree: &mut Tree) -> Step<NodeId> {
        if tree.may_lack_pages() {
            self.look_ahead(tree)?;
        }
        while let Some(change) = self.changes.0.get(self.done) {
            self.top = make(tree, self.top, change)?;
            self.done += 1;
        }
        tree.seal(self.top);
        Ok(self.top)
    }

    /// Every change is sure to visit its walk on the tree as it was: loads all of them, a level of pages at a time.
    fn look_ahead(&mut self, tree: &mut Tree) -> Step<()> {
        let walks = self.ahead.get_or_insert_with(|| self.changes.0.iter().map(|_| Walk::from(Tree::TOP)).collect());
        let mut missing = false;
        for (walk, change) in walks.iter_mut().zip(&self.changes.0) {
            match walk.look(tree, change.key.as_bytes()) {
                Err(Halt::Pages) => missing = true,
                other => other?,
            }
        }
        if missing { Err(Halt::Pages) } else { Ok(()) }
    }
}

fn make(tree: &mut Tree, top: NodeId, change: &Change) -> Step<NodeId> {
    let key = change.key.as_bytes();
    let mut walk = Walk::noting_turns(top);
    let end = walk.run(tree, key)?;
    let turns = walk.turns.take().unwrap_or_default();
    let found = (end == End::Found).then(|| Cid::trusted(tree.arena.target(walk.at)));
    if found != change.before {
        let is = found.map_or_else(|| "nothing".to_owned(), |cid| cid.text());
        let said = change.before.map_or_else(|| "nothing".to_owned(), |cid| cid.text());
        let why = format!("{:?}: {is} is there now, not {said}", change.key.text());
        return Err(Halt::Conflict { code: ConflictCode::BeforeMismatch, why });
    }
    match (&change.after, end) {
        (Some(after), End::Parts(bit)) => {
            let leaf = fresh_leaf(tree, key, after);
            let State::Leaf { tail, .. } = tree.state(leaf) else {
                return Err(NO_KEY_HERE);
            };
            let (left, right) = if path::bit(key, bit) { (walk.at, leaf) } else { (leaf, walk.at) };
            let sum = pruned::join(tree.sum(left), tree.sum(right), |_, _| Digest::ZERO)
                .ok_or(Halt::Full("the counts would sum to 2^53 or more"))?;
            let inner = tree.push_fresh(sum, State::Inner { bit, label: tail.offset, start: 0, left, right });
            tree.graft(&turns, inner)
        }
        (Some(after), _) => {
            let leaf = fresh_leaf(tree, key, after);
            tree.graft(&turns, leaf)
        }
        (None, _) => remove(tree, key, &turns),
    }
}

/// A leaf with its whole key, so that it may hang anywhere on the key's path.
fn fresh_leaf(tree: &mut Tree, key: &[u8], target: &Cid) -> NodeId {
    let tail = Tail { offset: tree.arena.store(key), start: 0, len: key.len() as u16 };
    let (target, target_len) = (tree.arena.store(target.as_bytes()), target.as_bytes().len() as u8);
    let sum = Summary { count: 1, measure: 1, digest: Digest::ZERO };
    tree.push_fresh(sum, State::Leaf { tail, target, target_len })
}

/// Puts the sibling of the leaf that the turns lead to in its parent's place.
fn remove(tree: &mut Tree, key: &[u8], turns: &[(NodeId, Side)]) -> Step<NodeId> {
    let Some((&(parent, side), above)) = turns.split_last() else {
        return Ok(tree.push_fresh(Summary { count: 0, measure: 0, digest: Digest::ZERO }, State::Empty));
    };
    let State::Inner { bit, left, right, .. } = tree.state(parent) else {
        return Err(NO_KEY_HERE);
    };
    let sibling = if side == Side::Left { right } else { left };
    lengthen(tree, key, bit, sibling)?;
    tree.graft(above, sibling)
}

/// Gives a node that moves up the bits that its old parent said for it: those of `key` before `bit`, and the other
/// value of `bit`. A node that is not in hand needs nothing: a page's top says all its bits, a stub none.
fn lengthen(tree: &mut Tree, key: &[u8], bit: u32, id: NodeId) -> Step<()> {
    if tree.on_same_page(id) {
        tree.load(id)?;
    }
    let floor = bit + 1;
    let mut whole = PathBuffer(key[..(bit / 8) as usize].to_vec());
    whole.put(8 * (bit / 8), &key[(bit / 8) as usize..=(bit / 8) as usize]);
    whole.turn(bit, Side::of(!path::bit(key, bit)));
    let state = match tree.state(id) {
        State::Leaf { tail, target, target_len } => {
            whole.put(floor, tree.arena.tail(tail, floor));
            let len = usize::from(tail.start) + usize::from(tail.len);
            let tail = Tail { offset: tree.arena.store(&whole.0[..len]), start: 0, len: len as u16 };
            State::Leaf { tail, target, target_len }
        }
        State::Inner { bit, label, start, left, right } => {
            whole.put(floor, tree.arena.label(label, start, floor, bit));
            let label = tree.arena.store(&whole.0[..bit.div_ceil(8) as usize]);
            State::Inner { bit, label, start: 0, left, right }
        }
        other => other,
    };
    tree.arena.node_mut(id).state = state;
    Ok(())
}

/// A new map: its root, and its pages as they are stored.
#[derive(Debug)]
pub struct NewMap {
    /// The root.
    pub root: RootCid,
    /// Number of keys.
    pub count: u64,
    /// Digests and bytes of all pages.
    pub pages: Vec<(Digest, Vec<u8>)>,
}

/// Builds the map of `arcs`, page by page: what is held at once is little more than the arcs. O(n log n).
///
/// # Errors
/// [`Error::Input`] if two arcs have the same path.
pub fn build_pages(suite: Suite, mut arcs: Arcs) -> Result<NewMap> {
    arcs.sort()?;
    let built = build(suite, arcs, Pages::Stored).map_err(|_| Error::request("arcs: they make no map"))?;
    let root = RootCid { kind: Kind::Map, suite, digest: built.sum.digest };
    Ok(NewMap { root, count: built.sum.count, pages: built.stored })
}

/// Builds the map of `arcs`, which are sorted and without doubles. O(n) hashing.
pub(crate) fn build(suite: Suite, arcs: Arcs, pages: Pages) -> Step<Built> {
    let (pool, arcs) = arcs.into_parts();
    let mut builder = Builder::new(Kind::Map, suite, pool, pages);
    // The bits of inner nodes whose right side is not whole yet, rising.
    let mut bits: Vec<u32> = Vec::new();
    let mut before: Option<Span> = None;
    for arc in arcs {
        if let Some(last) = before {
            let pool = &builder.tree.arena.bytes;
            let key = |span: Span| &pool[span.offset as usize..][..usize::from(span.key_len)];
            let bit = first_difference(key(last), key(arc)).ok_or(Halt::Faulty("a key twice"))?;
            while bits.last().is_some_and(|&b| b > bit) {
                builder.join(bits.pop().unwrap_or_default(), last.offset)?;
            }
            bits.push(bit);
        }
        let Span { offset, key_len, target_len } = arc;
        let (key, target) = builder.tree.arena.bytes[offset as usize..].split_at(usize::from(key_len));
        builder.encoder.put(0, key);
        let digest = builder.encoder.map_leaf(key.len(), &target[..usize::from(target_len)]);
        let tail = Tail { offset, start: 0, len: key_len };
        let sum = Summary { count: 1, measure: 1, digest };
        builder.leaf(sum, State::Leaf { tail, target: offset + u32::from(key_len), target_len });
        before = Some(arc);
    }
    while let (Some(bit), Some(last)) = (bits.pop(), before) {
        builder.join(bit, last.offset)?;
    }
    builder.finish()
}
