//! Prooflists (protocol section 5): a root, a query, and the steps that answer it.
//!
//! One constructor ([`question`](super::question)) writes every step. The gateway sends the step; a verifier constructs
//! the same step from what the proof proves, and compares the two. So no member can state what is not proven.

use std::borrow::Cow;

use coregw_core::{Cid, Error, InputCode, MAX_KEYS, Result, RootCid, cid};
use serde::de::{Deserialize, DeserializeSeed, Deserializer};
use serde::ser::{Serialize, Serializer};

use super::path::{self, Path};
use super::{Int, present};
use crate::json::{Items, MessageText, Text, array, decode_base64, objects};

/// The limit on the segments of one range.
pub(crate) const MAX_SEGMENTS: usize = 10_000;

/// The proof of a step; base64 in messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Proof<'a> {
    /// As it was received, not decoded yet.
    Text(Cow<'a, str>),
    /// As it was made, or decoded.
    Bytes(Cow<'a, [u8]>),
}

impl Proof<'_> {
    /// The bytes of the proof.
    ///
    /// # Errors
    /// [`Error::Proof`] for text that is not canonical base64.
    pub(crate) fn decode(&self) -> Result<Vec<u8>> {
        match self {
            Self::Text(text) => decode_base64(text)
                .map_err(|error| Error::proof(format!("member \"proof\" is not canonical base64: {error}"))),
            Self::Bytes(bytes) => Ok(bytes.to_vec()),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Proof<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Text.deserialize(deserializer).map(Self::Text)
    }
}

impl Serialize for Proof<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Bytes(bytes) => serializer.serialize_bytes(bytes),
        }
    }
}

/// A CID as text. That of many CIDs is made where it is written or compared, without an allocation for each.
#[derive(Debug, Clone)]
pub(crate) enum CidText<'a> {
    /// As it was received, or a copy.
    Text(MessageText<'a>),
    Cid(&'a Cid),
    Root(RootCid),
}

impl CidText<'_> {
    fn with<R>(&self, use_text: impl FnOnce(&str) -> R) -> R {
        match self {
            Self::Text(text) => use_text(&text.0),
            Self::Cid(cid) => use_text(cid.write_text(&mut [0; cid::MAX_TEXT])),
            Self::Root(root) => use_text(root.cid().write_text(&mut [0; cid::MAX_TEXT])),
        }
    }
}

impl PartialEq for CidText<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.with(|text| other.with(|other| text == other))
    }
}

impl Eq for CidText<'_> {}

impl<'de: 'a, 'a> Deserialize<'de> for CidText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        MessageText::deserialize(deserializer).map(Self::Text)
    }
}

impl Serialize for CidText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.with(|text| serializer.serialize_str(text))
    }
}

/// A CID as a link, `{"/": cid}`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct Link<'a> {
    #[serde(rename = "/", borrow)]
    pub(crate) cid: CidText<'a>,
}

impl<'a> Link<'a> {
    pub(crate) fn of_root(root: &RootCid) -> Self {
        Self { cid: CidText::Root(*root) }
    }

    pub(crate) fn of(cid: &'a Cid) -> Self {
        Self { cid: CidText::Cid(cid) }
    }
}

impl Default for Link<'_> {
    fn default() -> Self {
        Self { cid: CidText::Text(MessageText::default()) }
    }
}

/// One step of a prooflist. `None` is an absent member; `Some(None)` is `null`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct Step<'a> {
    #[serde(borrow)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) from: Link<'a>,
    #[serde(borrow)]
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<Option<Link<'a>>>,
    #[serde(borrow, default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<MessageText<'a>>,
    #[serde(borrow, default, deserialize_with = "keys", skip_serializing_if = "Option::is_none")]
    pub(crate) keys: Option<Vec<MessageText<'a>>>,
    #[serde(borrow, default, deserialize_with = "keys", skip_serializing_if = "Option::is_none")]
    pub(crate) targets: Option<Vec<Option<Link<'a>>>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<Int>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<Int>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<Int>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) length: Option<Int>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) total_size: Option<Int>,
    #[serde(borrow, default, deserialize_with = "elements", skip_serializing_if = "Option::is_none")]
    pub(crate) segments: Option<Vec<Link<'a>>>,
    #[serde(default, deserialize_with = "elements", skip_serializing_if = "Option::is_none")]
    pub(crate) sizes: Option<Vec<Int>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<Option<Int>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) prefix: Option<Path>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Path>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<Int>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) more: Option<bool>,
    #[serde(borrow)]
    pub(crate) evidence_kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) evidence_backend: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) proof: Proof<'a>,
}

