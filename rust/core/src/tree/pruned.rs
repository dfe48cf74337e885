//! The decoder of pruned trees, in preorder, strict and bounded (protocol section 4).
//!
//! ```text
//!        ●  02 gap label              preorder: ● ● ▢ ● ▢
//!       ╱ ╲
//!      ●   ▢  03 count digest         A stub stands for a subtree that is not shown.
//!     ╱ ╲
//!    ▢   ●  01 len tail len target
//! ```
//!
//! A proof is a pruned tree. So is a stored page; its stubs also record the height, weight and extent of the nodes that
//! they stand for. Decoding computes every digest and keeps one path buffer. It neither compares the top digest nor
//! replays a query.

use crate::bits::Side;
use crate::id::cid::Kind;
use crate::id::suite::{Digest, Suite};
use crate::interrupt::Fault;
use crate::key;
use crate::tree::arena::{Arena, Label, Node, NodeId, SHOWN, State, Tail};
use crate::tree::cut;
use crate::tree::encoder::Encoder;
use crate::tree::node::{SUM_LIMIT, Summary, left_count};
use crate::tree::pending::{Below, KNOWN, PendingNodes};
use crate::tree::reader::PrunedReader;

/// What a query can visit of a tree, at most: a proof that shows more is not the proof of its answer.
///
/// A leaf of a map takes a few bytes of a proof, but its whole key is hashed, and so is the prefix of an inner node. So the
/// bytes to hash are at most [`MAX_KEY`](key::MAX_KEY) for each stub, which takes 34 bytes or more, and twice that for each
/// leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VisitLimits {
    /// Nodes that are visited, and their children.
    pub(crate) nodes: usize,
    /// Leaves of a map that are visited.
    pub(crate) leaves: usize,
}

impl VisitLimits {
    /// Those of a page: its length bounds both.
    pub(crate) const NONE: Self = Self { nodes: usize::MAX, leaves: usize::MAX };
}

/// Whether stubs carry the fields that pages add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Proof,
    Page,
}

/// The maximum depth of a list, whose count is below 2^53.
pub const MAX_LIST_DEPTH: usize = 53;

/// The initial capacity for inner nodes above the current one: enough for most trees.
const OPEN: usize = 64;

/// The shortest encoding of a child of an inner node: a leaf whose tail is empty and whose target is `bafkqaaa`.
const MIN_CHILD: usize = 7;

/// The mean encoding of a node and its share of an inner node, in bytes; most nodes of a proof are stubs.
const TYPICAL_CHILD: usize = 34;

/// Shorter trees have few nodes on each level, or one path: they are hashed node by node.
pub(crate) const MIN_WIDE: usize = 2048;

/// Compiled for each kind and form, so that no step branches on them.
struct Decoder<'a, const MAP: bool, const PAGE: bool> {
    reader: PrunedReader<'a>,
    arena: &'a mut Arena,
    /// The nodes whose children are being read, the innermost one last.
    open: Vec<NodeId>,
    owed: usize, // the number of inner nodes whose right child has not begun
    floor: u32,
    /// Also holds the path to the current node.
    encoder: &'a mut Encoder,
    stubs: u32,
    limits: VisitLimits,
    leaves: usize,
    /// Nodes whose digests are computed together; None if each is computed at once.
    pending: Option<PendingNodes<NodeId>>,
    /// The place of each node among them, or `KNOWN`.
    places: Vec<u32>,
}

/// Decodes a whole pruned tree of fewer than 2^32 bytes into `arena`, which must be empty; the top is node 0.
///
/// An inner node is accepted only if enough bytes are left for all children that are still owed. So there are at most
/// two nodes per [`MIN_CHILD`] bytes, and memory is proportional to the input, valid or not. If the query can visit a few
/// nodes only, `limits.nodes` bounds the memory further; up to the capacity that `arena` has already, more are accepted.
pub(crate) fn decode(
    arena: &mut Arena,
    bytes: &[u8],
    kind: Kind,
    suite: Suite,
    form: Form,
    limits: VisitLimits,
) -> Result<(), Fault> {
    arena.reserve((2 * bytes.len() / TYPICAL_CHILD + 1).min(limits.nodes), bytes.len());
    arena.bytes.extend_from_slice(bytes);
    let encoder = &mut Encoder::new(suite);
    match (kind, form) {
        (Kind::Map, Form::Proof) => Decoder::<true, false>::new(bytes, arena, encoder, limits).run(),
        (Kind::Map, Form::Page) => Decoder::<true, true>::new(bytes, arena, encoder, limits).run(),
        (Kind::List, Form::Proof) => Decoder::<false, false>::new(bytes, arena, encoder, limits).run(),
        (Kind::List, Form::Page) => Decoder::<false, true>::new(bytes, arena, encoder, limits).run(),
    }
}

impl<'a, const MAP: bool, const PAGE: bool> Decoder<'a, MAP, PAGE> {
    const KIND: Kind = if MAP { Kind::Map } else { Kind::List };

