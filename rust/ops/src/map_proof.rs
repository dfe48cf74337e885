//! Map proof (protocol section 5): the membership or absence of a key.

use std::borrow::Cow;
use std::sync::Arc;

use coregw_core::Answer;
use coregw_core::{Cid, Error, Kind, PageCache, Result, RootCid};
use serde::{Deserialize, Serialize};

use crate::json::{self, objects};
use crate::message::prooflist::ProofList;
use crate::message::question::Question;
use crate::message::{self, check_member, check_profile, present, root_of_kind};
use crate::run::Operation;
use crate::trees::Trees;

const PROFILE: &str = "core.map-proof/v0alpha1";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct MapProofRequest<'a> {
    #[serde(borrow)]
    profile: Cow<'a, str>,
    #[serde(borrow)]
    root: Cow<'a, str>,
    key: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct MapProofResult<'a> {
    #[serde(borrow)]
    profile: Cow<'a, str>,
    present: bool,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(borrow)]
    prooflist: ProofList<'a>,
}

objects! {
    read: MapProofRequest<'a>, MapProofResult<'a>;
    written: MapProofResult<'a>;
}

/// A map-proof request: the map, and the key.
#[derive(Debug, Clone)]
struct MapProof {
    root: RootCid,
    question: Question,
}

impl MapProof {
    fn parse(body: &[u8]) -> Result<Self> {
        let request: MapProofRequest<'_> = message::request(body)?;
        check_profile(&request.profile, PROFILE)?;
        let root = root_of_kind(&request.root, Kind::Map)?;
        let question = Question::Key(request.key);
        question.ask().map_err(|error| error.within("key"))?;
        Ok(Self { root, question })
    }
}

impl Operation {
    /// Answers a `core.map-proof` request.
    ///
    /// # Errors
    /// [`Error::Input`] if the request is malformed. The operation itself fails with [`Error::NotFound`] if the root is
    /// not held; an absent key is an answer.
    pub fn map_proof(cache: Arc<PageCache>, request: &[u8]) -> Result<Self> {
        let request = MapProof::parse(request)?;
        Ok(Self::new(|slot| map_proof(Trees { cache, slot }, request)))
    }
}

async fn map_proof(trees: Trees, request: MapProof) -> Result<String> {
    trees.check_held(&[request.root]).await?;
    let (answer, proof) = trees.answer(&request.root, request.question.ask()?).await?;
    let prooflist = request.question.prooflist(&request.root, &answer, proof);
    let target = if let Answer::Key(target) = answer { target.map(|cid| cid.text()) } else { None };
    Ok(json::write(&MapProofResult { profile: PROFILE.into(), present: target.is_some(), target, prooflist }))
}

/// Checks a map proof: returns the target, or `None` if the key is proven absent. O(depth) hashes.
///
/// # Errors
/// [`Error::Input`] if the request is malformed; [`Error::Proof`] for anything wrong in the result.
pub fn verify_map_proof(request: &[u8], result: &[u8]) -> Result<Option<Cid>> {
    let request = MapProof::parse(request)?;
    let sent: MapProofResult<'_> = message::result(result)?;
    check_member("profile", &&*sent.profile, &PROFILE)?;
    sent.prooflist.check_frame(&request.root.cid(), &request.question.text())?;
    let Answer::Key(target) = request.question.check(0, sent.prooflist.only_step()?, &request.root)? else {
        return Err(Error::proof("the answer is of another kind"));
    };
    check_member("present", &sent.present, &target.is_some())?;
    check_member("target", &sent.target, &target.map(|cid| cid.text()))?;
    Ok(target)
}
