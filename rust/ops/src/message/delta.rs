//! The deltas of a mutation (protocol section 5): their messages, and what each means, for the gateway and the verifier.

use coregw_core::Ask;
use coregw_core::{
    Arcs, Cid, ConflictCode, Error, FixedSizes, InputCode, Key, Kind, ListChange, ListChanges, MapChange, MapChanges,
    Result, RootCid, Snapshot,
};
use serde::{Deserialize, Serialize};

use super::{Int, present, shown};
use crate::json::objects;

/// The limit on the deltas of one mutation.
pub const MAX_DELTAS: usize = 1000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct Delta {
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "present")]
    pub(crate) object: Option<String>,
    pub(crate) changes: Vec<DeltaChange>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) expected_root: Option<String>,
    #[serde(default, deserialize_with = "present")]
    commit: Option<Commit>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct DeltaChange {
    #[serde(default, deserialize_with = "present")]
    path: Option<String>,
    #[serde(default, deserialize_with = "present")]
    index: Option<Int>,
    #[serde(default, deserialize_with = "present")]
    before: Option<ChangeSide>,
    #[serde(default, deserialize_with = "present")]
    after: Option<ChangeSide>,
}

/// What is at a coordinate before or after a change.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct ChangeSide {
    target: String,
    #[serde(default, deserialize_with = "present")]
    target_kind: Option<String>,
    #[serde(default, deserialize_with = "present")]
    size: Option<Int>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct Commit {
    fixed_list: FixedList,
}

/// A list of equal chunks, the last of which may be shorter.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct FixedList {
    total_size: Int,
    chunk_size: Int,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct Receipt {
    pub(crate) base_root: String,
    pub(crate) new_root: String,
    pub(crate) delta_count: Int,
    pub(crate) arc_count: Int,
    pub(crate) deltas: Vec<DeltaReceipt>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct DeltaReceipt {
    pub(crate) object: String,
    pub(crate) result: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) proof: Option<String>,
}

objects! {
    read: Delta, DeltaChange, ChangeSide, Commit, FixedList, Receipt, DeltaReceipt;
    written: Receipt, DeltaReceipt;
}

/// Reads the root that a mutation starts from.
pub(crate) fn base_root(cid: &Cid) -> Result<RootCid> {
    cid.root()
        .ok_or_else(|| Error::input(InputCode::KindMismatch, format!("root: {cid} is a payload, not a map or list")))
}

/// Checks what can be checked of all deltas before the first is applied.
pub(crate) fn check_all(deltas: &[Delta]) -> Result<()> {
    if deltas.is_empty() || deltas.len() > MAX_DELTAS {
        return Err(Error::request(format!("deltas: {} deltas are not from 1 to {MAX_DELTAS}", deltas.len())));
    }
    match deltas.iter().position(|delta| delta.changes.is_empty()) {
        Some(i) => Err(Error::request(format!("delta {i}: no changes"))),
        None => Ok(()),
    }
}

/// The tree that a delta changes.
pub(crate) enum Object {
    /// A tree that is stored, or the result of an earlier delta.
    Existing(RootCid),
    /// A new empty tree.
    Empty(Snapshot),
}

impl Object {
    pub(crate) fn root(&self) -> RootCid {
        match self {
            Self::Existing(root) => *root,
            Self::Empty(tree) => tree.root(),
        }
    }
}

impl Delta {
    /// The tree that this delta names, or `current` (the base root, or what earlier deltas made of it) if that is of its
    /// kind, or a new empty tree.
    pub(crate) fn object(&self, current: &RootCid) -> Result<Object> {
        let kind = match self.kind.as_str() {
            "map" => Kind::Map,
            "list" => Kind::List,
            other => return Err(Error::request(format!("kind {:?} is neither map nor list", shown(other)))),
        };
        match &self.object {
            Some(text) => Ok(Object::Existing(RootCid::of(&cid("object", text)?, kind)?)),
            None if current.kind == kind => Ok(Object::Existing(*current)),
            None => Ok(Object::Empty(match kind {
                Kind::Map => Snapshot::map(current.suite, Arcs::default())?,
                Kind::List => Snapshot::list(current.suite, &[])?,
            })),
        }
    }

    /// The query that makes this delta's changes.
    pub(crate) fn ask(&self, kind: Kind) -> Result<Ask> {
        match kind {
            Kind::Map if self.commit.is_some() => Err(Error::request("commit: a map has no fixed_list")),
            Kind::Map => Ok(Ask::ChangeMap(map_changes(&self.changes)?)),
            Kind::List => Ok(Ask::ChangeList(list_changes(&self.changes, self.fixed_sizes()?)?)),
        }
    }

