//! Conversion of arguments: text, integers and iterables.
//!
//! A value of a wrong type is a `TypeError`; one that violates the protocol is an `InvalidInput` with its code;
//! what the value's own Python code raises passes through. Paths, CIDs, codecs and changes are converted in the modules
//! named for them.

use std::fmt;
use std::ops::Deref;

use core::{InputCode, SUM_LIMIT};
use coregw_core as core;
use pyo3::exceptions::{PyMemoryError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyMemoryView, PyString, PyTuple};

use crate::errors::exception;

/// Why an argument is refused.
#[derive(Debug)]
pub enum ArgumentError {
    /// It is of a wrong type.
    Type(String),
    /// It breaks a rule of the protocol.
    Core(core::Error),
    /// Its own Python code raised this.
    Python(PyErr),
}

impl ArgumentError {
    /// An argument that breaks a rule of the protocol.
    pub fn input(code: InputCode, what: impl Into<String>) -> Self {
        Self::Core(core::Error::Input { code, what: what.into() })
    }

    /// The same error, with `place` in front of its message.
    pub fn within(self, place: impl fmt::Display) -> Self {
        match self {
            Self::Type(what) => Self::Type(format!("{place}: {what}")),
            Self::Core(error) => Self::Core(error.within(&place.to_string())),
            Self::Python(error) => Self::Python(error),
        }
    }
}

impl From<core::Error> for ArgumentError {
    fn from(error: core::Error) -> Self {
        Self::Core(error)
    }
}

impl From<PyErr> for ArgumentError {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<ArgumentError> for PyErr {
    fn from(error: ArgumentError) -> Self {
        match error {
            ArgumentError::Type(what) => PyTypeError::new_err(what),
            ArgumentError::Core(error) => exception(error),
            ArgumentError::Python(error) => error,
        }
    }
}

/// The name of a value's type, for messages.
pub fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string())
}

/// The bytes of any object with the buffer protocol: `bytes`, `bytearray`, `memoryview`, `mmap`.
///
/// Those of `bytes` are shared. Others are copied, because they may change while the GIL is released. O(bytes).
#[derive(Debug)]
pub struct BytesLike(pub PyBackedBytes);

impl Deref for BytesLike {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for BytesLike {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        bytes(&value).map(|bytes| Self(bytes.into()))
    }
}

/// A `bytes` with the bytes of any object with the buffer protocol; that object itself if it is one.
pub fn bytes<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(given) = value.cast::<PyBytes>() {
        return Ok(given.clone());
    }
    let Ok(view) = PyMemoryView::from(value) else {
        return Err(PyTypeError::new_err(format!("a bytes-like object is expected, not {}", type_name(value))));
    };
    Ok(view.call_method0("tobytes")?.cast_into()?)
}

/// The UTF-8 of a `str`. One with a lone surrogate is refused with `code`.
pub fn text<'a>(value: &'a Bound<'_, PyString>, code: InputCode) -> Result<&'a str, ArgumentError> {
    value.to_str().map_err(|_| ArgumentError::input(code, "the text is not valid UTF-8: it has a lone surrogate"))
}

/// The `u64` that an int is, or None if it is out of range. `expected` is the start of the message for other types.
pub fn unsigned(value: &Bound<'_, PyAny>, expected: fmt::Arguments<'_>) -> Result<Option<u64>, ArgumentError> {
    if value.is_instance_of::<PyBool>() {
        return Err(ArgumentError::Type(format!("{expected}, not bool")));
    }
    match value.extract::<u64>() {
        Ok(number) => Ok(Some(number)),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Ok(None),
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) => {
            Err(ArgumentError::Type(format!("{expected}, not {}", type_name(value))))
        }
        Err(error) => Err(ArgumentError::Python(error)),
    }
}

/// An integer from 0 to 2^53 - 1, the bound of every count, measure and index of the protocol.
pub fn integer(value: &Bound<'_, PyAny>, name: &str) -> Result<u64, ArgumentError> {
    integer_from(0, value, name)
}

