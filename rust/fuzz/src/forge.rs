//! Pruned trees that nobody honest would show, and queries that descend in them.
//!
//! Most fields are right, so that decoding and queries get far; any may be wrong.

use coregw_core::{ListChange, MapChange, varint};

use crate::input::Input;
use crate::model::{Path, Query, key};

/// The deepest tree that is forged.
const MAX_DEPTH: usize = 40;

type Bits = Vec<bool>;

fn bits(bytes: &[u8]) -> Bits {
    bytes.iter().flat_map(|byte| (0..8).map(move |i| byte >> (7 - i) & 1 == 1)).collect()
}

fn bytes(bits: &[bool]) -> Vec<u8> {
    let byte = |bits: &[bool]| bits.iter().enumerate().fold(0, |byte, (i, bit)| byte | u8::from(*bit) << (7 - i));
    bits.chunks(8).map(byte).collect()
}

/// The proof of a map in which some of `paths` may be.
pub fn map(input: &mut Input<'_>, paths: &[Path]) -> Vec<u8> {
    let keys: Vec<Bits> = paths.iter().map(|path| bits(key(path).as_bytes())).collect();
    let mut out = Vec::new();
    match input.byte() {
        0 => out.push(0),
        _ => map_node(input, &keys, &Bits::new(), 0, &mut out),
    }
    spoil(input, out)
}

fn map_node(input: &mut Input<'_>, keys: &[Bits], path: &Bits, depth: usize, out: &mut Vec<u8>) {
    // A key that could be below this node.
    let fitting: Vec<_> = keys.iter().filter(|key| key.len() > path.len() && key.starts_with(path)).collect();
    let lead = (!fitting.is_empty()).then(|| fitting[input.below(fitting.len())]);
    match input.byte() {
        0..110 if depth < MAX_DEPTH && !input.is_empty() => {
            let other = (fitting.len() > 1).then(|| fitting[input.below(fitting.len())]);
            let fork = lead.zip(other).and_then(|(a, b)| a.iter().zip(b).position(|(a, b)| a != b));
            let bit = match fork {
                Some(bit) if input.byte() < 240 => bit,
                _ => path.len() + input.below(40),
            };
            let mut prefix: Bits = lead.map_or(path.clone(), |key| key[..bit.min(key.len())].to_vec());
            prefix.resize_with(bit, || input.flag());
            out.push(2);
            varint::write(out, (bit - path.len()) as u64);
            write_own(out, path.len(), &prefix);
            for side in [false, true] {
                map_node(input, keys, &[&prefix[..], &[side]].concat(), depth + 1, out);
            }
        }
        0..180 => {
            let whole = match lead {
                Some(key) if input.byte() < 230 => key.clone(),
                _ => {
                    let mut key = path.clone();
                    while !key.len().is_multiple_of(8) {
                        key.push(input.flag());
                    }
                    [key, bits(&[b'a' + input.byte() % 4, 0, 0][input.below(3)..])].concat()
                }
            };
            let (whole, from) = (bytes(&whole), path.len() / 8);
            let mut tail = whole[from.min(whole.len())..].to_vec();
            if let (Some(first), 1..) = (tail.first_mut(), path.len() % 8) {
                *first &= 0xff >> (path.len() % 8);
            }
            out.push(1);
            varint::write(out, tail.len() as u64);
            out.extend(tail);
            write_target(input, out);
        }
        _ => {
            out.push(3);
            varint::write(out, amount(input));
            out.extend([input.byte() % 4; 32]);
        }
    }
}

/// Writes the bits of a prefix from `floor` on, in their bytes.
fn write_own(out: &mut Vec<u8>, floor: usize, prefix: &[bool]) {
    if prefix.len() > floor {
        let mut own = bytes(prefix).split_off(floor / 8);
        if !floor.is_multiple_of(8) {
            own[0] &= 0xff >> (floor % 8);
        }
        out.extend(own);
    }
}

fn write_target(input: &mut Input<'_>, out: &mut Vec<u8>) {
    let target = input.target();
    varint::write(out, target.as_bytes().len() as u64);
    out.extend_from_slice(target.as_bytes());
}

