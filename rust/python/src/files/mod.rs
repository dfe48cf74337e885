//! Folders of this machine: surveys of what they have, the contents of files, and the roots of their maps.

pub mod attributes;
mod contents;
mod entries;
pub mod folder;
pub mod hashes;
mod ignores;
pub mod signals;
pub mod survey;
mod targets;
pub mod upload;
mod walk;

pub(crate) use contents::open;
