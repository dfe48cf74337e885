//! Queries and changes, each written once, for provers and verifiers alike (protocol section 4).

pub(crate) mod arcs;
pub(crate) mod build;
pub(crate) mod changes;
pub(crate) mod diff;
pub(crate) mod fixed;
pub(crate) mod keys;
pub mod list;
pub mod map;
pub(crate) mod new_list;
pub(crate) mod new_map;
pub(crate) mod parts;
pub(crate) mod scan;
