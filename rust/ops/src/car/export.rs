//! Export: a held root as CARv1, from its pages.
//!
//! Nodes are written depth first from the top, each tree before the trees of the held roots nested in it, which follow in
//! the order in which they were found. Each page is read once, so the output is in proportion to what is stored even
//! where a tree repeats itself. The bytes of payloads are the caller's: the output names the payloads that come next.
//! With payloads, the last block is still a node, so that a truncated stream is missing one (unless the root is the only
//! node: it is first and last).
//!
//! An export that continues another one visits the same nodes, and leaves out what comes before a block that it is given:
//! what is held may differ by then, so the number of bytes or blocks that were written says too little.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use coregw_core::internals::arena::{NodeId, PathBuffer, Side, State};
use coregw_core::{Cid, Digest, Error, InputCode, Kind, Page, PageCache, PageSource, Result, RootCid, varint};

use super::format::{block_head, car_header};
use super::index::payload_key;
use crate::run::{Operation, WantedPage};
use crate::trees::Trees;

/// Pages to request at once: those that come next below the current page.
const PAGES_AT_ONCE: usize = 32;
/// Nested roots to look up at once.
const ROOTS_AT_ONCE: usize = 1024;
/// Payloads to name in one output.
const PAYLOADS_AT_ONCE: usize = 256;
/// The limit on the roots in one export; each takes about 100 bytes of memory.
const MAX_ROOTS: usize = 1 << 18;
/// Pages and payloads that are remembered as written. Older ones may be written again.
const REMEMBERED: usize = 1 << 17;

impl Operation {
    /// Writes a root as a CAR, with the payloads that its leaves name if `with_payloads`.
    ///
    /// The operation outputs about `output_bytes` at a time, and ends with an empty response. With `after`, it outputs the
    /// header and what follows that block. It fails with [`Error::NotFound`] if the root is not held, and with
    /// [`Error::Input`] if too many roots are nested in it, or, before any output, if there is no such block.
    pub fn export_car(
        cache: Arc<PageCache>,
        root: RootCid,
        with_payloads: bool,
        after: Option<BlockPlace>,
        output_bytes: usize,
    ) -> Self {
        Self::new(|slot| export(Export::new(Trees { cache, slot }, root, with_payloads, after, output_bytes)))
    }
}

async fn export(mut export: Export) -> Result<Vec<u8>> {
    export.trees.check_held(&[export.root]).await?;
    while let Some(tree) = export.next_tree().await {
        export.write_tree(tree).await?;
    }
    export.finish().await;
    match export.after {
        None => Ok(Vec::new()),
        Some(after) => Err(Error::request(format!("after: {} has no such block {}", export.root, after.cid))),
    }
}

/// A block of an export. Trees may share nodes, so a block can occur repeatedly.
#[derive(Debug, Clone, Copy)]
pub struct BlockPlace {
    /// Its CID.
    pub cid: Cid,
    /// Which of the blocks with this CID it is, from 1.
    pub occurrence: u64,
}

impl BlockPlace {
    /// Returns what follows the block in what is output at once: frames of nodes, then payloads. `None` if it comes
    /// later; the blocks with its CID are counted then.
    fn following(&mut self, frames: &[u8], payloads: &[Cid]) -> Option<(Vec<u8>, Vec<Cid>)> {
        let mut rest = frames;
        while let Ok((len, n)) = varint::read(rest) {
            let (frame, others) = rest[n..].split_at(len as usize);
            if frame.starts_with(self.cid.as_bytes()) && self.is_found() {
                return Some((others.to_vec(), payloads.to_vec()));
            }
            rest = others;
        }
        let at = payloads.iter().position(|payload| *payload == self.cid && self.is_found())?;
        Some((Vec::new(), payloads[at + 1..].to_vec()))
    }

    fn is_found(&mut self) -> bool {
        self.occurrence = self.occurrence.saturating_sub(1);
        self.occurrence == 0
    }
}

/// The most recent items, at least `REMEMBERED` and at most twice as many.
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

    /// Adds an item; false if it is remembered already.
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
struct Unwritten {
    page: Arc<Page>,
    node: NodeId,
    floor: u32,
    turn: Option<(u32, Side)>,
}

