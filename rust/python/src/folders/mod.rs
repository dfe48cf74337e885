//! Folders of this machine: surveys of what they have, the contents of files, the roots of their maps, and uploads.
//!
//! Names are bytes and files are opened without following links, so most of it needs a Unix (`unsupported`).

pub mod attributes;
#[cfg(unix)]
pub mod beneath;
pub mod chunks;
#[cfg(unix)]
mod contents;
#[cfg(unix)]
mod entries;
#[cfg(unix)]
pub mod folder;
#[cfg(unix)]
mod hashed;
#[cfg(unix)]
mod ignores;
pub mod signals;
#[cfg(unix)]
pub mod survey;
#[cfg(unix)]
mod targets;
#[cfg(not(unix))]
pub mod unsupported;
#[cfg(unix)]
pub mod upload;
#[cfg(unix)]
mod walk;
