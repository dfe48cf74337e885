//! The deltas of a mutation (protocol section 5): what they change and how, for who makes them and who checks them.

use crate::messages::{self as msg, Delta, DeltaChange, FixedList};
use coregw_core::Arcs;
use coregw_core::Key;
use coregw_core::Snapshot;
use coregw_core::internals::prove::Ask;
use coregw_core::list;
use coregw_core::map;
use coregw_core::{Cid, Kind, RootCid};
use coregw_core::{ConflictCode, Error, InputCode, Result};

/// Deltas of one mutation, at most.
pub const MAX_DELTAS: usize = 1000;

/// Checks what can be checked of all deltas before the first is applied.
pub(crate) fn check_all(deltas: &[Delta]) -> Result<()> {
    if deltas.is_empty() || deltas.len() > MAX_DELTAS {
        return Err(Error::request(format!("deltas: a mutation has from 1 to {MAX_DELTAS}")));
    }
    match deltas.iter().position(|delta| delta.changes.is_empty()) {
        Some(i) => Err(Error::request(format!("delta {i}: there are no changes"))),
        None => Ok(()),
    }
}

/// What a delta changes: the tree that it names, or `current` (the base root, or what deltas made of it) if that is of
/// its kind, or a new empty tree.
pub(crate) fn object(delta: &Delta, current: &RootCid) -> Result<(RootCid, Option<Snapshot>)> {
    let kind = match delta.kind.as_str() {
        "map" => Kind::Map,
        "list" => Kind::List,
        other => {
            let shown: String = other.chars().take(80).collect();
            return Err(Error::request(format!("kind {shown:?} is neither map nor list")));
        }
    };
    match &delta.object {
        Some(text) => Ok((RootCid::of(&cid("object", text)?, kind)?, None)),
        None if current.kind == kind => Ok((*current, None)),
        None => {
            let empty = match kind {
                Kind::Map => Snapshot::map(current.suite, Arcs::default())?,
                Kind::List => Snapshot::list(current.suite, &[])?,
            };
            Ok((empty.root(), Some(empty)))
        }
    }
}

/// The query that makes a delta's changes.
pub(crate) fn ask(delta: &Delta, kind: Kind) -> Result<Ask> {
    let fixed = fixed(delta);
    match kind {
        Kind::Map if fixed.is_some() => Err(Error::request("commit: fixed_list is for lists only")),
        Kind::Map => Ok(Ask::ChangeMap(map_changes(&delta.changes)?)),
        Kind::List => Ok(Ask::ChangeList(list_changes(&delta.changes, fixed)?)),
    }
}

/// Compares the result of a delta with what it expects.
pub(crate) fn check_expected(delta: &Delta, result: &RootCid) -> Result<()> {
    let Some(expected) = &delta.expected_root else {
        return Ok(());
    };
    let expected = cid("expected_root", expected)?;
    if expected == result.cid() {
        return Ok(());
    }
    let what = format!("the result is {result}, not the expected {expected}");
    Err(Error::conflict(ConflictCode::ExpectedRootMismatch, what))
}

/// The fixed list that a delta commits to.
pub(crate) fn fixed(delta: &Delta) -> Option<FixedList> {
    delta.commit.as_ref().map(|commit| commit.fixed_list)
}

fn cid(member: &str, text: &str) -> Result<Cid> {
    Cid::from_text(text).map_err(|error| error.within(member))
}

fn target(member: &str, side: &msg::Side) -> Result<Cid> {
    let target = cid(member, &side.target)?;
    match side.target_kind.as_deref() {
        None | Some("unknown") => Ok(target),
        Some(kind @ ("map" | "list" | "cas")) if kind == target.kind_name() => Ok(target),
        Some("map" | "list" | "cas") => {
            let what = format!("{member}: {target} is a {}, not what target_kind says", target.kind_name());
            Err(Error::input(InputCode::KindMismatch, what))
        }
        Some(other) => {
            let shown: String = other.chars().take(80).collect();
            Err(Error::request(format!("{member}: target_kind {shown:?} is none of map, list, cas, unknown")))
        }
    }
}