struct Export {
    trees: Trees,
    root: RootCid,
    with_payloads: bool,
    /// The block before the first one to output, until it is found.
    after: Option<BlockPlace>,
    output_bytes: usize,
    /// The tree that is being written.
    tree: RootCid,
    path: PathBuffer,
    /// Held roots whose trees come next.
    queue: VecDeque<RootCid>,
    /// All roots that were found.
    found: HashSet<RootCid>,
    /// Those of them of which it is not known yet whether they are held.
    undecided: Vec<RootCid>,
    written: Recent<Digest>,
    named: Recent<Digest>,
    /// Pages that were loaded ahead. They do not go into the cache, whose content is worth more.
    loaded: HashMap<Digest, Arc<Page>>,
    out: Vec<u8>,
    /// The last node, held back while payloads may have to precede it.
    last_node: Vec<u8>,
    payloads: Vec<Cid>,
    /// The encoding of one node.
    block: Vec<u8>,
    /// Whether the first node was written, which is never held back.
    has_begun: bool,
}

impl Export {
    fn new(trees: Trees, root: RootCid, with_payloads: bool, after: Option<BlockPlace>, output_bytes: usize) -> Self {
        Self {
            trees,
            root,
            with_payloads,
            after,
            output_bytes,
            tree: root,
            path: PathBuffer::default(),
            queue: VecDeque::from([root]),
            found: HashSet::from([root]),
            undecided: Vec::new(),
            written: Recent::new(),
            named: Recent::new(),
            loaded: HashMap::new(),
            out: car_header(&[root.cid()]),
            last_node: Vec::new(),
            payloads: Vec::new(),
            block: Vec::new(),
            has_begun: false,
        }
    }

    /// The next held root; `None` if all trees are written.
    async fn next_tree(&mut self) -> Option<RootCid> {
        if self.queue.is_empty() && !self.undecided.is_empty() {
            self.queue_held_roots().await;
        }
        self.queue.pop_front()
    }

    async fn queue_held_roots(&mut self) {
        let roots = std::mem::take(&mut self.undecided);
        let held = self.trees.slot.roots(roots.clone()).await;
        self.queue.extend(roots.into_iter().zip(held).filter(|(_, is_held)| *is_held).map(|(root, _)| root));
    }

    async fn write_tree(&mut self, tree: RootCid) -> Result<()> {
        self.tree = tree;
        let page = self.page(&tree.digest, None).await?;
        if !self.written.insert(tree.digest) {
            return Ok(());
        }
        let mut rest = vec![Unwritten { page, node: Page::TOP, floor: 0, turn: None }];
        while let Some(next) = rest.pop() {
            if self.out.len() >= self.output_bytes || self.payloads.len() >= PAYLOADS_AT_ONCE {
                self.flush().await;
            }
            if self.undecided.len() >= ROOTS_AT_ONCE {
                self.queue_held_roots().await;
            }
            if !matches!(next.page.arena.node(next.node).state, State::Stub { .. }) {
                self.write(&next, &mut rest)?;
                continue;
            }
            let digest = next.page.arena.node(next.node).digest;
            if !self.written.contains(&digest) {
                let page = self.page(&digest, Some(&next)).await?;
                self.written.insert(digest);
                rest.push(Unwritten { page, node: Page::TOP, ..next });
            }
        }
        Ok(())
    }

    async fn flush(&mut self) {
        let (mut bytes, mut payloads) = (std::mem::take(&mut self.out), std::mem::take(&mut self.payloads));
        if let Some(after) = &mut self.after {
            let Some((frames, others)) = after.following(&bytes, &payloads) else {
                return self.trees.slot.more_budget().await;
            };
            // The header is part of what is skipped, so that each output ends where it did before.
            (bytes, payloads) = ([car_header(&[self.root.cid()]), frames].concat(), others);
            self.after = None;
        }
        self.trees.slot.output(bytes, payloads).await;
    }

    async fn finish(&mut self) {
        if !self.out.is_empty() || !self.payloads.is_empty() {
            self.flush().await;
        }
        if !self.last_node.is_empty() {
            self.out = std::mem::take(&mut self.last_node);
            self.flush().await;
        }
    }

