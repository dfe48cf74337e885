//! The encoder of pruned trees, in preorder (protocol section 4).

use crate::bits::{self, Own, top_bits};
use crate::id::cid::Kind;
use crate::id::varint;
use crate::tree::arena::{Arena, NodeId, SHOWN, State};
use crate::tree::pruned::Form;

/// Encodes the tree below `top`: the nodes that are shown, and stubs for the rest, whose summaries are at `source`.
pub fn encode<'a>(
    arena: &'a Arena,
    kind: Kind,
    top: NodeId,
    form: Form,
    source: impl Fn(NodeId) -> (&'a Arena, NodeId),
) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    encode_to(&mut out, arena, kind, top, form, source);
    out
}

/// Appends what [`encode`] returns to `out`.
pub fn encode_to<'a>(
    out: &mut Vec<u8>,
    arena: &'a Arena,
    kind: Kind,
    top: NodeId,
    form: Form,
    source: impl Fn(NodeId) -> (&'a Arena, NodeId),
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
                let (holder, there) = source(id);
                write_stub(out, kind, holder, there);
                if form == Form::Page {
                    varint::write(out, u64::from(node.height));
                    varint::write(out, u64::from(node.weight));
                    varint::write(out, u64::from(arena.extent(id)));
                }
            }
        }
    }
}

/// Appends a shown node without its children and without its bits before `floor`.
#[inline(always)]
pub fn write_shown(out: &mut Vec<u8>, kind: Kind, arena: &Arena, id: NodeId, floor: u32) {
    let node = arena.node(id);
    match (&node.state, kind) {
        (&State::Inner { bit, ref label, .. }, Kind::Map) => match arena.own(label, floor, bit) {
            Own::Word(own) => write_short_inner(out, own, floor, bit),
            Own::Bytes(own) => {
                out.push(0x02);
                varint::write(out, u64::from(bit - floor));
                write_own(out, own, floor, bit);
            }
        },
        (State::Inner { .. }, Kind::List) => out.push(0x12),
        (State::Leaf { tail, .. }, Kind::Map) => {
            let tail = arena.tail(*tail, floor);
            out.push(0x01);
            varint::write(out, tail.len() as u64);
            write_own(out, tail, floor, u32::MAX);
            write_target(out, arena.target(id));
        }
        (State::Leaf { .. }, Kind::List) => {
            out.push(0x11);
            varint::write(out, arena.measure(id));
            write_target(out, arena.target(id));
        }
        (_, kind) => out.push(if kind == Kind::Map { 0x00 } else { 0x10 }),
    }
}

/// Appends an inner node of a map whose own bits are in a word, in one copy of constant length.
#[inline(always)]
fn write_short_inner(out: &mut Vec<u8>, own: u32, floor: u32, bit: u32) {
    let gap = bit - floor;
    debug_assert!(gap <= 32, "the own bits are in a word");
    let label = u32::from_le_bytes((own & bits::word_mask(floor, bit)).to_be_bytes());
    let len = out.len() + 2 + bits::own_len(floor, bit) as usize;
    out.extend_from_slice(&(0x02 | u64::from(gap) << 8 | u64::from(label) << 16).to_le_bytes());
    out.truncate(len);
}

#[inline(always)]
fn write_target(out: &mut Vec<u8>, target: &[u8]) {
    varint::write(out, target.len() as u64);
    out.extend_from_slice(target);
}

/// Appends the stub of a node.
#[inline(always)]
pub fn write_stub(out: &mut Vec<u8>, kind: Kind, arena: &Arena, id: NodeId) {
    let node = arena.node(id);
    out.push(if kind == Kind::Map { 0x03 } else { 0x13 });
    varint::write(out, node.count);
    if kind == Kind::List {
        varint::write(out, arena.measure(id));
    }
    out.extend_from_slice(&node.digest.0);
}

/// Appends a label or tail, and clears the bits outside `floor..end`.
#[inline]
fn write_own(out: &mut Vec<u8>, own: &[u8], floor: u32, end: u32) {
    let from = out.len();
    out.extend_from_slice(own);
    if let Some(first) = out.get_mut(from) {
        *first &= !top_bits(floor % 8);
    }
    if end != u32::MAX
        && !end.is_multiple_of(8)
        && let Some(last) = out[from..].last_mut()
    {
        *last &= top_bits(end % 8);
    }
}

#[cfg(test)]
#[path = "../../tests/unit/tree_writer.rs"]
mod tests;
