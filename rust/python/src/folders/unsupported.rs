//! Stand-ins, on other platforms, for the names that need a Unix, so that modules can import them.

use std::ffi::CStr;

use coregw_core::InputCode;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use crate::errors::invalid;

const NAMES: [&CStr; 13] = [
    c"FolderLines",
    c"FolderListing",
    c"FolderRights",
    c"FolderUpload",
    c"FolderWriter",
    c"HashedFolder",
    c"PayloadBatch",
    c"PayloadSink",
    c"Survey",
    c"files_match",
    c"hash_survey",
    c"remove_tree",
    c"survey",
];

/// Adds a function for each name. A call raises `InvalidInput`, which names what is not supported.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for name in NAMES {
        let name_text = name.to_string_lossy();
        let message = format!("{name_text}: folders can't be read or written on this platform, only on a Unix");
        let refuse = move |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<()> {
            Err(invalid(InputCode::InvalidRequest, message.as_str()))
        };
        let function = PyCFunction::new_closure(module.py(), Some(name), Some(c"Not supported here."), refuse)?;
        module.add(&*name_text, function)?;
    }
    Ok(())
}
