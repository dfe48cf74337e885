//! Writing a held root as CARv1, from its pages.
//!
//! Nodes come depth-first from the top, each tree's before those of the held roots nested in it, in the order in which
//! they were met. Pages are read once each, so what is written is in proportion to what is stored even where a tree
//! repeats itself. Leaves out the bytes of payloads: it says which come next, and the caller writes them. The last block
//! is a node, so that a stream that was cut lacks one (but where the root is the only node: it is first and last).

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use super::index::payload_key;
use super::{block_head, header};
use crate::ops::{Need, not_held};
use coregw_core::Digest;
use coregw_core::internals::arena::{NodeId, PathBuffer, Side, State};
use coregw_core::internals::node::{Encoding, ListInner, ListLeaf, MapInner, MapLeaf, Tag};
use coregw_core::{Cid, Kind, RootCid};
use coregw_core::{Error, InputCode, Result};
use coregw_core::{NodeSource, Page, PageCache};

/// Pages asked for at once: those that come next on the page at hand.
const PAGES_AHEAD: usize = 32;
/// Nested roots asked for at once.
const ROOTS_AHEAD: usize = 1024;
/// Payloads handed out at once.
const PAYLOADS_AHEAD: usize = 256;
/// Roots in one export: each takes some 100 bytes of memory.
const MAX_ROOTS: usize = 1 << 18;
/// Pages and payloads that are known to have been written. Older ones may be written again.
const REMEMBERED: usize = 1 << 17;

/// What comes next of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The caller has to supply something first.
    Needs(Need),
    /// The next bytes, and payloads to write behind them.
    Part(Vec<u8>, Vec<Cid>),
    /// All is written.
    Done,
}

/// The last things seen, at least `REMEMBERED` and at most twice as many of them.
struct Recent<T> {
    new: HashSet<T>,
    old: HashSet<T>,
}

impl<T: Eq + Hash> Recent<T> {
    fn new() -> Self {
        Self { new: HashSet::new(), old: HashSet::new() }
    }

    fn contains(&self, item: &T) -> bool {
        self.new.contains(item) || self.old.contains(item)
    }

    /// Whether the item is not known; it is then.
    fn insert(&mut self, item: T) -> bool {
        if self.contains(&item) {
            return false;
        }
        if self.new.len() == REMEMBERED {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(item)
    }
}

/// A node to write: its page, its floor, and how its parent leads to it.
struct Ahead {
    page: Arc<Page>,
    node: NodeId,
    floor: u32,
    turn: Option<(u32, Side)>,
}

/// An export on its way.
pub struct Export {
    cache: Arc<PageCache>,
    root: RootCid,
    with_payloads: bool,
    /// Whether the store holds the root; None until it is asked.
    held: Option<bool>,
    /// The tree at hand.
    tree: RootCid,
    path: PathBuffer,
    rest: Vec<Ahead>,
    /// Held roots whose trees come next.
    queue: VecDeque<RootCid>,
    /// All roots that were met.
    met: HashSet<RootCid>,
    /// Those of them that it is not known of whether they are held.
    ask: Vec<RootCid>,
    asked: Vec<RootCid>,
    written: Recent<Digest>,
    handed_out: Recent<Digest>,
    wanted: Vec<Digest>,
    /// Pages that were supplied and not yet come to. They do not go to the cache, which has better to hold.
    supplied: HashMap<Digest, Arc<Page>>,
    out: Vec<u8>,
    /// The newest node, if payloads may have to come before it.
    last: Vec<u8>,
    payloads: Vec<Cid>,
    block: Vec<u8>,
    begun: bool,
}

impl Export {
    /// The export of a root, with the payloads that its leaves name if those are wanted. The header comes first.
    pub fn new(cache: Arc<PageCache>, root: RootCid, with_payloads: bool) -> Self {
        Self {
            cache,
            root,
            with_payloads,
            held: None,
            tree: root,
            path: PathBuffer::default(),
            rest: Vec::new(),
            queue: VecDeque::from([root]),
            met: HashSet::from([root]),
            ask: Vec::new(),
            asked: Vec::new(),
            written: Recent::new(),
            handed_out: Recent::new(),
            wanted: Vec::new(),
            supplied: HashMap::new(),
            out: header(&root.cid()),
            last: Vec::new(),
            payloads: Vec::new(),
            block: Vec::new(),
            begun: false,
        }
    }

