//! New trees for a store: building a map from arcs, and the deltas of a mutation (protocol section 5).
//!
//! Both give the new root and the pages to store; the caller stores pages first, and the records of roots last.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use data_encoding::BASE64;

use crate::deltas;
use crate::json;
use crate::messages::{self as msg, Delta, DeltaReceipt, FixedList, Receipt};
use crate::ops::{Need, Reading, not_held};
use crate::writing::json;
use coregw_core::Arcs;
use coregw_core::internals::prove::{Answer, Ask, Changed};
use coregw_core::map;
use coregw_core::verify::WIDE_PROOF_LIMIT;
use coregw_core::{Cid, RootCid};
use coregw_core::{Digest, Suite};
use coregw_core::{Error, InputCode, Result};
use coregw_core::{NodeSource, Page, PageCache};

/// Pages on their way to a store.
#[derive(Debug, Default)]
pub(crate) struct Outgoing(pub(crate) VecDeque<(Digest, Vec<u8>)>);

impl Outgoing {
    pub(crate) fn next(&mut self, max_bytes: usize) -> Vec<(Digest, Vec<u8>)> {
        let (mut out, mut total) = (Vec::new(), 0);
        while let Some((_, bytes)) = self.0.front() {
            total += bytes.len();
            if !out.is_empty() && total > max_bytes {
                break;
            }
            out.extend(self.0.pop_front());
        }
        out
    }
}

/// A new map, and the pages to store.
#[derive(Debug)]
pub struct Build {
    root: RootCid,
    count: u64,
    pages: Outgoing,
}

impl Build {
    /// The map of a request `{"arcs": {path: cid}, "suite"?}`. O(n log n).
    ///
    /// # Errors
    /// [`Error::Input`] that names the arc.
    pub fn request(body: &[u8]) -> Result<Self> {
        let (arcs, suite) = json::create_root(body)?;
        Self::arcs(suite, arcs)
    }

    /// The map of `arcs`. O(n log n).
    ///
    /// # Errors
    /// [`Error::Input`] if two arcs have the same path.
    pub fn arcs(suite: Suite, arcs: Arcs) -> Result<Self> {
        let map::NewMap { root, count, pages } = map::build_pages(suite, arcs)?;
        Ok(Self { root, count, pages: Outgoing(pages.into()) })
    }

    /// The root.
    pub fn root(&self) -> RootCid {
        self.root
    }

    /// Number of arcs.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The next pages to store, at most `max_bytes` of them but at least one; empty when none is left.
    pub fn next_pages(&mut self, max_bytes: usize) -> Vec<(Digest, Vec<u8>)> {
        self.pages.next(max_bytes)
    }
}

/// The pages that a mutation has made so far, before the cache.
struct Made {
    pages: Mutex<BTreeMap<Digest, Arc<Page>>>,
    cache: Arc<PageCache>,
}

impl Made {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Digest, Arc<Page>>> {
        // A map of immutable pages is whole even if a thread panicked beside it.
        self.pages.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn add(&self, pages: impl IntoIterator<Item = Arc<Page>>) {
        self.lock().extend(pages.into_iter().map(|page| (page.digest(), page)));
    }
}

impl NodeSource for Made {
    fn page(&self, digest: &Digest) -> Option<Arc<Page>> {
        let made = self.lock().get(digest).map(Arc::clone);
        made.or_else(|| self.cache.page(digest))
    }
}

/// What is left to do for the delta at hand.
enum Stage {
    /// Find its object.
    Begin,
    /// Learn whether its object is held.
    Held(RootCid),
    /// Apply its changes to its object.
    Apply(RootCid, Box<Reading>),
    /// Cut the changed tree into pages.
    Cut(RootCid, Box<Reading>, Changed),
    /// Check the sizes of a fixed list: its object, its result, its receipt's proof.
    Sizes(RootCid, RootCid, Option<String>, Box<Reading>),
}

/// The deltas of a mutation, applied one after the other. All or nothing: an error means that nothing is to be stored.
pub struct Mutation {
    base: RootCid,
    /// The base root, or what the deltas made of it.
    current: RootCid,
    deltas: VecDeque<Delta>,
    prove: bool,
    stage: Stage,
    held: Option<bool>,
    made: Arc<Made>,
    cache: Arc<PageCache>,
    pages: Outgoing,
    receipts: Vec<DeltaReceipt>,
    results: Vec<RootCid>,
    arc_count: u64,
    base_known: bool,
}

impl Mutation {
    /// Reads the request of a mutation of `base`.
    ///
    /// # Errors
    /// [`Error::Input`] for a request that is none, or a base that is no root.
    pub fn new(cache: Arc<PageCache>, base: &Cid, request: &[u8]) -> Result<Self> {
        let base = base
            .root()
            .ok_or_else(|| Error::input(InputCode::KindMismatch, format!("root: {base} is a payload, not a root")))?;
        let request: msg::MutationRequest = msg::request(request)?;
        deltas::check_all(&request.deltas)?;
        Ok(Self {
            base,
            current: base,
            deltas: request.deltas.into(),
            prove: request.prove,
            stage: Stage::Begin,
            held: None,
            made: Arc::new(Made { pages: Mutex::default(), cache: Arc::clone(&cache) }),
            cache,
            pages: Outgoing::default(),
            receipts: Vec::new(),
            results: Vec::new(),
            arc_count: 0,
            base_known: false,
        })
    }