    fn new(bytes: &'a [u8], arena: &'a mut Arena, encoder: &'a mut Encoder, limits: VisitLimits) -> Self {
        let reader = PrunedReader { bytes, at: 0 };
        let pending = match bytes.len() {
            0..MIN_WIDE => None,
            len => PendingNodes::of_pruned(encoder.suite(), len),
        };
        let (open, places) = (Vec::with_capacity(OPEN), Vec::new());
        Self { reader, arena, open, owed: 0, floor: 0, encoder, stubs: 0, limits, leaves: 0, pending, places }
    }

    fn run(mut self) -> Result<(), Fault> {
        loop {
            if self.node()? && self.close()? {
                self.hash_pending();
                return match self.reader.at == self.reader.bytes.len() {
                    true => Ok(()),
                    false => self.reader.fail("bytes follow the tree"),
                };
            }
        }
    }

    /// Reads one node. Returns whether it is complete, that is, not an inner node.
    #[inline(always)]
    fn node(&mut self) -> Result<bool, Fault> {
        let at = self.reader.at;
        let tag = self.reader.take(1)?[0];
        match (Self::KIND, tag) {
            (Kind::Map, 0x01) => self.map_leaf()?,
            (Kind::Map, 0x02) => {
                self.map_inner()?;
                return Ok(false);
            }
            (Kind::Map, 0x03) | (Kind::List, 0x13) => self.stub()?,
            (Kind::List, 0x11) => self.list_leaf()?,
            (Kind::List, 0x12) => {
                if self.open.len() >= MAX_LIST_DEPTH {
                    return Err(Fault { why: "a list deeper than any count allows", at });
                }
                self.push_inner(0, Label::NONE)?;
                return Ok(false);
            }
            (Kind::Map, 0x00) | (Kind::List, 0x10) => {
                if !self.open.is_empty() {
                    return Err(Fault { why: "an empty node inside a tree", at });
                }
                let digest = if MAP { self.encoder.map_empty() } else { self.encoder.list_empty() };
                self.push_shown(&Summary { count: 0, measure: 0, digest }, State::Empty)?;
            }
            _ => return Err(Fault { why: "an unknown node tag", at }),
        }
        Ok(true)
    }

    #[inline(always)]
    fn push_shown(&mut self, sum: &Summary, state: State) -> Result<NodeId, Fault> {
        self.arena.shown += 1;
        let flags = if PAGE { SHOWN } else { 0 };
        self.push(Node { flags, ..Node::new(sum, state) }, sum.measure)
    }

    #[inline(always)]
    fn push(&mut self, node: Node, measure: u64) -> Result<NodeId, Fault> {
        if self.arena.nodes.len() == self.arena.nodes.capacity() {
            self.grow()?;
        }
        if self.pending.is_some() {
            self.places.push(KNOWN);
        }
        Ok(self.arena.push(node, if MAP { node.count } else { measure }))
    }

    /// Reserves capacity for all nodes that the rest of the bytes can hold, so that nodes are moved once at most.
    #[cold]
    fn grow(&mut self) -> Result<(), Fault> {
        let owed = self.owed + 1;
        let rest = (self.reader.bytes.len() - self.reader.at).saturating_sub(MIN_CHILD * owed);
        match self.limits.nodes.saturating_sub(self.arena.nodes.len()) {
            0 => self.reader.fail("more nodes than the query can visit"),
            most => {
                self.arena.nodes.reserve_exact((2 + owed + 2 * rest / (MIN_CHILD + 1)).min(most));
                Ok(())
            }
        }
    }

    #[inline(always)]
    fn push_inner(&mut self, bit: u32, label: Label) -> Result<(), Fault> {
        self.owed += 1;
        if self.reader.bytes.len() - self.reader.at < MIN_CHILD * (self.owed + 1) {
            return self.reader.fail("the bytes end inside a node");
        }
        let next = NodeId(self.arena.nodes.len() as u32 + 1);
        // Equal children mark a node whose left child is incomplete.
        let state = State::Inner { bit, label, left: next, right: next };
        let id = self.push_shown(&Summary::UNKNOWN, state)?;
        self.open.push(id);
        Ok(())
    }

    #[inline(always)]
    fn map_inner(&mut self) -> Result<(), Fault> {
        let (bit, label) = self.reader.map_inner(self.floor)?;
        self.encoder.descend(self.floor, label, bit);
        self.push_inner(bit, Label::new(label, bit, (self.reader.at - label.len()) as u32))?;
        self.floor = bit + 1;
        Ok(())
    }

    #[inline(always)]
    fn map_leaf(&mut self) -> Result<(), Fault> {
        self.leaves += 1;
        if self.leaves > self.limits.leaves {
            return self.reader.fail("more leaves than the query can visit");
        }
        let (at, len, tail) = self.reader.map_tail(self.floor)?;
        let (target, target_len) = self.reader.target()?;
        self.encoder.put(self.floor, tail);
        let bytes = &self.reader.bytes[target as usize..][..usize::from(target_len)];
        self.encoder.write_map_leaf(len, bytes);
        let tail = Tail { offset: at as u32, start: (len - tail.len()) as u16, len: tail.len() as u16 };
        let sum = Summary { count: 1, measure: 1, digest: Digest::ZERO };
        let id = self.push_shown(&sum, State::Leaf { tail, target, target_len })?;
        self.hash(id);
        // After the hash, whose latency hides this check.
        key::check(self.encoder.path(len)).map_err(|why| Fault { why, at })?;
        self.measure(id);
        Ok(())
    }

