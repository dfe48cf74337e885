//! Slow reference models of maps and lists.
//!
//! They follow the text of the protocol only: sorted maps, vectors, and roots by plain recursion, without pages, proofs or
//! traversals of the crate.
#![allow(dead_code, reason = "each program uses only some of these items")]

use std::collections::BTreeMap;
use std::sync::Arc;

use coregw_core::list::Span;
use coregw_core::map::Listing;
use coregw_core::{
    Arcs, Cid, DiffQuery, Difference, Differences, Digest, Element, FixedSizes, Key, Keys, ListChange, ListChanges,
    MapChange, MapChanges, Page, PageSource, Result, RootCid, Snapshot, Suite, Window, varint, verify,
};

/// A path by its segments. Their order is the order of keys (protocol section 2).
pub type Path = Vec<String>;
/// A map.
pub type Arcmap = BTreeMap<Path, Cid>;
/// A list: targets and sizes.
pub type Elements = Vec<(Cid, u64)>;

/// Target number `n`: a payload CID with one of several hash functions and codecs, an identity CID, or a root CID.
pub fn target(n: u16) -> Cid {
    let (codec, function, len): (u64, u64, u64) = match n % 8 {
        0..=2 => (0x55, 0x12, 32),
        3 => (0x71, 0x13, 64),
        7 => (0x55, 0x00, 2 + u64::from(n / 8 % 127)),
        4 => (0x55, 0x1e, 32),
        5 => (0x30_3110, 0x12, 32),
        _ => (0x30_3211, 0x1e, 32),
    };
    let mut bytes = vec![1];
    varint::write(&mut bytes, codec);
    varint::write(&mut bytes, function);
    varint::write(&mut bytes, len);
    bytes.extend(n.to_be_bytes().iter().cycle().take(len as usize));
    Cid::from_bytes(&bytes).expect("a CID")
}

/// The key of a path.
pub fn key(path: &Path) -> Key {
    Key::from_segments(path).expect("a path")
}

/// Builds a map with the crate.
pub fn map(suite: Suite, arcs: &Arcmap) -> Snapshot {
    map_in_order(suite, arcs.iter())
}

/// Builds a map with the crate from arcs in any order.
pub fn map_in_order<'a>(suite: Suite, arcs: impl IntoIterator<Item = (&'a Path, &'a Cid)>) -> Snapshot {
    let mut all = Arcs::default();
    arcs.into_iter().for_each(|(path, target)| all.push(&key(path), target));
    Snapshot::map(suite, all).expect("a map")
}

/// Builds a list with the crate.
pub fn list(suite: Suite, elements: &[(Cid, u64)]) -> Snapshot {
    Snapshot::list(suite, elements).expect("a list")
}

/// The stored bytes of all pages of a tree, by digest.
pub fn pages(tree: &Snapshot) -> BTreeMap<Digest, Vec<u8>> {
    tree.pages().map(|page| (page.digest(), page.to_bytes())).collect()
}

/// The number of bytes that a page's top node takes (tag, number, label or tail); the page limit counts the rest.
pub fn top_len(page: &[u8]) -> usize {
    let number = |at| varint::read(&page[at..]).expect("a varint");
    match page[0] {
        0x01 => 1 + number(1).1 + number(1).0 as usize,
        0x02 => 1 + number(1).1 + number(1).0.div_ceil(8) as usize,
        _ => 1,
    }
}

/// Encodes a page and parses it again.
pub fn reparsed(page: &Page, tree: &Snapshot) -> Page {
    let root = tree.root();
    Page::parse(&page.to_bytes(), root.kind, root.suite, &page.digest()).expect("a page parses")
}

