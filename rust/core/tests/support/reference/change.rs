//! Changes of maps and lists (protocol section 4, *changes*).

use std::collections::BTreeMap;

use coregw_core::{ListChange, MapChange, RootCid};

use super::decode::decode;
use super::{Bits, SUM_LIMIT, Shape, Tree, Verdict, bits_of, difference};

/// Verifies the root of a map after changes.
pub fn map_changes(root: &RootCid, changes: &[MapChange], proof: &[u8]) -> Verdict<RootCid> {
    let by_key: BTreeMap<_, _> = changes.iter().map(|change| (&change.key, change)).collect();
    if by_key.is_empty() || by_key.len() < changes.len() || changes.iter().any(|change| change.before == change.after) {
        return Err("no changes, a key twice, or a change of nothing");
    }
    let mut tree = decode(root.kind, root.suite, proof)?;
    for change in by_key.into_values() {
        let key = bits_of(change.key.as_bytes());
        let top = tree.change(tree.top, &key, change)?;
        tree.top = top.map_or_else(|| tree.add(Shape::Empty, 0), Ok)?;
    }
    tree.changed(root)
}

/// Verifies the root of a list after changes. With `fixed`, the total size and the size of elements, the result must be a
/// fixed list as far as the tree shows it.
pub fn list_changes(
    root: &RootCid,
    changes: &[ListChange],
    fixed: Option<(u64, u64)>,
    proof: &[u8],
) -> Verdict<RootCid> {
    let by_index: BTreeMap<_, _> = changes.iter().map(|change| (change.index, change)).collect();
    if by_index.is_empty() || by_index.len() < changes.len() {
        return Err("no changes, or an index twice");
    }
    let mut tree = decode(root.kind, root.suite, proof)?;
    for change in by_index.values() {
        let sizes = [change.before.and_then(|before| before.1), change.after.map(|after| after.1)];
        if sizes.into_iter().flatten().any(|size| !(1..SUM_LIMIT).contains(&size)) {
            return Err("a size of 0, or of 2^53 or more");
        }
        if change.before.is_none() && change.after.is_none() {
            return Err("a change of nothing");
        }
        let found = tree.element(change.index)?.map(|id| (tree.cid(id), tree.node(id).measure));
        match (change.before, found) {
            (None, None) => {}
            (Some((target, size)), Some(there)) if target == there.0 && size.is_none_or(|size| size == there.1) => {}
            _ => return Err("another element before"),
        }
        if found.is_some() && found == change.after {
            return Err("a change of nothing");
        }
    }
    let count = tree.node(0).count;
    let (old, added): (Vec<_>, Vec<_>) = by_index.into_values().partition(|change| change.index < count);
    let (replaced, removed): (Vec<_>, Vec<_>) = old.into_iter().partition(|change| change.after.is_some());
    if !added.is_empty() && !removed.is_empty() {
        return Err("appends and removals");
    }
    if !added.iter().map(|change| change.index).eq(count..count + added.len() as u64) {
        return Err("appends with a gap");
    }
    let keep = count - removed.len() as u64;
    if !removed.iter().map(|change| change.index).eq(keep..count) {
        return Err("removals that are not the end");
    }
    for change in replaced {
        let leaf = tree.leaf(change)?;
        tree.top = tree.replace(tree.top, change.index, leaf)?;
    }
    for change in added {
        let leaf = tree.leaf(change)?;
        tree.top = tree.append(tree.top, leaf)?;
    }
    tree.top = match keep {
        _ if keep == count => tree.top,
        0 => tree.add(Shape::Empty, 0)?,
        keep => tree.truncate(tree.top, keep)?,
    };
    if let Some(fixed) = fixed {
        tree.check_fixed(fixed)?;
    }
    tree.changed(root)
}

impl Tree {
    fn add(&mut self, shape: Shape, measure: u64) -> Verdict<usize> {
        self.nodes.push(self.make(shape, measure)?);
        Ok(self.nodes.len() - 1)
    }

    fn join(&mut self, prefix: Bits, children: [usize; 2]) -> Verdict<usize> {
        self.add(Shape::Inner { prefix, children }, 0)
    }

