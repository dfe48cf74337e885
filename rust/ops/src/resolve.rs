//! Resolve (protocol section 5): the search for a path through nested maps and lists, longest arcs first.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use coregw_core::{Answer, Ask, Query};
use coregw_core::{Cid, Error, InputCode, Kind, Missing, PageCache, PathKeys, Result, RootCid, SUM_LIMIT};
use serde::{Deserialize, Serialize};

use crate::json::{self, objects};
use crate::message::path::{Path, Segments};
use crate::message::prooflist::{CidText, Link, Proof, ProofList, Step};
use crate::message::question::Question;
use crate::message::{self, Profile, check_member, root_member};
use crate::run::Operation;
use crate::trees::Trees;

/// Preparing this many segments for a lookup is as much work as visiting one node.
const SEGMENTS_PER_NODE: u64 = 64;

/// Starting a lookup is about as much work as visiting this many nodes, and so is remembering what was tried.
const NODES_PER_LOOKUP: u64 = 32;

/// Finding out whether a map has this many shorter arcs is as much work as visiting one node.
const ARCS_PER_NODE: u64 = 4;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct ResolveRequest<'a> {
    #[serde(borrow)]
    profile: Cow<'a, str>,
    #[serde(borrow)]
    root: Cow<'a, str>,
    segments: Segments,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(crate) struct ResolveResult<'a> {
    #[serde(borrow)]
    profile: Cow<'a, str>,
    #[serde(borrow)]
    target: CidText<'a>,
    #[serde(borrow)]
    prooflist: ProofList<'a>,
}

objects! {
    read: ResolveRequest<'a>, ResolveResult<'a>;
    written: ResolveResult<'a>;
}

/// A resolve request: where the path starts, and the path.
#[derive(Debug, Clone)]
pub(crate) struct Resolve {
    /// As the request spells it.
    pub(crate) profile: &'static str,
    pub(crate) root: Cid,
    pub(crate) path: Path,
}

impl Resolve {
    fn parse(body: &[u8]) -> Result<Self> {
        let request: ResolveRequest<'_> = message::request(body)?;
        let profile = Profile::RESOLVE.spelling(&request.profile)?;
        Ok(Self { profile, root: root_member(&request.root)?, path: request.segments.path("segments")? })
    }

    fn result<'a>(&'a self, target: &'a Cid, steps: Vec<Step<'a>>) -> ResolveResult<'a> {
        let prooflist = ProofList::new(Link::of(&self.root), self.path.text().into(), steps);
        ResolveResult { profile: self.profile.into(), target: CidText::Cid(target), prooflist }
    }
}

impl Operation {
    /// Answers a `core.resolve` request.
    ///
    /// # Errors
    /// [`Error::Input`] if the request is malformed. The operation itself fails with [`Error::NotFound`] if the root is
    /// not held or the path does not resolve.
    pub fn resolve(cache: Arc<PageCache>, request: &[u8]) -> Result<Self> {
        let request = Resolve::parse(request)?;
        let write = |result: ResolveResult<'_>| json::write(&result);
        Ok(Self::new(|slot| resolve(Trees { cache, slot }, request, write)))
    }
}

/// A held root on the path, and the arcs from it that are still to be tried.
struct Place {
    root: RootCid,
    /// Number of segments that lead here.
    position: usize,
    /// Numbers of segments of the arcs that are still to be tried, the next one last.
    arcs: Vec<usize>,
    /// Whether the first arc, the longest, was not tried yet. It shows which of the others a map has.
    is_new: bool,
    /// The arc that leads here; `None` for the request's own root.
    arc: Option<ProvenArc>,
}

/// What a step of the prooflist is made of. The step borrows from it.
struct ProvenArc {
    root: RootCid,
    question: Question,
    answer: Answer,
    proof: Vec<u8>,
}

impl ProvenArc {
    fn step(&self) -> Step<'_> {
        self.question.step(&self.root, &self.answer, Proof::Bytes(Cow::Borrowed(&self.proof)))
    }
}

impl Place {
    fn new(root: RootCid, position: usize, path_len: usize, arc: Option<ProvenArc>) -> Self {
        let longest = if root.kind == Kind::List { 1 } else { path_len - position };
        Self { root, position, arcs: vec![longest], is_new: true, arc }
    }

    /// The query for an arc; `None` if no list has such an index.
    fn ask(&self, arc_len: usize, path: &Path, keys: &PathKeys) -> Option<Ask> {
        match self.root.kind {
            Kind::Map => Some(Ask::Key(keys.key(self.position, arc_len))),
            Kind::List => list_index(path.segment(self.position)).map(Ask::Index),
        }
    }

    /// An arc that the map or list has.
    fn proven(&self, arc_len: usize, path: &Path, answer: Answer, query: &mut Query) -> ProvenArc {
        let question = match self.root.kind {
            Kind::Map => Question::Key(path.part(self.position, arc_len).unwrap_or_default()),
            Kind::List => Question::Index(list_index(path.segment(self.position)).unwrap_or_default()),
        };
        ProvenArc { root: self.root, question, answer, proof: query.proof() }
    }

    /// Finds the shorter arcs that the map has, from the descent to the longest: where the key of an arc differs from it,
    /// the descent must have left another branch.
    fn find_arcs(&mut self, longest: usize, keys: &PathKeys, query: &Query) {
        if self.root.kind == Kind::Map {
            let is_there = |len: &usize| query.branches_at(keys.differing_bit(self.position, *len));
            self.arcs = (1..longest).filter(is_there).collect();
        }
    }
}

