//! Queue of what hot reads need from the store, and of what threads that visit it have found.
//!
//! A visit of the store costs more than a page in it. So what is requested is gathered until a thread is free for a visit,
//! and a thread takes all of it, or half if another one is idle.
//!
//! ```text
//! request a   |
//! request b   | gathered ├── read of a, b and c ──┤
//! request c   |
//! request d                    | gathered ├── read of d and e ──┤
//! request e                    |
//! request f                          | gathered   ├── read of f and g ──┤
//! request g                                     |
//! ```
//!
//! A page that several requests want is read once. Not shared are:
//!
//! - a page that a read did not find which began before it was requested: it may have been stored since, so it is read again;
//! - errors, except that the store does not answer: a read may fail for what another request wants, so each is repeated alone;
//! - requests for more than [`MAX_MERGED_PAGES`] pages, which would delay others.
//!
//! Chunks of payloads, and many payloads, are read beside nothing else, and in turn with other requests: they are long.
//!
//! The threads are the caller's ([`Reads::next`], [`Reads::supply`]). They parse the pages, and put them into the cache.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use coregw_core::{Digest, Error, Kind, Page, PageCache, RootCid, Suite};
use coregw_ops::{Lookahead, WantedPage};
use parking_lot::{Condvar, Mutex, MutexGuard};

pub use crate::batch::{Batch, Failure, Found, FoundPage, HeldPayload, Multihash, Reply, SMALL_PAYLOAD_BYTES};
use crate::batch::{Home, ReplyTo, closed, reply};

/// A request for more pages than these is a read of its own.
pub const MAX_MERGED_PAGES: usize = 64;
/// The pages, and the other requests, of one batch.
const MAX_BATCH_PAGES: usize = 512;
const MAX_BATCH_WISHES: usize = 256;
/// Requests for chunks of payloads, or for many payloads, that are answered by one visit.
const MAX_BATCH_BULK: usize = 4;
/// A page that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    digest: Digest,
    /// A root of its tree, if it is to be parsed.
    root: Option<RootCid>,
}

impl Wanted {
    fn tree(&self) -> Option<(Kind, Suite)> {
        self.root.map(|root| (root.kind, root.suite))
    }
}

/// Pages that one request wants.
struct PageRequest {
    wanted: Vec<Wanted>,
    found: Vec<FoundPage>,
    /// Pages whose reads have not ended.
    left: usize,
    /// Numbers of pages to read again.
    again: Vec<usize>,
    reply: ReplyTo<Vec<FoundPage>>,
}

/// A page that is gathered or in flight.
#[derive(Default)]
struct PageEntry {
    in_flight: bool,
    waiters: Vec<Waiter>,
}

struct Waiter {
    part: u64,
    number: usize,
    /// Whether the read was in flight when it was requested.
    is_early: bool,
}

/// A request for something else than pages.
enum Wish {
    Roots { roots: Vec<RootCid>, lookahead: Vec<Lookahead>, reply: ReplyTo<Vec<Option<bool>>> },
    Payloads { names: Vec<Multihash>, reply: ReplyTo<Vec<Option<HeldPayload>>> },
    Sizes { names: Vec<Multihash>, reply: ReplyTo<Vec<Option<u64>>> },
    Chunk { name: Multihash, range: Range<u64>, reply: ReplyTo<Bytes> },
}

impl Wish {
    fn is_bulk(&self) -> bool {
        match self {
            Wish::Chunk { .. } => true,
            Wish::Payloads { names, .. } => names.len() > 1,
            Wish::Roots { .. } | Wish::Sizes { .. } => false,
        }
    }

    fn is_dropped(&self) -> bool {
        match self {
            Wish::Roots { reply, .. } => reply.is_closed(),
            Wish::Payloads { reply, .. } => reply.is_closed(),
            Wish::Sizes { reply, .. } => reply.is_closed(),
            Wish::Chunk { reply, .. } => reply.is_closed(),
        }
    }

    fn fail(self, failure: Failure) {
        // Nobody may be waiting.
        match self {
            Wish::Roots { reply, .. } => drop(reply.send(Err(failure))),
            Wish::Payloads { reply, .. } => drop(reply.send(Err(failure))),
            Wish::Sizes { reply, .. } => drop(reply.send(Err(failure))),
            Wish::Chunk { reply, .. } => drop(reply.send(Err(failure))),
        }
    }
}

