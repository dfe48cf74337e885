//! Mutate (protocol section 5): the deltas of a mutation, applied in order, all or nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64_simd::STANDARD as BASE64;
use coregw_core::verify::WIDE_PROOF_LIMIT;
use coregw_core::{Answer, Ask, Query};
use coregw_core::{
    Cid, Digest, EncodedPage, Error, InputCode, Kind, Page, PageCache, PageDifference, PageSource, Result, RootCid,
    Suite,
};
use serde::Deserialize;

use crate::fixed_list::check_sizes;
use crate::json::{self, objects};
use crate::message::delta::{Delta, DeltaMessage, DeltaReceipt, Object, Receipt, base_root, deltas, read_all};
use crate::message::{self, Int};
use crate::run::{NewPages, Operation};
use crate::trees::Trees;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct MutationRequest<'a> {
    #[serde(borrow, deserialize_with = "deltas")]
    deltas: Vec<DeltaMessage<'a>>,
    #[serde(default)]
    prove: bool,
}

objects! {
    read: MutationRequest<'a>;
}

impl Operation {
    /// Applies the deltas of a mutation request to `base`, stores the results, and returns the receipt.
    ///
    /// # Errors
    /// [`Error::Input`] if the request is malformed or `base` is a payload. The operation itself fails, having stored no
    /// root, with [`Error::Conflict`] and [`Error::Input`], naming the delta and the coordinate, and with
    /// [`Error::NotFound`] for a root that is not held.
    pub fn mutate(cache: Arc<PageCache>, base: &Cid, request: &[u8]) -> Result<Self> {
        let base = base_root(base)?;
        let MutationRequest { deltas, prove } = message::request(request)?;
        let deltas = read_all(request, deltas)?;
        Ok(Self::new(|slot| mutate(Trees { cache, slot }, base, deltas, prove)))
    }
}

async fn mutate(trees: Trees, base: RootCid, deltas: Vec<(Delta, Ask)>, prove: bool) -> Result<Vec<u8>> {
    trees.check_held(&[base]).await?;
    let mut mutation = Mutation::new(trees, base, prove);
    let mut arc_count = 0;
    for (i, (delta, ask)) in deltas.into_iter().enumerate() {
        mutation.apply(&delta, ask).await.map_err(|error| error.within(&format!("delta {i}")))?;
        arc_count += delta.change_count;
    }
    let Mutation { trees, made, receipts, results, required, .. } = mutation;
    let new = made.parsed();
    trees.store_unless_held(made.take(), &results, &required).await;
    new.into_iter().for_each(|page| trees.cache.insert(page)); // the next change of the result begins with them
    trees.spend_bytes(receipts.iter().filter_map(|receipt| receipt.proof.as_ref()).map(String::len).sum()).await?;
    Ok(json::write(&Receipt {
        base_root: base.cid().text(),
        new_root: results.last().unwrap_or(&base).cid().text(),
        delta_count: Int(receipts.len() as u64),
        arc_count: Int(arc_count),
        deltas: receipts,
    }))
}

/// A mutation some of whose deltas are applied.
struct Mutation {
    trees: Trees,
    base: RootCid,
    /// The base root, or what the deltas made of it.
    current: RootCid,
    prove: bool,
    made: Arc<MadePages>,
    receipts: Vec<DeltaReceipt>,
    /// The result of each delta.
    results: Vec<RootCid>,
    /// Held roots with whose trees the results share pages.
    required: Vec<RootCid>,
}

impl Mutation {
    fn new(trees: Trees, base: RootCid, prove: bool) -> Self {
        let made = Arc::new(MadePages { made: Mutex::default(), cache: Arc::clone(&trees.cache) });
        let (receipts, results) = (Vec::new(), Vec::new());
        Self { trees, base, current: base, prove, made, receipts, results, required: vec![base] }
    }

    async fn apply(&mut self, delta: &Delta, ask: Ask) -> Result<()> {
        let object = self.open(delta).await?;
        let mut query = Query::open(&object, Arc::clone(&self.made) as Arc<dyn PageSource>, ask);
        let Answer::Changed(changed) = self.trees.run(&mut query).await? else {
            return Err(Error::damaged("changes ended without a tree"));
        };
        let result = RootCid { digest: changed.digest, ..object };
        let proof = if self.prove { Some(encode_proof(&query.proof())?) } else { None };
        self.add_pages(&mut query).await?;
        drop(query);
        self.trees.slot.set_held_bytes(0);
        self.check_fixed_list(delta, &object, &result, changed.count).await?;
        delta.check_expected(&result)?;
        if object == self.current {
            self.current = result;
        }
        if object != result {
            self.trees.cache.remember_base(result, object);
        }
        self.receipts.push(DeltaReceipt { object: object.cid().text(), result: result.cid().text(), proof });
        self.results.push(result);
        Ok(())
    }

    /// The root of the tree to change, which is held or was made by this mutation.
    async fn open(&mut self, delta: &Delta) -> Result<RootCid> {
        match delta.object(&self.current)? {
            Object::Empty(tree) => {
                let root = tree.root();
                let whole = |page: Arc<Page>| EncodedPage { bytes: page.to_bytes(), page, difference: None };
                self.made.add(tree.pages().map(whole));
                Ok(root)
            }
            Object::Existing(root) => {
                if root != self.base && !self.results.contains(&root) {
                    self.trees.check_held(&[root]).await?;
                    self.required.push(root);
                }
                Ok(root)
            }
        }
    }

