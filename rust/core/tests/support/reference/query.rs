//! Lookups, ranges and listings (protocol section 4).

use coregw_core::list::Span;
use coregw_core::map::Listing;
use coregw_core::{Cid, Element, Key, RootCid};

use super::decode::decode;
use super::identifier::{escape, segments};
use super::{Bits, Shape, Tree, Verdict, bits_of, bytes_of, difference};

/// Verifies the target of a key; None if it is absent.
pub fn key(root: &RootCid, key: &Key, proof: &[u8]) -> Verdict<Option<Cid>> {
    let mut tree = decode(root.kind, root.suite, proof)?;
    let landing = tree.descend(&bits_of(key.as_bytes()))?;
    let target = (landing.end == End::Found).then(|| tree.cid(landing.id));
    tree.accept(root, target)
}

/// Verifies the targets of keys; None for an absent one.
pub fn keys(root: &RootCid, keys: &[Key], proof: &[u8]) -> Verdict<Vec<Option<Cid>>> {
    let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
    if distinct.len() < keys.len() || !(1..=10_000).contains(&keys.len()) {
        return Err("no keys, too many, or one twice");
    }
    let mut tree = decode(root.kind, root.suite, proof)?;
    let mut targets = Vec::new();
    for key in keys {
        let landing = tree.descend(&bits_of(key.as_bytes()))?;
        targets.push((landing.end == End::Found).then(|| tree.cid(landing.id)));
    }
    tree.accept(root, targets)
}

/// Where a descent ends.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum End {
    Found,
    Empty,
    DivergesAt(usize),
}

pub(super) struct Landing {
    pub(super) id: usize,
    pub(super) end: End,
    /// The right children of the nodes where the descent went left, the nearest last.
    right: Vec<usize>,
}

impl Tree {
    /// Descends to a key from the top of the tree.
    fn descend(&mut self, key: &[bool]) -> Verdict<Landing> {
        let (mut id, mut right) = (0, Vec::new());
        loop {
            let end = match self.visit(id)? {
                Shape::Empty => End::Empty,
                Shape::Leaf { key: own, .. } if own == key => End::Found,
                Shape::Leaf { key: own, .. } => End::DivergesAt(difference(&own, key).ok_or("one key in another")?),
                Shape::Inner { prefix, children } => match difference(&prefix, key) {
                    Some(at) => End::DivergesAt(at),
                    None => {
                        let side = *key.get(prefix.len()).ok_or("a node below a whole key")?;
                        if !side {
                            right.push(children[1]);
                        }
                        id = children[usize::from(side)];
                        continue;
                    }
                },
                Shape::Stub => unreachable!("visiting it fails"),
            };
            return Ok(Landing { id, end, right });
        }
    }

    /// The element of a list, or None if the list is shorter.
    pub(super) fn element(&mut self, index: u64) -> Verdict<Option<usize>> {
        let (mut id, mut index) = (self.top, index);
        self.visit(id)?;
        if index >= self.node(id).count {
            return Ok(None);
        }
        while let Shape::Inner { children: [left, right], .. } = self.visit(id)? {
            let on_left = self.node(left).count;
            (id, index) = if index < on_left { (left, index) } else { (right, index - on_left) };
        }
        Ok(Some(id))
    }

    fn meet(&mut self, id: usize, from: u64, bounds: (u64, u64), found: &mut Span) -> Verdict<()> {
        let to = from + self.node(id).measure;
        if bounds.0 >= bounds.1 || from >= bounds.1 || to <= bounds.0 {
            return Ok(());
        }
        match self.visit(id)? {
            Shape::Inner { children: [left, right], .. } => {
                self.meet(left, from, bounds, found)?;
                self.meet(right, from + self.node(left).measure, bounds, found)?;
            }
            Shape::Leaf { .. } => {
                found.offset.get_or_insert(from);
                found.segments.push(self.cid(id));
                found.sizes.push(to - from);
            }
            _ => unreachable!("an empty list has no measure"),
        }
        Ok(())
    }
}

/// Verifies an element of a list, or that the list is shorter.
pub fn index(root: &RootCid, index: u64, proof: &[u8]) -> Verdict<Element> {
    let mut tree = decode(root.kind, root.suite, proof)?;
    let found = tree.element(index)?;
    let (target, size) = (found.map(|id| tree.cid(id)), found.map(|id| tree.node(id).measure));
    tree.accept(root, Element { target, size, length: tree.node(0).count })
}

/// Verifies the elements whose span of measure meets a range.
pub fn range(root: &RootCid, start: u64, end: Option<u64>, proof: &[u8]) -> Verdict<Span> {
    let mut tree = decode(root.kind, root.suite, proof)?;
    tree.visit(0)?;
    let (length, total_size) = (tree.node(0).count, tree.node(0).measure);
    let mut found = Span { length, total_size, ..Span::default() };
    let end = end.map_or(total_size, |end| end.min(total_size));
    tree.meet(0, 0, (start, end), &mut found)?;
    tree.accept(root, found)
}

/// The bounds of a listing or a diff: the keys from `lo` up to `hi`.
#[derive(Clone)]
pub(super) struct Bounds {
    pub(super) lo: Option<Bits>,
    pub(super) hi: Option<Bits>,
    pub(super) excludes_lo: bool,
}

impl Bounds {
    pub(super) fn new(prefix: &[String], after: Option<&[String]>) -> Self {
        let joined = escape(prefix);
        let bound = |end: u8| (!prefix.is_empty()).then(|| bits_of(&[&joined[..], &[0, end]].concat()));
        let after = after.map(|after| bits_of(&[&escape(after)[..], &[0, 0]].concat()));
        Self { excludes_lo: after.is_some(), lo: after.or(bound(0)), hi: bound(2) }
    }
}

/// Verifies one page of the listing of a window, of at most `limit` entries.
pub fn scan(
    root: &RootCid,
    (prefix, after): (&[String], Option<&[String]>),
    limit: usize,
    proof: &[u8],
) -> Verdict<Listing> {
    let mut tree = decode(root.kind, root.suite, proof)?;
    let bounds = Bounds::new(prefix, after);
    let mut rest = vec![0];
    if let Some(lo) = &bounds.lo {
        let landing = tree.descend(lo)?;
        rest = landing.right;
        match landing.end {
            End::Found if !bounds.excludes_lo => rest.push(landing.id),
            End::DivergesAt(bit) if !lo[bit] => rest.push(landing.id),
            _ => {}
        }
    }
    let mut listing = Listing::default();
    while let Some(id) = rest.pop() {
        let shape = tree.visit(id)?;
        let known = match &shape {
            Shape::Leaf { key, .. } => key,
            Shape::Inner { prefix, .. } => prefix,
            _ => break,
        };
        let is_before = match &bounds.hi {
            None => true,
            Some(hi) => match difference(known, hi) {
                Some(bit) if known[bit] => break,
                Some(_) => true,
                None if known.len() >= hi.len() => break,
                None => false,
            },
        };
        if is_before && listing.entries.len() == limit {
            listing.more = true;
            break;
        }
        match shape {
            Shape::Leaf { key, .. } => {
                let path = Key::from_segments(&segments(&bytes_of(&key))).expect("the decoder checked it");
                listing.entries.push((path, tree.cid(id)));
            }
            Shape::Inner { children: [left, right], .. } => rest.extend([right, left]),
            _ => unreachable!("handled above"),
        }
    }
    tree.accept(root, listing)
}
