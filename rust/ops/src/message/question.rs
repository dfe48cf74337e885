//! A question about one tree, and the prooflist step that answers it (protocol section 5).

use std::borrow::Cow;

use coregw_core::verify;
use coregw_core::{Answer, Ask};
use coregw_core::{Cid, Error, Keys, Kind, Result, RootCid, Window};

use super::Int;
use super::path::{Path, Paths};
use super::prooflist::{Link, MAX_SEGMENTS, Proof, ProofList, Step};
use crate::json::MessageText;

/// The coordinate whose step is a `payload_binding`.
const PAYLOAD: &str = "@payload";
/// The limit on, and the default of, the entries in one page of a listing.
pub(crate) const MAX_ENTRIES: u64 = 1000;

/// A question about one tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    Key(Path),
    Keys(Paths),
    Index(u64),
    Range { start: u64, end: Option<u64> },
    Scan { prefix: Path, after: Option<Path>, limit: u64 },
}

impl Question {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Key(_) | Self::Keys(_) | Self::Scan { .. } => Kind::Map,
            Self::Index(_) | Self::Range { .. } => Kind::List,
        }
    }

    /// The query to run on the tree.
    ///
    /// # Errors
    /// [`Error::Input`] for an invalid path.
    pub(crate) fn ask(&self) -> Result<Ask> {
        Ok(match self {
            Self::Key(path) => Ask::Key(path.key()?),
            Self::Keys(paths) => Ask::Keys(Keys::new(paths.keys("keys")?)?),
            Self::Index(index) => Ask::Index(*index),
            Self::Range { start, end } => Ask::Range { start: *start, end: *end, max_segments: MAX_SEGMENTS },
            Self::Scan { prefix, after, limit } => {
                let after = after.as_ref().map(Path::segments);
                let window = Window::new(&prefix.segments(), after.as_deref())?;
                Ask::Scan(window, usize::try_from(*limit).unwrap_or(usize::MAX))
            }
        })
    }

    fn proof_limit(&self) -> usize {
        match self {
            Self::Key(_) | Self::Index(_) => verify::PROOF_LIMIT,
            Self::Keys(_) | Self::Range { .. } | Self::Scan { .. } => verify::WIDE_PROOF_LIMIT,
        }
    }

    /// The `query` member of a prooflist with one step, which answers this question.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Key(path) => path.text().into(),
            Self::Keys(keys) => format!("keys:{}", keys.len()).into(),
            Self::Index(index) => format!("list:{index}").into(),
            Self::Range { start, end } => {
                format!("range:{start}:{}", end.map_or_else(String::new, |end| end.to_string())).into()
            }
            Self::Scan { prefix, .. } => format!("scan:{}", prefix.text()).into(),
        }
    }

    /// The prooflist whose only step answers this question.
    pub(crate) fn prooflist<'a>(
        &'a self,
        root: &RootCid,
        answer: &'a Answer,
        proof: impl Into<Cow<'a, [u8]>>,
    ) -> ProofList<'a> {
        ProofList::new(Link::of_root(root), self.text(), vec![self.step(root, answer, Proof::Bytes(proof.into()))])
    }

    /// The step that answers this question.
    pub(crate) fn step<'a>(&'a self, root: &RootCid, answer: &'a Answer, proof: Proof<'a>) -> Step<'a> {
        let new = |kind, proof| Step::new(kind, root, proof);
        let link = |cid: &'a Option<Cid>| Some(cid.as_ref().map(Link::of));
        match (self, answer) {
            (Self::Keys(keys), Answer::Keys(targets)) => {
                let mut step = new("map_keys", proof);
                step.target = Some(Some(step.from.clone()));
                step.keys = Some(keys.iter().map(|path| MessageText(path.into())).collect());
                step.targets = Some(targets.iter().map(|target| target.as_ref().map(Link::of)).collect());
                step
            }
            (Self::Range { start, end }, Answer::Span(span)) => {
                let mut step = new("list_range", proof);
                step.target = Some(Some(step.from.clone()));
                step.start = Some(Int(*start));
                step.end = end.map(Int);
                step.length = Some(Int(span.length));
                step.total_size = Some(Int(span.total_size));
                step.segments = Some(span.segments.iter().map(Link::of).collect());
                step.sizes = Some(span.sizes.iter().map(|&size| Int(size)).collect());
                step.offset = Some(span.offset.map(Int));
                step
            }
            (Self::Scan { prefix, after, limit }, Answer::Listing(listing)) => {
                let mut step = new("map_scan", proof);
                step.target = Some(Some(step.from.clone()));
                step.prefix = Some(prefix.clone());
                step.after = after.clone();
                step.limit = Some(Int(*limit));
                step.more = Some(listing.more);
                step
            }
            (Self::Key(path), Answer::Key(target)) => {
                let kind = match target {
                    None => "map_absence",
                    Some(_) if path.text() == PAYLOAD => "payload_binding",
                    Some(_) => "map_step",
                };
                let mut step = new(kind, proof);
                step.target = link(target);
                step.path = Some(MessageText(path.text().into()));
                step
            }
            (Self::Index(index), Answer::Element(element)) => {
                let mut step = new("list_index", proof);
                step.target = link(&element.target);
                step.index = Some(Int(*index));
                step.length = Some(Int(element.length));
                step
            }
            // `ask` never yields an answer of another kind; no verifier accepts this step.
            _ => new("", proof),
        }
    }

    /// Checks a step that was received, and returns the answer that it proves.
    ///
    /// # Errors
    /// [`Error::Proof`] with the step's index.
    pub(crate) fn check(&self, index: usize, sent: &Step<'_>, root: &RootCid) -> Result<Answer> {
        self.check_asked(self.ask(), index, sent, root)
    }

    /// As [`Question::check`], given the query that [`Question::ask`] returned.
    pub(crate) fn check_asked(
        &self,
        ask: Result<Ask>,
        index: usize,
        sent: &Step<'_>,
        root: &RootCid,
    ) -> Result<Answer> {
        let check = || {
            let proof = sent.proof.decode()?;
            let answer = verify::replay(root, ask?, &proof, self.proof_limit())?;
            match self.step(root, &answer, Proof::Bytes(proof.into())).difference(sent) {
                None => Ok(answer),
                Some(member) => {
                    Err(Error::proof(format!("member {member:?} does not match the request and the proof")))
                }
            }
        };
        check().map_err(|error| error.in_step(index))
    }
}