fn chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::write(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn bit(key: &[u8], i: usize) -> bool {
    key[i / 8] >> (7 - i % 8) & 1 == 1
}

/// The digest of a map by the definition in section 3: split at the first bit in which any two keys differ.
pub fn slow_map(suite: Suite, arcs: &Arcmap) -> Digest {
    let arcs: Vec<_> = arcs.iter().map(|(path, target)| (key(path).as_bytes().to_vec(), *target)).collect();
    if arcs.is_empty() { suite.digest(&[0]) } else { slow_map_node(suite, &arcs) }
}

fn slow_map_node(suite: Suite, arcs: &[(Vec<u8>, Cid)]) -> Digest {
    let mut out = Vec::new();
    if let [(key, target)] = arcs {
        out.push(1);
        chunk(&mut out, key);
        chunk(&mut out, target.as_bytes());
        return suite.digest(&out);
    }
    let first = &arcs[0].0;
    let differs = |i: &usize| arcs.iter().any(|(key, _)| bit(key, *i) != bit(first, *i));
    let at = (0..8 * first.len()).find(differs).expect("keys that differ");
    let mut prefix = first[..at.div_ceil(8)].to_vec();
    (at..8 * prefix.len()).for_each(|i| prefix[i / 8] &= !(0x80 >> (i % 8)));
    out.push(2);
    varint::write(&mut out, at as u64);
    out.extend_from_slice(&prefix);
    let (left, right): (Vec<_>, Vec<_>) = arcs.iter().cloned().partition(|(key, _)| !bit(key, at));
    for side in [left, right] {
        varint::write(&mut out, side.len() as u64);
        out.extend_from_slice(&slow_map_node(suite, &side).0);
    }
    suite.digest(&out)
}

/// The digest of a list by the definition in section 3.
pub fn slow_list(suite: Suite, elements: &[(Cid, u64)]) -> Digest {
    let mut out = Vec::new();
    match elements {
        [] => out.push(0x10),
        [(target, size)] => {
            out.push(0x11);
            varint::write(&mut out, *size);
            chunk(&mut out, target.as_bytes());
        }
        _ => {
            let half = (0..).map(|i| 1 << i).take_while(|n| *n < elements.len()).last().expect("a power of two");
            out.push(0x12);
            for side in [&elements[..half], &elements[half..]] {
                varint::write(&mut out, side.len() as u64);
                varint::write(&mut out, side.iter().map(|e| e.1).sum());
                out.extend_from_slice(&slow_list(suite, side).0);
            }
        }
    }
    suite.digest(&out)
}

/// The changes that turn one map into another.
pub fn map_changes(from: &Arcmap, to: &Arcmap) -> Vec<MapChange> {
    let paths: std::collections::BTreeSet<_> = from.keys().chain(to.keys()).collect();
    let change =
        |path: &Path| MapChange { key: key(path), before: from.get(path).copied(), after: to.get(path).copied() };
    paths.into_iter().map(change).filter(|change| change.before != change.after).collect()
}

/// The changes that turn one list into another.
pub fn list_changes(from: &Elements, to: &Elements) -> Vec<ListChange> {
    let change = |i: usize| ListChange {
        index: i as u64,
        before: from.get(i).map(|(target, size)| (*target, Some(*size))),
        after: to.get(i).copied(),
    };
    let all = (0..from.len().max(to.len())).map(change);
    all.filter(|change| change.before.map(|(target, size)| (target, size.unwrap_or(0))) != change.after).collect()
}

/// A query on one tree.
#[derive(Debug, Clone)]
pub enum Query {
    /// `get(key)`.
    Key(Path),
    /// `get(keys)`.
    Keys(Vec<Path>),
    /// `scan(prefix, after, limit)`.
    Scan(Path, Option<Path>, usize),
    /// `apply(changes)` on a map.
    ChangeMap(Vec<MapChange>),
    /// `get(i)`.
    Index(u64),
    /// `range(start, end)`.
    Range(u64, Option<u64>),
    /// `apply(changes)` on a list; with the total size and the size of elements, the result is to be a fixed list.
    ChangeList(Vec<ListChange>, Option<(u64, u64)>),
}

/// The answer to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Key(Option<Cid>),
    Keys(Vec<Option<Cid>>),
    Listing(Listing),
    Element(Element),
    Span(Span),
    Root(RootCid),
}

fn window(prefix: &Path, after: Option<&Path>) -> Window {
    Window::new(prefix, after.map(Vec::as_slice)).expect("a window")
}

fn list_changes_of(changes: &[ListChange], fixed: Option<(u64, u64)>) -> Result<ListChanges> {
    let changes = ListChanges::new(changes.to_vec())?;
    let sizes = fixed.and_then(|(total, size)| FixedSizes::new(total, size));
    Ok(if let Some(sizes) = sizes { changes.into_fixed(sizes) } else { changes })
}

fn keys(paths: &[Path]) -> Result<Keys> {
    Keys::new(paths.iter().map(key).collect())
}

impl Query {
    /// Answers the query and proves it, as the gateway does.
    pub fn prove(&self, tree: &Snapshot) -> Result<(Answer, Vec<u8>)> {
        Ok(match self {
            Self::Key(path) => {
                let key = key(path);
                let (target, proof) = tree.key(&key)?;
                (Answer::Key(target), proof())
            }
            Self::Keys(paths) => {
                let (targets, proof) = tree.keys(keys(paths)?)?;
                (Answer::Keys(targets), proof())
            }
            Self::Scan(prefix, after, limit) => {
                let (listing, proof) = tree.scan(window(prefix, after.as_ref()), *limit)?;
                (Answer::Listing(listing), proof())
            }
            Self::Index(index) => {
                let (element, proof) = tree.index(*index)?;
                (Answer::Element(element), proof())
            }
            Self::Range(start, end) => {
                let (span, proof) = tree.range(*start, *end)?;
                (Answer::Span(span), proof)
            }
            Self::ChangeMap(changes) => {
                let (changed, proof) = tree.change_map(MapChanges::new(changes.clone())?)?;
                (Answer::Root(changed.root()), proof)
            }
            Self::ChangeList(changes, fixed) => {
                let (changed, proof) = tree.change_list(list_changes_of(changes, *fixed)?)?;
                (Answer::Root(changed.root()), proof)
            }
        })
    }