fn integer_from(least: u64, value: &Bound<'_, PyAny>, name: &str) -> Result<u64, ArgumentError> {
    let number = unsigned(value, format_args!("{name} is an int"))?;
    if let Some(number) = number.filter(|number| (least..SUM_LIMIT).contains(number)) {
        return Ok(number);
    }
    let shown = number
        .map_or_else(|| value.extract::<i64>().map_or("the int".to_owned(), |n| n.to_string()), |n| n.to_string());
    Err(ArgumentError::input(InputCode::InvalidRequest, format!("{name}: {shown} is not from {least} to 2^53 - 1")))
}

/// Return an int from `least` to 2^53 - 1, the bound of every count, measure, index and revision of the protocol.
///
/// Args:
///     value: An int, or what can be an index. A bool is none.
///     name: What it is, for messages.
///     least: The least that it may be.
///
/// Raises:
///     InvalidInput: If it is out of range.
///     TypeError: If it is a bool, a float or no number.
///
/// >>> check_integer(7, "revision", 1)
/// 7
#[pyfunction]
#[pyo3(signature = (value, name, least = 0))]
pub fn check_integer(value: &Bound<'_, PyAny>, name: &str, least: u64) -> PyResult<u64> {
    Ok(integer_from(least, value, name)?)
}

/// The largest number of entries in a page of a listing. The core refuses 0.
pub fn limit(value: &Bound<'_, PyAny>) -> Result<usize, ArgumentError> {
    Ok(usize::try_from(integer(value, "limit")?).unwrap_or(usize::MAX))
}

/// The limit on the bytes of a chunk that a caller asks for: the memory for it is taken at once.
const MAX_CHUNK_BYTES: usize = 1 << 30;

/// The size of the chunks that a caller asks for, in bytes.
pub fn chunk_size(size: usize) -> Result<usize, ArgumentError> {
    match size {
        1..=MAX_CHUNK_BYTES => Ok(size),
        _ => {
            let what = format!("size: {size} is not from 1 to {MAX_CHUNK_BYTES} bytes");
            Err(ArgumentError::input(InputCode::InvalidRequest, what))
        }
    }
}

/// Items after which Ctrl-C is looked for: an endless iterator that is written in C, like `itertools.repeat`, runs no
/// Python code that would do so.
pub const ITEMS_BETWEEN_SIGNAL_CHECKS: usize = 4096;

/// The number of items that a `list`, `tuple` or `dict` holds; 0 for other iterables.
///
/// Never what `__len__` or `__length_hint__` return: it may be wrong, and reserving memory for 2^40 items aborts the process.
pub fn held_len(iterable: &Bound<'_, PyAny>) -> usize {
    if let Ok(list) = iterable.cast::<PyList>() {
        list.len()
    } else if let Ok(tuple) = iterable.cast::<PyTuple>() {
        tuple.len()
    } else {
        iterable.cast::<PyDict>().map_or(0, |dict| dict.len())
    }
}

/// Gives each item of an iterable to `take`, with its index.
pub fn for_each<'py>(
    iterable: &Bound<'py, PyAny>,
    mut take: impl FnMut(usize, Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    for (index, item) in iterable.try_iter()?.enumerate() {
        if index % ITEMS_BETWEEN_SIGNAL_CHECKS == ITEMS_BETWEEN_SIGNAL_CHECKS - 1 {
            iterable.py().check_signals()?;
        }
        take(index, item?)?;
    }
    Ok(())
}

/// What `take` makes of each item of an iterable. Raises `MemoryError` if memory runs out.
pub fn collect<'py, T>(
    iterable: &Bound<'py, PyAny>,
    mut take: impl FnMut(usize, Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let mut taken = Vec::new();
    taken.try_reserve(held_len(iterable)).map_err(|_| PyMemoryError::new_err(()))?;
    for_each(iterable, |index, item| {
        taken.try_reserve(1).map_err(|_| PyMemoryError::new_err(()))?;
        taken.push(take(index, item)?);
        Ok(())
    })?;
    Ok(taken)
}

/// The items of any iterable but a `str`, which PyO3 would take as a `Vec` by its `__len__`.
#[derive(Debug)]
pub struct Items<T>(pub Vec<T>);

impl<'py, T: for<'a> FromPyObject<'a, 'py>> FromPyObject<'_, 'py> for Items<T> {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if value.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("an iterable is expected, not str"));
        }
        collect(&value, |_, item| item.extract().map_err(Into::into)).map(Self)
    }
}
