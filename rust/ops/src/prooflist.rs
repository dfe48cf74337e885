//! Whole operations and their prooflists (protocol section 5): what is asked, how the answer is written, and how a
//! result that was sent is checked.
//!
//! One constructor writes every step and result. The gateway sends what it makes; a verifier makes the same from what
//! the proofs prove and compares. So no member can say what is not proven.

use std::borrow::Cow;

use crate::messages::{self as msg, Entry, Link, ProofList, Step};
use crate::question::{MAX_ENTRIES, Question};
use crate::writing::{Proof, json};
use coregw_core::Key;
use coregw_core::SUM_LIMIT;
use coregw_core::internals::prove::Answer;
use coregw_core::list::Span;
use coregw_core::map::Listing;
use coregw_core::{Cid, Kind, RootCid};
use coregw_core::{Error, InputCode, Result};

/// The prooflist of steps from `root` that answer `query`.
pub(crate) fn prooflist<'a>(root: &Cid, query: String, steps: Vec<Step<'a>>) -> ProofList<'a> {
    let query = (!query.is_empty()).then_some(Cow::Owned(query));
    ProofList { root: Link::to(root.text()), query, steps }
}

fn check_frame(sent: &ProofList<'_>, root: &Cid, query: &str) -> Result<()> {
    if sent.root.cid != root.text() {
        return Err(Error::proof("the prooflist is of another root"));
    }
    if sent.query.as_deref().unwrap_or_default() != query || sent.query.as_deref() == Some("") {
        return Err(Error::proof("the prooflist's member \"query\" is not the request's"));
    }
    Ok(())
}

fn only_step<'a, 'b>(sent: &'b ProofList<'a>) -> Result<&'b Step<'a>> {
    match &sent.steps[..] {
        [step] => Ok(step),
        steps => Err(Error::proof(format!("the prooflist has {} steps, not exactly one", steps.len()))),
    }
}

fn must_equal<T: PartialEq>(member: &str, sent: &T, proven: &T) -> Result<()> {
    match sent == proven {
        true => Ok(()),
        false => Err(Error::proof(format!("the result's member {member:?} is not what is proven"))),
    }
}

fn profile_proven(sent: &str, profile: &str) -> Result<()> {
    must_equal("profile", &sent, &profile)
}

fn request_root(text: &str) -> Result<Cid> {
    Cid::from_text(text).map_err(|error| error.within("root"))
}

// Resolve.

/// A resolve request: the root, and the path's segments.
#[derive(Debug, Clone)]
pub(crate) struct Resolve {
    pub(crate) root: Cid,
    pub(crate) segments: Vec<String>,
}

impl Resolve {
    pub(crate) fn parse(body: &[u8]) -> Result<Self> {
        let request: msg::ResolveRequest<'_> = msg::request(body)?;
        msg::check_profile(&request.profile, msg::RESOLVE)?;
        Self::new(request_root(&request.root)?, request.segments)
    }

    pub(crate) fn new(root: Cid, segments: Vec<String>) -> Result<Self> {
        if !segments.is_empty() {
            Key::from_segments(&segments).map_err(|error| error.within("segments"))?;
        }
        Ok(Self { root, segments })
    }

    pub(crate) fn result(&self, target: &Cid, steps: Vec<Step<'_>>) -> String {
        let prooflist = prooflist(&self.root, self.segments.join("/"), steps);
        json(&msg::ResolveResult { profile: msg::RESOLVE.into(), target: target.text().into(), prooflist })
    }