/// What is read alone.
enum Alone {
    Pages { part: u64, numbers: Vec<usize> },
    Wish(Wish),
}

/// A batch that a thread has taken.
struct Flight {
    generation: u64,
    /// The pages, and of which tree the first request took each to be; of one request only if it is alone.
    pages: Vec<Wanted>,
    alone: Option<(u64, Vec<usize>)>,
    wishes: Vec<Wish>,
    roots: Vec<RootCid>,
    payloads: usize,
    sizes: usize,
    chunks: usize,
    /// The suites of the maps whose pages are read early.
    suites: Vec<Suite>,
    is_repeated: bool,
}

#[derive(Default)]
struct Queue {
    last_id: u64,
    idle: usize,
    is_closed: bool,
    entries: HashMap<Digest, PageEntry>,
    gathered: VecDeque<Digest>,
    parts: HashMap<u64, PageRequest>,
    wishes: VecDeque<Wish>,
    /// What takes long to read.
    bulk: VecDeque<Wish>,
    alone: VecDeque<Alone>,
    flights: HashMap<u64, Flight>,
    /// Requests for pages whose reads have ended, with what was found.
    ended: Vec<(ReplyTo<Vec<FoundPage>>, Vec<FoundPage>)>,
    /// Whether the last batch was bulk: then something else comes first.
    was_bulk: bool,
}

/// The reads of one store.
pub struct Reads {
    cache: Arc<PageCache>,
    is_guided: bool,
    state: Mutex<Queue>,
    arrived: Condvar,
    home: Home,
    reads: AtomicU64,
    pages_read: AtomicU64,
}

