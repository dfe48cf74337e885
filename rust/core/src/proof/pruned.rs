//! The one codec: pruned trees in preorder, bounded and strict (protocol section 4).
//!
//! A proof is a pruned tree; a stored page is one too, whose stubs also note the height, weight and extent of what
//! they stand for. Decoding computes every digest on the way and keeps one path buffer. What it does not do: compare
//! the top digest, or replay a query.

use crate::id::cid::Kind;
use crate::id::suite::{Digest, Suite};
use crate::id::varint;
use crate::key::{self as path, top_bits};
use crate::page::cut;
pub(crate) use crate::proof::reader::Fault;
use crate::proof::reader::Reader;
use crate::tree::arena::{Arena, Node, NodeId, SHOWN, Side, State, Tail};
use crate::tree::node::{Encoder, SUM_LIMIT, Summary, left_count};

/// Whether stubs carry what a page notes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Proof,
    Page,
}

/// Inner nodes above a leaf of the longest list; more of them open at once can't be right.
const MAX_LIST_DEPTH: usize = 53;

/// The shortest encoding of a child of an inner node: a leaf whose tail is empty and whose target is `bafkqaaa`.
const MIN_CHILD: usize = 7;

/// The mean encoding of a node and its share of an inner node, in bytes; most nodes of a proof are stubs.
const TYPICAL_CHILD: usize = 34;

/// The parent of the top.
const NONE: u32 = u32::MAX;

/// Made for each kind and form, so that none of its steps asks which it is.
struct Decoder<'a, const MAP: bool, const PAGE: bool> {
    reader: Reader<'a>,
    arena: &'a mut Arena,
    /// The innermost node whose children are being read. Each notes its own parent as its home meanwhile.
    parent: u32,
    /// Number of such nodes, of a list.
    depth: usize,
    /// Inner nodes whose right side is not begun.
    owed: usize,
    floor: u32,
    /// Also holds the path.
    encoder: &'a mut Encoder,
    stubs: u32,
}

/// Reads a whole pruned tree; its top is node 0. `bytes` must be shorter than 2^32.
///
/// An inner node is not begun unless enough bytes are left for all children that are owed. So there are at most two
/// nodes for each [`MIN_CHILD`] bytes, and memory stays in proportion whatever the bytes are. The nodes are added to `arena`, which is empty.
pub(crate) fn decode(arena: &mut Arena, bytes: &[u8], kind: Kind, suite: Suite, form: Form) -> Result<(), Fault> {
    arena.reserve(2 * bytes.len() / TYPICAL_CHILD + 1, bytes.len());
    arena.bytes.extend_from_slice(bytes);
    let encoder = &mut Encoder::new(suite);
    match (kind, form) {
        (Kind::Map, Form::Proof) => Decoder::<true, false>::new(bytes, arena, encoder).run(),
        (Kind::Map, Form::Page) => Decoder::<true, true>::new(bytes, arena, encoder).run(),
        (Kind::List, Form::Proof) => Decoder::<false, false>::new(bytes, arena, encoder).run(),
        (Kind::List, Form::Page) => Decoder::<false, true>::new(bytes, arena, encoder).run(),
    }
}

impl<'a, const MAP: bool, const PAGE: bool> Decoder<'a, MAP, PAGE> {
    const KIND: Kind = if MAP { Kind::Map } else { Kind::List };

    fn new(bytes: &'a [u8], arena: &'a mut Arena, encoder: &'a mut Encoder) -> Self {
        let reader = Reader { bytes, at: 0 };
        Self { reader, arena, parent: NONE, depth: 0, owed: 0, floor: 0, encoder, stubs: 0 }
    }

    fn run(mut self) -> Result<(), Fault> {
        loop {
            if self.node()? && self.close()? {
                return match self.reader.at == self.reader.bytes.len() {
                    true => Ok(()),
                    false => self.reader.fail("bytes follow the tree"),
                };
            }
        }
    }

