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

use std::hint::select_unpredictable;

use coregw_lanes::{LANES, prefetch_bytes};

use crate::bits::{Own, Side};
use crate::id::cid::Cid;
use crate::id::suite::{Digest, Suite};
use crate::interrupt::{Attempt, Failure, Fault};
use crate::key;
use crate::tree::descent::{End, Landing, Nodes, Shape, Step, ToKey, Visited, descend};
use crate::tree::encoder::Encoder;
use crate::tree::node::SUM_LIMIT;
use crate::tree::reader::{PrunedReader, StubBytes, StubPlace};

/// The initial capacity for inner nodes: enough for most proofs.
const DEPTH: usize = 64;

/// Proofs that are loaded to the processor's caches before the next one is read: it waits for several at a time.
const AHEAD: usize = 8;
/// The bytes of a proof that are loaded so: most of them, of most proofs.
const MAX_PREFETCHED: usize = 2048;

/// An inner node above the current one.
#[derive(Clone, Copy)]
struct Above {
    bit: u32,
    /// The side on which the path continues.
    side: Side,
    /// Its left child, if the path continues on the right; otherwise the right child comes after the subtree.
    left: StubPlace,
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
    /// The count of the node whose encoding the encoder holds.
    count: u64,
    /// The target of the key, if it was found.
    target: Option<&'p [u8]>,
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
    let mut encoder = Encoder::new(suite);
    let mut nodes = Streamed::begin(key, proof, Vec::new(), &mut encoder)?;
    loop {
        let digest = encoder.hash();
        if !nodes.has_next(&digest.0, &mut encoder)? {
            return Ok(nodes.shown(digest));
        }
    }
}

/// Reads proofs of single keys as [`read`] does, in lanes: one node of each of several proofs is hashed at a time.
///
/// ```text
/// lane 0   proof 0 ● ● ● ● ●   proof 2 ● ● ● ● …      a lane whose proof has ended takes the next one
/// lane 1   proof 1 ● ● ● ● ● ● ●   proof 3 ● ● …
/// ```
///
/// What each proof shows is given to `take` with its place among the proofs, in the order in which they end.
pub(crate) fn read_many<'p>(
    suite: Suite,
    proofs: impl ExactSizeIterator<Item = (&'p [u8], &'p [u8])> + Clone,
    mut take: impl FnMut(usize, Attempt<KeyProof>),
) {
    let mut lanes: Vec<_> = (0..LANES.min(proofs.len())).map(|_| Lane::idle(suite)).collect();
    let load = |(key, proof): (&[u8], &[u8])| {
        prefetch_bytes(key);
        prefetch_bytes(&proof[..proof.len().min(MAX_PREFETCHED)]);
    };
    let mut ahead = proofs.clone();
    ahead.by_ref().take(AHEAD).for_each(load);
    let mut proofs = proofs.enumerate().inspect(|_| ahead.next().into_iter().for_each(load));
    let mut digests = [[0; 32]; LANES];
    let mut has_idle = true;
    loop {
        if has_idle {
            for lane in lanes.iter_mut().filter(|lane| lane.nodes.is_none()) {
                lane.take_next(&mut proofs, &mut take);
            }
            lanes.retain(|lane| lane.nodes.is_some());
            if lanes.is_empty() {
                return;
            }
        }
        Encoder::hash_many(suite, lanes.iter_mut().map(|lane| &mut lane.encoder), &mut digests);
        has_idle = false;
        for (lane, digest) in lanes.iter_mut().zip(&digests) {
            has_idle |= !lane.advance(digest, &mut take);
        }
    }
}

/// A place in which proofs are read one after the other, beside others.
struct Lane<'p> {
    /// The place of the proof among the results.
    item: usize,
    /// The proof, until it has ended.
    nodes: Option<Streamed<'p>>,
    /// Capacity for the inner nodes of the next proof.
    above: Vec<Above>,
    encoder: Encoder,
}

impl<'p> Lane<'p> {
    fn idle(suite: Suite) -> Self {
        Self { item: 0, nodes: None, above: Vec::new(), encoder: Encoder::new(suite) }
    }

    /// Begins the next proof, if there is one that is not malformed at its start.
    fn take_next(
        &mut self,
        proofs: &mut impl Iterator<Item = (usize, (&'p [u8], &'p [u8]))>,
        take: &mut impl FnMut(usize, Attempt<KeyProof>),
    ) {
        for (item, (key, proof)) in proofs {
            match Streamed::begin(key, proof, std::mem::take(&mut self.above), &mut self.encoder) {
                Ok(nodes) => {
                    (self.item, self.nodes) = (item, Some(nodes));
                    return;
                }
                Err(interrupt) => take(item, Err(interrupt)),
            }
        }
    }

