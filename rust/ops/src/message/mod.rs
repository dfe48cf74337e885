//! Shared parts of the messages of protocol section 5: reading, integers, optional members, and the comparison of results.
//!
//! Messages are read strictly: unknown, missing and duplicate members, wrong types, `null` for an absent member, numbers
//! with a sign, fraction or exponent or past 2^53 - 1, and bytes after the value are errors. The types bound the nesting.
//! The members of each operation are declared in its own module.

pub(crate) mod delta;
pub(crate) mod path;
pub(crate) mod prooflist;
pub(crate) mod question;

use std::fmt;

use coregw_core::{Cid, Error, InputCode, Kind, Result, RootCid, SUM_LIMIT};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::json;

pub(crate) use crate::json::shown;

/// Reads a request.
pub(crate) fn request<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    json::read(body).map_err(|error| json::request_error(&error))
}

/// Reads a result. A result that is not well-formed proves nothing, so this is a proof error.
pub(crate) fn result<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    json::read(body).map_err(|error| Error::proof(format!("the result: {error}")))
}

/// The two spellings of the profile of a query: that of this protocol, and that of MALT, from which it comes. They mean
/// the same; a result has the spelling of its request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Profile {
    own: &'static str,
    malt: &'static str,
}

impl Profile {
    pub(crate) const RESOLVE: Self = Self { own: "core.resolve/v0alpha1", malt: "malt.resolve/v0alpha1" };
    pub(crate) const READ: Self = Self { own: "core.read/v0alpha1", malt: "malt.read/v0alpha1" };
    pub(crate) const MAP_PROOF: Self = Self { own: "core.map-proof/v0alpha1", malt: "malt.map-proof/v0alpha1" };
    pub(crate) const SCAN: Self = Self { own: "core.scan/v0alpha1", malt: "malt.scan/v0alpha1" };

    /// The spelling of a request without a profile.
    pub(crate) fn default_spelling(self) -> &'static str {
        self.own
    }

    /// Returns the spelling of a request's member `profile`.
    ///
    /// # Errors
    /// [`InputCode::UnknownProfile`] if it is neither.
    pub(crate) fn spelling(self, sent: &str) -> Result<&'static str> {
        [self.own, self.malt].into_iter().find(|spelling| *spelling == sent).ok_or_else(|| {
            let what = format!("profile: {:?} is not {:?}", shown(sent), self.own);
            Error::input(InputCode::UnknownProfile, what)
        })
    }
}

/// Reads the CID of a request's member `root`.
pub(crate) fn root_member(text: &str) -> Result<Cid> {
    Cid::from_text(text).map_err(|error| error.within("root"))
}

/// Reads the root of this kind in a request's member `root`.
pub(crate) fn root_of_kind(text: &str, kind: Kind) -> Result<RootCid> {
    RootCid::of(&root_member(text)?, kind).map_err(|error| error.within("root"))
}

/// Checks that a member of a result is what the proofs prove.
pub(crate) fn check_member<T: PartialEq>(member: &str, sent: &T, proven: &T) -> Result<()> {
    match sent == proven {
        true => Ok(()),
        false => Err(Error::proof(format!("the result's member {member:?} is not what is proven"))),
    }
}

/// An integer from 0 to 2^53 - 1, written as plain digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Int(pub(crate) u64);

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits;
        impl Visitor<'_> for Digits {
            type Value = Int;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer from 0 to 2^53 - 1, written as plain digits")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Int, E> {
                match value < SUM_LIMIT {
                    true => Ok(Int(value)),
                    false => Err(E::invalid_value(de::Unexpected::Unsigned(value), &self)),
                }
            }
        }
        deserializer.deserialize_u64(Digits)
    }
}

/// Reads an optional member: it may be absent, but not `null`.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