    /// Reads one node. True if nothing of it is left to read: it is no inner node.
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
                if self.depth >= MAX_LIST_DEPTH {
                    return Err(Fault { why: "a list deeper than any count allows", at });
                }
                self.push_inner(0, 0, 0)?;
                return Ok(false);
            }
            (Kind::Map, 0x00) | (Kind::List, 0x10) => {
                if self.parent != NONE {
                    return Err(Fault { why: "an empty node inside a tree", at });
                }
                let digest = if MAP { self.encoder.map_empty() } else { self.encoder.list_empty() };
                self.push_shown(Summary { count: 0, measure: 0, digest }, State::Empty, NONE);
            }
            _ => return Err(Fault { why: "an unknown node tag", at }),
        }
        Ok(true)
    }

    #[inline(always)]
    fn push_shown(&mut self, sum: Summary, state: State, home: u32) -> NodeId {
        self.arena.shown += 1;
        let flags = if PAGE { SHOWN } else { 0 };
        self.push(Node { home, flags, ..Node::new(sum, state) })
    }

    #[inline(always)]
    fn push(&mut self, node: Node) -> NodeId {
        if self.arena.nodes.len() == self.arena.nodes.capacity() {
            self.grow();
        }
        self.arena.push(node)
    }

    /// Reserves capacity for all nodes that the rest of the bytes can hold, so that nodes are moved once at most.
    #[cold]
    fn grow(&mut self) {
        let owed = self.owed + 1;
        let rest = (self.reader.bytes.len() - self.reader.at).saturating_sub(MIN_CHILD * owed);
        self.arena.nodes.reserve_exact(2 + owed + 2 * rest / (MIN_CHILD + 1));
    }

    #[inline(always)]
    fn push_inner(&mut self, bit: u32, label: u32, start: u16) -> Result<(), Fault> {
        self.owed += 1;
        if self.reader.bytes.len() - self.reader.at < MIN_CHILD * (self.owed + 1) {
            return self.reader.fail("the bytes end inside a node");
        }
        let next = NodeId(self.arena.nodes.len() as u32 + 1);
        // The same node on both sides says that the left one is not whole yet.
        let state = State::Inner { bit, label, start, left: next, right: next };
        self.parent = self.push_shown(Summary::UNKNOWN, state, self.parent).0;
        if !MAP {
            self.depth += 1;
        }
        Ok(())
    }

    #[inline(always)]
    fn map_inner(&mut self) -> Result<(), Fault> {
        let (bit, label) = self.reader.map_inner(self.floor)?;
        self.encoder.descend(self.floor, label, bit);
        // Without a label there is no byte of it: `start` then says that the label ends where it begins.
        let start = if label.is_empty() { bit.div_ceil(8) } else { self.floor / 8 };
        self.push_inner(bit, (self.reader.at - label.len()) as u32, start as u16)?;
        self.floor = bit + 1;
        Ok(())
    }

    #[inline(always)]
    fn map_leaf(&mut self) -> Result<(), Fault> {
        let (at, len, tail) = self.reader.map_tail(self.floor)?;
        let (target, target_len) = self.reader.target()?;
        self.encoder.put(self.floor, tail);
        let bytes = &self.reader.bytes[target as usize..][..usize::from(target_len)];
        let digest = self.encoder.map_leaf(len, bytes);
        // Behind the hash, with which the processor is busy for a while.
        path::check(self.encoder.path(len)).map_err(|why| Fault { why, at })?;
        let tail = Tail { offset: at as u32, start: (len - tail.len()) as u16, len: tail.len() as u16 };
        let sum = Summary { count: 1, measure: 1, digest };
        let id = self.push_shown(sum, State::Leaf { tail, target, target_len }, NONE);
        self.note_cut(id);
        Ok(())
    }

    #[inline]
    fn list_leaf(&mut self) -> Result<(), Fault> {
        let measure = self.reader.amount("an element of measure 0", "a measure of 2^53 or more")?;
        let (target, target_len) = self.reader.target()?;
        let bytes = &self.reader.bytes[target as usize..][..usize::from(target_len)];
        let digest = self.encoder.list_leaf(measure, bytes);
        let sum = Summary { count: 1, measure, digest };
        let id = self.push_shown(sum, State::Leaf { tail: Tail::NONE, target, target_len }, NONE);
        self.note_cut(id);
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
        let id = self.push(Node::new(Summary { count, measure, digest }, state));
        if PAGE {
            let [height, weight, extent] = [self.reader.varint()?, self.reader.varint()?, self.reader.varint()?];
            let (Ok(height), Ok(weight), Ok(extent)) = (height.try_into(), weight.try_into(), extent.try_into()) else {
                return self.reader.fail("what a page notes of a stub is out of range");
            };
            let node = self.arena.node_mut(id);
            node.height = height;
            node.weight = weight;
            node.state = State::Stub { extent, ordinal: self.stubs };
            self.stubs += 1;
        }
        Ok(())
    }

    #[inline(always)]
    fn note_cut(&mut self, id: NodeId) {
        if PAGE {
            cut::note(self.arena, Self::KIND, id);
        }
    }

    /// Ends every inner node that is whole now. True if that was the top.
    #[inline(always)]
    fn close(&mut self) -> Result<bool, Fault> {
        while self.parent != NONE {
            let (next, id) = (NodeId(self.arena.nodes.len() as u32), NodeId(self.parent));
            let node = self.arena.node_mut(id);
            let State::Inner { bit, left, right, .. } = &mut node.state else {
                return self.reader.fail("a node inside a leaf");
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
            self.parent = std::mem::replace(&mut node.home, NONE);
            let (l, r) = (&self.arena.node(left).sum, &self.arena.node(right).sum);
            let (count, measure) = (l.count + r.count, l.measure + r.measure);
            if count >= SUM_LIMIT || measure >= SUM_LIMIT {
                return self.reader.fail("counts or measures that sum to 2^53 or more");
            }
            if !MAP && l.count != left_count(count) {
                return self.reader.fail("a list of another shape than its count");
            }
            let digest = if MAP { self.encoder.map_inner(bit, l, r) } else { self.encoder.list_inner(l, r) };
            self.arena.node_mut(id).sum = Summary { count, measure, digest };
            if !MAP {
                self.depth -= 1;
            }
            self.note_cut(id);
        }
        Ok(true)
    }
}

