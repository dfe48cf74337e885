//! Whether the blocks of a CAR are whole trees: each node is looked at where it stands, and what it says of its children
//! is compared with what they say.
//!
//! A map's nodes say all bits of their path, and a list's shape follows from its counts, so a tree is right if each node
//! fits its parent. A node is gone into once, however often it is met: a few blocks can stand for a list of 2^50 elements.
//! On the way back up it is noted where pages are cut, which depends on what is below alone.

use std::ops::Range;

use super::forming::Forming;
use super::index::{DONE, Index, NodeRecord, ROOT};
use coregw_core::internals::arena::{Node, PathBuffer, Side, State};
use coregw_core::internals::block::Block;
use coregw_core::internals::cut::{self, Child};
use coregw_core::internals::node::Summary;
use coregw_core::key::top_bits;
use coregw_core::{Cid, Kind, RootCid};
use coregw_core::{Error, Result};

/// Bytes that are asked for at once; blocks that are wanted one after the other mostly lie so.
const SPAN: u64 = 16 << 10;

/// Bytes of the CAR that are needed next. There may be fewer of them, at its end.
pub type Span = Range<u64>;

/// The bytes of the CAR that are at hand.
#[derive(Default)]
pub(super) struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// The block of a node, or where to find it.
    pub(super) fn block<'a>(&'a self, record: &NodeRecord) -> Result<Block<'a>, Stop> {
        let len = usize::from(record.len);
        let at = record.offset.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let Some(bytes) = at.and_then(|at| self.bytes.get(at..)).and_then(|rest| rest.get(..len)) else {
            return Err(Stop::Needs(record.offset..record.offset + SPAN));
        };
        let changed = || Stop::Fault(Error::damaged("the CAR changed while it was read"));
        let (cid, block) = Cid::split(bytes).map_err(|_| changed())?;
        if cid != record.root().cid() {
            return Err(changed());
        }
        Block::read(record.root().kind, block).map_err(|_| changed())
    }
}

/// Why a step ends early.
pub(super) enum Stop {
    Needs(Span),
    Fault(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Fault(error)
    }
}

/// An inner node whose children are being looked at.
struct Open {
    node: u32,
    bit: u32,
    children: [Summary; 2],
    /// How many of them were.
    seen: u8,
}

/// A CAR all of whose blocks have their hashes. `check` it, then take its pages.
pub struct Archive {
    roots: Vec<RootCid>,
    pub(super) index: Index,
    pub(super) window: Window,
    /// The roots of the header and those nested in them whose top is here, each once.
    pub(super) found: Vec<u32>,
    /// How many of `found` were gone into.
    begun: usize,
    open: Vec<Open>,
    path: PathBuffer,
    missing: u64,
    checked: bool,
    pub(super) forming: Option<Forming>,
}

impl Archive {
    pub(super) fn new(roots: Vec<RootCid>, index: Index) -> Self {
        Self {
            roots,
            index,
            window: Window::default(),
            found: Vec::new(),
            begun: 0,
            open: Vec::new(),
            path: PathBuffer::default(),
            missing: 0,
            checked: false,
            forming: None,
        }
    }

    /// Takes the bytes that were asked for, from `start` on.
    pub fn supply(&mut self, start: u64, bytes: Vec<u8>) {
        self.window = Window { start, bytes };
    }

    /// Checks the trees, as far as the bytes at hand go. None: all is right.
    ///
    /// # Errors
    /// [`Error::Input`] that names the block where a tree is wrong or lacks one, or which belongs to none.
    pub fn check(&mut self) -> Result<Option<Span>> {
        match self.walk() {
            Ok(()) => {
                self.checked = true;
                Ok(None)
            }
            Err(Stop::Needs(span)) => Ok(Some(span)),
            Err(Stop::Fault(error)) => Err(error),
        }
    }