impl Reads {
    /// A queue without requests. Of a store with guides, pages are read early.
    pub fn new(cache: Arc<PageCache>, is_guided: bool) -> Arc<Self> {
        let (state, arrived, home) = (Mutex::default(), Condvar::new(), Home::default());
        let (reads, pages_read) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { cache, is_guided, state, arrived, home, reads, pages_read })
    }

    /// How many batches were read, and pages.
    pub fn figures(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.pages_read.load(Ordering::Relaxed))
    }

    // --- requests -----------------------------------------------------------------------------------------------------

    /// Requests pages, which are parsed and put into the cache.
    pub fn pages(&self, wanted: &[WantedPage]) -> Reply<Vec<FoundPage>> {
        self.want(wanted.iter().map(|each| Wanted { digest: each.digest, root: Some(each.root) }).collect())
    }

    /// Requests pages as they are stored.
    pub fn stored_pages(&self, digests: &[Digest]) -> Reply<Vec<FoundPage>> {
        self.want(digests.iter().map(|digest| Wanted { digest: *digest, root: None }).collect())
    }

    /// Requests the records of roots; what `lookahead` names is read in the same visit, and put into the cache.
    pub async fn roots(&self, roots: Vec<RootCid>, lookahead: Vec<Lookahead>) -> Result<Vec<Option<bool>>, Failure> {
        let (reply, found) = reply();
        let top = |each: &Lookahead| Wanted { digest: each.root.digest, root: Some(each.root) };
        let is_followed = |each: &Lookahead| self.is_guided && !each.keys.is_empty();
        let (followed, read): (Vec<_>, Vec<_>) = lookahead.into_iter().partition(is_followed);
        let top_pages = self.request(|queue| {
            queue.wish(Wish::Roots { roots, lookahead: followed, reply });
            (!read.is_empty()).then(|| queue.want(read.iter().map(top).collect()))
        });
        let found = found.found().await;
        if let Some(pages) = top_pages {
            let _ = pages.found().await; // they may not be needed, so a failure counts only when they are
        }
        found
    }

    /// Requests payloads: their sizes, and the bytes of small ones. Together these have about a mebibyte at most.
    pub fn payloads(&self, names: Vec<Multihash>) -> Reply<Vec<Option<HeldPayload>>> {
        let (to, found) = reply();
        self.request(|queue| queue.wish(Wish::Payloads { names, reply: to }));
        found
    }

    /// Requests the sizes of payloads.
    pub fn sizes(&self, names: Vec<Multihash>) -> Reply<Vec<Option<u64>>> {
        let (to, found) = reply();
        self.request(|queue| queue.wish(Wish::Sizes { names, reply: to }));
        found
    }

    /// Requests a part of a payload, of at most a mebibyte.
    pub fn chunk(&self, name: Multihash, range: Range<u64>) -> Reply<Bytes> {
        let (to, found) = reply();
        self.request(|queue| queue.wish(Wish::Chunk { name, range, reply: to }));
        found
    }

    fn want(&self, wanted: Vec<Wanted>) -> Reply<Vec<FoundPage>> {
        self.request(|queue| queue.want(wanted))
    }

    /// Adds requests to the queue, for tasks of one runtime.
    fn request<T>(&self, add: impl FnOnce(&mut Queue) -> T) -> T {
        self.home.note();
        let added = add(&mut self.lock());
        self.arrived.notify_one();
        added
    }

    // --- visits -------------------------------------------------------------------------------------------------------

    /// Waits for requests, and takes some of them; None after [`Reads::close`]. For any number of threads.
    pub fn next(&self) -> Option<Batch> {
        let mut state = self.lock();
        loop {
            if let Some(batch) = state.take(self.cache.generation()) {
                let more = state.has_some() && state.idle > 0;
                drop(state);
                if more {
                    self.arrived.notify_one();
                }
                self.reads.fetch_add(1, Ordering::Relaxed);
                self.pages_read.fetch_add(batch.pages.len() as u64, Ordering::Relaxed);
                return Some(batch);
            }
            if state.is_closed {
                return None;
            }
            state.idle += 1;
            self.arrived.wait(&mut state);
            state.idle -= 1;
        }
    }

    /// Answers the requests of a batch, and parses its pages. Unknown batches are ignored.
    pub fn supply(&self, batch: u64, found: Result<Found, Failure>) {
        let Some(flight) = self.lock().flights.remove(&batch) else { return };
        match found {
            Ok(found) if flight.fits(&found) => self.deliver(flight, found),
            Ok(_) => self.lock().fail(flight, &Failure::Internal),
            Err(failure) => self.lock().fail(flight, &failure),
        }
        self.arrived.notify_one(); // what is read again
    }

    /// Ends the queue: requests fail from now on, and threads have no more to do.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.drop_all(&closed());
        drop(state);
        self.arrived.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.state.lock()
    }

    fn deliver(&self, flight: Flight, found: Found) {
        for (root, held) in flight.roots.iter().zip(&found.roots) {
            if *held == Some(true) {
                self.cache.remember(*root, flight.generation);
            }
        }
        for (digest, bytes) in &found.early {
            let page = flight.suites.iter().find_map(|suite| Page::parse(bytes, Kind::Map, *suite, digest).ok());
            page.into_iter().for_each(|page| self.cache.insert(Arc::new(page)));
        }
        self.pages_read.fetch_add(found.early.len() as u64, Ordering::Relaxed);
        let pages: Vec<_> =
            flight.pages.iter().zip(found.pages).map(|(wanted, page)| self.parse(wanted, page)).collect();
        let Flight { alone, wishes, roots, pages: wanted, .. } = flight;
        let held: HashMap<RootCid, Option<bool>> = roots.into_iter().zip(found.roots).collect();
        let mut state = self.lock();
        match alone {
            Some((part, numbers)) => state.settle(part, numbers, pages),
            None => state.share(&wanted, &pages),
        }
        let ended = std::mem::take(&mut state.ended);
        drop(state);
        self.home.send(move || {
            answer(wishes, &held, found.payloads, found.sizes, found.chunks);
            ended.into_iter().for_each(|(reply, pages)| drop(reply.send(Ok(pages)))); // clients may have left
        });
    }

    /// Parses a page for the first request that wants it, if any wants it parsed.
    fn parse(&self, wanted: &Wanted, bytes: Option<Vec<u8>>) -> ReadPage {
        let bytes = bytes.map(Bytes::from);
        let parsed = wanted.root.zip(bytes.as_ref()).map(|(root, bytes)| {
            let page = Page::of_store(&root, &wanted.digest, Some(bytes));
            page.iter().for_each(|page| self.cache.insert(Arc::clone(page)));
            page
        });
        ReadPage { tree: wanted.tree(), bytes, parsed }
    }
}