    /// Cuts the changed tree into pages, and keeps those that are new, or stores them if there are many.
    async fn add_pages(&mut self, query: &mut Query) -> Result<()> {
        loop {
            let drafted = query.new_pages();
            self.trees.slot.set_held_bytes(query.tree_bytes());
            match drafted {
                Ok(pages) if pages.is_empty() => return Ok(()),
                Ok(pages) => {
                    self.made.add(pages);
                    if self.made.bytes() > MAX_MADE_BYTES {
                        self.trees.store(self.made.take(), &[], &[]).await;
                    }
                }
                Err(interrupt) => self.trees.meet(query, interrupt).await?,
            }
        }
    }

    /// If the delta commits to a fixed list, checks the sizes of the elements that it does not change.
    ///
    /// The query has checked the number of elements, their total, and the sizes of those that change. Nothing else can
    /// differ in a list that was a fixed list of the same size before: only its last element could have had another size
    /// than it must have now, and then the total would differ.
    async fn check_fixed_list(&self, delta: &Delta, object: &RootCid, result: &RootCid, count: u64) -> Result<()> {
        let Some(sizes) = delta.fixed else {
            return Ok(());
        };
        let cache = &self.trees.cache;
        if cache.fixed_size(object) != Some(sizes.size()) && delta.set_count != count {
            check_sizes(&self.trees, &*self.made, result, &sizes).await?;
        }
        cache.remember_fixed(*result, sizes.size());
        Ok(())
    }
}

/// When the pages that a mutation has made take more bytes than this, they are stored. If it fails later, they are garbage.
const MAX_MADE_BYTES: usize = 8 << 20;

/// The memory, in bytes, of the made pages that are kept parsed: enough for the paths to some keys.
const MAX_PARSED_BYTES: usize = 256 << 10;

/// The pages that a mutation has made and not stored, in front of the cache. Only the first ones are kept parsed: parsed
/// pages take several times the memory. The others are parsed when a later delta needs them.
struct MadePages {
    made: Mutex<Made>,
    cache: Arc<PageCache>,
}

#[derive(Default)]
struct Made {
    pages: BTreeMap<Digest, MadePage>,
    parsed_bytes: usize,
}

struct MadePage {
    kind: Kind,
    suite: Suite,
    bytes: Vec<u8>,
    difference: Option<PageDifference>,
    parsed: Option<Arc<Page>>,
}

impl MadePages {
    fn lock(&self) -> MutexGuard<'_, Made> {
        // Pages are immutable and inserted whole, so a panic elsewhere cannot leave the map inconsistent.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds pages, with their encodings.
    fn add(&self, pages: impl IntoIterator<Item = EncodedPage>) {
        let mut made = self.lock();
        for EncodedPage { page, bytes, difference } in pages {
            let (digest, kind, suite) = (page.digest(), page.kind, page.suite);
            // A page that this mutation has made may be a difference itself.
            let difference = difference
                .map(|next| match made.pages.get(&next.base()).and_then(|base| base.difference.as_ref()) {
                    Some(first) => first.join(&next),
                    None => next,
                })
                .filter(|difference| difference.base() != digest && difference.is_short(bytes.len()));
            made.parsed_bytes += page.memory();
            let parsed = (made.parsed_bytes <= MAX_PARSED_BYTES).then_some(page);
            made.pages.insert(digest, MadePage { kind, suite, bytes, difference, parsed });
        }
    }

    /// How many bytes the pages have.
    fn bytes(&self) -> usize {
        self.lock().pages.values().map(|page| page.bytes.len()).sum()
    }

    /// The pages that are kept parsed.
    fn parsed(&self) -> Vec<Arc<Page>> {
        self.lock().pages.values().filter_map(|page| page.parsed.clone()).collect()
    }

    /// The pages to store. None are left.
    fn take(&self) -> NewPages {
        let made = std::mem::take(&mut *self.lock());
        let mut new = NewPages::default();
        for (digest, page) in made.pages {
            new.differences.extend(page.difference.map(|difference| (digest, difference)));
            new.pages.push((digest, page.bytes));
        }
        new
    }
}

impl PageSource for MadePages {
    fn page(&self, digest: &Digest) -> Option<Arc<Page>> {
        match self.lock().pages.get(digest) {
            Some(MadePage { parsed: Some(page), .. }) => Some(Arc::clone(page)),
            Some(page) => Page::parse(&page.bytes, page.kind, page.suite, digest).ok().map(Arc::new),
            None => self.cache.page(digest),
        }
    }
}

/// Encodes a proof for a receipt. A change whose proof clients would not accept is refused.
fn encode_proof(proof: &[u8]) -> Result<String> {
    if proof.len() > WIDE_PROOF_LIMIT {
        let what = format!(
            "the proof is {} bytes long, but the limit is {WIDE_PROOF_LIMIT}; send fewer changes at once",
            proof.len()
        );
        return Err(Error::input(InputCode::TooLarge, what));
    }
    Ok(BASE64.encode_to_string(proof))
}
