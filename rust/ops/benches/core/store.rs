//! Stored pages: how many a cold lookup loads, how many bytes a change writes.

use std::collections::HashMap;
use std::sync::Arc;

use coregw_core::{Digest, Key, Page, PageCache, RootCid, Snapshot};
use coregw_ops::{MapProofForm, Need, Operation, Progress, WantedPage};

use crate::data::{Numbers, target};
use crate::measure::Place;

/// How many lookups and changes of each kind are counted.
const TRIES: usize = 2_000;

/// The body of a map-proof request.
pub fn map_proof_request(root: &RootCid, key: &Key) -> Vec<u8> {
    request(root, "key", &segments(key))
}

/// The body of a map-proof request for several keys.
pub fn map_proof_request_of(root: &RootCid, keys: &[Key]) -> Vec<u8> {
    request(root, "keys", &keys.iter().map(segments).collect::<Vec<_>>())
}

fn segments(key: &Key) -> Vec<String> {
    key.text().split('/').map(str::to_owned).collect()
}

fn request(root: &RootCid, member: &str, keys: &impl serde::Serialize) -> Vec<u8> {
    let profile = "core.map-proof/v0alpha1";
    serde_json::json!({"profile": profile, "root": root.cid().text(), member: keys}).to_string().into_bytes()
}

/// A cache that holds all pages of a tree.
pub struct Cached(Arc<PageCache>);

impl Cached {
    pub fn new(tree: &Snapshot) -> Self {
        let cache = PageCache::new(16 << 30, 0);
        tree.pages().for_each(|page| cache.insert(page));
        Self(Arc::new(cache))
    }

    /// Serves one request from the cache and returns the length of the response.
    pub fn serve(&self, request: &[u8]) -> usize {
        let mut operation =
            Operation::map_proof(Arc::clone(&self.0), request, MapProofForm::Result).expect("a request");
        loop {
            match operation.poll(u64::MAX).expect("a whole tree") {
                Progress::Done(response) => return response.len(),
                Progress::Needs(Need::Roots(_)) => operation.supply_roots(vec![true]).expect("one root"),
                Progress::Needs(other) => unreachable!("all pages are cached: {other:?}"),
            }
        }
    }
}

/// The pages of a tree as stored, without a cache.
struct Stored {
    pages: HashMap<Digest, Vec<u8>>,
    loads: usize,
    /// Round trips that fetched root records.
    rounds: usize,
}

impl Stored {
    /// Drives an operation to its end, and returns the bytes of the pages that it stores.
    fn drive(&mut self, mut operation: Operation) -> usize {
        (self.loads, self.rounds) = (0, 0);
        let mut stored = 0;
        loop {
            match operation.poll(u64::MAX).expect("a whole tree and a change that fits") {
                Progress::Done(_) => return stored,
                Progress::Needs(Need::Pages(wanted)) => {
                    operation.supply_pages(self.load(&wanted)).expect("as many pages");
                }
                Progress::Needs(Need::Roots(roots)) => {
                    // The first is the base of a change, the second its result.
                    let held = vec![self.rounds == 0; roots.len()];
                    self.rounds += 1;
                    operation.supply_roots(held).expect("as many roots");
                }
                Progress::Needs(Need::Store { pages, .. }) => {
                    stored += pages.iter().map(|page| page.1.len()).sum::<usize>();
                }
                Progress::Needs(_) => {}
            }
        }
    }

    fn load(&mut self, wanted: &[WantedPage]) -> Vec<Arc<Page>> {
        self.loads += wanted.len();
        let page = |wanted: &WantedPage| wanted.parse(self.pages.get(&wanted.digest).map(Vec::as_slice));
        wanted.iter().map(|wanted| page(wanted).expect("a valid page")).collect()
    }

    fn look_up(&mut self, request: &[u8]) -> usize {
        self.drive(
            Operation::map_proof(Arc::new(PageCache::new(0, 0)), request, MapProofForm::Result).expect("a request"),
        );
        self.loads
    }

    /// Bytes of the new pages of one change.
    fn change(&mut self, root: &RootCid, change: serde_json::Value) -> usize {
        let body = serde_json::json!({"deltas": [{"kind": "map", "changes": [change]}]}).to_string();
        let cache = Arc::new(PageCache::new(0, 0));
        self.drive(Operation::mutate(cache, &root.cid(), body.as_bytes()).expect("a request"))
    }

