//! The deltas of a mutation (protocol section 5): their messages, and what each means, for the gateway and the verifier.

use std::borrow::Cow;
use std::fmt;

use coregw_core::Ask;
use coregw_core::{
    Arcs, Cid, ConflictCode, Error, FixedSizes, InputCode, Key, Kind, ListChange, ListChangesBuilder, MapChange,
    MapChangesBuilder, Result, RootCid, Snapshot,
};
use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Int, present, shown};
use crate::json::{array, objects, read_part, request_error};

/// The limit on the deltas of one mutation.
pub const MAX_DELTAS: usize = 1000;

/// A delta as it was received. Its changes are read when its kind is known, one at a time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct DeltaMessage<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(default, deserialize_with = "present")]
    object: Option<String>,
    #[serde(borrow)]
    changes: &'a RawValue,
    #[serde(default, deserialize_with = "present")]
    expected_root: Option<String>,
    #[serde(default, deserialize_with = "present")]
    commit: Option<Commit>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct DeltaChange {
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
    read: DeltaMessage<'a>, DeltaChange, ChangeSide, Commit, FixedList, Receipt, DeltaReceipt;
    written: Receipt, DeltaReceipt;
}

/// Reads the root that a mutation starts from.
pub(crate) fn base_root(cid: &Cid) -> Result<RootCid> {
    cid.root()
        .ok_or_else(|| Error::input(InputCode::KindMismatch, format!("root: {cid} is a payload, not a map or list")))
}

/// Reads the member `deltas`.
pub(crate) fn deltas<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<DeltaMessage<'de>>, D::Error> {
    array(deserializer, "deltas", MAX_DELTAS, InputCode::InvalidRequest)
}