/// Searches depth first. Every (root, position) is tried once, so the work is bounded by their number; the first one needs
/// no note, since positions only grow. Only the longest arc from each, and those that exist, are looked up.
pub(crate) async fn resolve(
    trees: Trees,
    request: Resolve,
    write: fn(ResolveResult<'_>) -> Vec<u8>,
) -> Result<Vec<u8>> {
    let path = &request.path;
    if path.is_empty() {
        return Ok(write(request.result(&request.root, Vec::new())));
    }
    let root = first_root(&request.root)?;
    let longest = || path.key().ok().filter(|_| root.kind == Kind::Map).map(|key| key.as_bytes().to_vec());
    trees.check_held_before(&[root], || longest().into_iter().collect()).await?;
    trees.spend(path.len() as u64 / SEGMENTS_PER_NODE).await?;
    let keys = PathKeys::new(&path.segments())?;
    let mut tried = HashSet::new();
    let mut places = vec![Place::new(root, 0, path.len(), None)];
    while let Some(place) = places.last_mut() {
        let Some(arc_len) = place.arcs.pop() else {
            places.pop();
            continue;
        };
        let end = place.position + arc_len;
        let Some(ask) = place.ask(arc_len, path, &keys) else { continue };
        trees.slot.charge(NODES_PER_LOOKUP)?;
        trees.spend(1 + arc_len as u64 / SEGMENTS_PER_NODE).await?;
        let mut query = Query::open(&place.root, trees.source(), ask);
        let answer = trees.run(&mut query).await?;
        if std::mem::take(&mut place.is_new) {
            trees.slot.charge(arc_len as u64 / ARCS_PER_NODE)?;
            place.find_arcs(arc_len, &keys, &query);
        }
        let Some(target) = target(&answer) else { continue };
        if end == path.len() {
            let last = place.proven(arc_len, path, answer, &mut query);
            let steps =
                places.iter().filter_map(|place| place.arc.as_ref()).chain([&last]).map(ProvenArc::step).collect();
            return Ok(write(request.result(&target, steps)));
        }
        let Some(nested) = target.root().filter(|nested| !tried.contains(&(*nested, end))) else { continue };
        let arc = place.proven(arc_len, path, answer, &mut query);
        let rest = || match nested.kind {
            Kind::Map if end < path.len() => vec![keys.key(end, path.len() - end).as_bytes().to_vec()],
            _ => Vec::new(),
        };
        if trees.is_held_before(&nested, rest).await {
            tried.insert((nested, end));
            places.push(Place::new(nested, end, path.len(), Some(arc)));
        }
    }
    let what = format!("the path {:?} does not resolve under the root {}", path.text(), request.root);
    Err(Error::NotFound { missing: Missing::Path, what, details: None })
}

fn first_root(cid: &Cid) -> Result<RootCid> {
    cid.root().ok_or_else(|| {
        let what = format!("root: {cid} is a payload; only a map or a list can be resolved further");
        Error::input(InputCode::KindMismatch, what)
    })
}

fn target(answer: &Answer) -> Option<Cid> {
    match answer {
        Answer::Key(target) => *target,
        Answer::Element(element) => element.target,
        _ => None,
    }
}

/// Parses a segment as an index in canonical decimal.
fn list_index(segment: &str) -> Option<u64> {
    let is_canonical = segment == "0" || !segment.starts_with('0') && segment.bytes().all(|b| b.is_ascii_digit());
    is_canonical.then(|| segment.parse().ok()).flatten().filter(|&index| index < SUM_LIMIT)
}

/// Checks the result of a resolve and returns the target. O(steps x depth) hashes.
///
/// # Errors
/// [`Error::Input`] if the request is malformed; [`Error::Proof`] for anything wrong in the result.
pub fn verify_resolve(request: &[u8], result: &[u8]) -> Result<Cid> {
    let request = Resolve::parse(request)?;
    let sent: ResolveResult<'_> = message::result(result)?;
    check_member("profile", &&*sent.profile, &request.profile)?;
    sent.prooflist.check_frame(&request.root, request.path.text())?;
    let (mut at, mut position) = (request.root, 0);
    for (index, step) in sent.prooflist.steps.iter().enumerate() {
        let root = at.root().ok_or_else(|| Error::proof("the step starts at a payload").in_step(index))?;
        let (question, arc_len) = question_of(&root, step, &request.path, position).map_err(|e| e.in_step(index))?;
        let answer = question.check(index, step, &root)?;
        at = target(&answer).ok_or_else(|| Error::proof("the step proves an absence").in_step(index))?;
        position += arc_len;
    }
    if position != request.path.len() {
        return Err(Error::proof("the steps end before the path does"));
    }
    check_member("target", &sent.target, &CidText::Cid(&at))?;
    Ok(at)
}

/// The question that a received step answers if its coordinate is next in the path, and the segments it consumes.
fn question_of(root: &RootCid, step: &Step<'_>, path: &Path, position: usize) -> Result<(Question, usize)> {
    match root.kind {
        Kind::Map => {
            let sent = &*step.path.as_ref().ok_or_else(|| Error::proof("member \"path\" is missing"))?.0;
            let arc_len = sent.split('/').count();
            match path.part(position, arc_len) {
                Some(arc) if arc.text() == sent => Ok((Question::Key(arc), arc_len)),
                _ => Err(Error::proof(format!("member \"path\" {sent:?} is not what follows in the request"))),
            }
        }
        Kind::List if position == path.len() => Err(Error::proof("the steps continue after the path")),
        Kind::List => match list_index(path.segment(position)) {
            Some(index) => Ok((Question::Index(index), 1)),
            None => Err(Error::proof("the request's next segment is not an index of a list")),
        },
    }
}
