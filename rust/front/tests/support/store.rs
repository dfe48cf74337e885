//! A store in memory, and trees in it.
#![allow(dead_code, reason = "each test program uses only some of these items")]

use std::collections::HashMap;

use coregw_core::{Arcs, Cid, Digest, Page, RootCid, Snapshot, Suite, payload::Function};
use coregw_front::reads::{Batch, Failure, Found, Multihash, SMALL_PAYLOAD_BYTES};

/// Rows and payloads.
#[derive(Default)]
pub struct Stored {
    pub pages: HashMap<Digest, Vec<u8>>,
    /// Whether each held root is complete.
    pub roots: HashMap<RootCid, bool>,
    pub payloads: HashMap<Multihash, Vec<u8>>,
    /// Payloads that cannot be read, each from this byte on.
    pub damaged: HashMap<Multihash, u64>,
    /// What the next reads fail with.
    pub failure: Option<Failure>,
}

/// A payload named by a made-up digest.
pub fn target(number: u64) -> Cid {
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&number.to_le_bytes());
    Cid::of_payload(0x55, Function::Sha2_256, &digest)
}

/// The arcs `d{i % 10}/f{i}`, from 0 to `count`.
pub fn map(count: u64) -> Snapshot {
    let mut arcs = Arcs::default();
    for number in 0..count {
        arcs.push_text(&format!("d{}/f{number:05}", number % 10), &target(number).text()).expect("an arc");
    }
    arcs.sort().expect("different keys");
    Snapshot::map(Suite::Sha2_256, arcs).expect("a map")
}

impl Stored {
    /// Stores a tree, and returns its root.
    pub fn add(&mut self, tree: &Snapshot) -> RootCid {
        self.pages.extend(tree.pages().map(|page: std::sync::Arc<Page>| (page.digest(), page.to_bytes())));
        self.roots.insert(tree.root(), true);
        tree.root()
    }

    /// Stores a payload, and returns its CID.
    pub fn add_payload(&mut self, number: u64, bytes: Vec<u8>) -> Cid {
        let cid = target(number);
        self.payloads.insert(cid.multihash().to_vec(), bytes);
        cid
    }

    /// What a visit finds.
    pub fn read(&self, batch: &Batch) -> Result<Found, Failure> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let is_damaged = |name: &Multihash, end: u64| self.damaged.get(name).is_some_and(|start| end > *start);
        if batch.payloads.iter().any(|name| is_damaged(name, u64::MAX))
            || batch.chunks.iter().any(|(name, range)| is_damaged(name, range.end))
        {
            return Err(Failure::Damaged("a chunk is missing".to_owned()));
        }
        let payload = |name: &Multihash| {
            let bytes = self.payloads.get(name)?;
            let size = bytes.len() as u64;
            Some((size, (size <= SMALL_PAYLOAD_BYTES).then(|| bytes.clone())))
        };
        let size = |name: &Multihash| self.payloads.get(name).map(|bytes| bytes.len() as u64);
        let mut chunks = Vec::new();
        for (name, range) in &batch.chunks {
            let Some(bytes) = self.payloads.get(name) else { return Err(Failure::NotFound("no such payload".into())) };
            chunks.push(bytes[range.start as usize..range.end as usize].to_vec());
        }
        Ok(Found {
            pages: batch.pages.iter().map(|digest| self.pages.get(digest).cloned()).collect(),
            roots: batch.roots.iter().map(|root| self.roots.get(root).copied()).collect(),
            early: Vec::new(),
            payloads: batch.payloads.iter().map(payload).collect(),
            sizes: batch.sizes.iter().map(size).collect(),
            chunks,
        })
    }
}
