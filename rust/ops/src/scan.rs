//! Scan (protocol section 5): one page of a map's listing.

use std::borrow::Cow;
use std::sync::Arc;

use coregw_core::Answer;
use coregw_core::map::Listing;
use coregw_core::{Cid, Error, Key, Kind, PageCache, Result, RootCid};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::{self, MessageText, objects};
use crate::message::path::Segments;
use crate::message::prooflist::{CidText, ProofList};
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

/// The path of an entry. Neither strings nor CIDs are copied to be written or compared: a page has thousands of them.
#[derive(Debug)]
enum EntryPath<'a> {
    Received(Vec<MessageText<'a>>),
    Listed(&'a Key),
}

impl EntryPath<'_> {
    fn segments(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let (received, listed) = match self {
            Self::Received(segments) => (&segments[..], None),
            Self::Listed(key) => (&[][..], Some(key.segments())),
        };
        received.iter().map(|segment| Cow::Borrowed(&*segment.0)).chain(listed.into_iter().flatten())
    }
}

impl PartialEq for EntryPath<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.segments().eq(other.segments())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for EntryPath<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::Received)
    }
}

impl Serialize for EntryPath<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.segments())
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct ScanEntry<'a> {
    #[serde(borrow)]
    segments: EntryPath<'a>,
    #[serde(borrow)]
    target: CidText<'a>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct ScanResult<'a> {
    #[serde(borrow)]
    profile: Cow<'a, str>,
    #[serde(borrow)]
    entries: Vec<ScanEntry<'a>>,
    more: bool,
    #[serde(borrow)]
    prooflist: ProofList<'a>,
}

objects! {
    read: ScanRequest<'a>, ScanEntry<'a>, ScanResult<'a>;
    written: ScanEntry<'a>, ScanResult<'a>;
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

fn entries(listing: &Listing) -> Vec<ScanEntry<'_>> {
    listing
        .entries
        .iter()
        .map(|(key, target)| ScanEntry { segments: EntryPath::Listed(key), target: CidText::Cid(target) })
        .collect()
}

/// About as many bytes as an entry is written in.
fn written_bytes((key, target): &(Key, Cid)) -> usize {
    // Two bytes of a key separate segments, and three of JSON.
    key.as_bytes().len() * 3 / 2 + target.as_bytes().len() / 5 * 8 + 40
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

async fn scan(trees: Trees, request: Scan) -> Result<Vec<u8>> {
    let ask = request.question.ask()?;
    trees.check_held_before(&[request.root], || ask.starts()).await?;
    let (answer, proof) = trees.answer(&request.root, ask).await?;
    let proof_bytes = proof.len();
    let prooflist = request.question.prooflist(&request.root, &answer, proof);
    let Answer::Listing(listing) = &answer else {
        return Err(Error::damaged("a scan ended without a listing"));
    };
    // A buffer that grows to hundreds of kilobytes is moved and cleared again and again.
    let bytes = proof_bytes / 3 * 4 + listing.entries.iter().map(written_bytes).sum::<usize>();
    let (entries, more) = (entries(listing), listing.more);
    Ok(json::write_long(&ScanResult { profile: request.profile.into(), entries, more, prooflist }, bytes))
}

/// Checks one page of a listing, and returns it with its proof: its entries are all there are, and whether more follow.
///
/// O(depth + entries) hashes.
///
/// # Errors
/// [`Error::Input`] if the request is malformed; [`Error::Proof`] for anything wrong in the result.
pub fn verify_scan(request: &[u8], result: &[u8]) -> Result<(Listing, Vec<u8>)> {
    verify(&Scan::parse(request)?, result)
}

/// Checks the page of the listing of a whole map that begins after this path, or at its start. As [`verify_scan`].
///
/// # Errors
/// Those of [`verify_scan`], and [`Error::Input`] if the request asks for anything else.
pub fn verify_page(root: &RootCid, after: Option<&[String]>, request: &[u8], result: &[u8]) -> Result<Listing> {
    let request = Scan::parse(request)?;
    if request.root != *root {
        return Err(Error::request(format!("root: {} is not the map {root} that is listed", request.root)));
    }
    let Question::Scan { prefix, after: asked, .. } = &request.question else {
        return Err(Error::request("a request of another kind"));
    };
    if !prefix.segments().is_empty() {
        return Err(Error::request("prefix: a part of the map, where all of it is listed"));
    }
    let is_next = match (asked, after) {
        (Some(asked), Some(after)) => asked.segments() == after,
        (asked, after) => asked.is_none() && after.is_none(),
    };
    if !is_next {
        let shown = |path: Option<String>| path.map_or_else(|| "the start".to_owned(), |path| format!("{path:.80?}"));
        let (asked, after) = (asked.as_ref().map(|path| path.text().to_owned()), after.map(|path| path.join("/")));
        let what =
            format!("after: the page begins at {}, not where the last one ended, {}", shown(asked), shown(after));
        return Err(Error::request(what));
    }
    Ok(verify(&request, result)?.0)
}

fn verify(request: &Scan, result: &[u8]) -> Result<(Listing, Vec<u8>)> {
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
