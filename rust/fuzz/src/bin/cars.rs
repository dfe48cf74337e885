//! Fuzz target: CARs of forged nodes, some missing, repeated or left over. An import succeeds exactly if a plain check of the
//! same nodes does, and stores the same roots.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coregw_core::{Cid, Kind, RootCid, Suite, varint};
use coregw_fuzz::input::Input;
use coregw_fuzz::model::{key, target};
use coregw_fuzz::store::Store;
use coregw_ops::Operation;
use coregw_ops::car::{CarLimits, CarReader, block_head};
use libfuzzer_sys::fuzz_target;

type Bits = Vec<bool>;

/// What a parent states of a child.
#[derive(Clone, Copy)]
struct Stated {
    root: RootCid,
    count: u64,
    measure: u64,
}

#[derive(Clone)]
struct Node {
    root: RootCid,
    encoding: Vec<u8>,
    /// The key of a leaf, or the prefix of an inner node; empty in a list.
    bits: Bits,
    count: u64,
    measure: u64,
    children: Option<[Stated; 2]>,
    target: Option<Cid>,
}

fn bits(bytes: &[u8]) -> Bits {
    bytes.iter().flat_map(|byte| (0..8).map(move |i| byte >> (7 - i) & 1 == 1)).collect()
}

fn bytes(bits: &[bool]) -> Vec<u8> {
    let byte = |bits: &[bool]| bits.iter().enumerate().fold(0, |byte, (i, bit)| byte | u8::from(*bit) << (7 - i));
    bits.chunks(8).map(byte).collect()
}

