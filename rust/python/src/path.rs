//! Paths: the function `encode_key`, and the conversion of paths and windows.

use std::borrow::Cow;

use core::{InputCode, Key, Window};
use coregw_core as core;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyByteArray, PyBytes, PyList, PySequence, PyString, PyTuple};

use crate::convert::{self, ArgumentError, text, type_name};

/// Return the key under which a tree stores a path (protocol section 2). O(bytes).
///
/// Args:
///     segments: The path, as segments or in text form.
///
/// Raises:
///     InvalidInput: If there is no segment, a segment is empty or contains ``/``, or the text form is longer than
///         4,096 bytes; its code is ``invalid_path``.
///
/// >>> encode_key(["docs", "readme"])
/// b'docs\x00\x01readme\x00\x00'
#[pyfunction]
pub fn encode_key<'py>(py: Python<'py>, segments: PathLike) -> Bound<'py, PyBytes> {
    PyBytes::new(py, segments.0.as_bytes())
}

/// The key of a path of at least one segment.
#[derive(Debug)]
pub struct PathLike(pub Key);

impl<'py> FromPyObject<'_, 'py> for PathLike {
    type Error = ArgumentError;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> Result<Self, ArgumentError> {
        key(&value).map(Self)
    }
}

/// The key of a path in text form or in segments.
pub fn key(value: &Bound<'_, PyAny>) -> Result<Key, ArgumentError> {
    match pending_key(value)? {
        PendingKey::Text(text) => Ok(Key::from_text(text)?),
        PendingKey::Ready(key) => Ok(key),
    }
}

/// The keys of an iterable of paths. An error names the place of the path.
pub fn keys(paths: &Bound<'_, PyAny>) -> PyResult<Vec<Key>> {
    if paths.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("paths is an iterable of paths, not one path"));
    }
    convert::collect(paths, |index, path| key(&path).map_err(|error| error.within(format_args!("path {index}")).into()))
}

/// A path whose key can be made with the GIL released.
#[derive(Debug)]
pub enum PendingKey<'a> {
    /// The text form, not yet checked.
    Text(&'a str),
    /// The key, made of segments.
    Ready(Key),
}

impl PendingKey<'_> {
    /// The most bytes that its key takes, if it is valid.
    pub fn max_key_bytes(&self) -> usize {
        match self {
            // Separators and zeros take two bytes, and so does the end.
            Self::Text(text) => 2 * text.len() + 2,
            Self::Ready(key) => key.as_bytes().len(),
        }
    }

    /// Its key. O(bytes).
    pub fn key(&self) -> core::Result<Cow<'_, Key>> {
        match self {
            Self::Text(text) => Key::from_text(text).map(Cow::Owned),
            Self::Ready(key) => Ok(Cow::Borrowed(key)),
        }
    }
}

/// The key of a path in text form or in segments, made now only if it has segments: these are Python objects.
pub fn pending_key<'a>(value: &'a Bound<'_, PyAny>) -> Result<PendingKey<'a>, ArgumentError> {
    match value.cast::<PyString>() {
        Ok(given) => Ok(PendingKey::Text(text(given, InputCode::InvalidPath)?)),
        Err(_) => Ok(PendingKey::Ready(Key::from_segments(&segments(value)?)?)),
    }
}

/// The window of a listing: the entries below a prefix, which may be empty, that follow the path `after`.
pub fn window(prefix: Option<&Bound<'_, PyAny>>, after: Option<&Bound<'_, PyAny>>) -> Result<Window, ArgumentError> {
    let prefix = prefix.map(window_path).transpose().map_err(|error| error.within("prefix"))?.unwrap_or_default();
    let after = after.map(window_path).transpose().map_err(|error| error.within("after"))?;
    Ok(Window::new(&prefix, after.as_deref())?)
}

/// The segments of a path that may be empty; the text form of no segments is the empty text.
fn window_path(value: &Bound<'_, PyAny>) -> Result<Vec<String>, ArgumentError> {
    match value.cast::<PyString>() {
        Ok(given) => match text(given, InputCode::InvalidPath)? {
            "" => Ok(Vec::new()),
            given => Ok(given.split('/').map(str::to_owned).collect()),
        },
        Err(_) => Ok(segments(value)?.iter().map(|segment| segment.to_string()).collect()),
    }
}

fn segments(value: &Bound<'_, PyAny>) -> Result<Vec<PyBackedStr>, ArgumentError> {
    if let Ok(given) = value.cast::<PyList>() {
        return given.iter().enumerate().map(|(index, item)| segment(index, item)).collect();
    }
    if let Ok(given) = value.cast::<PyTuple>() {
        return given.iter().enumerate().map(|(index, item)| segment(index, item)).collect();
    }
    let is_bytes = value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>();
    match value.cast::<PySequence>() {
        Ok(given) if !is_bytes => first_segments(given),
        _ => Err(ArgumentError::Type(format!("a path is a str or a sequence of str, not {}", type_name(value)))),
    }
}

/// The segments of a sequence written in Python, which may be endless: up to the first that makes the path too long.
fn first_segments(sequence: &Bound<'_, PySequence>) -> Result<Vec<PyBackedStr>, ArgumentError> {
    let (mut taken, mut bytes) = (Vec::new(), 0);
    for (index, item) in sequence.try_iter()?.enumerate() {
        let segment = segment(index, item?)?;
        bytes += segment.len() + 1;
        taken.push(segment);
        if bytes > core::key::MAX_TEXT + 1 {
            break;
        }
    }
    Ok(taken)
}

fn segment(index: usize, item: Bound<'_, PyAny>) -> Result<PyBackedStr, ArgumentError> {
    let item = item.cast_into::<PyString>().map_err(|error| {
        let found = type_name(&error.into_inner());
        ArgumentError::Type(format!("a path is a str or a sequence of str; its segment {index} is {found}"))
    })?;
    PyBackedStr::try_from(item).map_err(|_| {
        let what = format!("segment {index} of the path is not valid UTF-8: it has a lone surrogate");
        ArgumentError::input(InputCode::InvalidPath, what)
    })
}
