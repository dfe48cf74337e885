//! The JSON of protocol section 5: requests, results and prooflists, read strictly and written in one way.
//!
//! Strict means: unknown or missing or duplicate members, wrong types, `null` for what is left out, numbers with a
//! sign, fraction or exponent or past 2^53 - 1, and anything behind the value are errors. The types alone bound the
//! nesting. Nothing here knows what a proof says; see `prooflist`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::json::{self, objects};
use crate::writing::Proof;
use coregw_core::SUM_LIMIT;
use coregw_core::{Error, InputCode, Result};

/// The profiles of the operations.
pub(crate) const RESOLVE: &str = "core.resolve/v0alpha1";
pub(crate) const READ: &str = "core.read/v0alpha1";
pub(crate) const MAP_PROOF: &str = "core.map-proof/v0alpha1";
pub(crate) const SCAN: &str = "core.scan/v0alpha1";

/// Reads a request.
pub(crate) fn request<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    json::read(body).map_err(|error| Error::request(format!("the request: {error}")))
}

/// Reads a result; whatever is wrong with it, it proves nothing.
pub(crate) fn result<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    json::read(body).map_err(|error| Error::proof(format!("the result: {error}")))
}

pub(crate) fn check_profile(is: &str, expected: &str) -> Result<()> {
    if is == expected {
        return Ok(());
    }
    let shown: String = is.chars().take(80).collect();
    Err(Error::input(InputCode::UnknownProfile, format!("profile: {shown:?} is not {expected:?}")))
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

/// A member that may be left out, but is not `null`.
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct ResolveRequest<'a> {
    #[serde(borrow)]
    pub(crate) profile: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) root: Cow<'a, str>,
    pub(crate) segments: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct ReadRequest<'a> {
    #[serde(borrow)]
    pub(crate) profile: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) root: Cow<'a, str>,
    pub(crate) query: ReadQuery,
}

/// All members of the three kinds; which must be there is checked by kind, so that errors name the member.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct ReadQuery {
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "given")]
    pub(crate) segments: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) index: Option<Int>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) start: Option<Int>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) end: Option<Int>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct MapProofRequest<'a> {
    #[serde(borrow)]
    pub(crate) profile: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) root: Cow<'a, str>,
    pub(crate) key: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct ScanRequest<'a> {
    #[serde(borrow)]
    pub(crate) profile: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) root: Cow<'a, str>,
    pub(crate) prefix: Vec<String>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) after: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) limit: Option<Int>,
}

/// A CID as a link, `{"/": cid}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct Link<'a> {
    #[serde(rename = "/", borrow)]
    pub(crate) cid: Cow<'a, str>,
}

impl Link<'_> {
    pub(crate) fn to(cid: String) -> Self {
        Self { cid: Cow::Owned(cid) }
    }
}

/// One step of a prooflist. `None` is a member that is not there; `Some(None)` is `null`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct Step<'a> {
    #[serde(borrow)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) from: Link<'a>,
    #[serde(borrow)]
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<Option<Link<'a>>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<Int>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<Int>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<Int>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) length: Option<Int>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) total_size: Option<Int>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) segments: Option<Vec<Link<'a>>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) sizes: Option<Vec<Int>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<Option<Int>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) prefix: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<Int>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) more: Option<bool>,
    #[serde(borrow)]
    pub(crate) evidence_kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) evidence_backend: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) proof: Proof<'a>,
}

impl<'a> Step<'a> {
    /// A step with the members that all kinds have.
    pub(crate) fn new(kind: &'static str, from: String, suite: &'static str, proof: Proof<'a>) -> Self {
        Self {
            kind: Cow::Borrowed(kind),
            from: Link::to(from),
            target: None,
            path: None,
            index: None,
            start: None,
            end: None,
            length: None,
            total_size: None,
            segments: None,
            sizes: None,
            offset: None,
            prefix: None,
            after: None,
            limit: None,
            more: None,
            evidence_kind: Cow::Borrowed("tree"),
            evidence_backend: Cow::Borrowed(suite),
            proof,
        }
    }

    /// The first member in which two steps differ, but for the proof: it is what the other members are proven by.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        macro_rules! first {
            ($($member:ident),*) => {
                $(if self.$member != other.$member { return Some(stringify!($member)); })*
            };
        }
        first!(kind, from, target, path, index, start, end, length, total_size, segments, sizes, offset);
        first!(prefix, after, limit, more, evidence_kind, evidence_backend);
        None
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct ProofList<'a> {
    #[serde(borrow)]
    pub(crate) root: Link<'a>,
    #[serde(borrow)]
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) query: Option<Cow<'a, str>>,
    pub(crate) steps: Vec<Step<'a>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct ResolveResult<'a> {
    #[serde(borrow)]
    pub(crate) profile: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) target: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) prooflist: ProofList<'a>,
}

/// The result of a read; of an absent key or index, only the prooflist that proves it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct ReadResult<'a> {
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) profile: Option<String>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) range_segments: Option<Vec<String>>,
    #[serde(borrow)]
    pub(crate) prooflist: ProofList<'a>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct MapProofResult<'a> {
    #[serde(borrow)]
    pub(crate) profile: Cow<'a, str>,
    pub(crate) present: bool,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
    #[serde(borrow)]
    pub(crate) prooflist: ProofList<'a>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct Entry {
    pub(crate) segments: Vec<String>,
    pub(crate) target: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct ScanResult<'a> {
    #[serde(borrow)]
    pub(crate) profile: Cow<'a, str>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) more: bool,
    #[serde(borrow)]
    pub(crate) prooflist: ProofList<'a>,
}

// Mutations.

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct MutationRequest {
    pub(crate) deltas: Vec<Delta>,
    #[serde(default)]
    pub(crate) prove: bool,
}

/// A mutation with the base root that the caller chose, as the client keeps it to check the receipt.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct TransitionRequest {
    pub(crate) root: String,
    pub(crate) deltas: Vec<Delta>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) prove: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct Delta {
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "given")]
    pub(crate) object: Option<String>,
    pub(crate) changes: Vec<DeltaChange>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) expected_root: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) commit: Option<Commit>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct DeltaChange {
    #[serde(default, deserialize_with = "given")]
    pub(crate) path: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) index: Option<Int>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) before: Option<Side>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) after: Option<Side>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct Side {
    pub(crate) target: String,
    #[serde(default, deserialize_with = "given")]
    pub(crate) target_kind: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) size: Option<Int>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct Commit {
    pub(crate) fixed_list: FixedList,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct FixedList {
    pub(crate) total_size: Int,
    pub(crate) chunk_size: Int,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct Receipt {
    pub(crate) base_root: String,
    pub(crate) new_root: String,
    pub(crate) delta_count: Int,
    pub(crate) arc_count: Int,
    pub(crate) deltas: Vec<DeltaReceipt>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct DeltaReceipt {
    pub(crate) object: String,
    pub(crate) result: String,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(crate) proof: Option<String>,
}

objects! {
    read: ResolveRequest<'a>, ReadRequest<'a>, ReadQuery, MapProofRequest<'a>, ScanRequest<'a>, Link<'a>, Step<'a>;
    read: ProofList<'a>, ResolveResult<'a>, ReadResult<'a>, MapProofResult<'a>, Entry, ScanResult<'a>;
    read: MutationRequest, TransitionRequest, Delta, DeltaChange, Side, Commit, FixedList, Receipt, DeltaReceipt;
    written: Link<'a>, Step<'a>, ProofList<'a>, ResolveResult<'a>, ReadResult<'a>, MapProofResult<'a>, Entry;
    written: ScanResult<'a>, Receipt, DeltaReceipt;
}
