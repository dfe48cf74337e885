//! Arcs that Python passes in: mappings and pairs of a path and a CID.

use coregw_core::Arcs;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyString, PyTuple};

use crate::cid::cid;
use crate::convert::{self, ArgumentError, ITEMS_BETWEEN_SIGNAL_CHECKS, type_name};
use crate::path::{self, PendingKey};

/// Gives each pair of a mapping or an iterable to `take`, with its index.
pub fn for_each<'py>(
    given: &Bound<'py, PyAny>,
    mut take: impl FnMut(usize, &Bound<'py, PyAny>, &Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(dict) = given.cast_exact::<PyDict>() {
        return for_each_of_dict(dict, take);
    }
    let items = match given.cast::<PyMapping>() {
        Ok(mapping) => mapping.call_method0("items")?,
        Err(_) => given.clone(),
    };
    convert::for_each(&items, |index, item| match pair(&item)? {
        Some((path, target)) => take(index, &path, &target),
        None => {
            let found = type_name(&item);
            Err(PyTypeError::new_err(format!("arc {index} is a pair of a path and a CID, not {found}")))
        }
    })
}

/// The same without a tuple for each pair.
fn for_each_of_dict<'py>(
    dict: &Bound<'py, PyDict>,
    mut take: impl FnMut(usize, &Bound<'py, PyAny>, &Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    let count = dict.len();
    // What runs while an item is converted and dropped may change the dict; its iterator would panic.
    let check = || match dict.len() == count {
        true => Ok(()),
        false => Err(PyRuntimeError::new_err("dictionary changed size during iteration")),
    };
    let mut items = dict.iter();
    for index in 0..count {
        check()?;
        let Some((path, target)) = items.next() else {
            break;
        };
        take(index, &path, &target)?;
        if index % ITEMS_BETWEEN_SIGNAL_CHECKS == ITEMS_BETWEEN_SIGNAL_CHECKS - 1 {
            dict.py().check_signals()?;
        }
    }
    check()
}

/// Adds the pair number `index`.
pub fn push_pair(index: usize, path: &Bound<'_, PyAny>, target: &Bound<'_, PyAny>, arcs: &mut Arcs) -> PyResult<()> {
    let refused = |error: ArgumentError| error.within(format_args!("arc {index}"));
    let path = path::pending_key(path).map_err(refused)?;
    if let (PendingKey::Text(path_text), Ok(text)) = (&path, target.cast::<PyString>())
        && let Ok(text) = text.to_str()
    {
        reserve(arcs, path.max_key_bytes() + text.len())?;
        if arcs.push_text(path_text, text).is_ok() {
            return Ok(());
        }
    }
    // Targets of other types, and errors: what is wrong with the path is said first.
    let key = path.key().map_err(|error| refused(error.into()))?;
    let target = cid(target).map_err(|error| error.within(format_args!("arc {:?}", key.text())))?;
    reserve(arcs, key.as_bytes().len() + target.as_bytes().len())?;
    arcs.push(&key, &target);
    Ok(())
}

fn reserve(arcs: &mut Arcs, bytes: usize) -> PyResult<()> {
    arcs.try_reserve(1, bytes).map_err(|_| PyMemoryError::new_err(()))
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
