//! A second verifier, slow and simple, written from the text of the protocol (sections 1 to 4).
//!
//! It decodes the whole proof into a tree whose nodes hold all their bits, answers the query on it by plain recursion, and
//! shares nothing with the crate but the types of answers and the hash functions. Where the two disagree, one is wrong.
#![allow(dead_code, unused_imports, reason = "each program uses only some of these items")]

mod change;
mod decode;
mod diff;
pub mod identifier;
mod query;

use coregw_core::{Cid, Digest, Kind, RootCid, Suite};

pub use change::{list_changes, map_changes};
pub use diff::diff;
pub use query::{index, key, keys, range, scan};

/// What is proven, or why the proof is refused.
pub type Verdict<T> = Result<T, &'static str>;

/// Bits, the first one first.
type Bits = Vec<bool>;

/// Counts, measures and their sums are below this.
const SUM_LIMIT: u64 = 1 << 53;

/// A pruned tree, and what a query has visited of it.
struct Tree {
    kind: Kind,
    suite: Suite,
    nodes: Vec<Node>,
    top: usize,
}

#[derive(Clone)]
struct Node {
    shape: Shape,
    count: u64,
    measure: u64,
    digest: Digest,
    /// Whether the proof shows it; false for stubs and for the nodes that changes make.
    is_shown: bool,
    is_visited: bool,
}

#[derive(Clone, PartialEq)]
enum Shape {
    Empty,
    /// In a list, the key is empty.
    Leaf {
        key: Bits,
        target: Vec<u8>,
    },
    /// In a list, the prefix is empty.
    Inner {
        prefix: Bits,
        children: [usize; 2],
    },
    Stub,
}

impl Tree {
    fn node(&self, id: usize) -> &Node {
        &self.nodes[id]
    }

    fn shape(&self, id: usize) -> Shape {
        self.nodes[id].shape.clone()
    }

    /// Marks a node as visited. A query that needs a stub fails.
    fn visit(&mut self, id: usize) -> Verdict<Shape> {
        if self.nodes[id].shape == Shape::Stub {
            return Err("the query needs a stub");
        }
        self.nodes[id].is_visited = true;
        Ok(self.shape(id))
    }

    /// Checks what holds for every query: the top is the root's, and everything shown was visited.
    fn accept<T>(&self, root: &RootCid, answer: T) -> Verdict<T> {
        if self.node(0).digest != root.digest {
            return Err("another root");
        }
        match self.nodes.iter().all(|node| node.is_visited || !node.is_shown) {
            true => Ok(answer),
            false => Err("a shown node that was not visited"),
        }
    }

    fn cid(&self, id: usize) -> Cid {
        match &self.node(id).shape {
            Shape::Leaf { target, .. } => Cid::from_bytes(target).expect("the decoder checked it"),
            _ => unreachable!("only leaves have targets"),
        }
    }
}

/// The digest of a root that is trusted to be whatever the bytes hash to; None if they do not decode.
pub fn own_digest(kind: Kind, suite: Suite, proof: &[u8]) -> Option<Digest> {
    decode::decode(kind, suite, proof).ok().map(|tree| tree.node(tree.top).digest)
}

fn bits_of(bytes: &[u8]) -> Bits {
    bytes.iter().flat_map(|byte| (0..8).map(move |i| byte >> (7 - i) & 1 == 1)).collect()
}

/// The bytes that hold some bits; unused low bits of the last byte are 0.
fn bytes_of(bits: &[bool]) -> Vec<u8> {
    let byte = |bits: &[bool]| bits.iter().enumerate().fold(0, |byte, (i, bit)| byte | u8::from(*bit) << (7 - i));
    bits.chunks(8).map(byte).collect()
}

/// The first bit in which two strings differ, as far as both go.
fn difference(a: &[bool], b: &[bool]) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b)
}
