//! Building trees from their leaves, in one pass.
//!
//! `new_map` and `list` decide which leaf comes next and which two subtrees join:
//!
//! ```text
//! leaf, leaf, join, leaf, leaf, join, join …     encodings wait until there are enough to hash many at a time
//!        ↓ digests
//! leaf, leaf, join …                             the same again, into `layout`, which cuts the tree into pages
//! ```
//!
//! Subtrees of one tree can be built independently of each other, and adopted by the builder of the tree.

use crate::error::Error;
use crate::id::cid::Kind;
use crate::id::suite::{Digest, Suite};
use crate::id::varint;
use crate::interrupt::{Attempt, Failure, Interrupt};
use crate::page::layout::{Built, Destination, Layout, Subtree};
use crate::page::partial::SUM_TOO_LARGE;
use crate::tree::encoder::Encoder;
use crate::tree::node::{ListInner, ListLeaf, MapInner, MapLeaf, Summary};
use crate::tree::pending::{Below, KNOWN, PendingNodes};
use crate::tree::pruned;

/// A node whose encoding waits for its digest.
#[derive(Debug, Clone, Copy)]
enum NewNode {
    /// A leaf, whose encoding ends with its key, if it has one, the length of its target, and the target.
    Leaf { measure: u64, key_len: u16, target_len: u8 },
    /// An inner node of the last two subtrees. In a map, its prefix starts at this byte of the encoding.
    Join { bit: u32, prefix: u8 },
}

/// A complete subtree.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// Its totals; the digest is unknown while the top waits for it.
    sum: Summary,
    /// The place of its top among the nodes that wait for their digests.
    place: u32,
}

pub(crate) struct Builder {
    kind: Kind,
    suite: Suite,
    /// In a map, the key of the last leaf; empty before the first.
    pub(crate) last: Vec<u8>,
    pending: PendingNodes<NewNode>,
    /// Subtrees from left to right; the last two join next.
    open: Vec<Open>,
    layout: Layout,
}

impl Builder {
    pub(crate) fn new(kind: Kind, suite: Suite, destination: Destination) -> Self {
        Self {
            kind,
            suite,
            last: Vec::new(),
            pending: PendingNodes::new(suite),
            open: Vec::new(),
            layout: Layout::new(kind, suite, destination),
        }
    }

    /// Reserves memory for a tree of so many leaves.
    pub(crate) fn reserve(&mut self, leaves: usize) {
        self.pending.reserve(leaves);
    }

    /// Adds the next leaf. `key` is empty in a list.
    #[inline]
    pub(crate) fn leaf(&mut self, measure: u64, key: &[u8], target: &[u8]) -> Attempt<()> {
        let node = NewNode::Leaf { measure, key_len: key.len() as u16, target_len: target.len() as u8 };
        let variable = key.len() + target.len();
        let place = match self.kind {
            Kind::Map => {
                self.last.clear();
                self.last.extend_from_slice(key);
                self.pending.encode(node, &MapLeaf { key, target }, variable, Below::NOTHING)
            }
            Kind::List => self.pending.encode(node, &ListLeaf { measure, target }, variable, Below::NOTHING),
        };
        self.open(Summary { count: 1, measure, digest: Digest::ZERO }, place)
    }

    /// Joins the last two subtrees. In a map, the new node's prefix is the first `bit` bits of the last key.
    #[inline]
    pub(crate) fn join(&mut self, bit: u32) -> Attempt<()> {
        let (Some(right), Some(left)) = (self.open.pop(), self.open.pop()) else {
            return Err(Failure::Invalid("an inner node without two children").into());
        };
        let sum = pruned::join(&left.sum, &right.sum, |_, _| Digest::ZERO).ok_or(SUM_TOO_LARGE)?;
        let node = NewNode::Join { bit, prefix: 1 + varint::len(bit.into()) as u8 };
        let below = Below::of(self.kind, [left.place, right.place], &right.sum);
        let children = [&left.sum, &right.sum];
        let place = match self.kind {
            Kind::Map => {
                let path = &self.last[..bit.div_ceil(8) as usize];
                self.pending.encode(node, &MapInner { bit, path, children }, path.len(), below)
            }
            Kind::List => self.pending.encode(node, &ListInner { children }, 0, below),
        };
        self.open(sum, place)
    }

    /// Notes a subtree whose top waits at a place.
    #[inline]
    fn open(&mut self, sum: Summary, place: u32) -> Attempt<()> {
        self.open.push(Open { sum, place });
        if self.pending.is_full() { self.hash() } else { Ok(()) }
    }

    /// Hashes the nodes that wait, and lays them out.
    fn hash(&mut self) -> Attempt<()> {
        self.pending.hash();
        for (node, encoding, digest) in self.pending.hashed() {
            match node {
                NewNode::Leaf { measure, key_len, target_len } => {
                    let (rest, target) = encoding.split_at(encoding.len() - usize::from(target_len));
                    let key_end = rest.len() - varint::len(target_len.into());
                    let key = &rest[key_end - usize::from(key_len)..key_end];
                    self.layout.leaf(Summary { count: 1, measure, digest }, key, target);
                }
                NewNode::Join { bit, prefix } => self.layout.join(bit, digest, &encoding[prefix.into()..])?,
            }
        }
        for open in self.open.iter_mut().filter(|open| open.place != KNOWN) {
            open.sum.digest = self.pending.digest(open.place).unwrap_or(Digest::ZERO);
            open.place = KNOWN;
        }
        self.pending.clear();
        Ok(())
    }

    /// The bytes of memory that incomplete pages take, and nodes that wait.
    pub(crate) fn held_bytes(&self) -> usize {
        self.layout.held_bytes() + self.pending.held_bytes()
    }

    /// Takes the encoded pages that are complete.
    pub(crate) fn take_stored(&mut self) -> Vec<(Digest, Vec<u8>)> {
        self.layout.take_stored()
    }

    /// The number of subtrees that have not joined.
    pub(crate) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Whether the last two subtrees have the same number of leaves.
    pub(crate) fn last_two_equal(&self) -> bool {
        match self.open[..] {
            [.., left, right] => left.sum.count == right.sum.count,
            _ => false,
        }
    }

    /// Takes the subtree that was built, to be adopted by another builder.
    pub(crate) fn into_subtree(mut self) -> Attempt<Subtree> {
        self.hash()?;
        self.layout.into_subtree()
    }

    /// Adds a subtree that was built elsewhere, as if it had been built here.
    pub(crate) fn adopt(&mut self, subtree: Subtree) -> Attempt<()> {
        self.hash()?;
        self.open.push(Open { sum: subtree.sum(), place: KNOWN });
        self.layout.adopt(subtree);
        Ok(())
    }

    /// Completes the tree. Without leaves, it is the empty tree.
    pub(crate) fn finish(mut self) -> Attempt<Built> {
        self.hash()?;
        let empty = match self.kind {
            Kind::Map => Encoder::new(self.suite).map_empty(),
            Kind::List => Encoder::new(self.suite).list_empty(),
        };
        self.layout.finish(empty)
    }
}

impl Interrupt<Failure> {
    /// The error for a build from the member `member` of a request.
    pub(crate) fn in_build(self, member: &str) -> Error {
        match self {
            Self::Failed(Failure::TooLarge(what) | Failure::Invalid(what)) => {
                Error::request(format!("{member}: {what}"))
            }
            _ => Error::request(format!("{member}: the tree cannot be built")),
        }
    }
}