/// Reads what is in the deltas of `body`, and checks what can be checked before the first is applied. O(bytes) time;
/// memory for the keys and targets, and some dozens of bytes for each change. Returns each with the query that makes its
/// changes.
pub(crate) fn read_all(body: &[u8], deltas: Vec<DeltaMessage<'_>>) -> Result<Vec<(Delta, Ask)>> {
    if deltas.is_empty() {
        return Err(Error::request(format!("deltas: 0 deltas are not from 1 to {MAX_DELTAS}")));
    }
    let read = |(i, delta): (usize, DeltaMessage<'_>)| delta.read(body).map_err(|error| error.in_delta(i));
    deltas.into_iter().enumerate().map(read).collect()
}

/// A delta that is well-formed.
#[derive(Debug)]
pub(crate) struct Delta {
    kind: Kind,
    object: Option<RootCid>,
    expected_root: Option<Cid>,
    /// The sizes of the fixed list that the delta commits to.
    pub(crate) fixed: Option<FixedSizes>,
    /// The number of coordinates that it changes.
    pub(crate) change_count: u64,
    /// The number of coordinates that it sets.
    pub(crate) set_count: u64,
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

impl DeltaMessage<'_> {
    fn read(&self, body: &[u8]) -> Result<(Delta, Ask)> {
        let kind = match &*self.kind {
            "map" => Kind::Map,
            "list" => Kind::List,
            other => return Err(Error::request(format!("kind {:?} is neither map nor list", shown(other)))),
        };
        if kind == Kind::Map && self.commit.is_some() {
            return Err(Error::request("commit: a map has no fixed_list"));
        }
        let object = self.object.as_ref().map(|text| RootCid::of(&cid("object", text)?, kind)).transpose()?;
        let expected_root = self.expected_root.as_ref().map(|text| cid("expected_root", text)).transpose()?;
        let fixed = self.fixed_sizes()?;
        let mut changes = Changes::new(kind, fixed);
        let (change_count, set_count) = changes.read(body, self.changes)?;
        let delta = Delta { kind, object, expected_root, fixed, change_count, set_count };
        Ok((delta, changes.ask()?))
    }

    fn fixed_sizes(&self) -> Result<Option<FixedSizes>> {
        let Some(Commit { fixed_list: FixedList { total_size, chunk_size } }) = self.commit else {
            return Ok(None);
        };
        match FixedSizes::new(total_size.0, chunk_size.0) {
            None => Err(Error::request("commit: chunk_size is 0; it must be at least 1")),
            sizes => Ok(sizes),
        }
    }
}

impl Delta {
    /// The tree that this delta names, or `current` (the base root, or what earlier deltas made of it) if that is of its
    /// kind, or a new empty tree.
    pub(crate) fn object(&self, current: &RootCid) -> Result<Object> {
        match &self.object {
            Some(root) => Ok(Object::Existing(*root)),
            None if current.kind == self.kind => Ok(Object::Existing(*current)),
            None => Ok(Object::Empty(match self.kind {
                Kind::Map => Snapshot::map(current.suite, Arcs::default())?,
                Kind::List => Snapshot::list(current.suite, &[])?,
            })),
        }
    }

    /// Compares the result of this delta with the root that it expects.
    pub(crate) fn check_expected(&self, result: &RootCid) -> Result<()> {
        match self.expected_root {
            Some(expected) if expected != result.cid() => {
                let what = format!("the result is {result}, not the expected {expected}");
                Err(Error::conflict(ConflictCode::ExpectedRootMismatch, what))
            }
            _ => Ok(()),
        }
    }
}

/// The length of a short change in JSON, and of its key and target: for an estimate of the memory that changes take.
const SHORT_CHANGE_BYTES: usize = 48;
const SHORT_TARGET_BYTES: usize = 16;

/// The changes of a delta, as far as they are read.
enum Changes {
    Map(MapChangesBuilder),
    List(ListChangesBuilder, Option<FixedSizes>),
}

impl Changes {
    fn new(kind: Kind, fixed: Option<FixedSizes>) -> Self {
        match kind {
            Kind::Map => Self::Map(MapChangesBuilder::default()),
            Kind::List => Self::List(ListChangesBuilder::default(), fixed),
        }
    }

    /// Reads the member `changes`, a part of `body`. Returns how many there are, and how many set their coordinate.
    fn read(&mut self, body: &[u8], member: &RawValue) -> Result<(u64, u64)> {
        let bytes = member.get().len();
        let (changes, targets) = (bytes / SHORT_CHANGE_BYTES, bytes / SHORT_CHANGE_BYTES * SHORT_TARGET_BYTES);
        match self {
            Self::Map(builder) => builder.reserve(changes, targets),
            Self::List(builder, _) => builder.reserve(changes, targets),
        }
        let mut refused = None;
        match read_part(body, member, ChangesReader { changes: self, refused: &mut refused }) {
            Ok(counts) => Ok(counts),
            Err(error) => Err(refused.unwrap_or_else(|| request_error(&error))),
        }
    }

    fn push(&mut self, change: &DeltaChange) -> Result<()> {
        match self {
            Self::Map(builder) => {
                builder.push(&change.of_map()?);
                Ok(())
            }
            Self::List(builder, fixed) => builder.push(&change.of_list(*fixed)?),
        }
    }

    fn ask(self) -> Result<Ask> {
        Ok(match self {
            Self::Map(builder) => Ask::ChangeMap(builder.finish()?),
            Self::List(builder, None) => Ask::ChangeList(builder.finish()?),
            Self::List(builder, Some(sizes)) => Ask::ChangeList(builder.finish()?.into_fixed(sizes)),
        })
    }
}

/// Reads changes, each checked before the next. The first that is invalid ends the reading: serde's errors hold text
/// only, so it is left in `refused`.
struct ChangesReader<'a> {
    changes: &'a mut Changes,
    refused: &'a mut Option<Error>,
}

impl<'de> DeserializeSeed<'de> for ChangesReader<'_> {
    type Value = (u64, u64);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ChangesReader<'_> {
    type Value = (u64, u64);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of changes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let (mut count, mut set_count) = (0, 0);
        while let Some(change) = array.next_element::<DeltaChange>()? {
            if let Err(error) = self.changes.push(&change) {
                *self.refused = Some(error.within(&format!("change {count}")));
                return Err(de::Error::custom("a change is invalid"));
            }
            count += 1;
            set_count += u64::from(change.after.is_some());
        }
        Ok((count, set_count))
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