/// The summary above two others; None if a sum is out of bounds.
#[inline]
pub fn join(left: &Summary, right: &Summary, digest: impl FnOnce(&Summary, &Summary) -> Digest) -> Option<Summary> {
    let (count, measure) = (left.count + right.count, left.measure + right.measure);
    (count < SUM_LIMIT && measure < SUM_LIMIT).then(|| Summary { count, measure, digest: digest(left, right) })
}

/// Writes the tree below `top`, whose bits before `floor` are left out: what is shown, and stubs for the rest.
/// `sum` says what a stub stands for.
pub fn encode<'a>(
    arena: &'a Arena,
    kind: Kind,
    top: NodeId,
    form: Form,
    sum: impl Fn(NodeId) -> &'a Summary,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    encode_to(&mut out, arena, kind, top, form, sum);
    out
}

/// The same, behind what `out` holds.
pub fn encode_to<'a>(
    out: &mut Vec<u8>,
    arena: &'a Arena,
    kind: Kind,
    top: NodeId,
    form: Form,
    sum: impl Fn(NodeId) -> &'a Summary,
) {
    let mut rest = vec![(top, 0u32)];
    while let Some((id, floor)) = rest.pop() {
        let node = arena.node(id);
        match node.state {
            State::Inner { bit, left, right, .. } if node.has(SHOWN) => {
                write_shown(out, kind, arena, id, floor);
                rest.push((right, bit + 1));
                rest.push((left, bit + 1));
            }
            State::Leaf { .. } if node.has(SHOWN) => write_shown(out, kind, arena, id, floor),
            State::Empty => write_shown(out, kind, arena, id, floor),
            _ => {
                write_stub(out, kind, sum(id));
                if form == Form::Page {
                    varint::write(out, u64::from(node.height));
                    varint::write(out, u64::from(node.weight));
                    varint::write(out, u64::from(arena.extent(id)));
                }
            }
        }
    }
}

/// Appends what a pruned tree shows of a node, whose bits before `floor` are left out: not its children. A stub or a
/// stand-in shows nothing, and is taken for the empty node.
#[inline(always)]
pub fn write_shown(out: &mut Vec<u8>, kind: Kind, arena: &Arena, id: NodeId, floor: u32) {
    let node = arena.node(id);
    match (node.state, kind) {
        (State::Inner { bit, label, start, .. }, Kind::Map) => {
            out.push(0x02);
            varint::write(out, u64::from(bit - floor));
            write_own(out, arena.label(label, start, floor, bit), floor, bit);
        }
        (State::Inner { .. }, Kind::List) => out.push(0x12),
        (State::Leaf { tail, .. }, Kind::Map) => {
            let tail = arena.tail(tail, floor);
            out.push(0x01);
            varint::write(out, tail.len() as u64);
            write_own(out, tail, floor, u32::MAX);
            write_target(out, arena.target(id));
        }
        (State::Leaf { .. }, Kind::List) => {
            out.push(0x11);
            varint::write(out, node.sum.measure);
            write_target(out, arena.target(id));
        }
        (_, Kind::Map) => out.push(0x00),
        (_, Kind::List) => out.push(0x10),
    }
}

#[inline(always)]
fn write_target(out: &mut Vec<u8>, target: &[u8]) {
    varint::write(out, target.len() as u64);
    out.extend_from_slice(target);
}

/// Appends what a proof says of a node that it does not show.
#[inline(always)]
pub fn write_stub(out: &mut Vec<u8>, kind: Kind, sum: &Summary) {
    out.push(if kind == Kind::Map { 0x03 } else { 0x13 });
    varint::write(out, sum.count);
    if kind == Kind::List {
        varint::write(out, sum.measure);
    }
    out.extend_from_slice(&sum.digest.0);
}

/// Appends a label or tail with its stray bits cleared.
#[inline]
fn write_own(out: &mut Vec<u8>, own: &[u8], floor: u32, end: u32) {
    let from = out.len();
    out.extend_from_slice(own);
    if let Some(first) = out.get_mut(from) {
        *first &= !top_bits(floor % 8);
    }
    if !own.is_empty()
        && end != u32::MAX
        && !end.is_multiple_of(8)
        && let Some(last) = out.last_mut()
    {
        *last &= top_bits(end % 8);
    }
}
