//! Every query of the protocol as a value that can be proven, verified, and answered by the slow models.

use coregw_core::list::Span;
use coregw_core::map::Listing;
use coregw_core::{Cid, Element, ListChange, ListChanges, MapChanges, Result, RootCid, Snapshot, Window, verify};
use proptest::prelude::*;
use proptest::sample::Index;

use super::{Arcmap, Elements, Path, arcmaps, elements, key, map_changes, paths, target};

/// A query on one tree.
#[derive(Debug, Clone)]
pub enum Query {
    /// `get(key)`.
    Key(Path),
    /// `scan(prefix, after, limit)`.
    Scan(Path, Option<Path>, usize),
    /// `apply(changes)` on a map.
    ChangeMap(MapChanges),
    /// `get(i)`.
    Index(u64),
    /// `range(start, end)`.
    Range(u64, Option<u64>),
    /// `apply(changes)` on a list.
    ChangeList(ListChanges),
}

/// The answer to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Key(Option<Cid>),
    Listing(Listing),
    Element(Element),
    Span(Span),
    Root(RootCid),
}

fn window(prefix: &Path, after: Option<&Path>) -> Window {
    Window::new(prefix, after.map(Vec::as_slice)).expect("a window")
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
                let (changed, proof) = tree.change_map(changes.clone())?;
                (Answer::Root(changed.root()), proof)
            }
            Self::ChangeList(changes) => {
                let (changed, proof) = tree.change_list(changes.clone())?;
                (Answer::Root(changed.root()), proof)
            }
        })
    }

    /// Verifies `proof` under `root` and returns the proven answer, as a client does.
    pub fn verify(&self, root: &RootCid, proof: &[u8]) -> Result<Answer> {
        let limit = verify::WIDE_PROOF_LIMIT;
        match self {
            Self::Key(path) => verify::key(root, &key(path), proof, limit).map(Answer::Key),
            Self::Scan(prefix, after, n) => {
                verify::scan(root, window(prefix, after.as_ref()), *n, proof, limit).map(Answer::Listing)
            }
            Self::Index(index) => verify::index(root, *index, proof, limit).map(Answer::Element),
            Self::Range(start, end) => verify::range(root, *start, *end, proof, limit).map(Answer::Span),
            Self::ChangeMap(changes) => verify::map_changes(root, changes.clone(), proof, limit).map(Answer::Root),
            Self::ChangeList(changes) => verify::list_changes(root, changes.clone(), proof, limit).map(Answer::Root),
        }
    }
}

/// A lookup in a sorted map.
pub fn slow_get(arcs: &Arcmap, path: &Path) -> Answer {
    Answer::Key(arcs.get(path).copied())
}

/// A listing of a sorted map: `prefix` and every path below it, restricted to paths greater than `after`.
pub fn slow_scan(arcs: &Arcmap, prefix: &Path, after: Option<&Path>, limit: usize) -> Listing {
    let inside = |path: &&Path| path.starts_with(prefix) && after.is_none_or(|after| *path > after);
    let all: Vec<_> = arcs.keys().filter(inside).collect();
    let entries = all.iter().take(limit).map(|path| ((*path).clone(), arcs[*path])).collect();
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

/// A path in the map, a prefix or variation of one, or `other`.
pub fn near(arcs: &Arcmap, pick: Index, cut: Index, other: Path) -> Path {
    let Some(path) = (!arcs.is_empty()).then(|| pick.get(&arcs.keys().collect::<Vec<_>>()).to_vec()) else {
        return other;
    };
    match cut.index(8) {
        0 => other,
        1 => path[..path.len().div_ceil(2)].to_vec(),
        2 => [path, other].concat().into_iter().take(8).collect(),
        3 => {
            let mut path = path;
            path[0].push('x');
            path
        }
        _ => path,
    }
}

/// A map of fewer than `n` arcs with a query on it.
pub fn map_queries(n: usize) -> impl Strategy<Value = (Arcmap, Query)> {
    let kind = prop_oneof![Just(0), Just(1), Just(2)];
    let picks = (any::<Index>(), any::<Index>(), paths(), any::<Index>(), any::<Index>(), paths());
    (arcmaps(n), kind, picks, 1usize..8, arcmaps(4)).prop_map(|(arcs, kind, picks, limit, added)| {
        let (a, b, other, c, d, last) = picks;
        let path = near(&arcs, a, b, other);
        let query = match kind {
            0 => Query::Key(path),
            1 => {
                let prefix: Path = path[..b.index(path.len() + 1)].to_vec();
                let after = near(&arcs, c, d, last);
                let after = (d.index(3) > 0 && after.starts_with(&prefix)).then_some(after);
                Query::Scan(prefix, after, limit)
            }
            _ => {
                let mut to = arcs.clone();
                to.extend(added);
                to.remove(&path);
                to.insert(last, target(999));
                Query::ChangeMap(MapChanges::new(map_changes(&arcs, &to)).expect("changes"))
            }
        };
        (arcs, query)
    })
}

/// A list of fewer than `n` elements with a query on it.
pub fn list_queries(n: usize) -> impl Strategy<Value = (Elements, Query)> {
    let kind = prop_oneof![Just(0), Just(1), Just(2)];
    (elements(n), kind, any::<Index>(), any::<Index>(), elements(4)).prop_map(|(elements, kind, a, b, added)| {
        let total: u64 = elements.iter().map(|e| e.1).sum();
        let query = match kind {
            0 => Query::Index(a.index(elements.len() + 2) as u64),
            1 => {
                let (start, end) = (a.index(total as usize + 2) as u64, b.index(total as usize + 2) as u64);
                Query::Range(start, (end % 5 > 0).then_some(end))
            }
            _ => {
                let mut to = elements.clone();
                to.truncate(if added.is_empty() { b.index(elements.len() + 1) } else { elements.len() });
                to.extend(added);
                if !to.is_empty() {
                    let at = a.index(to.len().min(elements.len().max(1)));
                    to[at] = (target(999), 9);
                }
                let mut changes = super::list_changes(&elements, &to);
                if changes.is_empty() {
                    let index = elements.len() as u64;
                    changes.push(ListChange { index, before: None, after: Some((target(7), 7)) });
                }
                Query::ChangeList(ListChanges::new(changes).expect("changes"))
            }
        };
        (elements, query)
    })
}
