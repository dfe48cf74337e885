//! Arcs that Python passes in: mappings and pairs of a path and a CID.

use coregw_core::Arcs;
use pyo3::exceptions::{PyMemoryError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyMapping, PyTuple};

use crate::cid::cid;
use crate::convert::type_name;
use crate::path;

/// The pairs of a mapping, or the iterable itself.
pub fn pairs<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match given.cast::<PyMapping>() {
        Ok(mapping) => mapping.call_method0("items"),
        Err(_) => Ok(given.clone()),
    }
}

/// Adds the pair number `index`.
pub fn push_pair(index: usize, item: &Bound<'_, PyAny>, arcs: &mut Arcs) -> PyResult<()> {
    let Some((path, target)) = pair(item)? else {
        let found = type_name(item);
        return Err(PyTypeError::new_err(format!("arc {index} is a pair of a path and a CID, not {found}")));
    };
    let key = path::key(&path).map_err(|error| error.within(format_args!("arc {index}")))?;
    let target = cid(&target).map_err(|error| error.within(format_args!("arc {:?}", key.text())))?;
    let bytes = key.as_bytes().len() + target.as_bytes().len();
    arcs.try_reserve(1, bytes).map_err(|_| PyMemoryError::new_err(()))?;
    arcs.push(&key, &target);
    Ok(())
}

/// The two items of a pair, in the forms that `dict` takes; None for any other value.
fn pair<'py>(item: &Bound<'py, PyAny>) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    if let Ok(pair) = item.cast::<PyTuple>()
        && pair.len() == 2
    {
        return Ok(Some((pair.get_item(0)?, pair.get_item(1)?)));
    }
    match item.cast::<PyList>() {
        Ok(pair) if pair.len() == 2 => Ok(Some((pair.get_item(0)?, pair.get_item(1)?))),
        _ => Ok(None),
    }
}
