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
use crate::tree::node::Summary;
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
    pub(crate) encoder: Encoder,
    pending: PendingNodes<NewNode>,
    /// Subtrees from left to right; the last two join next.
    open: Vec<Open>,
    layout: Layout,
}

impl Builder {
    pub(crate) fn new(kind: Kind, suite: Suite, destination: Destination) -> Self {
        Self {
            kind,
            encoder: Encoder::new(suite),
            pending: PendingNodes::new(suite),
            open: Vec::new(),
            layout: Layout::new(kind, suite, destination),
        }
    }

    /// Reserves memory for a tree of so many leaves.
    pub(crate) fn reserve(&mut self, leaves: usize) {
        self.pending.reserve(leaves);
    }

    /// Adds the next leaf. `key` is empty in a list; in a map, it becomes the encoder's path.
    #[inline]
    pub(crate) fn leaf(&mut self, measure: u64, key: &[u8], target: &[u8]) -> Attempt<()> {
        match self.kind {
            Kind::Map => {
                self.encoder.put(0, key);
                self.encoder.write_map_leaf(key.len(), target);
            }
            Kind::List => self.encoder.write_list_leaf(measure, target),
        }
        let node = NewNode::Leaf { measure, key_len: key.len() as u16, target_len: target.len() as u8 };
        self.add(Summary { count: 1, measure, digest: Digest::ZERO }, node, Below::NOTHING)
    }

    /// Joins the last two subtrees. In a map, the new node's prefix is the first `bit` bits of the encoder's path.
    #[inline]
    pub(crate) fn join(&mut self, bit: u32) -> Attempt<()> {
        let (Some(right), Some(left)) = (self.open.pop(), self.open.pop()) else {
            return Err(Failure::Invalid("an inner node without two children").into());
        };
        let sum = pruned::join(&left.sum, &right.sum, |_, _| Digest::ZERO).ok_or(SUM_TOO_LARGE)?;
        match self.kind {
            Kind::Map => self.encoder.write_map_inner(bit, &left.sum, &right.sum),
            Kind::List => self.encoder.write_list_inner(&left.sum, &right.sum),
        }
        let prefix = 1 + varint::len(bit.into()) as u8;
        self.add(sum, NewNode::Join { bit, prefix }, Below::of(self.kind, [left.place, right.place], &right.sum))
    }

    /// Adds the node that the encoder holds.
    #[inline]
    fn add(&mut self, sum: Summary, node: NewNode, below: Below) -> Attempt<()> {
        let place = self.pending.add(node, &mut self.encoder, below);
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
    pub(crate) fn open(&self) -> usize {
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
            Kind::Map => self.encoder.map_empty(),
            Kind::List => self.encoder.list_empty(),
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