/// Answers the requests for something else than pages, in the order in which they were taken.
fn answer(
    wishes: Vec<Wish>,
    held: &HashMap<RootCid, Option<bool>>,
    payloads: Vec<Option<(u64, Option<Vec<u8>>)>>,
    sizes: Vec<Option<u64>>,
    chunks: Vec<Vec<u8>>,
) {
    let mut payloads =
        payloads.into_iter().map(|each| each.map(|(size, bytes)| HeldPayload { size, bytes: bytes.map(Bytes::from) }));
    let (mut sizes, mut chunks) = (sizes.into_iter(), chunks.into_iter());
    for wish in wishes {
        // Clients may have left.
        match wish {
            Wish::Roots { roots, reply, .. } => {
                let found = roots.iter().map(|root| held.get(root).copied().flatten()).collect();
                drop(reply.send(Ok(found)));
            }
            Wish::Payloads { names, reply } => {
                drop(reply.send(Ok(payloads.by_ref().take(names.len()).collect())));
            }
            Wish::Sizes { names, reply } => drop(reply.send(Ok(sizes.by_ref().take(names.len()).collect()))),
            Wish::Chunk { reply, .. } => drop(reply.send(Ok(Bytes::from(chunks.next().unwrap_or_default())))),
        }
    }
}

/// A page that was read, parsed as one of a tree.
struct ReadPage {
    tree: Option<(Kind, Suite)>,
    bytes: Option<Bytes>,
    parsed: Option<Result<Arc<Page>, Error>>,
}

impl ReadPage {
    fn as_wanted(&self, wanted: &Wanted) -> FoundPage {
        let Some(bytes) = &self.bytes else { return FoundPage::Missing };
        match (&wanted.root, &self.parsed) {
            (None, _) => FoundPage::Bytes(bytes.clone()),
            (Some(_), Some(parsed)) if self.tree == wanted.tree() => FoundPage::Parsed(parsed.clone()),
            // Few pages are read as of two trees, or as they are stored and parsed at once.
            (Some(root), _) => FoundPage::Parsed(Page::of_store(root, &wanted.digest, Some(bytes))),
        }
    }
}

impl Flight {
    fn fits(&self, found: &Found) -> bool {
        self.pages.len() == found.pages.len()
            && self.roots.len() == found.roots.len()
            && self.payloads == found.payloads.len()
            && self.sizes == found.sizes.len()
            && self.chunks == found.chunks.len()
    }
}

impl Queue {
    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn has_some(&self) -> bool {
        !(self.gathered.is_empty() && self.wishes.is_empty() && self.bulk.is_empty() && self.alone.is_empty())
    }

    fn wish(&mut self, wish: Wish) {
        if self.is_closed {
            wish.fail(closed());
        } else if wish.is_bulk() {
            self.bulk.push_back(wish);
        } else {
            self.wishes.push_back(wish);
        }
    }

    fn want(&mut self, wanted: Vec<Wanted>) -> Reply<Vec<FoundPage>> {
        let (reply, found) = reply();
        if self.is_closed || wanted.is_empty() {
            let answer = if self.is_closed { Err(closed()) } else { Ok(Vec::new()) };
            let _ = reply.send(answer); // it is held below
            return found;
        }
        let id = self.new_id();
        let (count, is_large) = (wanted.len(), wanted.len() > MAX_MERGED_PAGES);
        if is_large {
            self.alone.push_back(Alone::Pages { part: id, numbers: (0..count).collect() });
        } else {
            for (number, each) in wanted.iter().enumerate() {
                let is_new = !self.entries.contains_key(&each.digest);
                let entry = self.entries.entry(each.digest).or_default();
                entry.waiters.push(Waiter { part: id, number, is_early: entry.in_flight });
                if is_new {
                    self.gathered.push_back(each.digest);
                }
            }
        }
        let found_pages = vec![FoundPage::Missing; count];
        self.parts.insert(id, PageRequest { wanted, found: found_pages, left: count, again: Vec::new(), reply });
        found
    }

