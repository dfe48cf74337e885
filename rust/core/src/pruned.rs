//! The one codec: pruned trees in preorder, bounded and strict (protocol section 4).
//!
//! A proof is a pruned tree; a stored page is one too, whose stubs also note the height, weight and extent of what
//! they stand for. Decoding computes every digest on the way and keeps one path buffer. What it does not do: compare
//! the top digest, or replay a query.

use crate::arena::{Arena, Node, NodeId, PathBuffer, SHOWN, Side, State, Tail};
use crate::cid::{Cid, Kind};
use crate::cut;
use crate::node::{Encoder, SUM_LIMIT, Summary, left_count};
use crate::path::{self, MAX_BITS, MAX_KEY, top_bits};
use crate::suite::{Digest, Suite};
use crate::varint;

/// Whether stubs carry what a page notes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Proof,
    Page,
}

/// Inner nodes above a leaf of the longest list; more of them open at once can't be right.
const MAX_LIST_DEPTH: usize = 53;

/// The shortest encoding of a child of an inner node: a stub's tag, count and digest.
const MIN_CHILD: usize = 34;

/// Why bytes are no pruned tree, and at which of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) why: &'static str,
    pub(crate) at: usize,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    fn fail<T>(&self, why: &'static str) -> Result<T, Fault> {
        Err(Fault { why, at: self.at })
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Fault> {
        if let Some(&byte) = self.bytes.get(self.at)
            && byte < 0x80
        {
            self.at += 1;
            return Ok(byte.into());
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, Fault> {
        match varint::read(&self.bytes[self.at..]) {
            Ok((value, n)) => {
                self.at += n;
                Ok(value)
            }
            Err(why) => self.fail(why),
        }
    }

    #[inline]
    fn take(&mut self, n: usize) -> Result<&'a [u8], Fault> {
        match self.bytes.get(self.at..).and_then(|rest| rest.get(..n)) {
            Some(bytes) => {
                self.at += n;
                Ok(bytes)
            }
            None => self.fail("the bytes end inside a node"),
        }
    }

    /// A count or measure: at least 1 and below the limit.
    #[inline]
    fn amount(&mut self, zero: &'static str, over: &'static str) -> Result<u64, Fault> {
        let at = self.at;
        match self.varint()? {
            0 => Err(Fault { why: zero, at }),
            n if n >= SUM_LIMIT => Err(Fault { why: over, at }),
            n => Ok(n),
        }
    }

    /// A target: its place in the bytes and its length.
    #[inline]
    fn target(&mut self) -> Result<(u32, u8), Fault> {
        let len = self.varint()?;
        let at = self.at;
        let bytes = self.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        match Cid::check(bytes) {
            Ok(()) => Ok((at as u32, len as u8)),
            Err(_) => Err(Fault { why: "a shown target is not a valid CID", at }),
        }
    }
}

/// The parent of the top.
const NONE: u32 = u32::MAX;

struct Decoder<'a> {
    reader: Reader<'a>,
    kind: Kind,
    form: Form,
    arena: Arena,
    /// The innermost node whose children are being read. Each notes its own parent as its home meanwhile.
    parent: u32,
    /// Number of such nodes.
    depth: usize,
    /// Inner nodes whose right side is not begun.
    owed: usize,
    floor: u32,
    path: PathBuffer,
    encoder: &'a mut Encoder,
    stubs: u32,
}

/// Reads a whole pruned tree; its top is node 0. `bytes` must be shorter than 2^32.
///
/// An inner node is not begun unless enough bytes are left for all children that are owed. So there are at most two
/// nodes for each [`MIN_CHILD`] bytes, and memory stays in proportion whatever the bytes are.
pub(crate) fn decode(bytes: &[u8], kind: Kind, suite: Suite, form: Form) -> Result<Arena, Fault> {
    let arena = Arena { nodes: Vec::with_capacity(2 * bytes.len() / MIN_CHILD + 1), bytes: bytes.to_vec(), shown: 0 };
    let mut decoder = Decoder {
        reader: Reader { bytes, at: 0 },
        kind,
        form,
        arena,
        parent: NONE,
        depth: 0,
        owed: 0,
        floor: 0,
        path: PathBuffer(Vec::with_capacity(128)),
        encoder: &mut Encoder::new(suite),
        stubs: 0,
    };
    loop {
        if decoder.node()? && decoder.close()? {
            return match decoder.reader.at == bytes.len() {
                true => Ok(decoder.arena),
                false => decoder.reader.fail("bytes follow the tree"),
            };
        }
    }
}

