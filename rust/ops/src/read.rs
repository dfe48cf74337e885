//! Read (protocol section 5): one key of a map, one element of a list, or a range of a list.

use std::borrow::Cow;
use std::sync::Arc;

use coregw_core::Answer;
use coregw_core::list::Span;
use coregw_core::{Cid, Element, Error, Missing, PageCache, Result, RootCid};
use serde::{Deserialize, Serialize};

use crate::json::{self, objects};
use crate::message::path::Segments;
use crate::message::prooflist::{ProofList, elements};
use crate::message::question::Question;
use crate::message::{self, Int, Profile, check_member, present, root_of_kind, shown};
use crate::run::Operation;
use crate::trees::Trees;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct ReadRequest<'a> {
    #[serde(borrow)]
    profile: Cow<'a, str>,
    #[serde(borrow)]
    root: Cow<'a, str>,
    query: ReadQuery,
}

/// The members of all three kinds. Which of them must be present is checked by kind, so that errors name the member.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct ReadQuery {
    kind: String,
    #[serde(default, deserialize_with = "present")]
    segments: Option<Segments>,
    #[serde(default, deserialize_with = "present")]
    index: Option<Int>,
    #[serde(default, deserialize_with = "present")]
    start: Option<Int>,
    #[serde(default, deserialize_with = "present")]
    end: Option<Int>,
}

/// The result of a read; for an absent key or index, only the prooflist that proves the absence.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct ReadResult<'a> {
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(default, deserialize_with = "elements", skip_serializing_if = "Option::is_none")]
    range_segments: Option<Vec<String>>,
    #[serde(borrow)]
    prooflist: ProofList<'a>,
}

objects! {
    read: ReadRequest<'a>, ReadQuery, ReadResult<'a>;
    written: ReadResult<'a>;
}

impl ReadQuery {
    fn question(&self) -> Result<Question> {
        let missing = |member: &str| Error::request(format!("a {} query needs the member {member:?}", self.kind));
        match self.kind.as_str() {
            "map_key" => {
                self.check_members(&["segments"])?;
                let segments = self.segments.clone().ok_or_else(|| missing("segments"))?;
                Ok(Question::Key(segments.path("segments")?))
            }
            "list_index" => {
                self.check_members(&["index"])?;
                Ok(Question::Index(self.index.ok_or_else(|| missing("index"))?.0))
            }
            "list_range" => {
                self.check_members(&["start", "end"])?;
                let start = self.start.ok_or_else(|| missing("start"))?.0;
                Ok(Question::Range { start, end: self.end.map(|end| end.0) })
            }
            other => {
                let what = format!("kind {:?} is not one of map_key, list_index, list_range", shown(other));
                Err(Error::request(what))
            }
        }
    }

    /// Checks that no other members are present.
    fn check_members(&self, allowed: &[&str]) -> Result<()> {
        let members = [
            ("segments", self.segments.is_some()),
            ("index", self.index.is_some()),
            ("start", self.start.is_some()),
            ("end", self.end.is_some()),
        ];
        match members.iter().find(|(name, is_present)| *is_present && !allowed.contains(name)) {
            Some((name, _)) => Err(Error::request(format!("a {} query has no member {name:?}", self.kind))),
            None => Ok(()),
        }
    }
}

/// A read request: the root, and the question.
#[derive(Debug, Clone)]
struct Read {
    /// As the request spells it.
    profile: &'static str,
    root: RootCid,
    question: Question,
}

impl Read {
    fn parse(body: &[u8]) -> Result<Self> {
        let request: ReadRequest<'_> = message::request(body)?;
        let profile = Profile::READ.spelling(&request.profile)?;
        let question = request.query.question().map_err(|error| error.within("query"))?;
        let root = root_of_kind(&request.root, question.kind())?;
        question.ask().map_err(|error| error.within("query"))?;
        Ok(Self { profile, root, question })
    }

