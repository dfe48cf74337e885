//! A store in memory, and the loop that drives operations on it.
#![allow(dead_code, reason = "each test program uses a part of this")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use coregw_core::{Cid, Digest, Error, OneThread, Page, PageCache, PageDifference, RootCid, Suite};
use coregw_ops::car::block_head;
use coregw_ops::{Need, Operation, Progress, WantedPage};
use serde_json::{Value, json};

/// The CID of the payload `n.to_be_bytes()`.
pub fn payload(n: u64) -> Cid {
    let mut bytes = vec![1, 0x55, 0x12, 32];
    bytes.extend_from_slice(&Suite::Sha2_256.digest(&n.to_be_bytes()).0);
    Cid::from_bytes(&bytes).expect("a CID")
}

/// `n` arcs of a map of users.
pub fn many(n: u64) -> BTreeMap<String, Cid> {
    (0..n).map(|i| (format!("users/{:06}/profile", i * 7919 % 1_000_000), payload(i))).collect()
}

/// The change that puts element `i` of a file into a list.
pub fn chunk(i: u64) -> Value {
    json!({"index": i, "after": {"target": payload(i).text(), "size": 100 + i % 7}})
}

/// Pages and root records, and a cache in front of them.
pub struct Store {
    pub pages: HashMap<Digest, Vec<u8>>,
    pub roots: HashSet<RootCid>,
    pub cache: Arc<PageCache>,
    budget: u64,
    /// Pages read.
    pub loads: u64,
    /// Round trips in which they were read.
    pub rounds: u64,
    /// Calls of `poll`.
    pub polls: u64,
    /// The CAR to import.
    pub car: Vec<u8>,
    /// Bytes of it that were read again.
    pub read_again: u64,
    /// Blocks of payloads of the imported CAR.
    pub payloads: Vec<Range<u64>>,
    /// Leaves of trees in a CAR.
    pub leaves: Vec<(RootCid, Vec<u8>)>,
    /// Root records in the order in which they were written.
    pub recorded: Vec<RootCid>,
    /// What operations have output.
    pub output: Vec<u8>,
}

impl Store {
    pub fn new(cache_bytes: u64, budget: u64) -> Self {
        Self {
            pages: HashMap::new(),
            roots: HashSet::new(),
            cache: Arc::new(PageCache::new(cache_bytes, 0)),
            budget,
            loads: 0,
            rounds: 0,
            polls: 0,
            car: Vec::new(),
            read_again: 0,
            payloads: Vec::new(),
            leaves: Vec::new(),
            recorded: Vec::new(),
            output: Vec::new(),
        }
    }

    /// Drives an operation to its response, which is text.
    pub fn serve(&mut self, operation: Operation) -> Result<String, Error> {
        self.serve_bytes(operation).map(|response| String::from_utf8(response).expect("text"))
    }

    /// Drives an operation to its response.
    pub fn serve_bytes(&mut self, mut operation: Operation) -> Result<Vec<u8>, Error> {
        loop {
            self.polls += 1;
            let need = match operation.poll(self.budget)? {
                Progress::Done(response) => return Ok(response),
                Progress::Needs(need) => need,
            };
            match need {
                Need::Budget => {}
                Need::Roots(roots) | Need::Renewal(roots) => {
                    operation.supply_roots(roots.iter().map(|root| self.roots.contains(root)).collect())?;
                }
                Need::Pages(wanted) => operation.supply_pages(self.load(&wanted)?)?,
                Need::Bytes(range) if range.end - range.start > 1 << 16 => panic!("{range:?} are read at once"),
                Need::Bytes(range) => {
                    let bytes = self.car_bytes(range).to_vec();
                    self.read_again += bytes.len() as u64;
                    operation.supply_bytes(bytes)?;
                }
                Need::Output { bytes, payloads } => self.write(&bytes, &payloads),
                Need::Leaves { root, lines } => self.leaves.push((root, lines)),
                Need::Payloads(blocks) => self.payloads.extend(blocks),
                Need::Store { pages, differences, roots, requires } => {
                    assert!(requires.iter().all(|root| self.roots.contains(root)), "required roots are held");
                    self.check_differences(&pages, &differences);
                    self.store(pages, &roots);
                }
            }
        }
    }