/// Reads what a step lists for each element of a range.
pub(crate) fn elements<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    array(deserializer, "elements", MAX_SEGMENTS, InputCode::InvalidRequest).map(Some)
}

/// Reads what a request, a step or a result lists for each key of a multiproof.
pub(crate) fn keys<'de, D: Deserializer<'de>, T: Items<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    array(deserializer, "keys", MAX_KEYS, InputCode::InvalidRequest).map(Some)
}

/// Reads the member `steps`. Each consumes at least one segment of a path.
fn steps<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Step<'de>>, D::Error> {
    array(deserializer, "steps", path::MAX_SEGMENTS, InputCode::InvalidRequest)
}

impl<'a> Step<'a> {
    /// A step with the members that all kinds have.
    pub(crate) fn new(kind: &'static str, from: &RootCid, proof: Proof<'a>) -> Self {
        Self {
            kind: Cow::Borrowed(kind),
            from: Link::of_root(from),
            target: None,
            path: None,
            keys: None,
            targets: None,
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
            evidence_backend: Cow::Borrowed(from.suite.name()),
            proof,
        }
    }

    /// The first member in which a step that was received differs from this one, which is proven. The proof is left out:
    /// it is what proves the other members. Members of a range that follow from the proof may be absent, as they are in
    /// MALT: `sizes`, `offset`, and `segments` if there are none.
    pub(crate) fn difference(&self, sent: &Self) -> Option<&'static str> {
        macro_rules! first {
            ($($member:ident),*) => {
                $(if self.$member != sent.$member { return Some(stringify!($member)); })*
            };
        }
        first!(kind, from, target, path, keys, targets, index, start, end, length, total_size);
        first!(prefix, after, limit, more, evidence_kind, evidence_backend);
        let has_no_segments = self.segments.as_ref().is_some_and(Vec::is_empty);
        if self.segments != sent.segments && !(has_no_segments && sent.segments.is_none()) {
            return Some("segments");
        }
        if self.sizes != sent.sizes && sent.sizes.is_some() {
            return Some("sizes");
        }
        (self.offset != sent.offset && sent.offset.is_some()).then_some("offset")
    }
}

/// A prooflist.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct ProofList<'a> {
    #[serde(borrow)]
    root: Link<'a>,
    #[serde(borrow)]
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    query: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "steps")]
    pub(crate) steps: Vec<Step<'a>>,
}

impl<'a> ProofList<'a> {
    /// The prooflist of steps from `root` that answer `query`.
    pub(crate) fn new(root: Link<'a>, query: Cow<'a, str>, steps: Vec<Step<'a>>) -> Self {
        Self { root, query: (!query.is_empty()).then_some(query), steps }
    }

    /// Checks the root and the query.
    pub(crate) fn check_frame(&self, root: &Cid, query: &str) -> Result<()> {
        if self.root != Link::of(root) {
            return Err(Error::proof("the prooflist is of another root"));
        }
        if self.query.as_deref().unwrap_or_default() != query || self.query.as_deref() == Some("") {
            return Err(Error::proof("the prooflist's member \"query\" is not the request's"));
        }
        Ok(())
    }

    /// The only step.
    pub(crate) fn only_step(&self) -> Result<&Step<'a>> {
        match &self.steps[..] {
            [step] => Ok(step),
            steps => Err(Error::proof(format!("the prooflist has {} steps, not exactly one", steps.len()))),
        }
    }
}

objects! {
    read: Link<'a>, Step<'a>, ProofList<'a>;
    written: Link<'a>, Step<'a>, ProofList<'a>;
}
