//! The arcs of a map, divided into parts that are subtrees of it.
//!
//! ```text
//! all keys begin with this     these bits of a key choose its bucket
//!          ↓                      ↓
//!    image-0 ················ 00000 … 11111
//!                             └┬┘ └─┬─┘  └ buckets of few keys become one part, if it is a subtree
//!                              └ a bucket of many keys is divided again
//! ```
//!
//! A part is small enough to be sorted and built in the CPU's caches, and independent of the others.

use std::ops::Range;

use crate::error::Result;
use crate::query::arcs::{Arcs, Entry};

/// Arcs that are not divided: with paths of usual lengths, they and their nodes take a MiB or two. With half as many,
/// creating a map with short paths took a third more memory.
const MAX_PART_ARCS: usize = 8192;
/// How often a part is divided. Keys of which each continues the one before can be cut off one at a time only.
const MAX_ROUNDS: u32 = 6;
/// The bits of a key that choose its bucket.
const BUCKET_BITS: u32 = 16;

/// Arcs, divided into parts that follow each other in key order.
pub(crate) struct ArcParts {
    arcs: Arcs,
    parts: Vec<Shared>,
}

/// A part, and the length of a prefix of all its keys in bytes. The leads of its arcs follow this prefix.
struct Shared {
    part: Range<usize>,
    prefix: usize,
}

impl ArcParts {
    /// Divides arcs. O(bytes of keys).
    ///
    /// # Errors
    /// [`Error::Input`](crate::Error::Input) if keys and targets take more than 4 GiB.
    pub(crate) fn divide(mut arcs: Arcs) -> Result<Self> {
        arcs.check_size()?;
        let mut entries = arcs.take_entries();
        if entries.len() <= MAX_PART_ARCS {
            arcs.set_leads(&mut entries, 0);
        }
        let mut dividing = Dividing { arcs: &arcs, sorted: Vec::new(), parts: Vec::new() };
        dividing.divide(&mut entries, 0, 0, MAX_ROUNDS);
        let parts = dividing.parts;
        arcs.put_entries(entries);
        Ok(Self { arcs, parts })
    }

    /// The number of parts.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// The arcs of a part in key order. O(n log n + bytes).
    pub(crate) fn sorted(&self, part: usize) -> Arcs {
        let Shared { part, prefix } = &self.parts[part];
        self.arcs.sorted(part.clone(), *prefix)
    }
}

struct Dividing<'a> {
    arcs: &'a Arcs,
    /// Memory for the arcs of one division.
    sorted: Vec<Entry>,
    parts: Vec<Shared>,
}

impl Dividing<'_> {
    /// Divides arcs, of which the first is number `first`, and whose keys have the same first `known` bytes. Their leads
    /// follow these bytes if they are few, or are divided no further.
    fn divide(&mut self, entries: &mut [Entry], first: usize, known: usize, rounds: u32) {
        let part = first..first + entries.len();
        if entries.len() <= MAX_PART_ARCS || rounds == 0 {
            if !entries.is_empty() {
                self.parts.push(Shared { part, prefix: known });
            }
            return;
        }
        let known = self.arcs.shared(entries, known);
        let differing = self.arcs.set_leads(entries, known);
        if differing == 0 {
            // No key is a prefix of another, so these are longer or all the same.
            match usize::from(entries[0].key_len) > known + 8 {
                true => {
                    self.arcs.set_leads(entries, known + 8);
                    self.divide(entries, first, known + 8, rounds - 1);
                }
                false => self.parts.push(Shared { part, prefix: known }),
            }
            return;
        }
        let buckets = Buckets::count(entries, differing.leading_zeros());
        let ends = buckets.subtrees();
        self.sorted.clear();
        self.sorted.extend_from_slice(entries);
        let starts = buckets.scatter(&self.sorted, &ends, entries);
        for range in starts.windows(2) {
            self.divide(&mut entries[range[0]..range[1]], first + range[0], known, rounds - 1);
        }
    }
}

/// How many keys have each value of the bits that choose a bucket.
struct Buckets {
    /// The first bit of the leads.
    shift: u32,
    counts: Vec<u32>,
}

impl Buckets {
    fn count(entries: &[Entry], shift: u32) -> Self {
        let mut counts = vec![0; 1 << BUCKET_BITS];
        entries.iter().for_each(|entry| counts[Self::of(entry, shift)] += 1);
        Self { shift, counts }
    }

    #[inline]
    fn of(entry: &Entry, shift: u32) -> usize {
        ((entry.lead << shift) >> (u64::BITS - BUCKET_BITS)) as usize
    }

    /// Groups buckets to subtrees of few keys each. Returns where each ends, in order.
    fn subtrees(&self) -> Vec<usize> {
        let (mut ends, mut rest) = (Vec::new(), vec![(0, self.counts.len())]);
        while let Some((start, end)) = rest.pop() {
            let keys: usize = self.counts[start..end].iter().map(|&count| count as usize).sum();
            if keys <= MAX_PART_ARCS || end - start == 1 {
                ends.push(end);
            } else {
                let middle = start.midpoint(end);
                rest.extend([(middle, end), (start, middle)]);
            }
        }
        ends
    }

    /// Copies entries to `out` by subtree, in their order within each. Returns where each subtree starts, and the end.
    fn scatter(&self, entries: &[Entry], ends: &[usize], out: &mut [Entry]) -> Vec<usize> {
        let mut subtree_of = vec![0u32; self.counts.len()];
        let (mut from, mut starts) = (0, vec![0]);
        for (subtree, &end) in ends.iter().enumerate() {
            subtree_of[from..end].fill(subtree as u32);
            let keys: usize = self.counts[from..end].iter().map(|&count| count as usize).sum();
            starts.push(starts[subtree] + keys);
            from = end;
        }
        let mut next = starts.clone();
        for entry in entries {
            let at = &mut next[subtree_of[Self::of(entry, self.shift)] as usize];
            out[*at] = *entry;
            *at += 1;
        }
        starts
    }
}
