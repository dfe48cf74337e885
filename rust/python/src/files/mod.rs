//! Folders of this machine: surveys of what they have, the contents of files, the roots of their maps, and uploads.

pub mod attributes;
pub mod chunks;
mod contents;
mod entries;
pub mod folder;
mod hashed;
mod ignores;
pub mod signals;
pub mod survey;
mod targets;
pub mod upload;
mod walk;

pub(crate) use contents::open;
