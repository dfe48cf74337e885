//! The diff of two held maps as an operation: from its parameters to response JSON, and the check of that response.

use std::sync::Arc;

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};

use crate::json::objects;
use crate::messages as msg;
use crate::ops::{Need, not_held};
use crate::question::MAX_ENTRIES;
use crate::writing::{self, json};
use coregw_core::Digest;
use coregw_core::Window;
use coregw_core::internals::diff::{self, DiffQuery, Differences};
use coregw_core::internals::prove::Progress;
use coregw_core::verify;
use coregw_core::{Cid, Kind, RootCid};
use coregw_core::{Error, Result};
use coregw_core::{NodeSource, Page, PageCache};

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct Entry {
    segments: Vec<String>,
    #[serde(default, deserialize_with = "msg::given", skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    #[serde(default, deserialize_with = "msg::given", skip_serializing_if = "Option::is_none")]
    after: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct Proofs {
    a: String,
    b: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct DiffResult {
    entries: Vec<Entry>,
    more: bool,
    proofs: Proofs,
}

objects! {
    read: Entry, Proofs, DiffResult;
    written: Entry, Proofs, DiffResult;
}

/// What is asked: two maps, a window of keys, and how many differences to give at most.
#[derive(Debug, Clone)]
pub struct DiffRequest {
    roots: [RootCid; 2],
    window: Window,
    limit: usize,
}

impl DiffRequest {
    /// Checks the parameters. `limit` is from 1 to 1000.
    ///
    /// # Errors
    /// [`Error::Input`] for roots that are no maps or not of one suite, or another limit.
    pub fn new(a: &Cid, b: &Cid, window: Window, limit: u64) -> Result<Self> {
        let roots = [RootCid::of(a, Kind::Map)?, RootCid::of(b, Kind::Map)?];
        diff::check_roots([&roots[0], &roots[1]])?;
        if !(1..=MAX_ENTRIES).contains(&limit) {
            return Err(Error::request("limit: it is from 1 to 1000"));
        }
        Ok(Self { roots, window, limit: limit as usize })
    }

    /// Checks a response: the differences are all there are, and whether more follow.
    ///
    /// # Errors
    /// [`Error::Proof`] for anything wrong in it; its step is 0 for the first map's proof, 1 for the second's.
    pub fn verify(&self, response: &[u8]) -> Result<Differences> {
        let sent: DiffResult = msg::result(response)?;
        let decode = |text: &str, step: usize| {
            let fail = |error| Error::proof(format!("it is not canonical base64: {error}")).in_step(step);
            writing::decode(text).map_err(fail)
        };
        let proofs = [decode(&sent.proofs.a, 0)?, decode(&sent.proofs.b, 1)?];
        let roots = [&self.roots[0], &self.roots[1]];
        let proofs = [&proofs[0][..], &proofs[1][..]];
        let limit = verify::WIDE_PROOF_LIMIT;
        let found = diff::verify_diff(roots, self.window.clone(), self.limit, proofs, limit)?;
        if sent.entries != entries(&found) {
            return Err(Error::proof("the result's member \"entries\" is not what is proven"));
        }
        if sent.more != found.more {
            return Err(Error::proof("the result's member \"more\" is not what is proven"));
        }
        Ok(found)
    }
}

fn entries(found: &Differences) -> Vec<Entry> {
    let text = |cid: &Option<Cid>| cid.as_ref().map(Cid::text);
    let entry =
        |d: &diff::Difference| Entry { segments: d.segments.clone(), before: text(&d.before), after: text(&d.after) };
    found.entries.iter().map(entry).collect()
}

/// The operation on its way.
pub(crate) struct Diffing {
    request: DiffRequest,
    held: Option<[bool; 2]>,
    query: Option<DiffQuery>,
    wanted: Vec<Digest>,
}

impl Diffing {
    pub(crate) fn new(request: DiffRequest) -> Self {
        Self { request, held: None, query: None, wanted: Vec::new() }
    }

    /// A need, or the response.
    pub(crate) fn run(&mut self, cache: &Arc<PageCache>, budget: u64) -> Result<std::result::Result<String, Need>> {
        let [a, b] = &self.request.roots;
        let known = || Some([cache.is_held(a)?, cache.is_held(b)?]);
        let Some(held) = self.held.or_else(known) else {
            return Ok(Err(Need::Roots(self.request.roots.to_vec())));
        };
        if let Some(i) = held.iter().position(|held| !held) {
            return Err(not_held(&self.request.roots[i]));
        }
        let query = self.query.get_or_insert_with(|| {
            let source = Arc::clone(cache) as Arc<dyn NodeSource>;
            DiffQuery::open(self.request.roots, &source, self.request.window.clone(), self.request.limit)
        });
        match query.run(budget)? {
            Progress::Budget => return Ok(Err(Need::Budget)),
            Progress::Pages(digests) => {
                self.wanted.clone_from(&digests);
                return Ok(Err(Need::Pages(digests)));
            }
            Progress::Done => {}
        }
        let (found, [a, b]) = query.answer().ok_or_else(|| Error::damaged("a diff ended without an answer"))?;
        let proofs = Proofs { a: BASE64.encode(&a), b: BASE64.encode(&b) };
        Ok(Ok(json(&DiffResult { entries: entries(&found), more: found.more, proofs })))
    }

    pub(crate) fn supply_roots(&mut self, held: &[bool]) -> Result<()> {
        let held = held.try_into().map_err(|_| Error::request("two roots were asked for"))?;
        self.held = Some(held);
        Ok(())
    }

    pub(crate) fn supply_pages<B: AsRef<[u8]>>(&mut self, cache: &PageCache, pages: &[Option<B>]) -> Result<()> {
        let Some(query) = &mut self.query else {
            return Err(Error::request("no pages were asked for"));
        };
        query.supply(&Page::parse_all(cache, &self.request.roots[0], &std::mem::take(&mut self.wanted), pages)?);
        Ok(())
    }
}
