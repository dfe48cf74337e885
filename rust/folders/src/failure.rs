//! Why a restore failed, as the exception that Python gets.

use std::any::Any;
use std::borrow::Cow;
use std::io;

use core::InputCode;
use coregw_core as core;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::io::Errno;

use crate::errors;

/// Why a restore failed.
pub(super) enum RestoreFailure {
    Core(core::Error),
    /// A path that can't be written, and why.
    Path(String, &'static str),
    /// The operating system's error number, and the path.
    Io(i32, String),
    /// A bug.
    Panic(Box<dyn Any + Send>),
}

impl From<core::Error> for RestoreFailure {
    fn from(error: core::Error) -> Self {
        Self::Core(error)
    }
}

impl RestoreFailure {
    pub fn io(error: Errno, path: Cow<'_, str>) -> Self {
        Self::Io(error.raw_os_error(), path.into_owned())
    }

    pub fn os(error: &io::Error, path: &str) -> Self {
        Self::Io(error.raw_os_error().unwrap_or(libc::EIO), path.to_owned())
    }

    /// The exception.
    pub fn into_exception(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Core(error) => errors::exception(error),
            Self::Path(path, why) => errors::invalid(InputCode::InvalidPath, format!("{}: {why}", path.escape_debug())),
            Self::Io(number, path) => {
                let text = py.import("os").and_then(|os| os.call_method1("strerror", (number,)));
                text.map_or_else(|error| error, |text| PyOSError::new_err((number, text.unbind(), path)))
            }
            Self::Panic(panic) => match errors::settle::<()>(Err(panic)) {
                Err(error) => error,
                Ok(()) => PyOSError::new_err(libc::EIO),
            },
        }
    }
}
