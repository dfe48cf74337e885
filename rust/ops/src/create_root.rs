//! Create root (protocol section 5): a new map of arcs.

use std::sync::Arc;

use coregw_core::{Arcs, MapBuilder, PageCache, Result, Suite, Workers, map};
use serde::Serialize;

use crate::json::{self, objects};
use crate::run::Operation;
use crate::trees::{MAX_STORE_BYTES, Trees};

/// Arcs in key order, from wherever they were sorted.
pub trait SortedArcs: Send {
    /// Gives the next arcs to `builder`, about `count`. Returns whether more follow.
    ///
    /// # Errors
    /// The builder's errors; [`coregw_core::Error::Damaged`] if the arcs cannot be read.
    fn push_next(&mut self, builder: &mut MapBuilder, count: usize) -> Result<bool>;

    /// The bytes of memory that this takes. O(runs) if they are merged from sorted runs.
    fn held_bytes(&self) -> usize;
}

/// Arcs that are built into a tree between two checks of the budget.
const ARCS_AT_ONCE: usize = 1024;

#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
struct CreateRootResult {
    root: String,
}

objects! {
    written: CreateRootResult;
}

impl Operation {
    /// Stores the map of a request `{"arcs": {path: cid}, "suite"?: name}`, whose subtrees `workers` build. O(n log n).
    ///
    /// # Errors
    /// [`coregw_core::Error::Input`], naming the arc, if the request is malformed.
    pub fn create_root(cache: Arc<PageCache>, request: &[u8], workers: &'static dyn Workers) -> Result<Self> {
        let (arcs, suite) = json::create_root(request)?;
        // The pages of all arcs are in memory at the same time, and take about as much as keys, targets and a few bytes for
        // each node.
        let held = 2 * arcs.held_bytes();
        Ok(Self::new(|slot| {
            slot.set_held_bytes(held);
            create_root(Trees { cache, slot }, arcs, suite, workers)
        }))
    }

    /// Stores the map of sorted arcs, in memory for some pages: its pages as they are complete, and its record at the end.
    /// O(n) hashing.
    ///
    /// The operation fails with [`coregw_core::Error::Input`], naming the path, if two arcs have the same one; pages may
    /// be stored then, but no record.
    pub fn build_root(cache: Arc<PageCache>, suite: Suite, arcs: Box<dyn SortedArcs>) -> Self {
        Self::new(|slot| {
            slot.set_held_bytes(arcs.held_bytes());
            build_root(Trees { cache, slot }, suite, arcs)
        })
    }
}

async fn build_root(trees: Trees, suite: Suite, mut arcs: Box<dyn SortedArcs>) -> Result<Vec<u8>> {
    let mut builder = MapBuilder::new(suite);
    let (mut pages, mut bytes) = (Vec::new(), 0);
    while arcs.push_next(&mut builder, ARCS_AT_ONCE)? {
        let complete = builder.take_pages();
        bytes += complete.iter().map(|(_, page)| page.len()).sum::<usize>();
        pages.extend(complete);
        if bytes >= MAX_STORE_BYTES {
            trees.slot.store(std::mem::take(&mut pages), Vec::new(), Vec::new()).await;
            bytes = 0;
        }
        trees.slot.set_held_bytes(arcs.held_bytes() + builder.held_bytes() + bytes);
        trees.spend(2 * ARCS_AT_ONCE as u64).await?;
    }
    let map::NewMap { root, pages: last, .. } = builder.finish()?;
    pages.extend(last);
    trees.store(pages, &[root], &[]).await;
    Ok(json::write(&CreateRootResult { root: root.cid().text() }))
}

async fn create_root(trees: Trees, arcs: Arcs, suite: Suite, workers: &dyn Workers) -> Result<Vec<u8>> {
    let map::NewMap { root, pages, .. } = map::build_pages(suite, arcs, workers)?;
    trees.store_unless_held(pages, &[root], &[]).await;
    Ok(json::write(&CreateRootResult { root: root.cid().text() }))
}
