//! From Python values to the core's: CIDs, paths, integers, codecs, changes.
//!
//! A value of a wrong type is a `TypeError`, one that breaks a rule of the protocol an `InvalidInput` with its code.
//! What goes the other way is in the modules that return it.

use std::borrow::Cow;

use core::codec::Codec;
use core::{Cid, InputCode, Key, SUM_LIMIT, Window, list, map};
use coregw_core as core;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyList, PySequence, PyString, PyTuple};

use crate::errors::{raise, type_name};

/// Why a value was not taken.
#[derive(Debug)]
pub enum Fault {
    /// It is of a wrong type.
    Type(String),
    /// It breaks a rule of the protocol.
    Core(core::Error),
    /// Python code that it runs raised this.
    Python(PyErr),
}

impl Fault {
    fn input(code: InputCode, what: impl Into<String>) -> Self {
        Self::Core(core::Error::Input { code, what: what.into() })
    }

    /// The same fault, with `place` in front of its sentence.
    pub fn within(self, place: &str) -> Self {
        match self {
            Self::Type(what) => Self::Type(format!("{place}: {what}")),
            Self::Core(error) => Self::Core(error.within(place)),
            other => other,
        }
    }
}

impl From<core::Error> for Fault {
    fn from(error: core::Error) -> Self {
        Self::Core(error)
    }
}

impl From<PyErr> for Fault {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Type(what) => PyTypeError::new_err(what),
            Fault::Core(error) => raise(error),
            Fault::Python(error) => error,
        }
    }
}

/// The text of a `str`; one with lone surrogates is none.
fn text<'a>(value: &'a Bound<'_, PyString>, code: InputCode) -> Result<&'a str, Fault> {
    value.to_str().map_err(|_| Fault::input(code, "the text has a lone surrogate, so it is no UTF-8"))
}

/// A CID given as text, as bytes or as a `Cid`.
#[derive(Debug, Clone, Copy)]
pub struct CidLike(pub Cid);

impl<'py> FromPyObject<'_, 'py> for CidLike {
    type Error = Fault;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> Result<Self, Fault> {
        cid(&value).map(Self)
    }
}

/// The CID that a value is.
pub fn cid(value: &Bound<'_, PyAny>) -> Result<Cid, Fault> {
    if let Ok(given) = value.cast::<PyString>() {
        return Ok(Cid::from_text(text(given, InputCode::InvalidCid)?)?);
    }
    if let Ok(given) = value.cast::<PyBytes>() {
        return Ok(Cid::from_bytes(given.as_bytes())?);
    }
    if let Ok(given) = value.cast::<crate::cid::Cid>() {
        return Ok(given.get().0);
    }
    Err(Fault::Type(format!("a CID is a str, bytes or a Cid, not {}", type_name(value))))
}

/// A path of at least one segment, as its key.
#[derive(Debug)]
pub struct PathLike(pub Key);

impl<'py> FromPyObject<'_, 'py> for PathLike {
    type Error = Fault;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> Result<Self, Fault> {
        key(&value).map(Self)
    }
}

/// The key of a path in text form or in segments.
pub fn key(value: &Bound<'_, PyAny>) -> Result<Key, Fault> {
    match path(value)? {
        Path::Text(text) => Ok(Key::from_text(text)?),
        Path::Key(key) => Ok(key),
    }
}

/// A path on its way to where its key is made, which may be on another thread.
#[derive(Debug)]
pub enum Path<'a> {
    /// In text form, not looked at yet.
    Text(&'a str),
    /// Of segments, which are checked.
    Key(Key),
}

impl Path<'_> {
    /// Its key. O(bytes).
    pub fn key(&self) -> core::Result<Cow<'_, Key>> {
        match self {
            Self::Text(text) => Key::from_text(text).map(Cow::Owned),
            Self::Key(key) => Ok(Cow::Borrowed(key)),
        }
    }
}

/// A path in text form or in segments.
pub fn path<'a>(value: &'a Bound<'_, PyAny>) -> Result<Path<'a>, Fault> {
    match value.cast::<PyString>() {
        Ok(given) => Ok(Path::Text(text(given, InputCode::InvalidPath)?)),
        Err(_) => Ok(Path::Key(Key::from_segments(&segments(value)?)?)),
    }
}

fn segments(value: &Bound<'_, PyAny>) -> Result<Vec<PyBackedStr>, Fault> {
    if let Ok(given) = value.cast::<PyList>() {
        return given.iter().enumerate().map(segment).collect();
    }
    if let Ok(given) = value.cast::<PyTuple>() {
        return given.iter().enumerate().map(segment).collect();
    }
    let bytes = value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>();
    match value.cast::<PySequence>() {
        Ok(given) if !bytes => given.try_iter()?.enumerate().map(|(i, item)| segment((i, item?))).collect(),
        _ => Err(Fault::Type(format!("a path is a str or a sequence of str, not {}", type_name(value)))),
    }
}