impl Decoder<'_> {
    /// Reads one node. True if nothing of it is left to read: it is no inner node.
    #[inline]
    fn node(&mut self) -> Result<bool, Fault> {
        let at = self.reader.at;
        let tag = self.reader.take(1)?[0];
        match (self.kind, tag) {
            (Kind::Map, 0x01) => self.map_leaf()?,
            (Kind::Map, 0x02) => {
                self.map_inner(at)?;
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
                let digest = match self.kind {
                    Kind::Map => self.encoder.map_empty(),
                    Kind::List => self.encoder.list_empty(),
                };
                self.push(Summary { count: 0, measure: 0, digest }, State::Empty);
            }
            _ => return Err(Fault { why: "an unknown node tag", at }),
        }
        Ok(true)
    }

    #[inline]
    fn push(&mut self, sum: Summary, state: State) -> NodeId {
        let mut node = Node::new(sum, state);
        if !matches!(state, State::Stub { .. }) {
            self.arena.shown += 1;
            node.flags = if self.form == Form::Page { SHOWN } else { 0 };
        }
        self.arena.push(node)
    }

    fn push_inner(&mut self, bit: u32, label: u32, start: u16) -> Result<(), Fault> {
        self.owed += 1;
        if self.reader.bytes.len() - self.reader.at < MIN_CHILD * (self.owed + 1) {
            return self.reader.fail("the bytes end inside a node");
        }
        let next = NodeId(self.arena.nodes.len() as u32 + 1);
        // The same node on both sides says that the left one is not whole yet.
        let node = self.push(Summary::UNKNOWN, State::Inner { bit, label, start, left: next, right: next });
        self.arena.node_mut(node).home = std::mem::replace(&mut self.parent, node.0);
        self.depth += 1;
        Ok(())
    }

    #[inline]
    fn map_inner(&mut self, at: usize) -> Result<(), Fault> {
        let gap = self.reader.varint()?;
        let bit = match u32::try_from(gap).ok().and_then(|gap| gap.checked_add(self.floor)) {
            Some(bit) if bit < MAX_BITS => bit,
            _ => return Err(Fault { why: "a bit past the longest key", at }),
        };
        let from = self.floor / 8;
        let len = if gap == 0 { 0 } else { bit.div_ceil(8) - from };
        let label_at = self.reader.at;
        let label = self.reader.take(len as usize)?;
        if let (Some(first), Some(last)) = (label.first(), label.last()) {
            let stray_end = if bit.is_multiple_of(8) { 0 } else { last & !top_bits(bit % 8) };
            if first & top_bits(self.floor % 8) != 0 || stray_end != 0 {
                return Err(Fault { why: "a stray bit in a label", at: label_at });
            }
        }
        self.path.put(self.floor, label);
        self.path.turn(bit, Side::Left);
        // Without a label there is no byte of it: `start` then says that the label ends where it begins.
        let start = if len == 0 { bit.div_ceil(8) } else { from };
        self.push_inner(bit, label_at as u32, start as u16)?;
        self.floor = bit + 1;
        Ok(())
    }

    #[inline]
    fn map_leaf(&mut self) -> Result<(), Fault> {
        let n = self.reader.varint()?;
        let at = self.reader.at;
        let from = (self.floor / 8) as usize;
        if n > (MAX_KEY - from.min(MAX_KEY)) as u64 {
            return Err(Fault { why: "a key is longer than 8,194 bytes", at });
        }
        let len = from + n as usize;
        if 8 * len < self.floor as usize {
            return Err(Fault { why: "a tail shorter than the path above it", at });
        }
        let tail = self.reader.take(n as usize)?;
        if tail.first().is_some_and(|first| first & top_bits(self.floor % 8) != 0) {
            return Err(Fault { why: "a stray bit in a tail", at });
        }
        let (target, target_len) = self.reader.target()?;
        self.path.put(self.floor, tail);
        let key = &self.path.0[..len];
        path::check(key).map_err(|why| Fault { why, at })?;
        let bytes = &self.reader.bytes[target as usize..][..usize::from(target_len)];
        let digest = self.encoder.map_leaf(key, bytes);
        let tail = Tail { offset: at as u32, start: from as u16, len: n as u16 };
        let id = self.push(Summary { count: 1, measure: 1, digest }, State::Leaf { tail, target, target_len });
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
        let id = self.push(sum, State::Leaf { tail: Tail::NONE, target, target_len });
        self.note_cut(id);
        Ok(())
    }

    #[inline]
    fn stub(&mut self) -> Result<(), Fault> {
        let count = self.reader.amount("a stub of count 0", "a count of 2^53 or more")?;
        let measure = match self.kind {
            Kind::Map => count,
            Kind::List => self.reader.amount("a stub of measure 0", "a measure of 2^53 or more")?,
        };
        let mut digest = Digest::ZERO;
        digest.0.copy_from_slice(self.reader.take(32)?);
        let state = State::Stub { extent: 0, ordinal: self.stubs };
        let id = self.push(Summary { count, measure, digest }, state);
        if self.form == Form::Page {
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

    fn note_cut(&mut self, id: NodeId) {
        if self.form == Form::Page {
            cut::note(&mut self.arena, self.kind, id);
        }
    }

    /// Ends every inner node that is whole now. True if that was the top.
    #[inline]
    fn close(&mut self) -> Result<bool, Fault> {
        while self.parent != NONE {
            let next = NodeId(self.arena.nodes.len() as u32);
            let (below, above) = self.arena.nodes.split_at_mut(self.parent as usize + 1);
            let Some(node @ Node { state: State::Inner { .. }, .. }) = below.last_mut() else {
                return self.reader.fail("a node inside a leaf");
            };
            let State::Inner { bit, left, right, .. } = &mut node.state else {
                return self.reader.fail("a node inside a leaf");
            };
            if left == right {
                *right = next;
                self.owed -= 1;
                if self.kind == Kind::Map {
                    self.floor = *bit + 1;
                    self.path.turn(*bit, Side::Right);
                }
                return Ok(false);
            }
            let [l, r] = [*left, *right].map(|child| &above[(child.0 - self.parent) as usize - 1].sum);
            let (count, measure) = (l.count + r.count, l.measure + r.measure);
            if count >= SUM_LIMIT || measure >= SUM_LIMIT {
                return self.reader.fail("counts or measures that sum to 2^53 or more");
            }
            let digest = match self.kind {
                Kind::Map => self.encoder.map_inner(*bit, &self.path.0, l, r),
                Kind::List if l.count != left_count(count) => {
                    return self.reader.fail("a list of another shape than its count");
                }
                Kind::List => self.encoder.list_inner(l, r),
            };
            node.sum = Summary { count, measure, digest };
            let done = NodeId(self.parent);
            self.parent = std::mem::replace(&mut node.home, NONE);
            self.depth -= 1;
            self.note_cut(done);
        }
        Ok(true)
    }
}

/// The summary above two others; None if a sum is out of bounds.
#[inline]
pub(crate) fn join(
    left: &Summary,
    right: &Summary,
    digest: impl FnOnce(&Summary, &Summary) -> Digest,
) -> Option<Summary> {
    let (count, measure) = (left.count + right.count, left.measure + right.measure);
    (count < SUM_LIMIT && measure < SUM_LIMIT).then(|| Summary { count, measure, digest: digest(left, right) })
}

/// Writes the tree below `top`, whose bits before `floor` are left out: what is shown, and stubs for the rest.
/// `sum` says what a stub stands for.
pub(crate) fn encode<'a>(
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
pub(crate) fn encode_to<'a>(
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
            State::Leaf { tail, .. } if node.has(SHOWN) => {
                match kind {
                    Kind::Map => {
                        let tail = arena.tail(tail, floor);
                        out.push(0x01);
                        varint::write(out, tail.len() as u64);
                        write_own(out, tail, floor, u32::MAX);
                    }
                    Kind::List => {
                        out.push(0x11);
                        varint::write(out, node.sum.measure);
                    }
                }
                let target = arena.target(id);
                varint::write(out, target.len() as u64);
                out.extend_from_slice(target);
            }
            State::Inner { bit, label, start, left, right } if node.has(SHOWN) => {
                match kind {
                    Kind::Map => {
                        out.push(0x02);
                        varint::write(out, u64::from(bit - floor));
                        write_own(out, arena.label(label, start, floor, bit), floor, bit);
                    }
                    Kind::List => out.push(0x12),
                }
                rest.push((right, bit + 1));
                rest.push((left, bit + 1));
            }
            State::Empty => out.push(if kind == Kind::Map { 0x00 } else { 0x10 }),
            _ => {
                out.push(if kind == Kind::Map { 0x03 } else { 0x13 });
                let sum = sum(id);
                varint::write(out, sum.count);
                if kind == Kind::List {
                    varint::write(out, sum.measure);
                }
                out.extend_from_slice(&sum.digest.0);
                if form == Form::Page {
                    varint::write(out, u64::from(node.height));
                    varint::write(out, u64::from(node.weight));
                    varint::write(out, u64::from(arena.extent(id)));
                }
            }
        }
    }
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