fn amount(input: &mut Input<'_>) -> u64 {
    if input.byte() < 240 { 1 + u64::from(input.byte() % 9) } else { input.number() }
}

/// The proof of a list.
pub fn list(input: &mut Input<'_>) -> Vec<u8> {
    let count = if input.byte() < 200 { input.number() % 40 } else { input.number().min((1 << 53) + 5) };
    let mut out = Vec::new();
    match count {
        0 => out.push(0x10),
        _ => list_node(input, count, &mut out),
    }
    spoil(input, out)
}

fn list_node(input: &mut Input<'_>, count: u64, out: &mut Vec<u8>) {
    match (count, input.byte()) {
        (1, 0..180) => {
            out.push(0x11);
            varint::write(out, amount(input));
            write_target(input, out);
        }
        (2.., 0..180) if !input.is_empty() => {
            out.push(0x12);
            let left = if input.byte() < 250 { 1 << (63 - (count - 1).leading_zeros()) } else { count / 2 };
            list_node(input, left, out);
            list_node(input, count - left, out);
        }
        _ => {
            out.push(0x13);
            varint::write(out, count);
            varint::write(out, if input.byte() < 200 { count } else { input.number() });
            out.extend([input.byte() % 4; 32]);
        }
    }
}

/// Sometimes changes one byte, or what follows the tree.
fn spoil(input: &mut Input<'_>, mut out: Vec<u8>) -> Vec<u8> {
    match input.byte() {
        250.. => out.push(input.byte()),
        240.. => drop(out.pop()),
        220.. => {
            let at = input.below(out.len());
            out[at] ^= 1 << (input.byte() % 8);
        }
        _ => {}
    }
    out
}

/// A query on a map.
pub fn map_query(input: &mut Input<'_>, paths: &[Path]) -> Query {
    let known: Vec<_> = paths.iter().collect();
    match input.byte() % 4 {
        0 => Query::Key(input.near(&known)),
        3 => {
            let n = 1 + input.below(4);
            Query::Keys((0..n).map(|_| input.near(&known)).collect())
        }
        1 => {
            let (prefix, after, limit) = window(input, &known);
            Query::Scan(prefix, after, limit)
        }
        _ => {
            let n = 1 + input.below(3);
            let side = |input: &mut Input<'_>| input.flag().then(|| input.target());
            let change = |input: &mut Input<'_>| MapChange {
                key: key(&input.near(&known)),
                before: side(input),
                after: side(input),
            };
            Query::ChangeMap((0..n).map(|_| change(input)).collect())
        }
    }
}

/// A window, and a limit on what is found in it.
pub fn window(input: &mut Input<'_>, known: &[&Path]) -> (Path, Option<Path>, usize) {
    let path = input.near(known);
    let prefix = path[..input.below(path.len() + 1)].to_vec();
    let after = input.near(known);
    let after = (input.flag() && after.starts_with(&prefix)).then_some(after);
    (prefix, after, 1 + input.below(4))
}

/// A query on a list.
pub fn list_query(input: &mut Input<'_>) -> Query {
    match input.byte() % 3 {
        0 => Query::Index(input.number()),
        1 => Query::Range(input.number(), input.flag().then(|| input.number())),
        _ => {
            let n = 1 + input.below(3);
            let size = |input: &mut Input<'_>| {
                if input.byte() < 240 { 1 + u64::from(input.byte() % 9) } else { input.number() }
            };
            let change = |input: &mut Input<'_>| ListChange {
                index: if input.byte() < 240 { u64::from(input.byte() % 41) } else { input.number() },
                before: input.flag().then(|| (input.target(), input.flag().then(|| size(input)))),
                after: input.flag().then(|| (input.target(), size(input))),
            };
            let changes = (0..n).map(|_| change(input)).collect();
            let fixed = input.flag().then(|| (input.number() % (1 << 53), 1 + u64::from(input.byte() % 9)));
            Query::ChangeList(changes, fixed)
        }
    }
}
