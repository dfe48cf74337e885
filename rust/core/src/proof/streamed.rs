//! The nodes of a single key's proof, visited as its bytes are read.
//!
//! Such a proof shows one path. The key tells what comes next, and the path buffer is the key itself, so no tree is built
//! in memory: on the way down the nodes are read, on the way up their digests are computed.
//!
//! ```text
//!   ● read 1st, hashed last      siblings on the left are read on the way down,
//!  ╱ ╲                           siblings on the right on the way up
//! ▢   ●
//!    ╱ ╲
//!   ●   ▢
//! ```

use crate::bits::Side;
use crate::id::cid::Cid;
use crate::id::suite::{Digest, Suite};
use crate::interrupt::{Attempt, Failure, Fault};
use crate::key;
use crate::tree::descent::{End, Landing, Nodes, Shape, Step, ToKey, Visited, descend};
use crate::tree::node::{Encoder, SUM_LIMIT, Summary};
use crate::tree::reader::PrunedReader;

/// The initial capacity for inner nodes: enough for most proofs.
const DEPTH: usize = 64;

/// An inner node above the current one.
#[derive(Clone, Copy)]
struct Above {
    bit: u32,
    /// Its left child, if that is a stub; otherwise the right child is.
    left: Option<Stub>,
}

/// A stub of the proof: its count, and the offset of its digest.
#[derive(Clone, Copy)]
struct Stub {
    count: u64,
    digest: u32,
}

/// The node that was read last.
#[derive(Clone, Copy)]
enum Last<'p> {
    Empty,
    Leaf { tail: &'p [u8], key_len: usize, target: &'p [u8] },
    Inner { bit: u32, label: &'p [u8] },
}

/// The proof of one key of a map, while it is read.
struct Streamed<'p> {
    reader: PrunedReader<'p>,
    last: Last<'p>,
    above: Vec<Above>,
}

/// What the proof of one key shows.
pub(crate) struct KeyProof {
    /// The digest of the map.
    pub(crate) digest: Digest,
    /// The target of the key; None if it is absent.
    pub(crate) target: Option<Cid>,
}

/// Reads the proof of one key, which must show the nodes that the key's descent visits and no others. O(depth) hashes.
#[inline(always)]
pub(crate) fn read(suite: Suite, key: &[u8], proof: &[u8]) -> Attempt<KeyProof> {
    let reader = PrunedReader { bytes: proof, at: 0 };
    let mut nodes = Streamed { reader, last: Last::Empty, above: Vec::with_capacity(DEPTH) };
    let landing = descend(&mut nodes, (), 0, &mut ToKey(key))?;
    let mut encoder = Encoder::new(suite);
    encoder.put(0, key);
    let (sum, target) = nodes.end(&landing, &mut encoder)?;
    let sum = nodes.ascend(sum, &mut encoder)?;
    match nodes.reader.at == proof.len() {
        true => Ok(KeyProof { digest: sum.digest, target: target.map(Cid::trusted) }),
        false => Err(Fault { why: "bytes follow the tree", at: nodes.reader.at }.into()),
    }
}

impl<'p> Nodes for Streamed<'p> {
    type Id = ();
    type Counts = ();

    #[inline(always)]
    fn visit(&mut self, (): (), floor: u32) -> Attempt<Visited<'_, (), ()>> {
        let at = self.reader.at;
        let shape = match self.reader.take(1)? {
            [0x01] => {
                let (_, key_len, tail) = self.reader.map_tail(floor)?;
                let (target, target_len) = self.reader.target()?;
                let target = &self.reader.bytes[target as usize..][..usize::from(target_len)];
                self.last = Last::Leaf { tail, key_len, target };
                Shape::Leaf { tail, key_len }
            }
            [0x02] => {
                let (bit, label) = self.reader.map_inner(floor)?;
                self.last = Last::Inner { bit, label };
                Shape::Inner { bit, label, children: [(), ()] }
            }
            [0x03] => return Err(Failure::Stub.into()),
            [0x00] if self.above.is_empty() => Shape::Empty,
            [0x00] => return Err(Fault { why: "an empty node inside a tree", at }.into()),
            _ => return Err(Fault { why: "an unknown node tag", at }.into()),
        };
        Ok(Visited { shape, counts: () })
    }

    #[inline(always)]
    fn step(&mut self, step: Step<()>) -> Attempt<()> {
        let left = match step.side {
            Side::Left => None,
            Side::Right => Some(self.stub()?),
        };
        self.above.push(Above { bit: step.bit, left });
        Ok(())
    }
}

impl<'p> Streamed<'p> {
    /// Reads a sibling of the path, which must be a stub.
    #[inline(always)]
    fn stub(&mut self) -> Attempt<Stub> {
        let at = self.reader.at;
        match self.reader.take(1)? {
            [0x03] => {
                let (count, digest) = self.reader.map_stub()?;
                Ok(Stub { count, digest })
            }
            [0x00..=0x02] => Err(Fault { why: UNVISITED, at }.into()),
            _ => Err(Fault { why: "an unknown node tag", at }.into()),
        }
    }

    #[inline(always)]
    fn summary(&self, stub: Stub) -> Summary {
        let digest = &self.reader.bytes[stub.digest as usize..][..32];
        let digest = Digest(digest.try_into().expect("the reader took 32 bytes"));
        Summary { count: stub.count, measure: stub.count, digest }
    }

    /// Hashes the node where the descent ended, whose path is the key up to `floor`.
    #[inline(always)]
    fn end(&mut self, landing: &Landing<()>, encoder: &mut Encoder) -> Attempt<(Summary, Option<&'p [u8]>)> {
        match self.last {
            Last::Leaf { tail, key_len, target } => {
                let is_found = landing.end == End::Found;
                if !is_found {
                    encoder.put(landing.floor, tail);
                    let at = self.reader.at;
                    key::check(encoder.path(key_len)).map_err(|why| Fault { why, at })?;
                }
                let digest = encoder.map_leaf(key_len, target);
                Ok((Summary { count: 1, measure: 1, digest }, is_found.then_some(target)))
            }
            Last::Inner { bit, label } => {
                encoder.put(landing.floor, label);
                let [left, right] = [self.stub()?, self.stub()?].map(|stub| self.summary(stub));
                Ok((self.join(encoder, bit, &left, &right)?, None))
            }
            Last::Empty => Ok((Summary { count: 0, measure: 0, digest: encoder.map_empty() }, None)),
        }
    }

    /// Computes the summary of the top from that of the last node.
    #[inline(always)]
    fn ascend(&mut self, mut sum: Summary, encoder: &mut Encoder) -> Attempt<Summary> {
        while let Some(Above { bit, left }) = self.above.pop() {
            sum = match left {
                Some(left) => self.join(encoder, bit, &self.summary(left), &sum)?,
                None => {
                    let right = self.stub()?;
                    self.join(encoder, bit, &sum, &self.summary(right))?
                }
            };
        }
        Ok(sum)
    }

    #[inline(always)]
    fn join(&self, encoder: &mut Encoder, bit: u32, left: &Summary, right: &Summary) -> Attempt<Summary> {
        let count = left.count + right.count;
        if count >= SUM_LIMIT {
            return Err(Fault { why: "counts that sum to 2^53 or more", at: self.reader.at }.into());
        }
        Ok(Summary { count, measure: count, digest: encoder.map_inner(bit, left, right) })
    }
}

/// Why a proof is rejected that shows a node that the query did not visit.
pub(crate) const UNVISITED: &str = "the proof shows more than the query needs";

#[cfg(test)]
#[path = "streamed_tests.rs"]
mod tests;