    /// The roots of the header, and those nested in them whose nodes are here as well. All are whole trees.
    pub fn found(&self) -> impl ExactSizeIterator<Item = RootCid> + '_ {
        self.found.iter().map(|&at| self.index.nodes[at as usize].root())
    }

    /// How many leaves name a payload that is not here.
    pub fn missing_payloads(&self) -> u64 {
        self.missing
    }

    /// Where the payloads lie, each once: the first byte of its CID, and the bytes of CID and payload together.
    pub fn payloads(&self) -> impl ExactSizeIterator<Item = (u64, u32)> + '_ {
        self.index.payloads.iter().map(|record| (record.offset, record.len))
    }

    /// Whether the trees were found right.
    pub(super) fn is_checked(&self) -> bool {
        self.checked
    }

    fn walk(&mut self) -> Result<(), Stop> {
        if self.found.is_empty() {
            for (i, root) in self.roots.iter().enumerate() {
                match self.index.node(root) {
                    Some(at) => find(&mut self.index, &mut self.found, at),
                    None => return Err(Error::request(format!("root {i}, {root}, is not among the blocks")).into()),
                }
            }
        }
        loop {
            match self.open.last() {
                Some(open) if open.seen < 2 => self.child()?,
                Some(_) => self.close(),
                None if self.begun == self.found.len() => break,
                None => {
                    let top = self.found[self.begun];
                    let inner = self.enter(top, None)?;
                    self.open.extend(inner);
                    self.begun += 1;
                }
            }
        }
        match self.index.nodes.iter().filter(|record| !record.has(DONE)).min_by_key(|record| record.number) {
            None => Ok(()),
            Some(stray) => Err(Error::request(format!("{}: no root leads to it", place(stray))).into()),
        }
    }

    /// Goes into the next child of the innermost open node.
    fn child(&mut self) -> Result<(), Stop> {
        let Some(&Open { node, bit, children, seen }) = self.open.last() else {
            return Ok(());
        };
        let parent = self.index.nodes[node as usize];
        let side = if seen == 0 { Side::Left } else { Side::Right };
        let sum = children[usize::from(seen)];
        let root = RootCid { digest: sum.digest, ..parent.root() };
        let Some(at) = self.index.node(&root) else {
            let what = format!("{}: its {} child, {root}, is not among the blocks", place(&parent), name(side));
            return Err(Error::request(what).into());
        };
        if root.kind == Kind::Map {
            self.path.turn(bit, side);
        }
        let inner = self.enter(at, Some((bit, &sum)))?;
        if let Some(open) = self.open.last_mut() {
            open.seen += 1;
        }
        self.open.extend(inner);
        Ok(())
    }

    /// Looks at a node where it stands: a root, or below a node that has this bit and says this of it. Gives back the
    /// node if its children have not been looked at.
    fn enter(&mut self, at: u32, parent: Option<(u32, &Summary)>) -> Result<Option<Open>, Stop> {
        let record = &mut self.index.nodes[at as usize];
        let kind = record.root().kind;
        let block = self.window.block(record)?;
        let (own, extent) = block.own();
        if let Some((bit, sum)) = parent {
            if block.amounts() != (sum.count, sum.measure) {
                let what = format!("{}: its parent says that other amounts are below it", place(record));
                return Err(Error::request(what).into());
            }
            if kind == Kind::Map && (extent <= bit || !same_bits(own, &self.path.0, bit + 1)) {
                return Err(
                    Error::request(format!("{}: its keys do not belong below its parent", place(record))).into()
                );
            }
        }
        if record.has(DONE) {
            return Ok(None);
        }
        record.extent = if kind == Kind::Map { extent } else { 0 };
        let target = match block {
            Block::Inner { bit, prefix, children } => {
                self.path.put(0, prefix);
                return Ok(Some(Open { node: at, bit, children, seen: 0 }));
            }
            Block::Leaf { measure, target, .. } => {
                record.weight = cut::leaf_weight(kind, measure, target.len());
                Some(Cid::trusted(target))
            }
            Block::Empty => None,
        };
        record.flags |= DONE;
        match target.map(|cid| (cid, cid.root())) {
            Some((_, Some(nested))) => {
                if let Some(top) = self.index.node(&nested) {
                    find(&mut self.index, &mut self.found, top);
                }
            }
            Some((cid, None)) if cid.identity().is_none() && !self.index.has_payload(&cid) => self.missing += 1,
            _ => {}
        }
        Ok(None)
    }

    /// Both children of the innermost open node are right: notes what stays in its page.
    fn close(&mut self) {
        let Some(Open { node: at, bit, children, .. }) = self.open.pop() else {
            return;
        };
        let root = self.index.nodes[at as usize].root();
        let seen = children.map(|sum| {
            let below = self.index.node(&RootCid { digest: sum.digest, ..root });
            let below = below.map(|below| self.index.nodes[below as usize]);
            let mut node = Node::new(sum, State::Empty);
            (node.height, node.weight) = below.map_or((0, 0), |below| (below.height, below.weight));
            Child::of(&node, root.kind, bit + 1, below.map_or(0, |below| below.extent))
        });
        let mut node = Node::new(Summary::UNKNOWN, State::Empty);
        cut::apply(&mut node, seen);
        let record = &mut self.index.nodes[at as usize];
        (record.height, record.weight) = (node.height, node.weight);
        record.flags |= DONE | node.flags;
    }
}

/// Notes that a root is here.
fn find(index: &mut Index, found: &mut Vec<u32>, at: u32) {
    let record = &mut index.nodes[at as usize];
    if !record.has(ROOT) {
        record.flags |= ROOT;
        found.push(at);
    }
}

fn place(record: &NodeRecord) -> String {
    format!("block {} ({}, in the bytes from {})", record.number, record.root(), record.offset)
}

fn name(side: Side) -> &'static str {
    match side {
        Side::Left => "left",
        Side::Right => "right",
    }
}

/// Whether the first `n` bits are the same. Both have as many.
fn same_bits(a: &[u8], b: &[u8], n: u32) -> bool {
    let whole = n as usize / 8;
    let rest = top_bits(n % 8);
    a[..whole] == b[..whole] && (rest == 0 || (a[whole] ^ b[whole]) & rest == 0)
}
