//! Import: the trees and payloads of a CAR, checked and stored, all or nothing.

use std::collections::HashSet;
use std::sync::Arc;

use coregw_core::{Cid, Error, PageCache, Result};
use serde::Serialize;

use super::check::{WholeTrees, check};
use super::leaves;
use super::pages::PageMaker;
use super::reader::CarReader;
use crate::json::{self, objects};
use crate::run::{Operation, Slot};
use crate::trees::{MAX_STORE_BYTES, Trees};

/// Payloads to store at once; the store takes some 3 KiB of memory for each.
const PAYLOADS_AT_ONCE: usize = 1024;
/// Bytes of payloads to store at once; a longer payload is stored alone.
const PAYLOAD_BYTES_AT_ONCE: u64 = 4 << 20;
/// Root records to store at once.
const ROOTS_AT_ONCE: usize = 4096;

#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
struct ImportResult {
    roots: Vec<String>,
    blocks: u32,
    bytes: u64,
}

#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
struct CheckResult {
    roots: Vec<String>,
    missing_payloads: u64,
    missing_roots: u64,
}

objects! {
    written: ImportResult, CheckResult;
}

impl Operation {
    /// Stores a CAR whose bytes `reader` has read: its payloads, then its pages, then the records of its roots and of
    /// the roots nested in them whose nodes it contains. The records of the header's roots come last.
    ///
    /// The operation fails with [`Error::Input`], naming the block and having stored nothing, if the CAR is truncated or
    /// its nodes do not form complete trees.
    pub fn import_car(cache: Arc<PageCache>, reader: CarReader) -> Self {
        Self::new(|slot| {
            slot.set_held_bytes(reader.held_bytes());
            import(Trees { cache, slot }, reader)
        })
    }

    /// Checks a CAR whose bytes `reader` has read, and stores nothing: `{roots, missing_payloads, missing_roots}` as
    /// JSON, the roots of complete trees, and the numbers of leaves whose payload or nested root is not in the CAR.
    ///
    /// The operation fails as an import does.
    pub fn check_car(reader: CarReader) -> Self {
        Self::new(|slot| check_only(slot, reader))
    }

    /// Checks a CAR as [`Operation::check_car`] does, and then lists the leaves of each tree ([`Need::Leaves`]), those
    /// of the header's roots last.
    ///
    /// A few blocks can represent a list of 2^50 elements: the caller drops the operation when it has enough of them.
    ///
    /// [`Need::Leaves`]: crate::Need::Leaves
    pub fn list_car(reader: CarReader) -> Self {
        Self::new(|slot| list(slot, reader))
    }
}

async fn check_only(slot: Arc<Slot>, reader: CarReader) -> Result<Vec<u8>> {
    let (roots, index) = reader.finish()?;
    Ok(check_result(&check(slot, &roots, index).await?))
}

async fn list(slot: Arc<Slot>, reader: CarReader) -> Result<Vec<u8>> {
    let (roots, index) = reader.finish()?;
    let mut trees = check(Arc::clone(&slot), &roots, index).await?;
    let named: HashSet<_> = roots.iter().filter_map(Cid::root).collect();
    let (last, first): (Vec<_>, Vec<_>) = trees.found.iter().partition(|&&top| named.contains(&trees.root(top)));
    for top in first.into_iter().chain(last) {
        leaves::list(&slot, &mut trees, top).await?;
    }
    Ok(check_result(&trees))
}

fn check_result(trees: &WholeTrees) -> Vec<u8> {
    let roots = trees.roots().map(|root| root.cid().text()).collect();
    let &WholeTrees { missing_payloads, missing_roots, .. } = trees;
    json::write(&CheckResult { roots, missing_payloads, missing_roots })
}

async fn import(trees: Trees, reader: CarReader) -> Result<Vec<u8>> {
    let (blocks, bytes) = (reader.blocks(), reader.bytes());
    let (roots, index) = reader.finish()?;
    let whole = check(Arc::clone(&trees.slot), &roots, index).await?;
    store_payloads(&trees.slot, &whole).await;
    store_trees(&trees, whole).await?;
    let roots = roots.iter().map(Cid::text).collect();
    Ok(json::write(&ImportResult { roots, blocks, bytes }))
}

async fn store_payloads(slot: &Slot, whole: &WholeTrees) {
    let (mut blocks, mut bytes) = (Vec::new(), 0);
    for record in &whole.index.payloads {
        let len = u64::from(record.len);
        if blocks.len() == PAYLOADS_AT_ONCE || (bytes + len > PAYLOAD_BYTES_AT_ONCE && !blocks.is_empty()) {
            slot.payloads(std::mem::take(&mut blocks)).await;
            bytes = 0;
        }
        blocks.push(record.offset..record.offset + len);
        bytes += len;
    }
    if !blocks.is_empty() {
        slot.payloads(blocks).await;
    }
}

/// Stores all pages, then the records of all roots, those of the header last.
async fn store_trees(trees: &Trees, whole: WholeTrees) -> Result<()> {
    let roots: Vec<_> = whole.roots().collect();
    let mut pages = PageMaker::new(whole);
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(page) = pages.next().await? {
        bytes += page.1.len();
        if bytes > MAX_STORE_BYTES && !batch.is_empty() {
            trees.slot.store(std::mem::take(&mut batch), Vec::new(), Vec::new()).await;
            bytes = page.1.len();
        }
        batch.push(page);
    }
    for roots in roots.rchunks(ROOTS_AT_ONCE) {
        trees.record(std::mem::take(&mut batch), roots, &[]).await;
    }
    match batch.is_empty() {
        true => Ok(()),
        false => Err(Error::damaged("a CAR has pages but no roots")),
    }
}