    #[inline]
    fn list_leaf(&mut self) -> Result<(), Fault> {
        let measure = self.reader.amount("an element of measure 0", "a measure of 2^53 or more")?;
        let (target, target_len) = self.reader.target()?;
        let bytes = &self.reader.bytes[target as usize..][..usize::from(target_len)];
        self.encoder.write_list_leaf(measure, bytes);
        let sum = Summary { count: 1, measure, digest: Digest::ZERO };
        let id = self.push_shown(&sum, State::Leaf { tail: Tail::NONE, target, target_len })?;
        self.hash(id);
        self.measure(id);
        Ok(())
    }

    #[inline(always)]
    fn stub(&mut self) -> Result<(), Fault> {
        let count = self.reader.count()?;
        let measure =
            if MAP { count } else { self.reader.amount("a stub of measure 0", "a measure of 2^53 or more")? };
        let mut digest = Digest::ZERO;
        digest.0.copy_from_slice(self.reader.take(32)?);
        let state = State::Stub { extent: 0, ordinal: self.stubs };
        let id = self.push(Node::new(&Summary { count, measure, digest }, state), measure)?;
        if PAGE {
            let [height, weight, extent] = [self.reader.varint()?, self.reader.varint()?, self.reader.varint()?];
            let (Ok(height), Ok(weight), Ok(extent)) = (height.try_into(), weight.try_into(), extent.try_into()) else {
                return self.reader.fail("a page's fields of a stub are out of range");
            };
            let node = self.arena.node_mut(id);
            node.height = height;
            node.weight = weight;
            node.state = State::Stub { extent, ordinal: self.stubs };
            self.stubs += 1;
        }
        Ok(())
    }

    /// Hashes the encoding of a node, which the encoder holds: now, or together with others.
    #[inline(always)]
    fn hash(&mut self, id: NodeId) {
        match &mut self.pending {
            None => self.arena.node_mut(id).digest = self.encoder.hash(),
            Some(pending) => {
                let below = match self.arena.node(id).state {
                    State::Inner { left, right, .. } => {
                        let places = [left, right].map(|child| self.places[child.0 as usize]);
                        Below::of(Self::KIND, places, &self.arena.sum(right))
                    }
                    _ => Below::NOTHING,
                };
                self.places[id.0 as usize] = pending.add(id, self.encoder, below);
                if pending.is_full() {
                    self.hash_pending();
                }
            }
        }
    }

    /// Hashes the nodes that wait.
    fn hash_pending(&mut self) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        pending.hash();
        for (id, _, digest) in pending.hashed() {
            self.places[id.0 as usize] = KNOWN;
            self.arena.node_mut(id).digest = digest;
        }
        pending.clear();
    }

    #[inline(always)]
    fn measure(&mut self, id: NodeId) {
        if PAGE {
            cut::measure(self.arena, Self::KIND, id);
        }
    }

    /// Completes every inner node whose children are complete. Returns whether the top is complete.
    #[inline(always)]
    fn close(&mut self) -> Result<bool, Fault> {
        while let Some(&id) = self.open.last() {
            let next = NodeId(self.arena.nodes.len() as u32);
            let State::Inner { bit, left, right, .. } = &mut self.arena.node_mut(id).state else {
                return self.reader.fail("a node below a leaf");
            };
            let bit = *bit;
            if left == right {
                *right = next;
                self.owed -= 1;
                if MAP {
                    self.floor = bit + 1;
                    self.encoder.turn(bit, Side::Right);
                }
                return Ok(false);
            }
            let (left, right) = (*left, *right);
            self.open.pop();
            let [l, r] = [left, right].map(|child| self.arena.sum(child));
            let (count, measure) = (l.count + r.count, l.measure + r.measure);
            if count >= SUM_LIMIT || measure >= SUM_LIMIT {
                return self.reader.fail("counts or measures that sum to 2^53 or more");
            }
            if !MAP && l.count != left_count(count) {
                return self.reader.fail("a list of another shape than its count");
            }
            match Self::KIND {
                Kind::Map => self.encoder.write_map_inner(bit, &l, &r),
                Kind::List => self.encoder.write_list_inner(&l, &r),
            }
            self.arena.set_sum(id, &Summary { count, measure, digest: Digest::ZERO });
            self.hash(id);
            self.measure(id);
        }
        Ok(true)
    }
}

/// The summary of the parent of two nodes; None if a sum is out of bounds.
#[inline]
pub fn join(left: &Summary, right: &Summary, digest: impl FnOnce(&Summary, &Summary) -> Digest) -> Option<Summary> {
    let (count, measure) = (left.count + right.count, left.measure + right.measure);
    (count < SUM_LIMIT && measure < SUM_LIMIT).then(|| Summary { count, measure, digest: digest(left, right) })
}
