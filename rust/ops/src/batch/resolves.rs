//! Resolve batch (protocol section 5, *batches*): many paths of one root, which share what is fetched.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use coregw_core::{Error, InputCode, Missing, PageCache, Result};
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};

use super::error::BatchError;
use crate::join::{ForEach, join};
use crate::json::{self, array, objects};
use crate::message::path::Segments;
use crate::message::{self, Profile, root_member};
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
    read: ResolveBatchRequest<'a>;
    written: FoundItem<'a>, FailedItem<'a>, PathError<'a>;
}

/// The limit on the paths of one batch.
const MAX_PATHS: usize = 1000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct ResolveBatchRequest<'a> {
    #[serde(borrow)]
    root: Cow<'a, str>,
    #[serde(deserialize_with = "paths")]
    paths: Vec<Segments>,
}

fn paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Segments>, D::Error> {
    array(deserializer, "paths", MAX_PATHS, InputCode::TooLarge)
}

impl ResolveBatchRequest<'_> {
    fn requests(self) -> Result<Vec<Resolve>, BatchError> {
        let root = root_member(&self.root)?;
        let request = |(index, Segments(path)): (usize, Segments)| match path {
            Ok(path) => Ok(Resolve { profile: Profile::RESOLVE.default_spelling(), root, path }),
            Err(error) => Err(BatchError::of_item("paths", index, error)),
        };
        self.paths.into_iter().enumerate().map(request).collect()
    }
}

impl Operation {
    /// Answers a batch of resolves, `{"root": cid, "paths": [[segment, ...], ...]}`: the outcome of each path is what a
    /// resolve of that path alone would have answered.
    ///
    /// The operation fails with [`Error::Input`] if a path continues from a root that is a payload, or the outcomes are
    /// longer than `max_bytes` together. The nodes of [`Operation::limit_nodes`] are for all paths together.
    ///
    /// # Errors
    /// [`Error::Input`] if the request is malformed or has more than 1,000 paths.
    pub fn resolve_batch(
        cache: Arc<PageCache>,
        request: &[u8],
        max_bytes: usize,
        for_each: ForEach,
    ) -> Result<Self, BatchError> {
        let request: ResolveBatchRequest<'_> = message::request(request)?;
        let requests = request.requests()?;
        Ok(Self::new(|slot| resolve_batch(cache, slot, requests, max_bytes, for_each)))
    }
}

async fn resolve_batch(
    cache: Arc<PageCache>,
    slot: Arc<Slot>,
    requests: Vec<Resolve>,
    max_bytes: usize,
    for_each: ForEach,
) -> Result<Vec<u8>> {
    let room = Arc::new(Room { limit: max_bytes, left: AtomicUsize::new(max_bytes) });
    let start = |request| {
        let (cache, room) = (Arc::clone(&cache), Arc::clone(&room));
        Operation::part_of(&slot, |slot| outcome(Trees { cache, slot }, request, room))
    };
    let outcomes = join(&slot, requests, start, for_each).await?;
    let mut body = Vec::with_capacity(outcomes.iter().map(|item| item.len() + 1).sum::<usize>() + 16);
    body.extend_from_slice(b"{\"results\":[");
    for (index, item) in outcomes.into_iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&item);
    }
    body.extend_from_slice(b"]}");
    Ok(body)
}

/// Bytes that outcomes may have together.
struct Room {
    limit: usize,
    left: AtomicUsize,
}

/// Resolves one path, as an item of the response.
async fn outcome(trees: Trees, request: Resolve, room: Arc<Room>) -> Result<Vec<u8>> {
    let write = |result: ResolveResult<'_>| json::write(&FoundItem { result });
    let item = match resolve(trees, request, write).await {
        Ok(item) => item,
        Err(error) => failed_item(error)?,
    };
    // Each item is followed by a comma or the end.
    let taken = room.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(item.len() + 1));
    match taken {
        Ok(_) => Ok(item),
        Err(_) => {
            let what = format!("the results are longer than {} bytes; send fewer paths in one batch", room.limit);
            Err(Error::input(InputCode::TooLarge, what))
        }
    }
}

/// The item for an error that concerns one path alone.
///
/// # Errors
/// Any other error, which ends the batch.
fn failed_item(error: Error) -> Result<Vec<u8>> {
    let code = match &error {
        Error::NotFound { missing: Missing::Root, .. } => "root_not_found",
        Error::NotFound { .. } => "path_not_found",
        _ => return Err(error),
    };
    Ok(json::write(&FailedItem { error: PathError { error: code, message: error.to_string() } }))
}