    /// Takes what a visit is for, if there is something.
    fn take(&mut self, generation: u64) -> Option<Batch> {
        let mut batch = Batch { id: self.new_id(), ..Batch::default() };
        let mut flight = Flight {
            generation,
            pages: Vec::new(),
            alone: None,
            wishes: Vec::new(),
            roots: Vec::new(),
            payloads: 0,
            sizes: 0,
            chunks: 0,
            suites: Vec::new(),
            is_repeated: false,
        };
        let is_bulk = !self.was_bulk && self.take_bulk(&mut flight);
        let is_other = !is_bulk && (self.take_alone(&mut flight) || self.take_gathered(&mut flight));
        if !is_bulk && !is_other && !self.take_bulk(&mut flight) {
            return None;
        }
        self.was_bulk = !is_other;
        flight.describe(&mut batch);
        self.flights.insert(batch.id, flight);
        Some(batch)
    }

    fn take_bulk(&mut self, flight: &mut Flight) -> bool {
        while flight.wishes.len() < MAX_BATCH_BULK {
            let Some(wish) = self.bulk.pop_front() else { break };
            if !wish.is_dropped() {
                flight.wishes.push(wish);
            }
        }
        !flight.wishes.is_empty()
    }

    fn take_alone(&mut self, flight: &mut Flight) -> bool {
        while let Some(alone) = self.alone.pop_front() {
            flight.is_repeated = true;
            match alone {
                Alone::Pages { part, numbers } => {
                    let Some(request) = self.parts.get(&part) else { continue };
                    if request.reply.is_closed() {
                        self.parts.remove(&part);
                        continue;
                    }
                    flight.pages = numbers.iter().map(|number| request.wanted[*number]).collect();
                    flight.alone = Some((part, numbers));
                }
                Alone::Wish(wish) if wish.is_dropped() => continue,
                Alone::Wish(wish) => flight.wishes.push(wish),
            }
            return true;
        }
        flight.is_repeated = false;
        false
    }

    fn take_gathered(&mut self, flight: &mut Flight) -> bool {
        // Half of it, if another thread is free to read the other half at the same time.
        let share = |count: usize| if self.idle > 0 { count.div_ceil(2) } else { count };
        let (pages, wishes) = (share(self.gathered.len()), share(self.wishes.len()));
        for _ in 0..pages.min(MAX_BATCH_PAGES) {
            let Some(digest) = self.gathered.pop_front() else { break };
            if let Some(wanted) = self.depart(digest) {
                flight.pages.push(wanted);
            }
        }
        for _ in 0..wishes.min(MAX_BATCH_WISHES) {
            let Some(wish) = self.wishes.pop_front() else { break };
            if !wish.is_dropped() {
                flight.wishes.push(wish);
            }
        }
        if flight.pages.is_empty() && flight.wishes.is_empty() {
            // All of it was dropped.
            return self.has_gathered() && self.take_gathered(flight);
        }
        true
    }

    fn has_gathered(&self) -> bool {
        !(self.gathered.is_empty() && self.wishes.is_empty())
    }

    /// Notes that a page is in flight, unless all requests that want it were dropped.
    fn depart(&mut self, digest: Digest) -> Option<Wanted> {
        let entry = self.entries.get_mut(&digest)?;
        let parts = &mut self.parts;
        entry.waiters.retain(|waiter| match parts.get(&waiter.part) {
            Some(part) if part.reply.is_closed() => {
                parts.remove(&waiter.part);
                false
            }
            found => found.is_some(),
        });
        let Some(first) = entry.waiters.first() else {
            self.entries.remove(&digest);
            return None;
        };
        entry.in_flight = true;
        let wanted = |waiter: &Waiter| parts[&waiter.part].wanted[waiter.number];
        // Parsed, if any request wants that.
        Some(entry.waiters.iter().map(wanted).find(|each| each.root.is_some()).unwrap_or_else(|| wanted(first)))
    }

    /// Gives pages to all requests that wait for them.
    fn share(&mut self, wanted: &[Wanted], pages: &[ReadPage]) {
        for (each, page) in wanted.iter().zip(pages) {
            let Some(entry) = self.entries.remove(&each.digest) else { continue };
            for waiter in entry.waiters {
                let Some(part) = self.parts.get_mut(&waiter.part) else { continue };
                if page.bytes.is_none() && waiter.is_early {
                    part.again.push(waiter.number);
                } else {
                    part.found[waiter.number] = page.as_wanted(&part.wanted[waiter.number]);
                }
                self.count_down(waiter.part);
            }
        }
    }

