//! Pages: the units in which trees are stored, cached and loaded.

pub(crate) mod cache;
mod change;
pub(crate) mod difference;
pub(crate) mod draft;
pub(crate) mod format;
pub(crate) mod held;
pub(crate) mod layout;
pub(crate) mod links;
pub(crate) mod partial;
pub(crate) mod path;
mod release;
pub(crate) mod supply;
pub(crate) mod union;