fn map_changes(changes: &[DeltaChange]) -> Result<map::Changes> {
    let one = |(i, change): (usize, &DeltaChange)| {
        let place = format!("change {i}");
        let read = || {
            let (Some(path), None) = (&change.path, change.index) else {
                return Err(Error::request("a change of a map has a path, and no index"));
            };
            let sides = [("before", &change.before), ("after", &change.after)];
            if let Some((member, _)) = sides.iter().find(|(_, s)| s.as_ref().is_some_and(|s| s.size.is_some())) {
                return Err(Error::request(format!("{member}: a target of a map has no size")));
            }
            let before = change.before.as_ref().map(|side| target("before", side)).transpose()?;
            let after = change.after.as_ref().map(|side| target("after", side)).transpose()?;
            Ok(map::Change { key: Key::from_text(path)?, before, after })
        };
        read().map_err(|error| error.within(&place))
    };
    map::Changes::new(changes.iter().enumerate().map(one).collect::<Result<_>>()?)
}

fn list_changes(changes: &[DeltaChange], fixed: Option<FixedList>) -> Result<list::Changes> {
    fixed.map(fixed_count).transpose()?; // whose fault is of no change's
    let one = |(i, change): (usize, &DeltaChange)| {
        let place = format!("change {i}");
        let read = || {
            let (Some(index), None) = (change.index, &change.path) else {
                return Err(Error::request("a change of a list has an index, and no path"));
            };
            let index = index.0;
            let before = match &change.before {
                Some(side) => Some((target("before", side)?, side.size.map(|size| size.0))),
                None => None,
            };
            let after = match &change.after {
                Some(side) => {
                    let derived = fixed.map(|fixed| fixed_size(fixed, index)).transpose()?;
                    let size = match (side.size.map(|size| size.0), derived) {
                        (Some(given), Some(size)) if given != size => {
                            let what = format!("index {index}: the fixed list gives it size {size}, not {given}");
                            return Err(Error::conflict(ConflictCode::InvalidChange, what));
                        }
                        (given, derived) => derived.or(given).unwrap_or(1),
                    };
                    Some((target("after", side)?, size))
                }
                None => None,
            };
            Ok(list::Change { index, before, after })
        };
        read().map_err(|error| error.within(&place))
    };
    list::Changes::new(changes.iter().enumerate().map(one).collect::<Result<_>>()?)
}

/// Number of elements of a fixed list.
pub(crate) fn fixed_count(fixed: FixedList) -> Result<u64> {
    match fixed.chunk_size.0 {
        0 => Err(Error::request("commit: chunk_size is at least 1")),
        chunk => Ok(fixed.total_size.0.div_ceil(chunk)),
    }
}

/// The size of element `index` of a fixed list.
fn fixed_size(fixed: FixedList, index: u64) -> Result<u64> {
    let count = fixed_count(fixed)?;
    if index >= count {
        let what = format!("index {index}: the fixed list has {count} elements");
        return Err(Error::conflict(ConflictCode::InvalidChange, what));
    }
    Ok(fixed.chunk_size.0.min(fixed.total_size.0 - index * fixed.chunk_size.0))
}

pub(crate) fn check_sizes(fixed: FixedList, sizes: &[u64]) -> Result<()> {
    let count = fixed_count(fixed)?;
    if sizes.len() as u64 != count {
        let what = format!("commit: the list has {} elements; the fixed list has {count}", sizes.len());
        return Err(Error::conflict(ConflictCode::InvalidChange, what));
    }
    for (index, &size) in sizes.iter().enumerate() {
        let expected = fixed_size(fixed, index as u64)?;
        if size != expected {
            let what = format!("commit: element {index} has size {size}; the fixed list gives it {expected}");
            return Err(Error::conflict(ConflictCode::InvalidChange, what));
        }
    }
    Ok(())
}
