//! The arcs of a map to be built: collected in any order, sorted once, and checked for duplicates.

use std::collections::TryReserveError;
use std::ops::Range;

use coregw_lanes::prefetch;

use crate::bits::{common_len, lead};
use crate::error::{Error, InputCode, Result};
use crate::id::cid::Cid;
use crate::key::{self, Key};

/// One arc: its key, followed by its target, is at `offset`. Sixteen bytes: sorting moves entries several times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// During sorting, the eight bytes of the key that are compared.
    pub(crate) lead: u64,
    /// Meaningless after 4 GiB, which [`Arcs::check_size`] refuses before an arc is read.
    offset: u32,
    pub(crate) key_len: u16,
    target_len: u8,
}

/// Fewer arcs are sorted by comparing whole keys.
const FEW: usize = 12;
/// How many arcs ahead of the one that is copied are loaded.
const PREFETCHED: usize = 16;
/// How many bytes are searched for a common prefix at each step: one cache line. Keys that diverge one at a time would
/// otherwise be read to their ends at each step.
const MAX_SHARED: usize = 64;

/// What is wrong with an arc in text form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArcFault {
    /// This, with the path.
    Path(&'static str),
    /// The target is not a CID.
    Target(Error),
}

/// The arcs of a map, in one block of memory.
#[derive(Debug, Default)]
pub struct Arcs {
    bytes: Vec<u8>,
    arcs: Vec<Entry>,
}

impl Arcs {
    /// Reserves memory for `arcs` more arcs, with `bytes` bytes of keys and targets.
    ///
    /// # Errors
    /// If the allocation fails.
    pub fn try_reserve(&mut self, arcs: usize, bytes: usize) -> std::result::Result<(), TryReserveError> {
        self.bytes.try_reserve(bytes)?;
        self.arcs.try_reserve(arcs)
    }

    /// Adds an arc.
    pub fn push(&mut self, key: &Key, target: &Cid) {
        let offset = self.bytes.len();
        self.bytes.extend_from_slice(key.as_bytes());
        self.bytes.extend_from_slice(target.as_bytes());
        self.finish(offset, key.as_bytes().len(), target.as_bytes().len() as u8);
    }

    /// Adds an arc whose path and target are in text form. Memory is taken for little more than the binary forms.
    ///
    /// # Errors
    /// What is wrong with the target, or with the path; the arc is not added.
    pub fn push_text(&mut self, path: &str, target: &str) -> Result<(), ArcFault> {
        let offset = self.bytes.len();
        self.try_push_text(path, target).inspect_err(|_| self.bytes.truncate(offset))
    }

    fn try_push_text(&mut self, path: &str, target: &str) -> Result<(), ArcFault> {
        let offset = self.bytes.len();
        if let Err(why) = key::write_text(path, &mut self.bytes) {
            return Err(Cid::from_text(target).map_or_else(ArcFault::Target, |_| ArcFault::Path(why)));
        }
        let key_len = self.bytes.len() - offset;
        let target_len = Cid::append_text(target, &mut self.bytes).map_err(ArcFault::Target)?;
        self.finish(offset, key_len, target_len);
        Ok(())
    }

    fn finish(&mut self, offset: usize, key_len: usize, target_len: u8) {
        self.arcs.push(Entry { lead: 0, offset: offset as u32, key_len: key_len as u16, target_len });
    }

    /// The number of arcs.
    pub fn len(&self) -> usize {
        self.arcs.len()
    }

    /// Whether there are no arcs.
    pub fn is_empty(&self) -> bool {
        self.arcs.is_empty()
    }

    fn key(&self, arc: &Entry) -> &[u8] {
        &self.bytes[arc.offset as usize..][..usize::from(arc.key_len)]
    }

    /// Sorts the arcs by key. O(n log n + bytes).
    ///
    /// # Errors
    /// [`Error::Input`] if two arcs have the same path, or if keys and targets take more than 4 GiB.
    pub fn sort(&mut self) -> Result<()> {
        self.check_size()?;
        let mut arcs = std::mem::take(&mut self.arcs);
        let whole = (0..arcs.len(), 0);
        self.order(&mut arcs, vec![whole]);
        // What reads the arcs reads them in order, so they are moved into order here.
        *self = self.gathered(arcs);
        self.check_distinct()
    }

    /// # Errors
    /// [`Error::Input`] if keys and targets take more than 4 GiB.
    pub(crate) fn check_size(&self) -> Result<()> {
        match u32::try_from(self.bytes.len()) {
            Ok(_) => Ok(()),
            Err(_) => {
                let what = "arcs: keys and targets take more than 4 GiB; build a smaller map and change it";
                Err(Error::input(InputCode::TooLarge, what))
            }
        }
    }

    /// # Errors
    /// [`Error::Input`] if two neighbours have the same path.
    pub(crate) fn check_distinct(&self) -> Result<()> {
        match self.arcs.windows(2).find(|pair| self.key(&pair[0]) == self.key(&pair[1])) {
            Some(pair) => Err(twice(self.key(&pair[0]))),
            None => Ok(()),
        }
    }