    /// The question that the step at `index` answers at `position`, as far as its own coordinate says, and the
    /// number of segments it consumes.
    fn question(&self, root: &RootCid, step: &Step<'_>, position: usize) -> Result<(Question, usize)> {
        let rest = &self.segments[position..];
        match root.kind {
            Kind::Map => {
                let path = step.path.as_deref().ok_or_else(|| Error::proof("member \"path\" is missing"))?;
                let n = path.split('/').count();
                match rest.get(..n) {
                    Some(arc) if arc.iter().map(String::as_str).eq(path.split('/')) => {
                        Ok((Question::Key(arc.to_vec()), n))
                    }
                    _ => Err(Error::proof(format!("member \"path\" {path:?} is not what follows in the request"))),
                }
            }
            Kind::List => match rest.first().and_then(|segment| list_index(segment)) {
                Some(index) => Ok((Question::Index(index), 1)),
                None => Err(Error::proof("the request's next segment is no index of a list")),
            },
        }
    }
}

/// The index that a segment is in canonical decimal.
pub(crate) fn list_index(segment: &str) -> Option<u64> {
    let canonical = segment == "0" || !segment.starts_with('0') && segment.bytes().all(|b| b.is_ascii_digit());
    canonical.then(|| segment.parse().ok()).flatten().filter(|&index| index < SUM_LIMIT)
}

/// Checks the result of a resolve and gives back the target. O(steps x depth) hashes.
///
/// # Errors
/// [`Error::Input`] for a bad request; [`Error::Proof`] for anything wrong in the result.
pub fn verify_resolve(request: &[u8], result: &[u8]) -> Result<Cid> {
    let request = Resolve::parse(request)?;
    let sent: msg::ResolveResult<'_> = msg::result(result)?;
    profile_proven(&sent.profile, msg::RESOLVE)?;
    check_frame(&sent.prooflist, &request.root, &request.segments.join("/"))?;
    let (mut at, mut position) = (request.root, 0);
    for (index, step) in sent.prooflist.steps.iter().enumerate() {
        let root = at.root().ok_or_else(|| Error::proof("the step leads on from a payload").in_step(index))?;
        let (question, n) = request.question(&root, step, position).map_err(|error| error.in_step(index))?;
        let target = match question.check(index, step, &root)? {
            Answer::Key(target) => target,
            Answer::Element(element) => element.target,
            _ => None,
        };
        at = target.ok_or_else(|| Error::proof("the step proves an absence").in_step(index))?;
        position += n;
    }
    if position != request.segments.len() {
        return Err(Error::proof("the steps end before the path does"));
    }
    must_equal("target", &&*sent.target, &&*at.text())?;
    Ok(at)
}

// Read.

/// A read request: the root, and the question.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    pub(crate) root: RootCid,
    pub(crate) question: Question,
}

impl Read {
    pub(crate) fn parse(body: &[u8]) -> Result<Self> {
        let request: msg::ReadRequest<'_> = msg::request(body)?;
        msg::check_profile(&request.profile, msg::READ)?;
        let question = read_question(request.query).map_err(|error| error.within("query"))?;
        let root = RootCid::of(&request_root(&request.root)?, question.kind()).map_err(|error| error.within("root"))?;
        question.ask().map_err(|error| error.within("query"))?;
        Ok(Self { root, question })
    }

    /// The result's members that the answer decides; None for an absence.
    fn members(&self, answer: &Answer) -> Option<(String, Option<Vec<String>>)> {
        match answer {
            Answer::Key(target) => target.map(|cid| (cid.text(), None)),
            Answer::Element(element) => element.target.map(|cid| (cid.text(), None)),
            Answer::Span(span) => Some((self.root.cid().text(), Some(span.segments.iter().map(Cid::text).collect()))),
            _ => None,
        }
    }

    /// The result; `Err` is the details of a 404 that prove the absence.
    pub(crate) fn result(&self, answer: &Answer, proof: Vec<u8>) -> Result<String, String> {
        let step = self.question.step(&self.root, answer, Proof::Bytes(proof));
        let prooflist = prooflist(&self.root.cid(), self.question.text(), vec![step]);
        match self.members(answer) {
            Some((target, range_segments)) => {
                let profile = Some(msg::READ.to_owned());
                Ok(json(&msg::ReadResult { profile, target: Some(target), range_segments, prooflist }))
            }
            None => Err(json(&msg::ReadResult { profile: None, target: None, range_segments: None, prooflist })),
        }
    }
}

