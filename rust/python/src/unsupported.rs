//! Stand-ins, on other platforms, for the names that need a Unix, so that modules can import them.

use std::ffi::CStr;

use coregw_core::InputCode;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use crate::errors::invalid;

const FOLDERS: &str = "folders can't be read or written";
const GATEWAY: &str = "no gateway can be run";

/// The names, and what they would do.
const NAMES: [(&CStr, &str); 17] = [
    (c"Certificate", GATEWAY),
    (c"FolderLines", FOLDERS),
    (c"FolderListing", FOLDERS),
    (c"FolderRights", FOLDERS),
    (c"FolderUpload", FOLDERS),
    (c"FolderWriter", FOLDERS),
    (c"Front", GATEWAY),
    (c"HashedFolder", FOLDERS),
    (c"Listener", GATEWAY),
    (c"PayloadBatch", FOLDERS),
    (c"PayloadSink", FOLDERS),
    (c"Proxies", GATEWAY),
    (c"StoreReads", GATEWAY),
    (c"Survey", FOLDERS),
    (c"files_match", FOLDERS),
    (c"hash_survey", FOLDERS),
    (c"remove_tree", FOLDERS),
    (c"survey", FOLDERS),
];

/// Adds a function for each name. A call raises `InvalidInput`, which names what is not supported.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for (name, what) in NAMES {
        let name_text = name.to_string_lossy();
        let message = format!("{name_text}: {what} on this platform, only on a Unix");
        let refuse = move |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<()> {
            Err(invalid(InputCode::InvalidRequest, message.as_str()))
        };
        let function = PyCFunction::new_closure(module.py(), Some(name), Some(c"Not supported here."), refuse)?;
        module.add(&*name_text, function)?;
    }
    Ok(())
}