    /// Copies some arcs in key order. Their keys have the same first `known` bytes, and their leads are the next ones.
    /// O(n log n + bytes).
    pub(crate) fn sorted(&self, range: Range<usize>, known: usize) -> Self {
        let mut arcs = self.arcs[range].to_vec();
        arcs.sort_unstable_by_key(|arc| arc.lead);
        // The keys that remain to be compared are next to each other in memory after this.
        let mut sorted = self.gathered(arcs);
        let (mut arcs, mut equal) = (std::mem::take(&mut sorted.arcs), Vec::new());
        sorted.equal(&arcs, 0, known, &mut equal);
        sorted.order(&mut arcs, equal);
        sorted.arcs = arcs;
        sorted
    }

    /// Copies arcs, next to each other in memory. O(bytes).
    fn gathered(&self, mut arcs: Vec<Entry>) -> Self {
        let len = |arc: &Entry| usize::from(arc.key_len) + usize::from(arc.target_len);
        let mut bytes = Vec::with_capacity(arcs.iter().map(len).sum());
        for at in 0..arcs.len() {
            // Each arc is a cache miss or two, so several are loaded at a time.
            let ahead = arcs.get(at + PREFETCHED).and_then(|arc| self.bytes[arc.offset as usize..].first_chunk::<64>());
            if let Some(line) = ahead {
                prefetch(line);
            }
            let arc = &mut arcs[at];
            let (from, len) = (arc.offset as usize, len(arc));
            arc.offset = bytes.len() as u32;
            bytes.extend_from_slice(&self.bytes[from..from + len]);
        }
        Self { bytes, arcs }
    }

    /// Sorts ranges of arcs, in each of which the keys have the same first bytes, of this length, by the next eight bytes
    /// of their keys, equal ones by the eight after these, and so on. So a key costs one cache miss per eight bytes, not
    /// one per comparison.
    fn order(&self, arcs: &mut [Entry], mut rest: Vec<(Range<usize>, usize)>) {
        while let Some((range, known)) = rest.pop() {
            let (start, arcs) = (range.start, &mut arcs[range]);
            if arcs.len() < FEW {
                arcs.sort_unstable_by(|a, b| self.key(a)[known..].cmp(&self.key(b)[known..]));
                continue;
            }
            self.set_leads(arcs, known);
            arcs.sort_unstable_by_key(|arc| arc.lead);
            self.equal(arcs, start, known, &mut rest);
        }
    }

    /// Adds the ranges of arcs to `rest` whose keys have to be compared after their leads. The first arc is number `start`.
    fn equal(&self, arcs: &[Entry], mut start: usize, known: usize, rest: &mut Vec<(Range<usize>, usize)>) {
        for same in arcs.chunk_by(|a, b| a.lead == b.lead) {
            // No key is a prefix of another, so keys that agree up to the end of one are duplicates. Common prefixes are
            // often long, and skipped at once.
            if same.len() > 1 && usize::from(same[0].key_len) > known + 8 {
                let known = if same.len() == arcs.len() { self.shared(same, known + 8) } else { known + 8 };
                rest.push((start..start + same.len(), known));
            }
            start += same.len();
        }
    }

    /// Sets the leads of arcs to the eight bytes of their keys after the first `known`. Returns the bits in which they
    /// differ from the first one.
    pub(crate) fn set_leads(&self, arcs: &mut [Entry], known: usize) -> u64 {
        let (mut first, mut differing) = (None, 0);
        for arc in arcs {
            arc.lead = lead(self.key(arc), known);
            differing |= arc.lead ^ *first.get_or_insert(arc.lead);
        }
        differing
    }

    /// Takes the entries out, to be rearranged and [put back](Arcs::put_entries).
    pub(crate) fn take_entries(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.arcs)
    }

    pub(crate) fn put_entries(&mut self, entries: Vec<Entry>) {
        self.arcs = entries;
    }

    /// The length of the common prefix of all keys, at least `known` and at most [`MAX_SHARED`] more.
    pub(crate) fn shared(&self, arcs: &[Entry], known: usize) -> usize {
        let first = &self.key(&arcs[0])[known..];
        let most = first.len().min(MAX_SHARED);
        known + arcs.iter().fold(most, |n, arc| common_len(&first[..n], &self.key(arc)[known..]))
    }

    /// The arcs as pairs of a key and a binary CID, in the order in which they are; key order once they are sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.iter_from(0)
    }

    /// The arcs from this index on, at most the number of arcs, as [`Arcs::iter`] gives them.
    pub fn iter_from(&self, index: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.arcs[index..].iter().map(|arc| {
            let (key, rest) = self.bytes[arc.offset as usize..].split_at(usize::from(arc.key_len));
            (key, &rest[..usize::from(arc.target_len)])
        })
    }

    /// The bytes of memory that the arcs take.
    pub fn held_bytes(&self) -> usize {
        self.bytes.len() + self.arcs.len() * size_of::<Entry>()
    }

    /// Forgets the arcs, and keeps the memory for others.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.arcs.clear();
    }
}

/// The error for a path that two arcs have.
pub(crate) fn twice(key: &[u8]) -> Error {
    Error::request(format!("arcs: the path {:?} occurs twice", key::segments(key).join("/")))
}

#[cfg(test)]
#[path = "../../tests/unit/query_arcs.rs"]
mod tests;
