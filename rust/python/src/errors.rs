//! From the core's one error enum to the exception classes of `coregw.errors`, and from a panic to an exception.
//!
//! The classes are defined in Python and imported once, when the first error is raised. No panic may reach Python:
//! PyO3 would make it a `BaseException`, which `except Exception` lets through.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use core::{InputCode, Missing};
use coregw_core as core;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyString, PyType};

struct Class {
    name: &'static str,
    found: PyOnceLock<Py<PyType>>,
}

impl Class {
    const fn named(name: &'static str) -> Self {
        Self { name, found: PyOnceLock::new() }
    }

    fn get<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyType>> {
        self.found.import(py, "coregw.errors", self.name)
    }

    fn raise<'py>(&self, py: Python<'py>, message: &str, more: &Bound<'py, PyDict>) -> PyErr {
        match self.get(py).and_then(|class| class.call((message,), Some(more))) {
            Ok(exception) => PyErr::from_value(exception),
            Err(other) => other,
        }
    }
}

static INVALID_INPUT: Class = Class::named("InvalidInput");
static TOO_LARGE: Class = Class::named("TooLarge");
static PROOF_ERROR: Class = Class::named("ProofError");
static ROOT_NOT_FOUND: Class = Class::named("RootNotFound");
static PATH_NOT_FOUND: Class = Class::named("PathNotFound");
static INDEX_NOT_FOUND: Class = Class::named("IndexNotFound");
static CONFLICT: Class = Class::named("Conflict");
static STORE_DAMAGED: Class = Class::named("StoreDamaged");
static COREGW_ERROR: Class = Class::named("CoregwError");

/// The exception that says what `error` says.
pub fn raise(error: core::Error) -> PyErr {
    Python::attach(|py| match exception(py, error) {
        Ok(exception) | Err(exception) => exception,
    })
}

fn exception(py: Python<'_>, error: core::Error) -> PyResult<PyErr> {
    let message = error.to_string();
    let more = PyDict::new(py);
    let code = intern!(py, "code");
    let class = match error {
        core::Error::Input { code: which, .. } => {
            more.set_item(code, which.as_str())?;
            if which == InputCode::TooLarge { &TOO_LARGE } else { &INVALID_INPUT }
        }
        core::Error::Proof { check, step, at } => {
            more.set_item(intern!(py, "check"), check)?;
            more.set_item(intern!(py, "step"), step)?;
            more.set_item(intern!(py, "offset"), at)?;
            &PROOF_ERROR
        }
        core::Error::NotFound { missing, details, .. } => {
            if let Some(details) = details {
                more.set_item(intern!(py, "details"), PyBytes::new(py, details.as_bytes()))?;
            }
            match missing {
                Missing::Root => &ROOT_NOT_FOUND,
                Missing::Path => &PATH_NOT_FOUND,
                Missing::Index => &INDEX_NOT_FOUND,
            }
        }
        core::Error::Conflict { code: which, .. } => {
            more.set_item(code, which.as_str())?;
            &CONFLICT
        }
        core::Error::Damaged { .. } => &STORE_DAMAGED,
    };
    Ok(class.raise(py, &message, &more))
}

/// The exception for input that breaks a rule.
pub fn invalid(code: InputCode, what: impl Into<String>) -> PyErr {
    raise(core::Error::Input { code, what: what.into() })
}

/// The exception for something that is not there.
pub fn missing(missing: Missing, what: impl Into<String>) -> PyErr {
    raise(core::Error::NotFound { missing, what: what.into(), details: None })
}

/// A fault of coregw itself: the checks before it should have made it impossible.
fn fault(panic: &(dyn Any + Send)) -> PyErr {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Python::attach(|py| {
        let message = format!("a fault in coregw: {}", said.unwrap_or("a panic without words"));
        COREGW_ERROR.raise(py, &message, &PyDict::new(py))
    })
}

/// Calls the core with the GIL held: for work that is always short (`detach` has the rule).
#[inline]
pub fn call<T>(work: impl FnOnce() -> core::Result<T>) -> PyResult<T> {
    settle(catch_unwind(AssertUnwindSafe(work)))
}

/// The value of a finished call, or the exception for its error or its panic.
#[inline]
pub fn settle<T>(outcome: std::thread::Result<core::Result<T>>) -> PyResult<T> {
    match outcome {
        Ok(result) => result.map_err(raise),
        Err(panic) => Err(fault(&*panic)),
    }
}

/// What an argument is that is not of a type that it may be.
pub fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "?".to_owned(), |name: Bound<'_, PyString>| name.to_string())
}