    /// The height of the tree in pages.
    fn depth(&self, root: &RootCid) -> usize {
        let mut level = vec![root.digest];
        for depth in 1.. {
            let page = |digest| Page::parse(&self.pages[digest], root.kind, root.suite, digest).expect("a page");
            level = level.iter().flat_map(|digest| page(digest).stubs().collect::<Vec<_>>()).collect();
            if level.is_empty() {
                return depth;
            }
        }
        0
    }
}

fn mean_and_most(counts: &[usize]) -> (f64, f64) {
    let most = counts.iter().copied().max().unwrap_or(0);
    (counts.iter().sum::<usize>() as f64 / counts.len() as f64, most as f64)
}

/// The memory of the tree: its parsed pages and the references between them.
pub fn memory(place: Place, tree: &Snapshot) {
    let page = |page: Arc<Page>| page.memory() + 2 * size_of::<usize>() + page.stubs().count() * size_of::<Arc<Page>>();
    let bytes = tree.pages().map(page).sum::<usize>() as f64;
    place.line(
        "memory per arc",
        bytes / tree.count() as f64,
        "bytes",
        None,
        "of the tree held in memory, pages parsed",
    );
}

/// The size of the pages as stored.
pub fn stored(place: Place, tree: &Snapshot) {
    let (count, bytes) = tree.pages().fold((0, 0), |(n, bytes), page| (n + 1, bytes + page.to_bytes().len()));
    let note = format!("{count} pages of {} bytes", bytes / count);
    place.line("stored bytes per arc", bytes as f64 / tree.count() as f64, "bytes", None, &note);
}

/// Counts loads and writes.
pub fn pages(place: Place, keys: &[Key], tree: &Snapshot) {
    stored(place, tree);
    let root = tree.root();
    let pages = tree.pages().map(|page| (page.digest(), page.to_bytes())).collect();
    let mut stored = Stored { pages, loads: 0, rounds: 0 };
    let mut numbers = Numbers::new(2);
    let picks: Vec<_> = (0..TRIES).map(|_| numbers.below(keys.len())).collect();
    let loads: Vec<_> = picks.iter().map(|i| stored.look_up(&map_proof_request(&root, &keys[*i]))).collect();
    let (mean, most) = mean_and_most(&loads);
    let note = format!("{TRIES} random keys, at most {most}");
    place.line("page loads of a cold lookup, mean", mean, "pages", Some(4.0), &note);
    let note = "of all keys: the tree's height in pages";
    place.line("page loads of a cold lookup, worst", stored.depth(&root) as f64, "pages", Some(5.0), note);
    changes(place, keys, &mut stored, &root, picks);
}

fn changes(place: Place, keys: &[Key], stored: &mut Stored, root: &RootCid, picks: Vec<usize>) {
    let text = |i: u64| target(i).text();
    let (mut written, mut loads) = (Vec::new(), Vec::new());
    for i in picks {
        let path = keys[i].text();
        let there = serde_json::json!({"target": text(i as u64)});
        let other = serde_json::json!({"target": text(u64::MAX - i as u64)});
        let neighbour = format!("{path}{}", ["~", "/new", ".bak"][i % 3]);
        for change in [
            serde_json::json!({"path": path, "before": there, "after": other}),
            serde_json::json!({"path": path, "before": there}),
            serde_json::json!({"path": neighbour, "after": other}),
        ] {
            written.push(stored.change(root, change));
            loads.push(stored.loads);
        }
    }
    for (what, kind) in ["replace", "remove", "insert"].iter().zip(0..) {
        let of = |all: &[usize]| all.iter().copied().skip(kind).step_by(3).collect::<Vec<_>>();
        let ((mean, most), (load_mean, load_most)) = (mean_and_most(&of(&written)), mean_and_most(&of(&loads)));
        let note = format!("mean {:.1}; loads: mean {load_mean:.2}, max {load_most}", mean / 1024.0);
        let what = format!("pages written to {what} one arc, worst");
        place.line(&what, most / 1024.0, "KiB", Some(32.0), &note);
    }
}
