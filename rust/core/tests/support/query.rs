//! Strategies for maps and lists with queries on them.

use coregw_core::ListChange;
use proptest::prelude::*;
use proptest::sample::Index;

use super::{Arcmap, Elements, Path, Query, arcmaps, elements, list_changes, map_changes, paths, target};

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
    let kind = prop_oneof![Just(0), Just(1), Just(2), Just(3)];
    let picks = (any::<Index>(), any::<Index>(), paths(), any::<Index>(), any::<Index>(), paths());
    (arcmaps(n), kind, picks, 1usize..8, arcmaps(4)).prop_map(|(arcs, kind, picks, limit, added)| {
        let (a, b, other, c, d, last) = picks;
        let path = near(&arcs, a, b, other);
        let query = match kind {
            0 => Query::Key(path),
            3 => {
                let mut paths = vec![path];
                for path in [near(&arcs, c, d, last.clone()), near(&arcs, d, c, last), vec!["a".into()]] {
                    if !paths.contains(&path) {
                        paths.push(path);
                    }
                }
                paths.truncate(limit);
                Query::Keys(paths)
            }
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
                Query::ChangeMap(map_changes(&arcs, &to))
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
                let mut changes = list_changes(&elements, &to);
                if changes.is_empty() {
                    let index = elements.len() as u64;
                    changes.push(ListChange { index, before: None, after: Some((target(7), 7)) });
                }
                Query::ChangeList(changes, None)
            }
        };
        (elements, query)
    })
}
