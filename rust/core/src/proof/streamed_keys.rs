//! The nodes of a multiproof, visited as its bytes are read.
//!
//! Its nodes are in preorder, and so are the visits, so no tree is built in memory. Digests are computed when both
//! subtrees of a node are complete, those of long proofs several at a time.

use crate::bits::{Own, Side};
use crate::id::cid::{Cid, Kind};
use crate::id::suite::{Digest, Suite};
use crate::interrupt::{Attempt, Failure, Fault};
use crate::key;
use crate::key_list::Keys;
use crate::proof::streamed::UNVISITED;
use crate::query::keys::{Branch, Descents, Preorder};
use crate::tree::descent::Shape;
use crate::tree::encoder::Encoder;
use crate::tree::node::{SUM_LIMIT, Summary};
use crate::tree::pending::{Below, KNOWN, PendingNodes};
use crate::tree::pruned::MIN_WIDE;
use crate::tree::reader::PrunedReader;

/// The initial capacity for complete subtrees whose parents are not: enough for most maps.
const SUBTREES: usize = 64;

/// What the proof of several keys shows.
pub(crate) struct KeysProof {
    /// The digest of the map.
    pub(crate) digest: Digest,
    /// The targets of the keys, in the order in which they were asked; None if absent.
    pub(crate) targets: Vec<Option<Cid>>,
}

/// A complete subtree.
struct Complete {
    /// Its totals; the digest is unknown while its top waits for it.
    sum: Summary,
    /// The place of its top among the nodes that wait for their digests.
    place: u32,
}

/// The proof of several keys of a map, while it is read.
struct StreamedKeys<'p> {
    reader: PrunedReader<'p>,
    encoder: Encoder,
    /// Nodes whose digests are computed together; None if each is computed at once.
    pending: Option<PendingNodes<()>>,
    /// Complete subtrees, from left to right; the last two join next.
    complete: Vec<Complete>,
    /// The target of the leaf that was read last.
    target: &'p [u8],
}

/// Reads the proof of several keys, which must show the nodes that their descents visit and no others. O(shown nodes)
/// hashes.
pub(crate) fn read(suite: Suite, keys: &Keys, proof: &[u8]) -> Attempt<KeysProof> {
    let pending = if proof.len() < MIN_WIDE { None } else { PendingNodes::of_pruned(suite, proof.len()) };
    let mut nodes = StreamedKeys {
        reader: PrunedReader { bytes: proof, at: 0 },
        encoder: Encoder::new(suite),
        pending,
        complete: Vec::with_capacity(SUBTREES),
        target: &[],
    };
    let mut targets = vec![None; keys.len()];
    keys.get(&mut nodes, &mut Descents::new(keys.all(())), &mut targets)?;
    if nodes.reader.at != proof.len() {
        return Err(Fault { why: "bytes follow the tree", at: nodes.reader.at }.into());
    }
    nodes.hash_pending();
    match nodes.complete[..] {
        [Complete { sum: Summary { digest, .. }, .. }] => Ok(KeysProof { digest, targets }),
        _ => Err(Failure::Invalid("a tree with several tops").into()),
    }
}

impl StreamedKeys<'_> {
    /// Completes the subtree whose top the encoder holds.
    #[inline(always)]
    fn add(&mut self, count: u64, below: Below) {
        let (digest, place) = match &mut self.pending {
            None => (self.encoder.hash(), KNOWN),
            Some(pending) => (Digest::ZERO, pending.add((), &mut self.encoder, below)),
        };
        self.complete.push(Complete { sum: Summary { count, measure: count, digest }, place });
        if self.pending.as_ref().is_some_and(PendingNodes::is_full) {
            self.hash_pending();
        }
    }

    /// Hashes the nodes that wait.
    fn hash_pending(&mut self) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        pending.hash();
        for subtree in self.complete.iter_mut().filter(|subtree| subtree.place != KNOWN) {
            subtree.sum.digest = pending.digest(subtree.place).unwrap_or(Digest::ZERO);
            subtree.place = KNOWN;
        }
        pending.clear();
    }
}

impl Preorder for StreamedKeys<'_> {
    type Id = ();

    #[inline(always)]
    fn visit(&mut self, branch: &Branch<()>) -> Attempt<Option<Shape<'_, ()>>> {
        let (at, floor) = (self.reader.at, branch.floor);
        Ok(Some(match self.reader.take(1)? {
            [0x01] => {
                let (_, key_len, tail) = self.reader.map_tail(floor)?;
                let (target, target_len) = self.reader.target()?;
                self.target = &self.reader.bytes[target as usize..][..usize::from(target_len)];
                self.encoder.put(floor, tail);
                self.encoder.write_map_leaf(key_len, self.target);
                key::check(self.encoder.path(key_len)).map_err(|why| Fault { why, at })?;
                self.add(1, Below::NOTHING);
                Shape::Leaf { tail, key_len }
            }
            [0x02] => {
                let (bit, label) = self.reader.map_inner(floor)?;
                self.encoder.descend(floor, label, bit);
                Shape::Inner { bit, label: Own::Bytes(label), children: [(), ()] }
            }
            [0x03] => return Err(Failure::Stub.into()),
            [0x00] if at == 0 => {
                self.encoder.write_map_empty();
                self.add(0, Below::NOTHING);
                Shape::Empty
            }
            [0x00] => return Err(Fault { why: "an empty node inside a tree", at }.into()),
            _ => return Err(Fault { why: "an unknown node tag", at }.into()),
        }))
    }

    fn target(&self) -> Cid {
        Cid::trusted(self.target)
    }

    /// Reads a child that no key visits, which must be a stub.
    #[inline(always)]
    fn pass(&mut self, (): ()) -> Attempt<()> {
        let at = self.reader.at;
        match self.reader.take(1)? {
            [0x03] => {
                let (count, digest) = self.reader.map_stub()?;
                let mut sum = Summary { count, measure: count, digest: Digest::ZERO };
                sum.digest.0.copy_from_slice(&self.reader.bytes[digest as usize..][..32]);
                self.complete.push(Complete { sum, place: KNOWN });
                Ok(())
            }
            [0x00..=0x02] => Err(Fault { why: UNVISITED, at }.into()),
            _ => Err(Fault { why: "an unknown node tag", at }.into()),
        }
    }

    #[inline(always)]
    fn turn(&mut self, bit: u32) {
        self.encoder.turn(bit, Side::Right);
    }

    #[inline(always)]
    fn close(&mut self, bit: u32) -> Attempt<()> {
        let (Some(right), Some(left)) = (self.complete.pop(), self.complete.pop()) else {
            return Err(Failure::Invalid("an inner node without two children").into());
        };
        let count = left.sum.count + right.sum.count;
        if count >= SUM_LIMIT {
            return Err(Fault { why: "counts that sum to 2^53 or more", at: self.reader.at }.into());
        }
        self.encoder.write_map_inner(bit, &left.sum, &right.sum);
        self.add(count, Below::of(Kind::Map, [left.place, right.place], &right.sum));
        Ok(())
    }
}
