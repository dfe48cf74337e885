//! Map proof (protocol section 5): the membership or absence of a key, or of several keys with one multiproof.

use std::borrow::Cow;
use std::sync::Arc;

use coregw_core::{Answer, Ask};
use coregw_core::{Cid, Error, Kind, PageCache, Result, RootCid};
use serde::{Deserialize, Serialize};

use crate::json::{self, objects};
use crate::message::path::{Segments, SegmentsOfPaths};
use crate::message::prooflist::{CidText, ProofList, keys};
use crate::message::question::Question;
use crate::message::{self, Profile, check_member, present, root_of_kind};
use crate::run::Operation;
use crate::trees::{Trees, answer_bytes};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct MapProofRequest<'a> {
    #[serde(borrow)]
    profile: Cow<'a, str>,
    #[serde(borrow)]
    root: Cow<'a, str>,
    #[serde(default, deserialize_with = "present")]
    key: Option<Segments>,
    #[serde(default, deserialize_with = "keys")]
    keys: Option<SegmentsOfPaths>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct MapProofResult<'a> {
    #[serde(borrow)]
    profile: Cow<'a, str>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    present: Option<bool>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(borrow, default, deserialize_with = "keys", skip_serializing_if = "Option::is_none")]
    targets: Option<Vec<Option<CidText<'a>>>>,
    #[serde(borrow)]
    prooflist: ProofList<'a>,
}

objects! {
    read: MapProofRequest<'a>, MapProofResult<'a>;
    written: MapProofResult<'a>;
}

impl<'a> MapProofResult<'a> {
    /// The result that states an answer.
    fn new(profile: &'static str, answer: &'a Answer, prooflist: ProofList<'a>) -> Self {
        let (mut present, mut target, mut targets) = (None, None, None);
        match answer {
            Answer::Keys(found) => targets = Some(found.iter().map(|cid| cid.as_ref().map(CidText::Cid)).collect()),
            Answer::Key(found) => {
                present = Some(found.is_some());
                target = found.map(|cid| cid.text());
            }
            _ => {}
        }
        Self { profile: profile.into(), present, target, targets, prooflist }
    }

    /// Checks that this result, which was received, states `answer`.
    fn check(&self, profile: &'static str, answer: &Answer) -> Result<()> {
        let proven = MapProofResult::new(profile, answer, ProofList::default());
        check_member("profile", &self.profile, &proven.profile)?;
        check_member("present", &self.present, &proven.present)?;
        check_member("target", &self.target, &proven.target)?;
        check_member("targets", &self.targets, &proven.targets)
    }
}

/// A map-proof request: the map, and the key or keys.
#[derive(Debug)]
struct MapProof {
    /// As the request spells it.
    profile: &'static str,
    root: RootCid,
    question: Question,
    /// The query that the question asks.
    ask: Ask,
}

impl MapProof {
    fn parse(body: &[u8]) -> Result<Self> {
        let request: MapProofRequest<'_> = message::request(body)?;
        let profile = Profile::MAP_PROOF.spelling(&request.profile)?;
        let root = root_of_kind(&request.root, Kind::Map)?;
        let question = match (request.key, request.keys) {
            (Some(key), None) => Question::Key(key.path("key")?),
            (None, Some(keys)) => Question::Keys(keys.paths("keys")?),
            _ => return Err(Error::request("exactly one of \"key\" and \"keys\" is required")),
        };
        let place = |error: Error| if let Question::Key(_) = question { error.within("key") } else { error };
        let ask = question.ask().map_err(place)?;
        Ok(Self { profile, root, question, ask })
    }
}

/// The form of the response to a map-proof request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapProofForm {
    /// The result, in JSON, which states the answer and contains the proof.
    Result,
    /// The bytes of the proof alone. A verifier computes the answer from them.
    Proof,
}

impl Operation {
    /// Answers a `core.map-proof` request in one of two forms.
    ///
    /// # Errors
    /// [`Error::Input`] if the request is malformed. The operation itself fails with [`Error::NotFound`] if the root is
    /// not held; an absent key is an answer.
    pub fn map_proof(cache: Arc<PageCache>, request: &[u8], form: MapProofForm) -> Result<Self> {
        let request = MapProof::parse(request)?;
        Ok(Self::new(|slot| map_proof(Trees { cache, slot }, request, form)))
    }
}

async fn map_proof(trees: Trees, request: MapProof, form: MapProofForm) -> Result<Vec<u8>> {
    let MapProof { profile, root, question, ask } = request;
    trees.check_held_before(&[root], || ask.starts()).await?;
    if form == MapProofForm::Proof {
        return trees.prove(&root, ask).await;
    }
    let (answer, proof) = trees.answer(&root, ask).await?;
    let bytes = proof.len() / 3 * 4 + answer_bytes(&answer);
    let prooflist = question.prooflist(&root, &answer, &proof[..]);
    Ok(json::write_long(&MapProofResult::new(profile, &answer, prooflist), bytes))
}

/// What a map proof proves: the target of the key, or of each key in the order of the request. `None` if it is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapProofOutcome {
    /// The answer to a request with `key`.
    Key(Option<Cid>),
    /// The answer to a request with `keys`.
    Keys(Vec<Option<Cid>>),
}

/// Checks a map proof, and returns what it proves. O(shown nodes) hashes.
///
/// # Errors
/// [`Error::Input`] if the request is malformed; [`Error::Proof`] for anything wrong in the result.
pub fn verify_map_proof(request: &[u8], result: &[u8]) -> Result<MapProofOutcome> {
    let MapProof { profile, root, question, ask } = MapProof::parse(request)?;
    let sent: MapProofResult<'_> = message::result(result)?;
    sent.prooflist.check_frame(&root.cid(), &question.text())?;
    let answer = question.check_asked(Ok(ask), 0, sent.prooflist.only_step()?, &root)?;
    sent.check(profile, &answer)?;
    match answer {
        Answer::Key(target) => Ok(MapProofOutcome::Key(target)),
        Answer::Keys(targets) => Ok(MapProofOutcome::Keys(targets)),
        _ => Err(Error::proof("the answer is of another kind")),
    }
}
