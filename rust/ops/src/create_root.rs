//! Create root (protocol section 5): a new map of arcs.

use std::sync::Arc;

use coregw_core::{Arcs, PageCache, Result, Suite, map};
use serde::Serialize;

use crate::json::{self, objects};
use crate::run::Operation;
use crate::trees::Trees;

#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
struct CreateRootResult {
    root: String,
}

objects! {
    written: CreateRootResult;
}

impl Operation {
    /// Stores the map of a request `{"arcs": {path: cid}, "suite"?: name}`. O(n log n).
    ///
    /// # Errors
    /// [`coregw_core::Error::Input`], naming the arc, if the request is malformed.
    pub fn create_root(cache: Arc<PageCache>, request: &[u8]) -> Result<Self> {
        let (arcs, suite) = json::create_root(request)?;
        Ok(Self::new(|slot| create_root(Trees { cache, slot }, arcs, suite)))
    }
}

async fn create_root(trees: Trees, arcs: Arcs, suite: Suite) -> Result<String> {
    let map::NewMap { root, pages, .. } = map::build_pages(suite, arcs)?;
    // The pages of a root that is held are stored already.
    if !trees.is_held(&root).await || !trees.are_renewed(&[root]).await {
        trees.store(pages, &[root], &[]).await;
    }
    Ok(json::write(&CreateRootResult { root: root.cid().text() }))
}