fn sized(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::write(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn node(kind: Kind, suite: Suite, encoding: Vec<u8>, bits: Bits, [count, measure]: [u64; 2]) -> Node {
    let root = RootCid { kind, suite, digest: suite.digest(&encoding) };
    Node { root, encoding, bits, count, measure, children: None, target: None }
}

fn leaf(input: &mut Input<'_>, suite: Suite, kind: Kind, made: &[Node]) -> Node {
    let nested = (input.byte() < 40 && !made.is_empty()).then(|| made[input.below(made.len())].root.cid());
    let target = nested.unwrap_or_else(|| target(u16::from(input.byte() % 3)));
    let (mut encoding, mut own, mut measure) = (Vec::new(), Bits::new(), 1);
    if kind == Kind::Map {
        let key = key(&vec![["a", "b", "ab", "c", "\0"][input.below(5)].to_owned(); 1 + input.below(2)]);
        encoding.push(1);
        sized(&mut encoding, key.as_bytes());
        own = bits(key.as_bytes());
    } else {
        measure = 1 + u64::from(input.byte() % 3);
        encoding.push(0x11);
        varint::write(&mut encoding, measure);
    }
    sized(&mut encoding, target.as_bytes());
    Node { target: Some(target), ..node(kind, suite, encoding, own, [1, measure]) }
}

fn inner(input: &mut Input<'_>, suite: Suite, kind: Kind, made: &[Node]) -> Option<Node> {
    let all: Vec<_> = made.iter().filter(|node| node.root.kind == kind).collect();
    let mut pair = [input.below(all.len()), input.below(all.len())].map(|at| all.get(at).copied());
    let [Some(mut left), Some(mut right)] = pair.each_mut().map(|node| node.take()) else { return None };
    let (mut encoding, mut prefix) = (Vec::new(), Bits::new());
    if kind == Kind::Map {
        let fork = left.bits.iter().zip(&right.bits).position(|(a, b)| a != b);
        if fork.is_some_and(|bit| left.bits[bit]) && input.byte() < 240 {
            std::mem::swap(&mut left, &mut right);
        }
        let bit = if input.byte() < 240 { fork? } else { input.below(20) };
        prefix = left.bits[..bit.min(left.bits.len())].to_vec();
        prefix.resize_with(bit, || input.flag());
        encoding.push(2);
        varint::write(&mut encoding, bit as u64);
        encoding.extend(bytes(&prefix));
    } else {
        encoding.push(0x12);
    }
    let lie = |input: &mut Input<'_>, n: u64| if input.byte() < 250 { n } else { u64::from(input.byte() % 5) };
    let children = [left, right].map(|node| {
        let count = lie(input, node.count);
        let measure = if kind == Kind::Map { count } else { lie(input, node.measure) };
        varint::write(&mut encoding, count);
        if kind == Kind::List {
            varint::write(&mut encoding, measure);
        }
        encoding.extend(node.root.digest.0);
        Stated { root: node.root, count, measure }
    });
    let sums = [children[0].count + children[1].count, children[0].measure + children[1].measure];
    Some(Node { children: Some(children), ..node(kind, suite, encoding, prefix, sums) })
}

/// Whether a block could be a node of some tree.
fn is_node(node: &Node) -> bool {
    node.children.is_none_or(|children| {
        let is_shaped = || {
            let half = (0..).map(|i| 1 << i).take_while(|power| *power < node.count).last();
            node.root.kind == Kind::Map || half == Some(children[0].count)
        };
        children.iter().all(|child| child.count > 0 && child.measure > 0) && is_shaped()
    })
}

/// The roots that an import stores; None if it is refused.
fn check(roots: &[RootCid], blocks: &BTreeMap<Vec<u8>, Node>) -> Option<BTreeSet<Vec<u8>>> {
    let name = |root: &RootCid| root.cid().as_bytes().to_vec();
    let (mut found, mut reached) = (BTreeSet::new(), BTreeSet::new());
    let mut tops: Vec<_> = roots.iter().map(name).collect();
    if !blocks.values().all(is_node) || !tops.iter().all(|top| blocks.contains_key(top)) {
        return None;
    }
    while let Some(top) = tops.pop() {
        if !found.insert(top.clone()) {
            continue;
        }
        let mut rest = vec![top];
        while let Some(at) = rest.pop() {
            let node = blocks.get(&at)?;
            reached.insert(at);
            if let Some(nested) = node.target.and_then(|target| target.root()).map(|root| name(&root)) {
                tops.extend(blocks.contains_key(&nested).then_some(nested));
            }
            for (side, stated) in node.children.iter().flatten().enumerate() {
                let child = blocks.get(&name(&stated.root))?;
                let way = [&node.bits[..], &[side == 1]].concat();
                let is_below = node.root.kind == Kind::List || child.bits.starts_with(&way);
                if (child.count, child.measure) != (stated.count, stated.measure) || !is_below {
                    return None;
                }
                rest.push(name(&stated.root));
            }
        }
    }
    (reached.len() == blocks.len()).then_some(found)
}

fn car(roots: &[RootCid], blocks: &[&Node]) -> Vec<u8> {
    let mut cbor = [b"\xa2\x65roots", &[0x80 | roots.len() as u8][..]].concat();
    for cid in roots.iter().map(RootCid::cid) {
        cbor.extend([b"\xd8\x2a\x58", &[cid.as_bytes().len() as u8 + 1, 0][..], cid.as_bytes()].concat());
    }
    cbor.extend(b"\x67version\x01");
    let mut out = Vec::new();
    sized(&mut out, &cbor);
    for node in blocks {
        out.extend(block_head(&node.root.cid(), node.encoding.len() as u64));
        out.extend(&node.encoding);
    }
    out
}

fn import(car: Vec<u8>, chunk: usize) -> Option<BTreeSet<Vec<u8>>> {
    let mut reader = CarReader::new(CarLimits { payload_bytes: 1 << 16, blocks: 1000 });
    car.chunks(chunk).try_for_each(|chunk| reader.feed(chunk)).ok()?;
    let mut store = Store::new(0, 100);
    store.car = car;
    store.serve(Operation::import_car(Arc::clone(&store.cache), reader)).ok()?;
    Some(store.recorded.iter().map(|root| root.cid().as_bytes().to_vec()).collect())
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let suite = Suite::ALL[input.below(2)];
    let mut made: Vec<Node> = Vec::new();
    for _ in 0..2 + input.below(20) {
        let kind = if input.byte() < 200 { Kind::Map } else { Kind::List };
        let next = if input.byte() < 130 { Some(leaf(&mut input, suite, kind, &made)) } else { None };
        made.extend(next.or_else(|| inner(&mut input, suite, kind, &made)));
    }
    if made.is_empty() {
        return;
    }
    // Roots, what they reach, and sometimes one block more or less.
    let roots: Vec<_> =
        (0..1 + input.below(2)).map(|_| made[made.len() - 1 - input.below(made.len().min(4))].root).collect();
    let mut wanted = roots.clone();
    let mut blocks: Vec<&Node> = Vec::new();
    while let Some(root) = wanted.pop() {
        let Some(node) = made.iter().find(|node| node.root == root) else { continue };
        if blocks.iter().all(|block| block.root != root) && input.byte() < 252 {
            blocks.push(node);
            wanted.extend(node.children.iter().flatten().map(|stated| stated.root));
            wanted.extend(node.target.and_then(|target| target.root()).filter(|_| input.flag()));
        }
    }
    if input.byte() > 240 {
        blocks.push(&made[input.below(made.len())]);
    }
    if input.flag() && !blocks.is_empty() {
        let at = input.below(blocks.len());
        blocks.rotate_left(at);
    }
    let named = blocks.iter().map(|node| (node.root.cid().as_bytes().to_vec(), (*node).clone())).collect();
    let expected = check(&roots, &named);
    let chunk = 1 + usize::from(input.byte());
    assert_eq!(import(car(&roots, &blocks), chunk), expected);
});