    /// Verifies `proof` under `root` and returns the proven answer, as a client does.
    pub fn verify(&self, root: &RootCid, proof: &[u8]) -> Result<Answer> {
        let limit = verify::WIDE_PROOF_LIMIT;
        match self {
            Self::Key(path) => verify::key(root, &key(path), proof, limit).map(Answer::Key),
            Self::Keys(paths) => verify::keys(root, &keys(paths)?, proof, limit).map(Answer::Keys),
            Self::Scan(prefix, after, n) => {
                verify::scan(root, window(prefix, after.as_ref()), *n, proof, limit).map(Answer::Listing)
            }
            Self::Index(index) => verify::index(root, *index, proof, limit).map(Answer::Element),
            Self::Range(start, end) => verify::range(root, *start, *end, proof, limit).map(Answer::Span),
            Self::ChangeMap(changes) => {
                verify::map_changes(root, MapChanges::new(changes.clone())?, proof, limit).map(Answer::Root)
            }
            Self::ChangeList(changes, fixed) => {
                verify::list_changes(root, list_changes_of(changes, *fixed)?, proof, limit).map(Answer::Root)
            }
        }
    }
}

/// A lookup in a sorted map.
pub fn slow_get(arcs: &Arcmap, path: &Path) -> Answer {
    Answer::Key(arcs.get(path).copied())
}

/// Lookups in a sorted map.
pub fn slow_get_many(arcs: &Arcmap, paths: &[Path]) -> Answer {
    Answer::Keys(paths.iter().map(|path| arcs.get(path).copied()).collect())
}

/// A listing of a sorted map: `prefix` and every path below it, restricted to paths greater than `after`.
pub fn slow_scan(arcs: &Arcmap, prefix: &Path, after: Option<&Path>, limit: usize) -> Listing {
    let inside = |path: &&Path| path.starts_with(prefix) && after.is_none_or(|after| *path > after);
    let all: Vec<_> = arcs.keys().filter(inside).collect();
    let entries = all.iter().take(limit).map(|path| (key(path), arcs[*path])).collect();
    Listing { entries, more: all.len() > limit }
}

/// An element of a vector.
pub fn slow_index(elements: &Elements, index: u64) -> Answer {
    let found = elements.get(usize::try_from(index).unwrap_or(usize::MAX));
    let (target, size) = (found.map(|e| e.0), found.map(|e| e.1));
    Answer::Element(Element { target, size, length: elements.len() as u64 })
}

/// The elements of a vector whose bytes intersect a range.
pub fn slow_range(elements: &Elements, start: u64, end: Option<u64>) -> Answer {
    let total_size = elements.iter().map(|e| e.1).sum();
    let end = end.unwrap_or(total_size).min(total_size);
    let mut span = Span { length: elements.len() as u64, total_size, ..Span::default() };
    let mut from = 0;
    for (target, size) in elements {
        if start < end && from < end && from + size > start {
            span.offset.get_or_insert(from);
            span.segments.push(*target);
            span.sizes.push(*size);
        }
        from += size;
    }
    Answer::Span(span)
}

/// The pages of trees in memory.
struct Shelf(BTreeMap<Digest, Arc<Page>>);

impl PageSource for Shelf {
    fn page(&self, digest: &Digest) -> Option<Arc<Page>> {
        self.0.get(digest).map(Arc::clone)
    }
}

/// One page of the differences of two maps, with the proof of each, as the gateway finds them.
pub fn prove_diff(trees: [&Snapshot; 2], window: Window, limit: usize) -> (Differences, [Vec<u8>; 2]) {
    let pages = trees.iter().flat_map(|tree| tree.pages()).map(|page| (page.digest(), page));
    let source: Arc<dyn PageSource> = Arc::new(Shelf(pages.collect()));
    let mut query = DiffQuery::open(trees.map(Snapshot::root), &source, window, limit).expect("two maps of one suite");
    (query.run(&mut u64::MAX.clone()).expect("all pages are there"), query.proofs())
}

/// All differences in a window: the keys that only one map has, or that have different targets.
pub fn slow_diff(maps: [&Arcmap; 2], prefix: &Path, after: Option<&Path>, limit: usize) -> Differences {
    let paths: std::collections::BTreeSet<_> = maps.iter().flat_map(|map| map.keys()).collect();
    let inside = |path: &&Path| path.starts_with(prefix) && after.is_none_or(|after| *path > after);
    let difference = |path: &Path| Difference {
        segments: path.clone(),
        before: maps[0].get(path).copied(),
        after: maps[1].get(path).copied(),
    };
    let all = paths.into_iter().filter(inside).map(difference).filter(|found| found.before != found.after);
    let mut entries: Vec<_> = all.take(limit + 1).collect();
    let more = entries.len() > limit;
    entries.truncate(limit);
    Differences { entries, more }
}