    /// Compares the result of this delta with the root that it expects.
    pub(crate) fn check_expected(&self, result: &RootCid) -> Result<()> {
        let Some(expected) = &self.expected_root else {
            return Ok(());
        };
        let expected = cid("expected_root", expected)?;
        if expected == result.cid() {
            return Ok(());
        }
        let what = format!("the result is {result}, not the expected {expected}");
        Err(Error::conflict(ConflictCode::ExpectedRootMismatch, what))
    }

    /// The sizes of the fixed list that this delta commits to.
    pub(crate) fn fixed_sizes(&self) -> Result<Option<FixedSizes>> {
        let Some(Commit { fixed_list: FixedList { total_size, chunk_size } }) = self.commit else {
            return Ok(None);
        };
        match FixedSizes::new(total_size.0, chunk_size.0) {
            None => Err(Error::request("commit: chunk_size is 0; it must be at least 1")),
            sizes => Ok(sizes),
        }
    }

    /// The number of coordinates that this delta sets.
    pub(crate) fn set_count(&self) -> u64 {
        self.changes.iter().filter(|change| change.after.is_some()).count() as u64
    }
}

fn cid(member: &str, text: &str) -> Result<Cid> {
    Cid::from_text(text).map_err(|error| error.within(member))
}

impl ChangeSide {
    fn target(&self, member: &str) -> Result<Cid> {
        let target = cid(member, &self.target)?;
        match self.target_kind.as_deref() {
            None | Some("unknown") => Ok(target),
            Some(kind @ ("map" | "list" | "cas")) if kind == target.kind_name() => Ok(target),
            Some(kind @ ("map" | "list" | "cas")) => {
                let what = format!("{member}: {target} is a {}, but target_kind is {kind}", target.kind_name());
                Err(Error::input(InputCode::KindMismatch, what))
            }
            Some(other) => {
                let what = format!("{member}: target_kind {:?} is not one of map, list, cas, unknown", shown(other));
                Err(Error::request(what))
            }
        }
    }

    fn size(&self) -> Option<u64> {
        self.size.map(|size| size.0)
    }
}

fn map_changes(changes: &[DeltaChange]) -> Result<MapChanges> {
    let change =
        |(i, change): (usize, &DeltaChange)| change.of_map().map_err(|error| error.within(&format!("change {i}")));
    MapChanges::new(changes.iter().enumerate().map(change).collect::<Result<_>>()?)
}

fn list_changes(changes: &[DeltaChange], fixed: Option<FixedSizes>) -> Result<ListChanges> {
    let change = |(i, change): (usize, &DeltaChange)| {
        change.of_list(fixed).map_err(|error| error.within(&format!("change {i}")))
    };
    let changes = ListChanges::new(changes.iter().enumerate().map(change).collect::<Result<_>>()?)?;
    Ok(match fixed {
        Some(sizes) => changes.into_fixed(sizes),
        None => changes,
    })
}

impl DeltaChange {
    fn of_map(&self) -> Result<MapChange> {
        let (Some(path), None) = (&self.path, self.index) else {
            return Err(Error::request("a change of a map has a path, and no index"));
        };
        let target = |member: &str, side: &Option<ChangeSide>| match side {
            Some(side) if side.size.is_some() => {
                Err(Error::request(format!("{member}: a target of a map has no size")))
            }
            Some(side) => side.target(member).map(Some),
            None => Ok(None),
        };
        let (before, after) = (target("before", &self.before)?, target("after", &self.after)?);
        Ok(MapChange { key: Key::from_text(path)?, before, after })
    }

    fn of_list(&self, fixed: Option<FixedSizes>) -> Result<ListChange> {
        let (Some(Int(index)), None) = (self.index, &self.path) else {
            return Err(Error::request("a change of a list has an index, and no path"));
        };
        let before = match &self.before {
            Some(side) => Some((side.target("before")?, side.size())),
            None => None,
        };
        let after = match &self.after {
            Some(side) => Some((side.target("after")?, element_size(side, index, fixed)?)),
            None => None,
        };
        Ok(ListChange { index, before, after })
    }
}

/// The size of an element after its change; 1 unless given.
fn element_size(side: &ChangeSide, index: u64, fixed: Option<FixedSizes>) -> Result<u64> {
    let derived = |fixed: FixedSizes| {
        let what = || format!("index {index}: the fixed list has {} elements", fixed.count());
        fixed.size_of(index).ok_or_else(|| Error::conflict(ConflictCode::InvalidChange, what()))
    };
    match (side.size(), fixed.map(derived).transpose()?) {
        (Some(given), Some(size)) if given != size => {
            let what = format!("index {index}: its size in the fixed list is {size}, not {given}");
            Err(Error::conflict(ConflictCode::InvalidChange, what))
        }
        (given, derived) => Ok(derived.or(given).unwrap_or(1)),
    }
}
