//! Changes of a map or list, in one block of memory: one request may contain a million.
//!
//! ```text
//! bytes     key | before | after | key | after | key | before
//! entries   offset, lengths        offset, lengths   ...
//! ```
//!
//! A CID is never empty, so the length 0 stands for an absent target.

use crate::error::{ConflictCode, Error, InputCode, Result};
use crate::id::cid::Cid;
use crate::key::{self, Key};
use crate::query::fixed::FixedSizes;
use crate::tree::node::SUM_LIMIT;

/// One change of a map: the target of a key before and after. None means that the key is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapChange {
    /// The key.
    pub key: Key,
    /// The target before the change.
    pub before: Option<Cid>,
    /// The target after the change.
    pub after: Option<Cid>,
}

/// One change of a list: the element before and after. None means that the index is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListChange {
    /// The index.
    pub index: u64,
    /// The target before the change, and its size if that is to be checked too.
    pub before: Option<(Cid, Option<u64>)>,
    /// The target and size after the change.
    pub after: Option<(Cid, u64)>,
}

/// The targets of a change, one after the other.
#[derive(Debug, Clone, Copy)]
struct Targets {
    offset: usize,
    before: u8,
    after: u8,
}

impl Targets {
    fn store(bytes: &mut Vec<u8>, before: Option<&Cid>, after: Option<&Cid>) -> Self {
        let offset = bytes.len();
        let mut store = |target: Option<&Cid>| {
            let target = target.map_or(&[][..], Cid::as_bytes);
            bytes.extend_from_slice(target);
            target.len() as u8
        };
        Self { offset, before: store(before), after: store(after) }
    }

    fn before(self, bytes: &[u8]) -> Option<&[u8]> {
        (self.before > 0).then(|| &bytes[self.offset..][..usize::from(self.before)])
    }

    fn after(self, bytes: &[u8]) -> Option<&[u8]> {
        (self.after > 0).then(|| &bytes[self.offset + usize::from(self.before)..][..usize::from(self.after)])
    }
}

#[derive(Debug, Clone, Copy)]
struct MapEntry {
    /// Where the targets are; the key is before them.
    offset: usize,
    key_len: u16,
    before: u8,
    after: u8,
}

impl MapEntry {
    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.offset - usize::from(self.key_len)..self.offset]
    }

    fn targets(self) -> Targets {
        Targets { offset: self.offset, before: self.before, after: self.after }
    }
}

/// Changes of a map, being collected in any order.
#[derive(Debug, Clone, Default)]
pub struct MapChangesBuilder {
    bytes: Vec<u8>,
    changes: Vec<MapEntry>,
}

impl MapChangesBuilder {
    /// Reserves memory for `changes` more changes, with `bytes` bytes of keys and targets.
    pub fn reserve(&mut self, changes: usize, bytes: usize) {
        self.changes.reserve(changes);
        self.bytes.reserve(bytes);
    }

    /// Adds a change.
    pub fn push(&mut self, change: &MapChange) {
        let key = change.key.as_bytes();
        self.bytes.extend_from_slice(key);
        let targets = Targets::store(&mut self.bytes, change.before.as_ref(), change.after.as_ref());
        let Targets { offset, before, after } = targets;
        self.changes.push(MapEntry { offset, key_len: key.len() as u16, before, after });
    }

    /// Sorts and validates the changes. O(n log n).
    ///
    /// # Errors
    /// [`Error::Input`] if there are none; [`Error::Conflict`] if a key occurs twice or a change changes nothing.
    pub fn finish(self) -> Result<MapChanges> {
        let Self { bytes, mut changes } = self;
        if changes.is_empty() {
            return Err(none());
        }
        changes.sort_unstable_by(|a, b| a.key(&bytes).cmp(b.key(&bytes)));
        let invalid = |change: &MapEntry, why: &str| {
            let path = key::segments(change.key(&bytes)).join("/");
            Err(Error::conflict(ConflictCode::InvalidChange, format!("{path:?}: {why}")))
        };
        for (i, change) in changes.iter().enumerate() {
            if i > 0 && changes[i - 1].key(&bytes) == change.key(&bytes) {
                return invalid(change, "the key is changed twice");
            }
            if change.targets().before(&bytes) == change.targets().after(&bytes) {
                return invalid(change, "before and after are the same; nothing changes");
            }
        }
        Ok(MapChanges { bytes, changes })
    }
}

/// Changes of a map: at least one, in key order, with distinct keys, each of which changes something.
#[derive(Debug, Clone)]
pub struct MapChanges {
    bytes: Vec<u8>,
    changes: Vec<MapEntry>,
}

/// A change of a map, in place.
#[derive(Clone, Copy)]
pub(crate) struct MapChangeRef<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) before: Option<&'a [u8]>,
    pub(crate) after: Option<&'a [u8]>,
}

impl MapChanges {
    /// Sorts and validates changes.
    ///
    /// # Errors
    /// As [`MapChangesBuilder::finish`].
    pub fn new(changes: Vec<MapChange>) -> Result<Self> {
        let mut builder = MapChangesBuilder::default();
        changes.iter().for_each(|change| builder.push(change));
        builder.finish()
    }