fn read_question(query: msg::ReadQuery) -> Result<Question> {
    let missing = |member: &str| Error::request(format!("a {} query needs the member {member:?}", query.kind));
    let only = |members: &[&str]| {
        let there = [
            ("segments", query.segments.is_some()),
            ("index", query.index.is_some()),
            ("start", query.start.is_some()),
            ("end", query.end.is_some()),
        ];
        match there.iter().find(|(name, there)| *there && !members.contains(name)) {
            Some((name, _)) => Err(Error::request(format!("a {} query has no member {name:?}", query.kind))),
            None => Ok(()),
        }
    };
    match query.kind.as_str() {
        "map_key" => {
            only(&["segments"])?;
            Ok(Question::Key(query.segments.clone().ok_or_else(|| missing("segments"))?))
        }
        "list_index" => {
            only(&["index"])?;
            Ok(Question::Index(query.index.ok_or_else(|| missing("index"))?.0))
        }
        "list_range" => {
            only(&["start", "end"])?;
            let start = query.start.ok_or_else(|| missing("start"))?.0;
            Ok(Question::Range { start, end: query.end.map(|end| end.0) })
        }
        other => {
            let shown: String = other.chars().take(80).collect();
            Err(Error::request(format!("kind {shown:?} is none of map_key, list_index, list_range")))
        }
    }
}

/// What a read proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The target of a key, or None: proven absent.
    Key(Option<Cid>),
    /// An element, or the proof that the list is shorter.
    Element(coregw_core::internals::prove::Element),
    /// The elements that a range meets.
    Range {
        /// The list, which is the target.
        list: RootCid,
        /// Its elements and sizes.
        span: Span,
    },
}

/// Checks the result of a read, or the details of a 404 that prove an absence.
///
/// # Errors
/// [`Error::Input`] for a bad request; [`Error::Proof`] for anything wrong in the result.
pub fn verify_read(request: &[u8], result: &[u8]) -> Result<ReadOutcome> {
    let request = Read::parse(request)?;
    let sent: msg::ReadResult<'_> = msg::result(result)?;
    check_frame(&sent.prooflist, &request.root.cid(), &request.question.text())?;
    let answer = request.question.check(0, only_step(&sent.prooflist)?, &request.root)?;
    let (target, range_segments) = request.members(&answer).map_or((None, None), |(t, r)| (Some(t), r));
    let profile = target.is_some().then(|| msg::READ.to_owned());
    must_equal("profile", &sent.profile, &profile)?;
    must_equal("target", &sent.target, &target)?;
    must_equal("range_segments", &sent.range_segments, &range_segments)?;
    match answer {
        Answer::Key(target) => Ok(ReadOutcome::Key(target)),
        Answer::Element(element) => Ok(ReadOutcome::Element(element)),
        Answer::Span(span) => Ok(ReadOutcome::Range { list: request.root, span }),
        _ => Err(Error::proof("an answer of another kind")),
    }
}

// Map proof.

/// A request for the membership or absence of a key.
#[derive(Debug, Clone)]
pub(crate) struct MapProof {
    pub(crate) root: RootCid,
    pub(crate) question: Question,
}

impl MapProof {
    pub(crate) fn parse(body: &[u8]) -> Result<Self> {
        let request: msg::MapProofRequest<'_> = msg::request(body)?;
        msg::check_profile(&request.profile, msg::MAP_PROOF)?;
        let root = RootCid::of(&request_root(&request.root)?, Kind::Map).map_err(|error| error.within("root"))?;
        let question = Question::Key(request.key);
        question.ask().map_err(|error| error.within("key"))?;
        Ok(Self { root, question })
    }