    /// Goes on as far as it can. None: [`Mutation::result`] is ready.
    ///
    /// # Errors
    /// [`Error::Conflict`] and [`Error::Input`], naming the delta and the coordinate; [`Error::NotFound`] for a root
    /// that is not held; [`Error::Damaged`] if stored trees are not what they must be.
    pub fn run(&mut self, budget: u64) -> Result<Option<Need>> {
        if !self.base_known {
            let base = self.base;
            match self.is_held(&base) {
                None => return Ok(Some(Need::Roots(vec![self.base]))),
                Some(false) => return Err(not_held(&self.base)),
                Some(true) => self.base_known = true,
            }
        }
        while !self.deltas.is_empty() {
            let place = format!("delta {}", self.receipts.len());
            if let Some(need) = self.step(budget).map_err(|error| error.within(&place))? {
                return Ok(Some(need));
            }
        }
        Ok(None)
    }

    /// Whether a root is held, if that was said or is known.
    fn is_held(&mut self, root: &RootCid) -> Option<bool> {
        self.held.take().or_else(|| self.cache.is_held(root))
    }

    fn step(&mut self, budget: u64) -> Result<Option<Need>> {
        match std::mem::replace(&mut self.stage, Stage::Begin) {
            Stage::Begin => self.begin(),
            Stage::Held(object) => match self.is_held(&object) {
                None => {
                    self.stage = Stage::Held(object);
                    Ok(Some(Need::Roots(vec![object])))
                }
                Some(false) => Err(not_held(&object)),
                Some(true) => self.open(object),
            },
            Stage::Apply(object, mut reading) => {
                if let Some(need) = reading.run(budget)? {
                    self.stage = Stage::Apply(object, reading);
                    return Ok(Some(need));
                }
                let Some(Answer::Changed(changed)) = reading.query().answer() else {
                    return Err(Error::damaged("changes ended without a tree"));
                };
                self.stage = Stage::Cut(object, reading, changed);
                Ok(None)
            }
            Stage::Cut(object, reading, changed) => self.cut(object, reading, changed),
            Stage::Sizes(object, result, proof, mut reading) => {
                if let Some(need) = reading.run(budget)? {
                    self.stage = Stage::Sizes(object, result, proof, reading);
                    return Ok(Some(need));
                }
                if let (Some(fixed), Some(Answer::Span(span))) = (self.fixed(), reading.query().answer()) {
                    deltas::check_sizes(fixed, &span.sizes)?;
                }
                self.finish(object, result, proof)
            }
        }
    }

    fn fixed(&self) -> Option<FixedList> {
        self.deltas.front().and_then(deltas::fixed)
    }

    /// Finds the object of the next delta.
    fn begin(&mut self) -> Result<Option<Need>> {
        let Some(delta) = self.deltas.front() else {
            return Ok(None);
        };
        let (object, empty) = deltas::object(delta, &self.current)?;
        if let Some(empty) = empty {
            self.made.add(empty.pages());
            return self.open(object);
        }
        if object == self.base || self.results.contains(&object) {
            return self.open(object);
        }
        self.stage = Stage::Held(object);
        Ok(None)
    }