    /// The root whose tree this is now, if the proof is accepted.
    fn changed(&self, root: &RootCid) -> Verdict<RootCid> {
        self.accept(root, RootCid { digest: self.node(self.top).digest, ..*root })
    }

    /// The subtree at `id` after a change; None if nothing is left of it.
    fn change(&mut self, id: usize, key: &Bits, change: &MapChange) -> Verdict<Option<usize>> {
        let leaf = |target: &coregw_core::Cid| Shape::Leaf { key: key.clone(), target: target.as_bytes().to_vec() };
        let own = match self.visit(id)? {
            Shape::Inner { prefix, children } if difference(&prefix, key).is_none() => {
                let side = usize::from(*key.get(prefix.len()).ok_or("a node below a whole key")?);
                let Some(child) = self.change(children[side], key, change)? else {
                    return Ok(Some(children[1 - side]));
                };
                let mut children = children;
                children[side] = child;
                return self.join(prefix, children).map(Some);
            }
            Shape::Leaf { key: own, .. } if own == *key => {
                if change.before != Some(self.cid(id)) {
                    return Err("another target before");
                }
                return change.after.as_ref().map(|target| self.add(leaf(target), 1)).transpose();
            }
            Shape::Inner { prefix: own, .. } | Shape::Leaf { key: own, .. } => own,
            _ => Bits::new(),
        };
        let (None, Some(after)) = (change.before, &change.after) else {
            return Err("a target before, where there is none");
        };
        let leaf = self.add(leaf(after), 1)?;
        if self.shape(id) == Shape::Empty {
            return Ok(Some(leaf));
        }
        let at = difference(&own, key).ok_or("one key in another")?;
        let children = if key[at] { [id, leaf] } else { [leaf, id] };
        self.join(key[..at].to_vec(), children).map(Some)
    }

    fn leaf(&mut self, change: &ListChange) -> Verdict<usize> {
        let (target, size) = change.after.expect("only removals have no element after");
        self.add(Shape::Leaf { key: Bits::new(), target: target.as_bytes().to_vec() }, size)
    }

    fn replace(&mut self, id: usize, index: u64, leaf: usize) -> Verdict<usize> {
        let Shape::Inner { children: [left, right], .. } = self.visit(id)? else { return Ok(leaf) };
        let on_left = self.node(left).count;
        let children = match index < on_left {
            true => [self.replace(left, index, leaf)?, right],
            false => [left, self.replace(right, index - on_left, leaf)?],
        };
        self.join(Bits::new(), children)
    }

    fn append(&mut self, id: usize, leaf: usize) -> Verdict<usize> {
        match self.node(id).count {
            0 => Ok(leaf),
            n if n.is_power_of_two() => self.join(Bits::new(), [id, leaf]),
            _ => match self.visit(id)? {
                Shape::Inner { children: [left, right], .. } => {
                    let right = self.append(right, leaf)?;
                    self.join(Bits::new(), [left, right])
                }
                _ => unreachable!("a count that is no power of two is that of an inner node"),
            },
        }
    }

    fn truncate(&mut self, id: usize, keep: u64) -> Verdict<usize> {
        if keep == self.node(id).count {
            return Ok(id);
        }
        let Shape::Inner { children: [left, right], .. } = self.visit(id)? else {
            unreachable!("fewer than it has, and not none")
        };
        match self.node(left).count {
            on_left if keep > on_left => {
                let right = self.truncate(right, keep - on_left)?;
                self.join(Bits::new(), [left, right])
            }
            _ => self.truncate(left, keep),
        }
    }

    /// Checks the sizes that the result shows.
    fn check_fixed(&self, (total, size): (u64, u64)) -> Verdict<()> {
        if self.node(self.top).count != total.div_ceil(size) {
            return Err("another number of elements");
        }
        let start = |index: u64| (u128::from(index) * u128::from(size)).min(total.into());
        let mut rest = vec![(self.top, 0)];
        while let Some((id, first)) = rest.pop() {
            let node = self.node(id);
            if u128::from(node.measure) != start(first + node.count) - start(first) {
                return Err("another size");
            }
            if let Shape::Inner { children: [left, right], .. } = node.shape {
                rest.extend([(left, first), (right, first + self.node(left).count)]);
            }
        }
        Ok(())
    }
}