    /// Takes the digest of the encoding. At the end of the proof, the lane becomes idle, and this returns false.
    #[inline(always)]
    fn advance(&mut self, digest: &[u8; 32], take: &mut impl FnMut(usize, Attempt<KeyProof>)) -> bool {
        let Some(nodes) = &mut self.nodes else {
            return false;
        };
        match nodes.has_next(digest, &mut self.encoder) {
            Ok(true) => return true,
            Ok(false) => take(self.item, Ok(nodes.shown(Digest(*digest)))),
            Err(interrupt) => take(self.item, Err(interrupt)),
        }
        if let Some(Streamed { above, .. }) = self.nodes.take() {
            self.above = above;
        }
        false
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
                Shape::Inner { bit, label: Own::Bytes(label), children: [(), ()] }
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
        let left = self.stub_if(step.side == Side::Right)?;
        self.above.push(Above { bit: step.bit, side: step.side, left });
        Ok(())
    }
}

impl<'p> Streamed<'p> {
    /// Descends to the key, and encodes the last node. Uses the capacity of `above`.
    #[inline(always)]
    fn begin(key: &[u8], proof: &'p [u8], mut above: Vec<Above>, encoder: &mut Encoder) -> Attempt<Self> {
        let reader = PrunedReader { bytes: proof, at: 0 };
        above.clear();
        above.reserve(DEPTH);
        let mut nodes = Self { reader, last: Last::Empty, above, count: 0, target: None };
        let landing = descend(&mut nodes, (), 0, &mut ToKey(key))?;
        encoder.put(0, key);
        nodes.end(&landing, encoder)?;
        Ok(nodes)
    }

    /// Reads a sibling of the path, which must be a stub.
    #[inline(always)]
    fn stub(&mut self) -> Attempt<StubPlace> {
        self.stub_if(true)
    }

    /// Reads a sibling of the path, which must be a stub, if it `comes` next. The sides of a path are random, so no branch
    /// depends on it.
    #[inline(always)]
    fn stub_if(&mut self, comes: bool) -> Attempt<StubPlace> {
        let (stub, is_stub) = self.reader.peek_stub();
        if comes & !is_stub {
            return self.other_stub();
        }
        self.reader.at = select_unpredictable(comes, stub.end(), self.reader.at);
        Ok(stub)
    }

    /// Reads a stub that the reader does not recognise at once: names its fault.
    #[cold]
    fn other_stub(&mut self) -> Attempt<StubPlace> {
        let at = self.reader.at;
        match self.reader.take(1)? {
            [0x03] => Ok(self.reader.place_stub()?),
            [0x00..=0x02] => Err(Fault { why: UNVISITED, at }.into()),
            _ => Err(Fault { why: "an unknown node tag", at }.into()),
        }
    }

    /// Encodes the node where the descent ended, whose path is the key up to `floor`.
    #[inline(always)]
    fn end(&mut self, landing: &Landing<()>, encoder: &mut Encoder) -> Attempt<()> {
        match self.last {
            Last::Leaf { tail, key_len, target } => {
                if landing.end == End::Found {
                    self.target = Some(target);
                } else {
                    encoder.put(landing.floor, tail);
                    let at = self.reader.at;
                    key::check(encoder.path(key_len)).map_err(|why| Fault { why, at })?;
                }
                encoder.write_map_leaf(key_len, target);
                self.count = 1;
            }
            Last::Inner { bit, label } => {
                encoder.put(landing.floor, label);
                let [left, right] = [self.stub()?, self.stub()?].map(|place| self.reader.stub_at(place));
                self.count = left.count;
                self.join(encoder, bit, Side::Left, left.digest, right)?;
            }
            Last::Empty => encoder.write_map_empty(),
        }
        Ok(())
    }

    /// Takes the digest of the encoding, and encodes the node above it. Returns false if that was the top.
    #[inline(always)]
    fn has_next(&mut self, digest: &[u8; 32], encoder: &mut Encoder) -> Attempt<bool> {
        let Some(Above { bit, side, left }) = self.above.pop() else {
            return match self.reader.at == self.reader.bytes.len() {
                true => Ok(false),
                false => Err(Fault { why: "bytes follow the tree", at: self.reader.at }.into()),
            };
        };
        let is_left = side == Side::Left;
        let right = self.stub_if(is_left)?;
        let sibling = StubPlace::select(is_left, right, left);
        self.join(encoder, bit, side, digest, self.reader.stub_at(sibling))?;
        Ok(true)
    }

    /// What the proof shows, after its top was hashed.
    fn shown(&self, digest: Digest) -> KeyProof {
        KeyProof { digest, target: self.target.map(Cid::trusted) }
    }

    /// Encodes the inner node above the node of `digest`, which is on `side`.
    #[inline(always)]
    fn join(
        &mut self,
        encoder: &mut Encoder,
        bit: u32,
        side: Side,
        digest: &[u8; 32],
        sibling: StubBytes<'_>,
    ) -> Attempt<()> {
        let own = self.count;
        self.count = own + sibling.count;
        if self.count >= SUM_LIMIT {
            return Err(Fault { why: "counts that sum to 2^53 or more", at: self.reader.at }.into());
        }
        encoder.write_map_inner_of(bit, side, StubBytes { count: own, digest }, sibling);
        Ok(())
    }
}

/// Why a proof is rejected that shows a node that the query did not visit.
pub(crate) const UNVISITED: &str = "the proof shows more than the query needs";

#[cfg(test)]
#[path = "../../tests/unit/proof_streamed.rs"]
mod tests;
