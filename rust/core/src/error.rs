//! The one error type. Every variant names the place and what is wrong.
//!
//! Callers distinguish an invalid request ([`Error::Input`]), an invalid proof ([`Error::Proof`]) and a damaged store
//! ([`Error::Damaged`]). HTTP statuses belong to the gateway.

use std::fmt;

/// Which rule of the protocol an input violates: an error code of protocol section 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputCode {
    /// A malformed request or argument.
    InvalidRequest,
    /// A CID that section 1 does not allow.
    InvalidCid,
    /// A path that section 2 does not allow.
    InvalidPath,
    /// A multicodec that is unknown or reserved for roots.
    InvalidCodec,
    /// A profile that is not the endpoint's.
    UnknownProfile,
    /// The CID names another kind than the operation expects: a map, a list or a payload.
    KindMismatch,
    /// A documented limit is exceeded.
    TooLarge,
}

impl InputCode {
    /// The code as it stands in an error body.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::InvalidCid => "invalid_cid",
            Self::InvalidPath => "invalid_path",
            Self::InvalidCodec => "invalid_codec",
            Self::UnknownProfile => "unknown_profile",
            Self::KindMismatch => "kind_mismatch",
            Self::TooLarge => "too_large",
        }
    }
}

/// What was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The store has no record of the root.
    Root,
    /// A key or path of a map.
    Path,
    /// An index of a list.
    Index,
}

/// Why a change cannot be made: an error code of protocol section 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictCode {
    /// The current target is not the one that the change names as `before`.
    BeforeMismatch,
    /// A delta gave another root than it expected.
    ExpectedRootMismatch,
    /// The change is invalid: it leaves a gap, repeats a coordinate or changes nothing.
    InvalidChange,
}

impl ConflictCode {
    /// The code as it stands in an error body.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforeMismatch => "before_mismatch",
            Self::ExpectedRootMismatch => "expected_root_mismatch",
            Self::InvalidChange => "invalid_change",
        }
    }
}

/// Any failure of this crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The caller's input violates a rule.
    Input {
        /// Which rule.
        code: InputCode,
        /// A sentence that names the place.
        what: String,
    },
    /// An answer is not proven.
    Proof {
        /// The check that failed.
        check: String,
        /// The prooflist step concerned, from 0.
        step: Option<usize>,
        /// Offset in the proof's bytes.
        at: Option<usize>,
    },
    /// Something was not found.
    NotFound {
        /// What kind of thing.
        missing: Missing,
        /// A sentence that names it.
        what: String,
        /// JSON of the `details` member: the proof of absence, for a read.
        details: Option<String>,
    },
    /// A change does not fit the tree.
    Conflict {
        /// In which way.
        code: ConflictCode,
        /// A sentence that names the delta and the coordinate.
        what: String,
    },
    /// Stored bytes are malformed or belong to another page.
    Damaged {
        /// A sentence that names the page.
        what: String,
    },
}

impl Error {
    /// Input that breaks the rule `code`.
    pub fn input(code: InputCode, what: impl Into<String>) -> Self {
        Self::Input { code, what: what.into() }
    }

    /// An invalid request or argument.
    pub fn request(what: impl Into<String>) -> Self {
        Self::input(InputCode::InvalidRequest, what)
    }

    /// A check that a proof fails.
    pub fn proof(check: impl Into<String>) -> Self {
        Self::Proof { check: check.into(), step: None, at: None }
    }

    /// A change that does not fit.
    pub fn conflict(code: ConflictCode, what: impl Into<String>) -> Self {
        Self::Conflict { code, what: what.into() }
    }

    /// Stored bytes that are wrong.
    pub fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }

    /// The same error, with the prooflist step it belongs to.
    pub fn in_step(self, index: usize) -> Self {
        match self {
            Self::Proof { check, at, .. } => Self::Proof { check, step: Some(index), at },
            other => other,
        }
    }

    /// The same error, with the delta it belongs to: the step of a proof, a place in words for the rest.
    pub fn in_delta(self, index: usize) -> Self {
        match self {
            Self::Proof { .. } => self.in_step(index),
            other => other.within(&format!("delta {index}")),
        }
    }

    /// The same error with `place` in front of its sentence.
    pub fn within(self, place: &str) -> Self {
        let put = |what: String| format!("{place}: {what}");
        match self {
            Self::Input { code, what } => Self::Input { code, what: put(what) },
            Self::Conflict { code, what } => Self::Conflict { code, what: put(what) },
            Self::NotFound { missing, what, details } => Self::NotFound { missing, what: put(what), details },
            Self::Damaged { what } => Self::Damaged { what: put(what) },
            Self::Proof { check, step, at } => Self::Proof { check: put(check), step, at },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input { what, .. }
            | Self::NotFound { what, .. }
            | Self::Conflict { what, .. }
            | Self::Damaged { what } => f.write_str(what),
            Self::Proof { check, step, at } => {
                f.write_str("not proven: ")?;
                if let Some(step) = step {
                    write!(f, "step {step}: ")?;
                }
                f.write_str(check)?;
                if let Some(at) = at {
                    write!(f, " (byte {at} of the proof)")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Error {}

/// The result of everything public in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
