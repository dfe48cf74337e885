//! Scan (protocol section 5): one page of a map's listing.

use std::borrow::Cow;
use std::sync::Arc;

use coregw_core::Answer;
use coregw_core::map::Listing;
use coregw_core::{Cid, Error, Kind, PageCache, Result, RootCid};
use serde::{Deserialize, Serialize};

use crate::json::{self, objects};
use crate::message::path::Segments;
use crate::message::prooflist::ProofList;
use crate::message::question::{MAX_ENTRIES, Question};
use crate::message::{self, Int, Profile, check_member, present, root_of_kind};
use crate::run::Operation;
use crate::trees::Trees;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct ScanRequest<'a> {
    #[serde(borrow)]
    profile: Cow<'a, str>,
    #[serde(borrow)]
    root: Cow<'a, str>,
    prefix: Segments,
    #[serde(default, deserialize_with = "present")]
    after: Option<Segments>,
    #[serde(default, deserialize_with = "present")]
    limit: Option<Int>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct ScanEntry {
    segments: Vec<String>,
    target: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct ScanResult<'a> {
    #[serde(borrow)]
    profile: Cow<'a, str>,
    entries: Vec<ScanEntry>,
    more: bool,
    #[serde(borrow)]
    prooflist: ProofList<'a>,
}

objects! {
    read: ScanRequest<'a>, ScanEntry, ScanResult<'a>;
    written: ScanEntry, ScanResult<'a>;
}

/// A scan request: the map, and the page of its listing.
#[derive(Debug, Clone)]
struct Scan {
    /// As the request spells it.
    profile: &'static str,
    root: RootCid,
    question: Question,
}

impl Scan {
    fn parse(body: &[u8]) -> Result<Self> {
        let request: ScanRequest<'_> = message::request(body)?;
        let profile = Profile::SCAN.spelling(&request.profile)?;
        let root = root_of_kind(&request.root, Kind::Map)?;
        let limit = checked_limit(request.limit.map_or(MAX_ENTRIES, |limit| limit.0))?;
        let prefix = request.prefix.path("prefix")?;
        let after = request.after.map(|after| after.path("after")).transpose()?;
        let question = Question::Scan { prefix, after, limit };
        question.ask()?;
        Ok(Self { profile, root, question })
    }
}

/// Checks the number of entries in one page of a listing or of differences.
pub(crate) fn checked_limit(limit: u64) -> Result<u64> {
    match limit {
        1..=MAX_ENTRIES => Ok(limit),
        other => Err(Error::request(format!("limit: {other} is not from 1 to {MAX_ENTRIES}"))),
    }
}

fn entries(listing: &Listing) -> Vec<ScanEntry> {
    let entry =
        |(segments, target): &(Vec<String>, Cid)| ScanEntry { segments: segments.clone(), target: target.text() };
    listing.entries.iter().map(entry).collect()
}

impl Operation {
    /// Answers a `core.scan` request.
    ///
    /// # Errors
    /// [`Error::Input`] if the request is malformed. The operation itself fails with [`Error::NotFound`] if the root is
    /// not held.
    pub fn scan(cache: Arc<PageCache>, request: &[u8]) -> Result<Self> {
        let request = Scan::parse(request)?;
        Ok(Self::new(|slot| scan(Trees { cache, slot }, request)))
    }
}

async fn scan(trees: Trees, request: Scan) -> Result<String> {
    let ask = request.question.ask()?;
    trees.check_held_before(&[request.root], || ask.starts()).await?;
    let (answer, proof) = trees.answer(&request.root, ask).await?;
    let prooflist = request.question.prooflist(&request.root, &answer, proof);
    let Answer::Listing(listing) = &answer else {
        return Err(Error::damaged("a scan ended without a listing"));
    };
    let (entries, more) = (entries(listing), listing.more);
    Ok(json::write(&ScanResult { profile: request.profile.into(), entries, more, prooflist }))
}

/// Checks one page of a listing, and returns it with its proof: its entries are all there are, and whether more follow.
///
/// O(depth + entries) hashes.
///
/// # Errors
/// [`Error::Input`] if the request is malformed; [`Error::Proof`] for anything wrong in the result.
pub fn verify_scan(request: &[u8], result: &[u8]) -> Result<(Listing, Vec<u8>)> {
    let request = Scan::parse(request)?;
    let sent: ScanResult<'_> = message::result(result)?;
    check_member("profile", &&*sent.profile, &request.profile)?;
    sent.prooflist.check_frame(&request.root.cid(), &request.question.text())?;
    let step = sent.prooflist.only_step()?;
    let Answer::Listing(listing) = request.question.check(0, step, &request.root)? else {
        return Err(Error::proof("the answer is of another kind"));
    };
    check_member("entries", &sent.entries, &entries(&listing))?;
    check_member("more", &sent.more, &listing.more)?;
    let proof = step.proof.decode()?;
    Ok((listing, proof))
}
