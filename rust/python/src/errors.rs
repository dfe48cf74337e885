//! Exceptions: the classes of `coregw.errors`, raised for the core's errors and for panics.
//!
//! The classes are defined in Python and imported when the first error is raised. Every call into the core catches
//! panics: PyO3 would raise them as a `BaseException`, which `except Exception` does not catch.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use core::{InputCode, Missing};
use coregw_core as core;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyType};

/// A class of `coregw.errors`, imported on first use.
struct ExceptionClass {
    name: &'static str,
    class: PyOnceLock<Py<PyType>>,
}

impl ExceptionClass {
    const fn named(name: &'static str) -> Self {
        Self { name, class: PyOnceLock::new() }
    }

    fn instance<'py>(&self, py: Python<'py>, message: &str, keywords: &Bound<'py, PyDict>) -> PyErr {
        let class = self.class.import(py, "coregw.errors", self.name);
        match class.and_then(|class| class.call((message,), Some(keywords))) {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        }
    }
}

static CONFLICT: ExceptionClass = ExceptionClass::named("Conflict");
static COREGW_ERROR: ExceptionClass = ExceptionClass::named("CoregwError");
static INDEX_NOT_FOUND: ExceptionClass = ExceptionClass::named("IndexNotFound");
static INVALID_INPUT: ExceptionClass = ExceptionClass::named("InvalidInput");
static PATH_NOT_FOUND: ExceptionClass = ExceptionClass::named("PathNotFound");
static PROOF_ERROR: ExceptionClass = ExceptionClass::named("ProofError");
static ROOT_NOT_FOUND: ExceptionClass = ExceptionClass::named("RootNotFound");
static STORE_DAMAGED: ExceptionClass = ExceptionClass::named("StoreDamaged");
static TOO_LARGE: ExceptionClass = ExceptionClass::named("TooLarge");

/// The exception for an error of the core.
pub fn exception(error: core::Error) -> PyErr {
    Python::attach(|py| instance_of(py, error).unwrap_or_else(|error| error))
}

fn instance_of(py: Python<'_>, error: core::Error) -> PyResult<PyErr> {
    let message = error.to_string();
    let keywords = PyDict::new(py);
    let code = intern!(py, "code");
    let class = match error {
        core::Error::Input { code: which, .. } => {
            keywords.set_item(code, which.as_str())?;
            if which == InputCode::TooLarge { &TOO_LARGE } else { &INVALID_INPUT }
        }
        core::Error::Proof { check, step, at } => {
            keywords.set_item(intern!(py, "check"), check)?;
            keywords.set_item(intern!(py, "step"), step)?;
            keywords.set_item(intern!(py, "offset"), at)?;
            &PROOF_ERROR
        }
        core::Error::NotFound { missing, details, .. } => {
            if let Some(details) = details {
                keywords.set_item(intern!(py, "details"), PyBytes::new(py, details.as_bytes()))?;
            }
            match missing {
                Missing::Root => &ROOT_NOT_FOUND,
                Missing::Path => &PATH_NOT_FOUND,
                Missing::Index => &INDEX_NOT_FOUND,
            }
        }
        core::Error::Conflict { code: which, .. } => {
            keywords.set_item(code, which.as_str())?;
            &CONFLICT
        }
        core::Error::Damaged { .. } => &STORE_DAMAGED,
    };
    Ok(class.instance(py, &message, &keywords))
}

/// An `InvalidInput` with this code.
pub fn invalid(code: InputCode, what: impl Into<String>) -> PyErr {
    exception(core::Error::Input { code, what: what.into() })
}

/// A `PathNotFound` or `IndexNotFound`.
pub fn not_found(missing: Missing, what: impl Into<String>) -> PyErr {
    exception(core::Error::NotFound { missing, what: what.into(), details: None })
}

/// The `CoregwError` for a panic, which is a bug of coregw.
pub fn of_panic(panic: &(dyn Any + Send)) -> PyErr {
    let message = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Python::attach(|py| {
        let message = format!("a bug in coregw: {}", message.unwrap_or("a panic without a message"));
        COREGW_ERROR.instance(py, &message, &PyDict::new(py))
    })
}

/// Calls the core with the GIL held: for work that is always short (`detach` has the rule).
#[inline]
pub fn call<T>(task: impl FnOnce() -> core::Result<T>) -> PyResult<T> {
    settle(catch_unwind(AssertUnwindSafe(task)))
}

/// The value of a finished call, or the exception for its error or its panic.
#[inline]
pub fn settle<T>(outcome: std::thread::Result<core::Result<T>>) -> PyResult<T> {
    match outcome {
        Ok(result) => result.map_err(exception),
        Err(panic) => Err(of_panic(&*panic)),
    }
}

/// Calls a function with the GIL released. A panic becomes a `CoregwError`.
pub(crate) fn guarded<T: Send>(py: Python<'_>, task: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(task))).map_err(|panic| of_panic(&*panic))
}

/// A `ValueError` for an argument.
pub(crate) fn refused(what: &str, value: &dyn Display) -> PyErr {
    PyValueError::new_err(format!("{what}: {value} is not valid"))
}
