//! Conversion of `Change` tuples, which `apply` and `verify_changes` take.

use core::{Cid, InputCode, ListChange, ListChanges, MapChange, MapChanges};
use coregw_core as core;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::cid::cid;
use crate::convert::{self, ArgumentError, type_name};
use crate::path;

/// The changes of a map: coordinates are paths, and there are no sizes.
pub fn map_changes(changes: &Bound<'_, PyAny>) -> PyResult<MapChanges> {
    let taken = collect(changes, |change| {
        if change.size.is_some() {
            return Err(ArgumentError::input(InputCode::InvalidRequest, "a change of a map has no size"));
        }
        Ok(MapChange { key: path::key(&change.coordinate)?, before: change.before, after: change.after })
    })?;
    MapChanges::new(taken).map_err(|error| ArgumentError::from(error).into())
}

/// The changes of a list: coordinates are indices, and an element without a size gets the size 1.
pub fn list_changes(changes: &Bound<'_, PyAny>) -> PyResult<ListChanges> {
    let taken = collect(changes, |change| {
        if change.after.is_none() && change.size.is_some() {
            return Err(ArgumentError::input(InputCode::InvalidRequest, "a size without an 'after' that has it"));
        }
        let index = convert::integer(&change.coordinate, "the index")?;
        let before = change.before.map(|target| (target, None));
        let after = change.after.map(|target| (target, change.size.unwrap_or(1)));
        Ok(ListChange { index, before, after })
    })?;
    ListChanges::new(taken).map_err(|error| ArgumentError::from(error).into())
}

/// The fields of a `Change`.
struct Fields<'py> {
    coordinate: Bound<'py, PyAny>,
    before: Option<Cid>,
    after: Option<Cid>,
    size: Option<u64>,
}

fn collect<T>(
    changes: &Bound<'_, PyAny>,
    convert: impl Fn(Fields<'_>) -> Result<T, ArgumentError>,
) -> PyResult<Vec<T>> {
    convert::collect(changes, |index, item| {
        fields(&item).and_then(&convert).map_err(|error| error.within(format_args!("change {index}")).into())
    })
}

fn fields<'py>(item: &Bound<'py, PyAny>) -> Result<Fields<'py>, ArgumentError> {
    let fields = match item.cast::<PyTuple>() {
        Ok(fields) if (3..=4).contains(&fields.len()) => fields,
        _ => return Err(ArgumentError::Type(format!("a Change is expected, not {}", type_name(item)))),
    };
    let target = |at: usize, name: &str| -> Result<Option<Cid>, ArgumentError> {
        let value = fields.get_item(at)?;
        if value.is_none() {
            return Ok(None);
        }
        cid(&value).map(Some).map_err(|error| error.within(name))
    };
    let size = match fields.get_item(3) {
        Ok(size) if !size.is_none() => Some(convert::integer(&size, "size")?),
        _ => None,
    };
    Ok(Fields { coordinate: fields.get_item(0)?, before: target(1, "before")?, after: target(2, "after")?, size })
}