    fn load(&mut self, wanted: &[WantedPage]) -> Result<Vec<Arc<Page>>, Error> {
        assert!(!wanted.is_empty());
        let digests: HashSet<_> = wanted.iter().map(|page| page.digest).collect();
        assert_eq!(digests.len(), wanted.len(), "no page is wanted twice at once");
        self.loads += wanted.len() as u64;
        self.rounds += 1;
        wanted.iter().map(|page| page.parse(self.pages.get(&page.digest).map(Vec::as_slice))).collect()
    }

    fn car_bytes(&self, range: Range<u64>) -> &[u8] {
        &self.car[range.start as usize..(range.end as usize).min(self.car.len())]
    }

    fn write(&mut self, bytes: &[u8], payloads: &[Cid]) {
        assert!(!bytes.is_empty() || !payloads.is_empty());
        self.output.extend(bytes);
        for cid in payloads {
            let n = (0..10_000u64).find(|&n| payload(n) == *cid).expect("a payload of these tests");
            self.output.extend(block_head(cid, 8));
            self.output.extend(n.to_be_bytes());
        }
    }

    /// Checks that the differences make pages of others, which are stored, or are stored with them.
    fn check_differences(&self, pages: &[(Digest, Vec<u8>)], differences: &[(Digest, PageDifference)]) {
        for (digest, difference) in differences {
            let find = |wanted: &Digest| pages.iter().find(|(digest, _)| digest == wanted).map(|(_, page)| page);
            let base = self.pages.get(&difference.base()).or_else(|| find(&difference.base())).expect("a stored page");
            assert_eq!(difference.apply(base).as_ref(), find(digest));
            assert_ne!(difference.base(), *digest);
        }
    }

    fn store(&mut self, pages: Vec<(Digest, Vec<u8>)>, roots: &[RootCid]) {
        assert!(pages.len() <= 1 || pages.iter().map(|page| page.1.len()).sum::<usize>() <= 1 << 20);
        for (digest, page) in pages {
            let before = self.pages.insert(digest, page.clone());
            assert!(before.is_none_or(|before| before == page));
        }
        for root in roots {
            assert!(self.pages.contains_key(&root.digest), "a record is stored after its pages");
        }
        self.roots.extend(roots);
        self.recorded.extend(roots);
    }

    pub fn build(&mut self, suite: Suite, arcs: &BTreeMap<String, Cid>) -> RootCid {
        let arcs: BTreeMap<_, _> = arcs.iter().map(|(path, cid)| (path, cid.text())).collect();
        let body = json!({"arcs": arcs, "suite": suite.name()}).to_string();
        let operation =
            Operation::create_root(Arc::clone(&self.cache), body.as_bytes(), &OneThread).expect("a request");
        let response = self.serve(operation).expect("a map");
        root_of(&serde_json::from_str::<Value>(&response).expect("JSON")["root"])
    }

    pub fn mutate(&mut self, base: &RootCid, request: &Value) -> Result<Value, Error> {
        let request = request.to_string();
        let operation = Operation::mutate(Arc::clone(&self.cache), &base.cid(), request.as_bytes())?;
        let receipt = self.serve(operation)?;
        Ok(serde_json::from_str(&receipt).expect("a receipt is JSON"))
    }

    pub fn resolve(&mut self, root: &RootCid, segments: &[&str]) -> Result<(String, String), Error> {
        let request = json!({"profile": "core.resolve/v0alpha1", "root": root.cid().text(), "segments": segments});
        let request = request.to_string();
        let operation = Operation::resolve(Arc::clone(&self.cache), request.as_bytes())?;
        Ok((request, self.serve(operation)?))
    }
}

pub fn root_of(value: &Value) -> RootCid {
    Cid::from_text(value.as_str().expect("a CID")).expect("a CID").root().expect("a root")
}