    pub(crate) fn result(&self, answer: &Answer, proof: Vec<u8>) -> String {
        let step = self.question.step(&self.root, answer, Proof::Bytes(proof));
        let prooflist = prooflist(&self.root.cid(), self.question.text(), vec![step]);
        let target = match answer {
            Answer::Key(target) => target.map(|cid| cid.text()),
            _ => None,
        };
        json(&msg::MapProofResult { profile: msg::MAP_PROOF.into(), present: target.is_some(), target, prooflist })
    }
}

/// Checks a map proof: the target, or None if the key is proven absent.
///
/// # Errors
/// [`Error::Input`] for a bad request; [`Error::Proof`] for anything wrong in the result.
pub fn verify_map_proof(request: &[u8], result: &[u8]) -> Result<Option<Cid>> {
    let request = MapProof::parse(request)?;
    let sent: msg::MapProofResult<'_> = msg::result(result)?;
    profile_proven(&sent.profile, msg::MAP_PROOF)?;
    check_frame(&sent.prooflist, &request.root.cid(), &request.question.text())?;
    let Answer::Key(target) = request.question.check(0, only_step(&sent.prooflist)?, &request.root)? else {
        return Err(Error::proof("an answer of another kind"));
    };
    must_equal("present", &sent.present, &target.is_some())?;
    must_equal("target", &sent.target, &target.map(|cid| cid.text()))?;
    Ok(target)
}

// Scan.

/// A request for one page of a listing.
#[derive(Debug, Clone)]
pub(crate) struct Scan {
    pub(crate) root: RootCid,
    pub(crate) question: Question,
}

fn entries(listing: &Listing) -> Vec<Entry> {
    let entry = |(segments, target): &(Vec<String>, Cid)| Entry { segments: segments.clone(), target: target.text() };
    listing.entries.iter().map(entry).collect()
}

impl Scan {
    pub(crate) fn parse(body: &[u8]) -> Result<Self> {
        let request: msg::ScanRequest<'_> = msg::request(body)?;
        msg::check_profile(&request.profile, msg::SCAN)?;
        let root = RootCid::of(&request_root(&request.root)?, Kind::Map).map_err(|error| error.within("root"))?;
        let limit = request.limit.map_or(MAX_ENTRIES, |limit| limit.0);
        if !(1..=MAX_ENTRIES).contains(&limit) {
            return Err(Error::input(InputCode::InvalidRequest, "limit: it is from 1 to 1000"));
        }
        let question = Question::Scan { prefix: request.prefix, after: request.after, limit };
        question.ask()?;
        Ok(Self { root, question })
    }

    pub(crate) fn result(&self, answer: &Answer, proof: Vec<u8>) -> String {
        let step = self.question.step(&self.root, answer, Proof::Bytes(proof));
        let prooflist = prooflist(&self.root.cid(), self.question.text(), vec![step]);
        let empty = Listing::default();
        let listing = if let Answer::Listing(listing) = answer { listing } else { &empty };
        let (entries, more) = (entries(listing), listing.more);
        json(&msg::ScanResult { profile: msg::SCAN.into(), entries, more, prooflist })
    }
}

/// Checks one page of a listing: its entries are all there are, and whether more follow. Also gives its proof.
///
/// # Errors
/// [`Error::Input`] for a bad request; [`Error::Proof`] for anything wrong in the result.
pub fn verify_scan(request: &[u8], result: &[u8]) -> Result<(Listing, Vec<u8>)> {
    let request = Scan::parse(request)?;
    let sent: msg::ScanResult<'_> = msg::result(result)?;
    profile_proven(&sent.profile, msg::SCAN)?;
    check_frame(&sent.prooflist, &request.root.cid(), &request.question.text())?;
    let step = only_step(&sent.prooflist)?;
    let Answer::Listing(listing) = request.question.check(0, step, &request.root)? else {
        return Err(Error::proof("an answer of another kind"));
    };
    must_equal("entries", &sent.entries, &entries(&listing))?;
    must_equal("more", &sent.more, &listing.more)?;
    let proof = step.proof.decode()?;
    Ok((listing, proof))
}
