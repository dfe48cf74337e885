//! Resolve batch (protocol section 5, *batches*): many paths of one root, which share what is fetched.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use coregw_core::{Cid, Error, InputCode, Missing, PageCache, Result};
use serde::Serialize;

use crate::join::{ForEach, join};
use crate::json::{self, objects};
use crate::resolve::{Resolve, ResolveResult, resolve};
use crate::run::{Operation, Slot};
use crate::trees::Trees;

#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
struct FoundItem<'a> {
    result: ResolveResult<'a>,
}

#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
struct FailedItem<'a> {
    error: PathError<'a>,
}

#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
struct PathError<'a> {
    error: &'a str,
    message: String,
}

objects! {
    written: FoundItem<'a>, FailedItem<'a>, PathError<'a>;
}

/// The limits of one batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchLimits {
    /// Look-ups for each path.
    pub lookups: usize,
    /// Bytes of all outcomes together.
    pub bytes: usize,
}

/// The paths of a batch, each checked when it is added.
#[derive(Debug, Clone)]
pub struct BatchPaths {
    root: Cid,
    paths: Vec<Resolve>,
}

impl BatchPaths {
    /// A batch of paths from `root`.
    pub fn new(root: Cid) -> Self {
        Self { root, paths: Vec::new() }
    }

    /// Adds a path.
    ///
    /// # Errors
    /// [`Error::Input`] if a segment is invalid.
    pub fn add(&mut self, segments: Vec<String>) -> Result<()> {
        self.paths.push(Resolve::new(self.root, segments)?);
        Ok(())
    }
}

impl Operation {
    /// Resolves each path; its outcome is what a resolve of that path alone would have answered.
    ///
    /// The operation fails with [`Error::Input`] if a path continues from a root that is a payload, or the outcomes are
    /// longer than the limit.
    pub fn resolve_batch(cache: Arc<PageCache>, batch: BatchPaths, limits: BatchLimits, for_each: ForEach) -> Self {
        Self::new(|slot| resolve_batch(cache, slot, batch, limits, for_each))
    }
}

async fn resolve_batch(
    cache: Arc<PageCache>,
    slot: Arc<Slot>,
    batch: BatchPaths,
    limits: BatchLimits,
    for_each: ForEach,
) -> Result<String> {
    let room = Arc::new(AtomicUsize::new(limits.bytes));
    let start = |request| {
        let (cache, room) = (Arc::clone(&cache), Arc::clone(&room));
        Operation::new(|slot| outcome(Trees { cache, slot }, request, limits, room))
    };
    let outcomes = join(&slot, batch.paths, start, for_each).await?;
    let mut body = String::with_capacity(outcomes.iter().map(|item| item.len() + 1).sum::<usize>() + 16);
    body.push_str("{\"results\":[");
    for (index, item) in outcomes.iter().enumerate() {
        if index > 0 {
            body.push(',');
        }
        body.push_str(item);
    }
    body.push_str("]}");
    Ok(body)
}

/// Resolves one path, as an item of the response.
async fn outcome(trees: Trees, request: Resolve, limits: BatchLimits, room: Arc<AtomicUsize>) -> Result<String> {
    let write = |result: ResolveResult<'_>| json::write(&FoundItem { result });
    let item = match resolve(trees, request, limits.lookups, write).await {
        Ok(item) => item,
        Err(error) => failed_item(error)?,
    };
    // Each item is followed by a comma or the end.
    let taken = room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(item.len() + 1));
    match taken {
        Ok(_) => Ok(item),
        Err(_) => {
            let what = format!("the results are longer than {} bytes; send fewer paths in one batch", limits.bytes);
            Err(Error::input(InputCode::TooLarge, what))
        }
    }
}

/// The item for an error that concerns one path alone.
///
/// # Errors
/// Any other error, which ends the batch.
fn failed_item(error: Error) -> Result<String> {
    let code = match &error {
        Error::NotFound { missing: Missing::Root, .. } => "root_not_found",
        Error::NotFound { .. } => "path_not_found",
        Error::Input { code: code @ InputCode::TooLarge, .. } => code.as_str(),
        _ => return Err(error),
    };
    Ok(json::write(&FailedItem { error: PathError { error: code, message: error.to_string() } }))
}
