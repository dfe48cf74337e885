//! The proof of one key of a map, checked in one pass without a tree.
//!
//! It shows the way to one node and nothing else, so the key says what comes next and the path is the key itself. Most
//! proofs that are verified are of this kind, and to make nodes of it took longer than anything else but the hashing.
//! What is taken here, the query on the tree takes too, with the same answer. All else is left to that: it also says
//! what is wrong.

use crate::id::cid::{Kind, RootCid};
use crate::id::suite::{Digest, Suite};
use crate::key as path;
use crate::proof::reader::Reader;
use crate::tree::arena::{self, Parting};
use crate::tree::node::{Encoder, SUM_LIMIT, Summary};

/// The most turns on the way; longer ones are for the query.
const TURNS: usize = 64;

/// An inner node on the way.
#[derive(Clone, Copy)]
struct Turn {
    bit: u32,
    /// Where the way goes right, the count of the left side, and where its digest is in the proof. Else both are 0.
    left: u32,
    count: u64,
}

/// The target that `proof` shows `key` to lead to, or None: it is proven that there is none. None for both means that
/// the query has to say what `proof` is.
///
/// O(depth) hashes. `key` is that of a path, and `proof` shorter than 2^32 bytes.
#[inline]
pub(crate) fn check<'a>(root: &RootCid, key: &[u8], proof: &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (digest, target) = read(root.suite, key, proof)?;
    (root.kind == Kind::Map && digest == root.digest).then_some(target)
}

/// The digest of the map whose proof the bytes are, and the target.
#[inline(always)]
fn read<'a>(suite: Suite, key: &[u8], proof: &'a [u8]) -> Option<(Digest, Option<&'a [u8]>)> {
    let mut reader = Reader { bytes: proof, at: 0 };
    let mut encoder = Encoder::new(suite);
    encoder.put(0, key);
    let mut turns = [Turn { bit: 0, left: 0, count: 0 }; TURNS];
    let (mut depth, mut floor) = (0, 0);
    let (mut sum, target) = loop {
        match reader.take(1).ok()? {
            [0x01] => {
                let (_, len, tail) = reader.map_tail(floor).ok()?;
                let (at, target_len) = reader.target().ok()?;
                let target = &proof[at as usize..][..usize::from(target_len)];
                let found = match arena::leaf_parting(tail, floor, len, key) {
                    Parting::Agrees => Some(target),
                    Parting::At(_) => {
                        encoder.put(floor, tail);
                        path::check(encoder.path(len)).ok()?;
                        None
                    }
                    Parting::Ends => return None,
                };
                break (Summary { count: 1, measure: 1, digest: encoder.map_leaf(len, target) }, found);
            }
            [0x02] => {
                let (bit, label) = reader.map_inner(floor).ok()?;
                match arena::parting(label, floor, bit, key) {
                    Parting::Agrees => {
                        let (count, left) = if path::bit(key, bit) { stub(&mut reader)? } else { (0, 0) };
                        *turns.get_mut(depth)? = Turn { bit, left, count };
                        depth += 1;
                        floor = bit + 1;
                    }
                    Parting::At(_) => {
                        encoder.put(floor, label);
                        let [left, right] = [stub(&mut reader)?, stub(&mut reader)?].map(|side| summary(proof, side));
                        break (above(&mut encoder, bit, &left, &right)?, None);
                    }
                    Parting::Ends => return None,
                }
            }
            _ => return None,
        }
    };
    for turn in turns[..depth].iter().rev() {
        sum = match turn.left {
            0 => {
                let right = stub(&mut reader)?;
                above(&mut encoder, turn.bit, &sum, &summary(proof, right))?
            }
            left => above(&mut encoder, turn.bit, &summary(proof, (turn.count, left)), &sum)?,
        };
    }
    (reader.at == proof.len()).then_some((sum.digest, target))
}

/// What is sent of a side that the way does not take: its count, and where its digest is.
#[inline(always)]
fn stub(reader: &mut Reader) -> Option<(u64, u32)> {
    match reader.take(1).ok()? {
        [0x03] => reader.map_stub().ok(),
        _ => None,
    }
}

#[inline(always)]
fn summary(proof: &[u8], (count, digest): (u64, u32)) -> Summary {
    let digest = proof[digest as usize..][..32].try_into().expect("a digest has 32 bytes");
    Summary { count, measure: count, digest: Digest(digest) }
}

/// What the inner node above two others says.
#[inline(always)]
fn above(encoder: &mut Encoder, bit: u32, left: &Summary, right: &Summary) -> Option<Summary> {
    let count = left.count + right.count;
    (count < SUM_LIMIT).then(|| Summary { count, measure: count, digest: encoder.map_inner(bit, left, right) })
}

#[cfg(test)]
mod tests;
