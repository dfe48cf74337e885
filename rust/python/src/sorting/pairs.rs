//! Arcs that Python passes in: mappings and pairs of a path and a CID.

use coregw_core::Arcs;
use pyo3::exceptions::{PyMemoryError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyMapping, PyTuple};

use crate::cid::cid;
use crate::convert::{ArgumentError, type_name};
use crate::path::{self, PendingKey};

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
    let path = path::pending_key(&path).map_err(|error| error.within(format_args!("arc {index}")))?;
    let refused = |error: ArgumentError| error.within(format_args!("arc {index}"));
    let target = match cid(&target) {
        Ok(target) => target,
        // What is wrong with the path is said first.
        Err(error) => {
            let key = path.key().map_err(|error| refused(error.into()))?;
            return Err(error.within(format_args!("arc {:?}", key.text())).into());
        }
    };
    arcs.try_reserve(1, path.max_key_bytes() + target.as_bytes().len()).map_err(|_| PyMemoryError::new_err(()))?;
    let pushed = match &path {
        PendingKey::Text(text) => arcs.push_text(text, &target).is_ok(),
        PendingKey::Ready(key) => {
            arcs.push(key, &target);
            true
        }
    };
    match pushed {
        true => Ok(()),
        false => path.key().map(|_| ()).map_err(|error| refused(error.into()).into()),
    }
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