fn segment((index, item): (usize, Bound<'_, PyAny>)) -> Result<PyBackedStr, Fault> {
    match item.cast_into::<PyString>() {
        Ok(item) => PyBackedStr::try_from(item)
            .map_err(|_| Fault::input(InputCode::InvalidPath, format!("segment {index} of the path is no UTF-8"))),
        Err(other) => {
            let other = type_name(&other.into_inner());
            Err(Fault::Type(format!("a path is a str or a sequence of str; its segment {index} is {other}")))
        }
    }
}

/// The window of a listing: a prefix, which may be empty, and the path that it goes on behind.
pub fn window(prefix: Option<&Bound<'_, PyAny>>, after: Option<&Bound<'_, PyAny>>) -> Result<Window, Fault> {
    let prefix = prefix.map(pieces).transpose().map_err(|fault| fault.within("prefix"))?.unwrap_or_default();
    let after = after.map(pieces).transpose().map_err(|fault| fault.within("after"))?;
    Ok(Window::new(&prefix, after.as_deref())?)
}

/// The segments of a path that may be empty; the text form of no segments is the empty text.
fn pieces(value: &Bound<'_, PyAny>) -> Result<Vec<String>, Fault> {
    match value.cast::<PyString>() {
        Ok(given) => match text(given, InputCode::InvalidPath)? {
            "" => Ok(Vec::new()),
            given => Ok(given.split('/').map(str::to_owned).collect()),
        },
        Err(_) => Ok(segments(value)?.iter().map(|segment| segment.to_string()).collect()),
    }
}

/// An integer from 0 to 2^53 - 1, the bound of every count, measure and index of the protocol.
pub fn amount(value: &Bound<'_, PyAny>, name: &str) -> Result<u64, Fault> {
    if value.is_instance_of::<PyBool>() {
        return Err(Fault::Type(format!("{name} is an int, not bool")));
    }
    match value.extract::<u64>() {
        Ok(amount) if amount < SUM_LIMIT => Ok(amount),
        Err(error) if !error.is_instance_of::<PyOverflowError>(value.py()) => {
            Err(Fault::Type(format!("{name} is an int, not {}", type_name(value))))
        }
        _ => Err(Fault::input(InputCode::InvalidRequest, format!("{name} is not from 0 to 2^53 - 1"))),
    }
}

/// The codec of a payload, by name or number; None is `raw`.
#[derive(Debug, Clone, Copy, Default)]
pub struct CodecLike(pub Codec);

impl<'py> FromPyObject<'_, 'py> for CodecLike {
    type Error = Fault;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> Result<Self, Fault> {
        if value.is_none() {
            return Ok(Self(Codec::RAW));
        }
        if let Ok(given) = value.cast::<PyString>() {
            return Ok(Self(Codec::parse(text(&given, InputCode::InvalidCodec)?)?));
        }
        if value.is_instance_of::<PyBool>() {
            return Err(Fault::Type("a codec is a str or an int, not bool".to_owned()));
        }
        match value.extract::<u64>() {
            Ok(number) => Ok(Self(Codec::from_number(number)?)),
            Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
                Err(Fault::input(InputCode::InvalidCodec, "a codec is from 0 to 2^63 - 1"))
            }
            Err(_) => Err(Fault::Type(format!("a codec is a str or an int, not {}", type_name(&value)))),
        }
    }
}

/// A `Change` taken apart: coordinate, before, after, size.
struct Parts<'py> {
    coordinate: Bound<'py, PyAny>,
    before: Option<Cid>,
    after: Option<Cid>,
    size: Option<u64>,
}

fn parts<'py>(item: &Bound<'py, PyAny>) -> Result<Parts<'py>, Fault> {
    let fields = match item.cast::<PyTuple>() {
        Ok(fields) if (3..=4).contains(&fields.len()) => fields,
        _ => return Err(Fault::Type(format!("it is a Change, not {}", type_name(item)))),
    };
    let side = |at: usize, name: &str| -> Result<Option<Cid>, Fault> {
        let value = fields.get_item(at)?;
        let found = if value.is_none() { None } else { Some(cid(&value).map_err(|fault| fault.within(name))?) };
        Ok(found)
    };
    let size = match fields.get_item(3) {
        Ok(size) if !size.is_none() => Some(amount(&size, "size")?),
        _ => None,
    };
    Ok(Parts { coordinate: fields.get_item(0)?, before: side(1, "before")?, after: side(2, "after")?, size })
}

fn each_change<T>(changes: &Bound<'_, PyAny>, take: impl Fn(Parts<'_>) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
    let one = |(i, item): (usize, PyResult<Bound<'_, PyAny>>)| {
        parts(&item?).and_then(&take).map_err(|fault| fault.within(&format!("change {i}")))
    };
    changes.try_iter()?.enumerate().map(one).collect()
}

/// Changes of a map: their coordinates are paths, and they have no sizes.
pub fn map_changes(changes: &Bound<'_, PyAny>) -> Result<map::Changes, Fault> {
    let taken = each_change(changes, |parts| {
        if parts.size.is_some() {
            return Err(Fault::input(InputCode::InvalidRequest, "a size is for elements of a list, not for a map"));
        }
        Ok(map::Change { key: key(&parts.coordinate)?, before: parts.before, after: parts.after })
    })?;
    Ok(map::Changes::new(taken)?)
}

/// Changes of a list: their coordinates are indices; the size of what comes is 1 if none is given.
pub fn list_changes(changes: &Bound<'_, PyAny>) -> Result<list::Changes, Fault> {
    let taken = each_change(changes, |parts| {
        let after = match (parts.after, parts.size) {
            (None, Some(_)) => {
                return Err(Fault::input(InputCode::InvalidRequest, "a size without an 'after' that has it"));
            }
            (after, size) => after.map(|cid| (cid, size.unwrap_or(1))),
        };
        let before = parts.before.map(|cid| (cid, None));
        Ok(list::Change { index: amount(&parts.coordinate, "the index")?, before, after })
    })?;
    Ok(list::Changes::new(taken)?)
}

/// The most entries of a page of a listing. What 0 means is the core's to say.
pub fn limit(value: &Bound<'_, PyAny>) -> Result<usize, Fault> {
    Ok(usize::try_from(amount(value, "limit")?).unwrap_or(usize::MAX))
}
