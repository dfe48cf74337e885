//! Diff (protocol section 5): one page of the differences between two held maps.

use std::sync::Arc;

use base64_simd::STANDARD as BASE64;
use coregw_core::{
    Cid, DiffQuery, Difference, Differences, Error, Interrupt, Kind, PageCache, Result, RootCid, Window,
    check_same_suite, verify,
};
use serde::{Deserialize, Serialize};

use crate::json::{self, decode_base64, objects};
use crate::message::{self, present};
use crate::run::Operation;
use crate::scan::checked_limit;
use crate::trees::{Trees, entry_bytes};

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct DiffEntry {
    segments: Vec<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    after: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct DiffProofs {
    a: String,
    b: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct DiffResult {
    entries: Vec<DiffEntry>,
    more: bool,
    proofs: DiffProofs,
}

objects! {
    read: DiffEntry, DiffProofs, DiffResult;
    written: DiffEntry, DiffProofs, DiffResult;
}

/// The parameters of a diff: two maps, a window of keys, and the limit on differences.
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
    /// [`Error::Input`] if a CID is not the root of a map, the suites differ, or the limit is out of range.
    pub fn new(a: &Cid, b: &Cid, window: Window, limit: u64) -> Result<Self> {
        let roots = [RootCid::of(a, Kind::Map)?, RootCid::of(b, Kind::Map)?];
        check_same_suite([&roots[0], &roots[1]])?;
        Ok(Self { roots, window, limit: checked_limit(limit)? as usize })
    }

    /// Checks a response: its differences are all there are, and whether more follow. O(differences x depth) hashes.
    ///
    /// # Errors
    /// [`Error::Proof`] for anything wrong in it; its step is 0 for the first map's proof, 1 for the second's.
    pub fn verify(&self, response: &[u8]) -> Result<Differences> {
        let sent: DiffResult = message::result(response)?;
        let decode = |text: &str, step: usize| {
            let fail = |error| Error::proof(format!("it is not canonical base64: {error}")).in_step(step);
            decode_base64(text).map_err(fail)
        };
        let proofs = [decode(&sent.proofs.a, 0)?, decode(&sent.proofs.b, 1)?];
        let roots = [&self.roots[0], &self.roots[1]];
        let proofs = [&proofs[0][..], &proofs[1][..]];
        let found = verify::diff(roots, &self.window, self.limit, proofs, verify::WIDE_PROOF_LIMIT)?;
        message::check_member("entries", &sent.entries, &entries(&found))?;
        message::check_member("more", &sent.more, &found.more)?;
        Ok(found)
    }
}

fn entries(found: &Differences) -> Vec<DiffEntry> {
    let text = |cid: &Option<Cid>| cid.as_ref().map(Cid::text);
    let entry =
        |d: &Difference| DiffEntry { segments: d.segments.clone(), before: text(&d.before), after: text(&d.after) };
    found.entries.iter().map(entry).collect()
}

impl Operation {
    /// Finds the differences between two maps.
    ///
    /// The operation fails with [`Error::NotFound`] if one of the roots is not held.
    pub fn diff(cache: Arc<PageCache>, request: DiffRequest) -> Self {
        Self::new(|slot| diff(Trees { cache, slot }, request))
    }
}

async fn diff(trees: Trees, request: DiffRequest) -> Result<Vec<u8>> {
    // Differences may be anywhere between the start and the end, so only a start that leads past other pages is a key to
    // look for.
    let start = request.window.start();
    let keys = || if start.is_empty() { Vec::new() } else { vec![start.to_vec()] };
    trees.check_held_before(&request.roots, keys).await?;
    let mut query = DiffQuery::open(request.roots, &trees.source(), request.window, request.limit)?;
    let found = loop {
        let before = trees.slot.budget();
        let mut budget = before;
        let outcome = query.run(&mut budget);
        trees.slot.take(before.saturating_sub(budget))?;
        match outcome {
            Ok(found) => break found,
            Err(Interrupt::Failed(error)) => return Err(error),
            // The query asks for the pages of both trees at once; they are of one kind and suite.
            Err(Interrupt::Pages(missing)) => query.supply(&trees.load(&request.roots[0], missing).await),
            Err(Interrupt::Budget) => trees.slot.more_budget().await,
        }
    };
    let bytes = |entry: &Difference| entry_bytes(entry.segments.iter().map(String::len).sum());
    trees.spend_bytes(found.entries.iter().map(bytes).sum()).await?;
    let [a, b] = query.proofs();
    let proofs = DiffProofs { a: BASE64.encode_to_string(a), b: BASE64.encode_to_string(b) };
    Ok(json::write(&DiffResult { entries: entries(&found), more: found.more, proofs }))
}