    /// Goes on until some `bytes` are written, or as far as it can.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the store does not hold the root; [`Error::Damaged`] if its trees are not what they must
    /// be; [`Error::Input`] if too many roots are nested in it.
    pub fn run(&mut self, bytes: usize) -> Result<Progress> {
        match self.held {
            None => return Ok(self.ask_for(vec![self.root])),
            Some(false) => return Err(not_held(&self.root)),
            Some(true) => {}
        }
        loop {
            if self.out.len() >= bytes || self.payloads.len() >= PAYLOADS_AHEAD {
                return Ok(self.part());
            }
            if self.ask.len() >= ROOTS_AHEAD {
                let ask = std::mem::take(&mut self.ask);
                return Ok(self.ask_for(ask));
            }
            let need = if let Some(ahead) = self.rest.pop() {
                self.go_on(ahead)?
            } else if let Some(root) = self.queue.pop_front() {
                self.begin(root)?
            } else if !self.ask.is_empty() {
                let ask = std::mem::take(&mut self.ask);
                Some(self.ask_for(ask))
            } else if !self.out.is_empty() || !self.payloads.is_empty() {
                return Ok(self.part());
            } else if !self.last.is_empty() {
                self.out = std::mem::take(&mut self.last);
                return Ok(self.part());
            } else {
                return Ok(Progress::Done);
            };
            if let Some(need) = need {
                return Ok(need);
            }
        }
    }

    /// Says of each root that was asked for whether the store holds it.
    ///
    /// # Errors
    /// [`Error::Input`] for another number of answers.
    pub fn supply_roots(&mut self, held: &[bool]) -> Result<()> {
        let asked = std::mem::take(&mut self.asked);
        if asked.len() != held.len() {
            return Err(Error::request(format!("{} roots were asked for, not {}", asked.len(), held.len())));
        }
        match self.held {
            None => self.held = held.first().copied(),
            Some(_) => self.queue.extend(asked.iter().zip(held).filter(|pair| *pair.1).map(|pair| *pair.0)),
        }
        Ok(())
    }

    /// Takes the pages that were asked for, in that order; None is a page that the store does not have.
    ///
    /// # Errors
    /// [`Error::Damaged`], naming the page, if one is missing or not what its digest says.
    pub fn supply_pages<B: AsRef<[u8]>>(&mut self, pages: &[Option<B>]) -> Result<()> {
        let wanted = std::mem::take(&mut self.wanted);
        if wanted.len() != pages.len() {
            return Err(Error::request(format!("{} pages were asked for, not {}", wanted.len(), pages.len())));
        }
        for (digest, bytes) in wanted.iter().zip(pages) {
            let missing = || Error::damaged(format!("page {digest} of {} is missing", self.tree));
            let bytes = bytes.as_ref().ok_or_else(missing)?;
            let page = Page::parse(bytes.as_ref(), self.tree.kind, self.tree.suite, digest)?;
            self.supplied.insert(*digest, Arc::new(page));
        }
        Ok(())
    }

    fn part(&mut self) -> Progress {
        Progress::Part(std::mem::take(&mut self.out), std::mem::take(&mut self.payloads))
    }

    fn ask_for(&mut self, roots: Vec<RootCid>) -> Progress {
        self.asked.clone_from(&roots);
        Progress::Needs(Need::Roots(roots))
    }

    /// Begins with the tree of a held root.
    fn begin(&mut self, root: RootCid) -> Result<Option<Progress>> {
        self.tree = root;
        let Some(page) = self.page(&root.digest)? else {
            self.queue.push_front(root);
            self.wanted = vec![root.digest];
            return Ok(Some(Progress::Needs(Need::Pages(self.wanted.clone()))));
        };
        if self.written.insert(root.digest) {
            self.rest.push(Ahead { page, node: Page::TOP, floor: 0, turn: None });
        }
        Ok(None)
    }

    /// Writes a node, or goes on to the page that stands for it.
    fn go_on(&mut self, ahead: Ahead) -> Result<Option<Progress>> {
        let State::Stub { .. } = ahead.page.arena.node(ahead.node).state else {
            self.write(&ahead)?;
            return Ok(None);
        };
        let digest = ahead.page.arena.node(ahead.node).sum.digest;
        if self.written.contains(&digest) {
            return Ok(None);
        }
        let Some(page) = self.page(&digest)? else {
            self.want_from(&ahead);
            self.rest.push(ahead);
            return Ok(Some(Progress::Needs(Need::Pages(self.wanted.clone()))));
        };
        self.written.insert(digest);
        self.rest.push(Ahead { page, node: Page::TOP, ..ahead });
        Ok(None)
    }