    /// The page with this digest, and with a stub that leads to it, also the pages that come after it are loaded.
    async fn page(&mut self, digest: &Digest, stub: Option<&Unwritten>) -> Result<Arc<Page>> {
        let page = match self.loaded.remove(digest).or_else(|| self.trees.cache.page(digest)) {
            Some(page) => page,
            None => {
                let wanted = self.wanted(digest, stub);
                let pages = self.trees.slot.pages(wanted).await;
                self.loaded.extend(pages.into_iter().map(|page| (page.digest(), page)));
                let missing = || Error::damaged(format!("page {digest} of {} is missing", self.tree));
                self.loaded.remove(digest).ok_or_else(missing)?
            }
        };
        if page.kind != self.tree.kind || page.suite != self.tree.suite {
            return Err(Error::damaged(format!("page {digest} is of another kind or suite than its tree")));
        }
        Ok(page)
    }

    fn wanted(&self, digest: &Digest, stub: Option<&Unwritten>) -> Vec<WantedPage> {
        let mut digests = vec![*digest];
        let following = stub.map_or(&[][..], |stub| &stub.page.arena.nodes[stub.node.0 as usize..]);
        for node in following.iter().filter(|node| matches!(node.state, State::Stub { .. })) {
            if digests.len() == PAGES_AT_ONCE {
                break;
            }
            let digest = node.digest;
            if !digests.contains(&digest) && !self.loaded.contains_key(&digest) && !self.written.contains(&digest) {
                digests.push(digest);
            }
        }
        digests.into_iter().map(|digest| WantedPage { root: self.tree, digest }).collect()
    }

    /// Writes the block of a node, and queues its children.
    fn write(&mut self, next: &Unwritten, rest: &mut Vec<Unwritten>) -> Result<()> {
        self.encode(next);
        let arena = &next.page.arena;
        let node = arena.node(next.node);
        let name = RootCid { digest: node.digest, ..self.tree }.cid();
        self.out.append(&mut self.last_node);
        let hold_back = self.with_payloads && std::mem::replace(&mut self.has_begun, true);
        let out = if hold_back { &mut self.last_node } else { &mut self.out };
        out.extend_from_slice(&block_head(&name, self.block.len() as u64));
        out.extend_from_slice(&self.block);
        match node.state {
            State::Inner { bit, left, right, .. } => {
                for (node, side) in [(right, Side::Right), (left, Side::Left)] {
                    let page = Arc::clone(&next.page);
                    rest.push(Unwritten { page, node, floor: bit + 1, turn: Some((bit, side)) });
                }
                Ok(())
            }
            State::Leaf { .. } => self.note_target(&Cid::trusted(arena.target(next.node))),
            _ => Ok(()),
        }
    }

    /// Encodes a node into `block` (protocol section 3).
    fn encode(&mut self, next: &Unwritten) {
        let arena = &next.page.arena;
        let node = arena.node(next.node);
        if let (Some((bit, side)), Kind::Map) = (next.turn, self.tree.kind) {
            self.path.turn(bit, side);
        }
        let path = match &node.state {
            State::Leaf { tail, .. } if self.tree.kind == Kind::Map => {
                self.path.put(next.floor, arena.tail(*tail, next.floor));
                &self.path.0[..tail.key_len()]
            }
            State::Inner { bit, label, .. } if self.tree.kind == Kind::Map => {
                self.path.put(next.floor, arena.label(label, next.floor, *bit));
                &self.path.0[..bit.div_ceil(8) as usize]
            }
            _ => &[],
        };
        self.block.clear();
        next.page.write_block(next.node, path, &mut self.block);
    }

    fn note_target(&mut self, target: &Cid) -> Result<()> {
        match target.root() {
            Some(root) if self.found.insert(root) => {
                self.undecided.push(root);
                if self.found.len() > MAX_ROOTS {
                    let what = format!("{} has more than {MAX_ROOTS} roots nested in it", self.root);
                    return Err(Error::input(InputCode::TooLarge, what));
                }
            }
            // An identity CID contains its payload, so it needs no block.
            None if self.with_payloads && target.identity().is_none() && self.named.insert(payload_key(target)) => {
                self.payloads.push(*target);
            }
            _ => {}
        }
        Ok(())
    }
}
