//! Interrupts: the reasons for which a query stops before its end.
//!
//! Only this module expresses that more input is needed. After an interrupt, reads start again on the same tree: nodes
//! that they loaded before stay loaded and cost no budget again. Changes and diffs continue where they were interrupted.

use std::collections::BTreeSet;

use crate::error::{ConflictCode, Error, InputCode};
use crate::id::cid::RootCid;
use crate::id::suite::Digest;

/// Why a query stopped before its end: it needs more input, or it failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interrupt<E = Error> {
    /// These pages are missing; the query is sure to need all of them.
    Pages(BTreeSet<Digest>),
    /// The budget of nodes is spent.
    Budget,
    /// The query cannot be answered.
    Failed(E),
}

impl<E> Interrupt<E> {
    /// Converts the failure.
    pub(crate) fn map<F>(self, convert: impl FnOnce(E) -> F) -> Interrupt<F> {
        match self {
            Self::Pages(pages) => Interrupt::Pages(pages),
            Self::Budget => Interrupt::Budget,
            Self::Failed(failure) => Interrupt::Failed(convert(failure)),
        }
    }
}

/// Why bytes do not encode a pruned tree, and at which offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) why: &'static str,
    pub(crate) at: usize,
}

/// Why a query failed, before it is known whether its tree comes from a store or from a proof.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The query needs a node that the pruned tree does not show.
    Stub,
    /// The proof's bytes do not encode a pruned tree.
    Malformed(Fault),
    /// No map or list has such a tree.
    Invalid(&'static str),
    /// A change does not fit the tree; the text names its coordinate.
    Conflict { code: ConflictCode, what: String },
    /// A limit is exceeded.
    TooLarge(&'static str),
    /// A page is not what it must be.
    Damaged(Error),
}

impl From<Failure> for Interrupt<Failure> {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Fault> for Interrupt<Failure> {
    fn from(fault: Fault) -> Self {
        Self::Failed(Failure::Malformed(fault))
    }
}

/// The result of a query, or of a part of it.
pub(crate) type Attempt<T> = Result<T, Interrupt<Failure>>;

impl Failure {
    /// The error for a query on the stored tree of `root`.
    pub(crate) fn on_stored(self, root: &RootCid) -> Error {
        match self {
            Self::Conflict { code, what } => Error::conflict(code, what),
            Self::TooLarge(what) => Error::input(InputCode::TooLarge, what),
            Self::Damaged(error) => error,
            Self::Invalid(why) => Error::damaged(format!("the tree of {root} is invalid: {why}")),
            Self::Malformed(Fault { why, at }) => Error::damaged(format!("the tree of {root}: {why} (byte {at})")),
            Self::Stub => missing_page(root),
        }
    }

    /// The error for a query on a proof.
    pub(crate) fn on_proof(self) -> Error {
        match self {
            Self::Stub => not_shown(),
            Self::Malformed(Fault { why, at }) => Error::Proof { check: why.to_owned(), step: None, at: Some(at) },
            Self::Invalid(why) | Self::TooLarge(why) => Error::proof(why),
            Self::Conflict { what, .. } => Error::proof(format!("the changes do not fit the tree: {what}")),
            Self::Damaged(error) => error,
        }
    }
}

impl Interrupt<Failure> {
    /// The error for a query on a tree of which every page must be in memory.
    pub(crate) fn in_memory(self, root: &RootCid) -> Error {
        match self {
            Self::Failed(failure) => failure.on_stored(root),
            Self::Pages(_) | Self::Budget => missing_page(root),
        }
    }

    /// The error for a query on a proof.
    pub(crate) fn on_proof(self) -> Error {
        match self {
            Self::Failed(failure) => failure.on_proof(),
            Self::Pages(_) | Self::Budget => not_shown(),
        }
    }
}

fn missing_page(root: &RootCid) -> Error {
    Error::damaged(format!("a page of {root} is missing"))
}

fn not_shown() -> Error {
    Error::proof("the query needs a node that the proof does not show")
}
