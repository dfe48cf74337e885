//! The error of a batch.

use coregw_core::Error;

/// Why a batch is refused.
#[derive(Debug)]
pub struct BatchError {
    /// What is wrong.
    pub error: Error,
    /// The index of the item with the error, if it is one item's.
    pub index: Option<usize>,
}

impl From<Error> for BatchError {
    fn from(error: Error) -> Self {
        Self { error, index: None }
    }
}

impl BatchError {
    /// The error of the item `index` of the member `name`.
    pub(crate) fn of_item(name: &str, index: usize, error: Error) -> Self {
        Self { error: error.within(&format!("{name}[{index}]")), index: Some(index) }
    }
}