    /// Gives pages to the only request for which they were read.
    fn settle(&mut self, id: u64, numbers: Vec<usize>, pages: Vec<ReadPage>) {
        let Some(mut part) = self.parts.remove(&id) else { return };
        for (number, page) in numbers.into_iter().zip(pages) {
            part.found[number] = page.as_wanted(&part.wanted[number]);
        }
        self.ended.push((part.reply, part.found));
    }

    /// Notes that the read of one page of a request has ended.
    fn count_down(&mut self, id: u64) {
        let Some(part) = self.parts.get_mut(&id) else { return };
        part.left -= 1;
        if part.left > 0 {
            return;
        }
        if part.again.is_empty() {
            self.settle(id, Vec::new(), Vec::new());
        } else {
            let numbers = std::mem::take(&mut part.again);
            self.alone.push_back(Alone::Pages { part: id, numbers });
        }
    }

    /// Tells the requests of a batch that it failed, or reads them again, each alone.
    fn fail(&mut self, flight: Flight, failure: &Failure) {
        let is_of_all = self.is_closed || matches!(failure, Failure::Unavailable(_));
        let is_final = flight.is_repeated || is_of_all || self.is_of_one_request(&flight);
        if let Some((id, _)) = flight.alone {
            self.drop_part(id, failure);
        } else {
            for wanted in &flight.pages {
                let Some(entry) = self.entries.remove(&wanted.digest) else { continue };
                for waiter in entry.waiters {
                    let Some(part) = self.parts.get_mut(&waiter.part) else { continue };
                    if is_final {
                        self.drop_part(waiter.part, failure);
                    } else {
                        part.again.push(waiter.number);
                        self.count_down(waiter.part);
                    }
                }
            }
        }
        for wish in flight.wishes {
            if is_final { wish.fail(failure.clone()) } else { self.alone.push_back(Alone::Wish(wish)) }
        }
    }

    /// Whether nobody else wanted anything of a batch.
    fn is_of_one_request(&self, flight: &Flight) -> bool {
        let entries = flight.pages.iter().filter_map(|wanted| self.entries.get(&wanted.digest));
        let parts: HashSet<u64> = entries.flat_map(|entry| entry.waiters.iter().map(|waiter| waiter.part)).collect();
        parts.len() + flight.wishes.len() <= 1
    }

    fn drop_part(&mut self, id: u64, failure: &Failure) {
        if let Some(part) = self.parts.remove(&id) {
            let _ = part.reply.send(Err(failure.clone())); // the client may have left
        }
    }

    fn drop_all(&mut self, failure: &Failure) {
        let ids: Vec<u64> = self.parts.keys().copied().collect();
        ids.into_iter().for_each(|id| self.drop_part(id, failure));
        self.gathered.clear();
        self.entries.clear();
        let wishes = [&mut self.wishes, &mut self.bulk].map(std::mem::take).into_iter().flatten().map(Alone::Wish);
        for alone in wishes.chain(std::mem::take(&mut self.alone)) {
            match alone {
                Alone::Pages { part, .. } => self.drop_part(part, failure),
                Alone::Wish(wish) => wish.fail(failure.clone()),
            }
        }
    }
}

impl Flight {
    /// Writes down what the store is asked.
    fn describe(&mut self, batch: &mut Batch) {
        batch.pages = self.pages.iter().map(|wanted| wanted.digest).collect();
        let mut known = HashSet::new();
        for wish in &self.wishes {
            match wish {
                Wish::Roots { roots, lookahead, .. } => {
                    self.roots.extend(roots.iter().filter(|root| known.insert(**root)));
                    for each in lookahead {
                        batch.descents.push((each.root.digest, each.keys.clone()));
                        if !self.suites.contains(&each.root.suite) {
                            self.suites.push(each.root.suite);
                        }
                    }
                }
                Wish::Payloads { names, .. } => batch.payloads.extend(names.iter().cloned()),
                Wish::Sizes { names, .. } => batch.sizes.extend(names.iter().cloned()),
                Wish::Chunk { name, range, .. } => batch.chunks.push((name.clone(), range.clone())),
            }
        }
        batch.roots.clone_from(&self.roots);
        (self.payloads, self.sizes, self.chunks) = (batch.payloads.len(), batch.sizes.len(), batch.chunks.len());
    }
}