    fn open(&mut self, object: RootCid) -> Result<Option<Need>> {
        let delta = self.deltas.front().ok_or_else(|| Error::damaged("no delta is left"))?;
        let ask = deltas::ask(delta, object.kind)?;
        let source = Arc::clone(&self.made) as Arc<dyn NodeSource>;
        self.stage = Stage::Apply(object, Box::new(Reading::open(&self.cache, source, &object, ask)));
        Ok(None)
    }

    fn cut(&mut self, object: RootCid, mut reading: Box<Reading>, changed: Changed) -> Result<Option<Need>> {
        let pages = match reading.query().new_pages(changed.top)? {
            Ok(pages) => pages,
            Err(progress) => {
                let need = reading.need(progress);
                self.stage = Stage::Cut(object, reading, changed);
                return Ok(need);
            }
        };
        let result = RootCid { digest: changed.sum.digest, ..object };
        let proof = if self.prove { Some(encoded(&reading.query().proof())?) } else { None };
        self.made.add(pages.iter().map(Arc::clone));
        self.pages.0.extend(pages.iter().map(|page| (page.digest(), page.to_bytes())));
        if self.fixed().is_some() {
            let source = Arc::clone(&self.made) as Arc<dyn NodeSource>;
            let all = Ask::Range { start: 0, end: None, max_segments: usize::MAX };
            let reading = Box::new(Reading::open(&self.cache, source, &result, all));
            self.stage = Stage::Sizes(object, result, proof, reading);
            return Ok(None);
        }
        self.finish(object, result, proof)
    }

    fn finish(&mut self, object: RootCid, result: RootCid, proof: Option<String>) -> Result<Option<Need>> {
        let delta = self.deltas.front().ok_or_else(|| Error::damaged("no delta is left"))?;
        deltas::check_expected(delta, &result)?;
        if object == self.current {
            self.current = result;
        }
        self.arc_count += delta.changes.len() as u64;
        self.receipts.push(DeltaReceipt { object: object.cid().text(), result: result.cid().text(), proof });
        self.results.push(result);
        self.deltas.pop_front();
        Ok(None)
    }

    /// Takes the pages of the last need, in its order.
    ///
    /// # Errors
    /// [`Error::Damaged`], naming the page, if one is missing or not what its digest says.
    pub fn supply_pages<B: AsRef<[u8]>>(&mut self, pages: &[Option<B>]) -> Result<()> {
        match &mut self.stage {
            Stage::Apply(_, reading) | Stage::Cut(_, reading, _) | Stage::Sizes(.., reading) => reading.supply(pages),
            Stage::Begin | Stage::Held(_) => Err(Error::request("no pages were asked for")),
        }
    }

    /// Takes the answers to the last need, in its order.
    ///
    /// # Errors
    /// [`Error::Input`] if it asked for none.
    pub fn supply_roots(&mut self, held: &[bool]) -> Result<()> {
        let &[held] = held else {
            return Err(Error::request("one root was asked for"));
        };
        self.held = Some(held);
        Ok(())
    }

    /// The receipt, once [`Mutation::run`] gave None.
    ///
    /// # Errors
    /// [`Error::Input`] before that.
    pub fn result(&self) -> Result<String> {
        match self.results.last() {
            Some(new_root) if self.deltas.is_empty() => Ok(json(&Receipt {
                base_root: self.base.cid().text(),
                new_root: new_root.cid().text(),
                delta_count: msg::Int(self.receipts.len() as u64),
                arc_count: msg::Int(self.arc_count),
                deltas: self.receipts.clone(),
            })),
            _ => Err(Error::request("the mutation has not ended")),
        }
    }

    /// The results of all deltas: the roots to record, after the pages.
    pub fn roots(&self) -> &[RootCid] {
        &self.results
    }

    /// The next pages to store, at most `max_bytes` of them but at least one; empty when none is left.
    pub fn next_pages(&mut self, max_bytes: usize) -> Vec<(Digest, Vec<u8>)> {
        self.pages.next(max_bytes)
    }
}

/// A proof for a receipt, if it is one that clients look at: a change that nobody can check is not made.
fn encoded(proof: &[u8]) -> Result<String> {
    if proof.len() > WIDE_PROOF_LIMIT {
        let what =
            format!("the proof is {} bytes long; {WIDE_PROOF_LIMIT} is the limit: change less at once", proof.len());
        return Err(Error::input(InputCode::TooLarge, what));
    }
    Ok(BASE64.encode(proof))
}
