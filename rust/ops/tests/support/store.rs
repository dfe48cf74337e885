//! A store of pages in memory, and what drives operations on it.
#![allow(dead_code, reason = "each test program uses a part of this")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use coregw_core::{Cid, Digest, Error, PageCache, RootCid, Suite};
use coregw_ops::{Build, Mutation, Need, Operation};
use serde_json::{Value, json};

pub fn payload(n: u64) -> Cid {
    let mut bytes = vec![1, 0x55, 0x12, 32];
    bytes.extend_from_slice(&Suite::Sha2_256.digest(&n.to_be_bytes()).0);
    Cid::from_bytes(&bytes).expect("a CID")
}

/// What a store keeps, and a cache before it.
pub struct Store {
    pub pages: HashMap<Digest, Vec<u8>>,
    pub roots: HashSet<RootCid>,
    pub cache: Arc<PageCache>,
    budget: u64,
    /// Pages read, and in how many turns.
    pub loads: u64,
    pub turns: u64,
}

impl Store {
    pub fn new(cache_bytes: u64, budget: u64) -> Self {
        let cache = Arc::new(PageCache::new(cache_bytes, 0));
        Self { pages: HashMap::new(), roots: HashSet::new(), cache, budget, loads: 0, turns: 0 }
    }

    pub fn build(&mut self, suite: Suite, arcs: &BTreeMap<String, Cid>) -> RootCid {
        let arcs: BTreeMap<_, _> = arcs.iter().map(|(path, cid)| (path, cid.text())).collect();
        let body = json!({"arcs": arcs, "suite": suite.name()}).to_string();
        let mut build = Build::request(body.as_bytes()).expect("arcs make a map");
        loop {
            let pages = build.next_pages(20_000);
            if pages.is_empty() {
                break;
            }
            self.pages.extend(pages);
        }
        self.roots.insert(build.root());
        build.root()
    }

    pub fn serve(&mut self, mut op: Operation) -> Result<String, Error> {
        while let Some(need) = op.run(self.budget)? {
            match need {
                Need::Budget => {}
                Need::Roots(roots) => {
                    op.supply_roots(&roots.iter().map(|r| self.roots.contains(r)).collect::<Vec<_>>())?
                }
                Need::Pages(digests) => op.supply_pages(&self.load(&digests))?,
            }
        }
        op.result().map(str::to_owned)
    }

    pub fn load(&mut self, digests: &[Digest]) -> Vec<Option<Vec<u8>>> {
        assert!(!digests.is_empty());
        assert_eq!(digests.iter().collect::<HashSet<_>>().len(), digests.len(), "no page is asked for twice at once");
        self.loads += digests.len() as u64;
        self.turns += 1;
        digests.iter().map(|digest| self.pages.get(digest).cloned()).collect()
    }

    pub fn mutate(&mut self, base: &RootCid, request: &Value) -> Result<Value, Error> {
        let request = request.to_string();
        let mut op = Mutation::new(Arc::clone(&self.cache), &base.cid(), request.as_bytes())?;
        while let Some(need) = op.run(self.budget)? {
            match need {
                Need::Budget => {}
                Need::Roots(roots) => {
                    op.supply_roots(&roots.iter().map(|r| self.roots.contains(r)).collect::<Vec<_>>())?
                }
                Need::Pages(digests) => op.supply_pages(&self.load(&digests))?,
            }
        }
        loop {
            let pages = op.next_pages(1 << 20);
            if pages.is_empty() {
                break;
            }
            self.pages.extend(pages);
        }
        self.roots.extend(op.roots());
        Ok(serde_json::from_str(&op.result()?).expect("a receipt is JSON"))
    }

    pub fn resolve(&mut self, root: &RootCid, segments: &[&str]) -> Result<(String, String), Error> {
        let request = json!({"profile": "core.resolve/v0alpha1", "root": root.cid().text(), "segments": segments});
        let request = request.to_string();
        let op = Operation::resolve(Arc::clone(&self.cache), request.as_bytes(), 10_000)?;
        Ok((request, self.serve(op)?))
    }
}

pub fn root_of(value: &Value) -> RootCid {
    Cid::from_text(value.as_str().expect("a CID")).expect("a CID").root().expect("a root")
}