    fn page(&mut self, digest: &Digest) -> Result<Option<Arc<Page>>> {
        let page = self.supplied.remove(digest).or_else(|| self.cache.page(digest));
        match page {
            Some(page) if page.kind != self.tree.kind || page.suite != self.tree.suite => {
                Err(Error::damaged(format!("page {digest} is of another kind or suite than its tree")))
            }
            page => Ok(page),
        }
    }

    /// Asks for the page behind a stub, and for those that come after it on the same page.
    fn want_from(&mut self, ahead: &Ahead) {
        for node in &ahead.page.arena.nodes[ahead.node.0 as usize..] {
            let digest = node.sum.digest;
            if matches!(node.state, State::Stub { .. })
                && !self.wanted.contains(&digest)
                && !self.supplied.contains_key(&digest)
                && !self.written.contains(&digest)
            {
                self.wanted.push(digest);
                if self.wanted.len() == PAGES_AHEAD {
                    break;
                }
            }
        }
    }

    fn write(&mut self, ahead: &Ahead) -> Result<()> {
        let arena = &ahead.page.arena;
        let node = arena.node(ahead.node);
        if let (Some((bit, side)), Kind::Map) = (ahead.turn, self.tree.kind) {
            self.path.turn(bit, side);
        }
        self.block.clear();
        let block = &mut self.block;
        match (self.tree.kind, node.state) {
            (Kind::Map, State::Leaf { tail, .. }) => {
                self.path.put(ahead.floor, arena.tail(tail, ahead.floor));
                let key = &self.path.0[..usize::from(tail.start) + usize::from(tail.len)];
                MapLeaf { key, target: arena.target(ahead.node) }.write(block);
            }
            (Kind::Map, State::Inner { bit, label, start, left, right }) => {
                self.path.put(ahead.floor, arena.label(label, start, ahead.floor, bit));
                let path = &self.path.0[..bit.div_ceil(8) as usize];
                MapInner { bit, path, children: [&arena.node(left).sum, &arena.node(right).sum] }.write(block);
            }
            (Kind::List, State::Leaf { .. }) => {
                ListLeaf { measure: node.sum.measure, target: arena.target(ahead.node) }.write(block);
            }
            (Kind::List, State::Inner { left, right, .. }) => {
                ListInner { children: [&arena.node(left).sum, &arena.node(right).sum] }.write(block);
            }
            (Kind::Map, _) => Tag(0x00).write(block),
            (Kind::List, _) => Tag(0x10).write(block),
        }
        let named = RootCid { digest: node.sum.digest, ..self.tree }.cid();
        self.out.append(&mut self.last);
        let hold_back = self.with_payloads && std::mem::replace(&mut self.begun, true);
        let out = if hold_back { &mut self.last } else { &mut self.out };
        out.extend_from_slice(&block_head(&named, self.block.len() as u64));
        out.extend_from_slice(&self.block);
        match node.state {
            State::Inner { bit, left, right, .. } => {
                for (node, side) in [(right, Side::Right), (left, Side::Left)] {
                    let page = Arc::clone(&ahead.page);
                    self.rest.push(Ahead { page, node, floor: bit + 1, turn: Some((bit, side)) });
                }
                Ok(())
            }
            State::Leaf { .. } => self.meet(&Cid::trusted(arena.target(ahead.node))),
            _ => Ok(()),
        }
    }

    /// Notes what a leaf names.
    fn meet(&mut self, target: &Cid) -> Result<()> {
        match target.root() {
            Some(root) if self.met.insert(root) => {
                self.ask.push(root);
                if self.met.len() > MAX_ROOTS {
                    let what = format!("{} has more than {MAX_ROOTS} roots nested in it", self.root);
                    return Err(Error::input(InputCode::TooLarge, what));
                }
            }
            // An identity CID holds its payload, so no block is needed for it.
            None if self.with_payloads
                && target.identity().is_none()
                && self.handed_out.insert(payload_key(target)) =>
            {
                self.payloads.push(*target)
            }
            _ => {}
        }
        Ok(())
    }
}