    pub(crate) fn get(&self, at: usize) -> Option<MapChangeRef<'_>> {
        let change = self.changes.get(at)?;
        let (key, targets) = (change.key(&self.bytes), change.targets());
        Some(MapChangeRef { key, before: targets.before(&self.bytes), after: targets.after(&self.bytes) })
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.changes.iter().map(|change| change.key(&self.bytes))
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Always false: [`MapChangesBuilder::finish`] rejects an empty list.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

#[derive(Debug, Clone, Copy)]
struct ListEntry {
    targets: Targets,
    index: u64,
    /// The size before the change; 0 if it is not checked.
    before: u64,
    after: u64,
}

/// Changes of a list, being collected in any order.
#[derive(Debug, Clone, Default)]
pub struct ListChangesBuilder {
    bytes: Vec<u8>,
    changes: Vec<ListEntry>,
}

impl ListChangesBuilder {
    /// Reserves memory for `changes` more changes, with `bytes` bytes of targets.
    pub fn reserve(&mut self, changes: usize, bytes: usize) {
        self.changes.reserve(changes);
        self.bytes.reserve(bytes);
    }

    /// Adds a change.
    ///
    /// # Errors
    /// [`Error::Input`] if a size is 0 or above 2^53 - 1.
    pub fn push(&mut self, change: &ListChange) -> Result<()> {
        let index = change.index;
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        let sizes = [before.and_then(|before| before.1), after.map(|after| after.1)];
        if sizes.into_iter().flatten().any(|size| size == 0 || size >= SUM_LIMIT) {
            return Err(Error::request(format!("index {index}: a size must be at least 1 and below 2^53")));
        }
        let [before_size, after_size] = sizes.map(Option::unwrap_or_default);
        let targets = Targets::store(&mut self.bytes, before.map(|before| &before.0), after.map(|after| &after.0));
        self.changes.push(ListEntry { targets, index, before: before_size, after: after_size });
        Ok(())
    }

    /// Sorts the changes and checks what can be checked without the list. O(n log n).
    ///
    /// # Errors
    /// [`Error::Input`] if there are none; [`Error::Conflict`] if an index occurs twice or a change changes nothing.
    pub fn finish(self) -> Result<ListChanges> {
        let Self { bytes, mut changes } = self;
        if changes.is_empty() {
            return Err(none());
        }
        changes.sort_unstable_by_key(|change| change.index);
        for (i, change) in changes.iter().enumerate() {
            let why = if i > 0 && changes[i - 1].index == change.index {
                "the index is changed twice"
            } else if change.targets.before == 0 && change.targets.after == 0 {
                "before and after are both absent; nothing changes"
            } else {
                continue;
            };
            return Err(Error::conflict(ConflictCode::InvalidChange, format!("index {}: {why}", change.index)));
        }
        Ok(ListChanges { bytes, changes, fixed: None })
    }
}

/// Changes of a list: at least one, in index order, with distinct indices.
#[derive(Debug, Clone)]
pub struct ListChanges {
    bytes: Vec<u8>,
    changes: Vec<ListEntry>,
    pub(crate) fixed: Option<FixedSizes>,
}

/// A change of a list, in place.
#[derive(Clone, Copy)]
pub(crate) struct ListChangeRef<'a> {
    pub(crate) index: u64,
    pub(crate) before: Option<(&'a [u8], Option<u64>)>,
    pub(crate) after: Option<(&'a [u8], u64)>,
}

impl ListChanges {
    /// Sorts changes and checks what can be checked without the list.
    ///
    /// # Errors
    /// As [`ListChangesBuilder::push`] and [`ListChangesBuilder::finish`].
    pub fn new(changes: Vec<ListChange>) -> Result<Self> {
        let mut builder = ListChangesBuilder::default();
        changes.iter().try_for_each(|change| builder.push(change))?;
        builder.finish()
    }

    /// Changes whose result has `sizes`, as far as the tree shows it: the number of elements, their total, the sizes of the
    /// changed elements, and the sums of all subtrees beside the descents to them.
    ///
    /// If the list was fixed before, with the same size of its elements, then so is the result.
    #[must_use]
    pub fn into_fixed(self, sizes: FixedSizes) -> Self {
        Self { fixed: Some(sizes), ..self }
    }

    pub(crate) fn get(&self, at: usize) -> Option<ListChangeRef<'_>> {
        let ListEntry { targets, index, before, after } = *self.changes.get(at)?;
        let before = targets.before(&self.bytes).map(|target| (target, (before > 0).then_some(before)));
        Some(ListChangeRef { index, before, after: targets.after(&self.bytes).map(|target| (target, after)) })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = ListChangeRef<'_>> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Always false: [`ListChangesBuilder::finish`] rejects an empty list.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

fn none() -> Error {
    Error::input(InputCode::InvalidRequest, "changes: at least one is required")
}