    /// The result's members that follow from the answer, `target` and `range_segments`; `None` for an absence.
    fn members(&self, answer: &Answer) -> Option<(String, Option<Vec<String>>)> {
        match answer {
            Answer::Key(target) => target.map(|cid| (cid.text(), None)),
            Answer::Element(element) => element.target.map(|cid| (cid.text(), None)),
            Answer::Span(span) => Some((self.root.cid().text(), Some(span.segments.iter().map(Cid::text).collect()))),
            _ => None,
        }
    }

    /// # Errors
    /// [`Error::NotFound`] with the proof of the absence as details.
    fn response(&self, answer: &Answer, proof: Vec<u8>) -> Result<Vec<u8>> {
        let prooflist = self.question.prooflist(&self.root, answer, proof);
        let Some((target, range_segments)) = self.members(answer) else {
            let details = ReadResult { profile: None, target: None, range_segments: None, prooflist };
            return Err(self.absent(String::from_utf8(json::write(&details)).expect("JSON is UTF-8")));
        };
        let profile = Some(self.profile.to_owned());
        Ok(json::write(&ReadResult { profile, target: Some(target), range_segments, prooflist }))
    }

    fn absent(&self, details: String) -> Error {
        let details = Some(details);
        match &self.question {
            Question::Index(index) => {
                let what = format!("the list {} has no index {index}", self.root);
                Error::NotFound { missing: Missing::Index, what, details }
            }
            question => {
                let what = format!("the map {} has no key {:?}", self.root, question.text());
                Error::NotFound { missing: Missing::Path, what, details }
            }
        }
    }
}

impl Operation {
    /// Answers a `core.read` request.
    ///
    /// # Errors
    /// [`Error::Input`] if the request is malformed. The operation itself fails with [`Error::NotFound`] if the root is
    /// not held, and for an absent key or index, then with the proof of the absence as details.
    pub fn read(cache: Arc<PageCache>, request: &[u8]) -> Result<Self> {
        let request = Read::parse(request)?;
        Ok(Self::new(|slot| read(Trees { cache, slot }, request)))
    }
}

async fn read(trees: Trees, request: Read) -> Result<Vec<u8>> {
    let ask = request.question.ask()?;
    trees.check_held_before(&[request.root], || ask.starts()).await?;
    let (answer, proof) = trees.answer(&request.root, ask).await?;
    request.response(&answer, proof)
}

/// Checks the result's CIDs of a range. Those of an empty range may be absent, as some encoders of JSON leave them.
fn check_range_segments(sent: &ReadResult<'_>, proven: Option<Vec<String>>) -> Result<()> {
    match proven {
        Some(proven) if proven.is_empty() && sent.range_segments.is_none() => Ok(()),
        proven => check_member("range_segments", &sent.range_segments, &proven),
    }
}

/// What the result of a read proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The target of a key, or `None`: proven absent.
    Key(Option<Cid>),
    /// An element, or the proof that the list is shorter.
    Element(Element),
    /// The elements that a range meets.
    Range {
        /// The list, which is the target.
        list: RootCid,
        /// Its elements and sizes.
        span: Span,
    },
}

/// Checks the result of a read, or the details of a 404 that prove an absence. O(depth + segments) hashes.
///
/// # Errors
/// [`Error::Input`] if the request is malformed; [`Error::Proof`] for anything wrong in the result.
pub fn verify_read(request: &[u8], result: &[u8]) -> Result<ReadOutcome> {
    let request = Read::parse(request)?;
    let sent: ReadResult<'_> = message::result(result)?;
    sent.prooflist.check_frame(&request.root.cid(), &request.question.text())?;
    let answer = request.question.check(0, sent.prooflist.only_step()?, &request.root)?;
    let (target, range_segments) = request.members(&answer).map_or((None, None), |(t, r)| (Some(t), r));
    check_member("profile", &sent.profile, &target.is_some().then(|| request.profile.to_owned()))?;
    check_member("target", &sent.target, &target)?;
    check_range_segments(&sent, range_segments)?;
    match answer {
        Answer::Key(target) => Ok(ReadOutcome::Key(target)),
        Answer::Element(element) => Ok(ReadOutcome::Element(element)),
        Answer::Span(span) => Ok(ReadOutcome::Range { list: request.root, span }),
        _ => Err(Error::proof("the answer is of another kind")),
    }
}
