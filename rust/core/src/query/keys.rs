//! Lookups of several keys of a map at once (protocol section 4, `get(keys)`).

use std::collections::BTreeSet;

use crate::bits::{common_len, first_difference};
use crate::error::{Error, Result};
use crate::id::cid::Cid;
use crate::interrupt::{Attempt, Failure, Interrupt};
use crate::key::Key;
use crate::page::partial::{MAX_MISSING_PAGES, PartialTree};
use crate::tree::arena::NodeId;
use crate::tree::descent::{End, Nodes, Step, ToKey, Visited, descend};

/// The maximum number of keys in one multiproof.
pub const MAX_KEYS: usize = 10_000;

/// The nodes that a prover copies for each of some thousand keys of a map of a million, siblings included.
const NODES_PER_KEY: usize = 24;

/// The nodes of more keys are not reserved at once: the map may be small.
const MAX_EXPECTED_KEYS: usize = 1024;

/// Distinct keys of a map: at least one, at most [`MAX_KEYS`].
#[derive(Debug, Clone)]
pub struct Keys {
    /// As they were asked.
    keys: Vec<Key>,
    /// The places of the keys in `keys`, in key order.
    sorted: Vec<u32>,
}

impl Keys {
    /// Sorts and validates keys. O(n log n).
    ///
    /// # Errors
    /// [`Error::Input`] if there are none or too many, or one occurs twice; the error names its index.
    pub fn new(keys: Vec<Key>) -> Result<Self> {
        if keys.is_empty() || keys.len() > MAX_KEYS {
            return Err(Error::request(format!("keys: {} of them; a multiproof is of 1 to {MAX_KEYS}", keys.len())));
        }
        let sorted = sort(&keys);
        let twice = sorted.windows(2).filter(|pair| keys[pair[0] as usize] == keys[pair[1] as usize]);
        if let Some(index) = twice.map(|pair| pair[1]).min() {
            let key = keys[index as usize].text();
            return Err(Error::request(format!("keys[{index}]: {key:?} occurs twice")));
        }
        Ok(Self { keys, sorted })
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Always false: [`Keys::new`] rejects an empty list.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// The places of keys, in key order; of equal keys, the later one comes second.
///
/// Comparing the eight bytes after the common prefix of all keys decides most comparisons without reading the keys.
fn sort(keys: &[Key]) -> Vec<u32> {
    let shared = keys.iter().map(|key| common_len(keys[0].as_bytes(), key.as_bytes())).min().unwrap_or(0);
    let lead = |key: &Key| {
        let mut lead = [0; 8];
        // A key that ends is before those that continue, whatever their next byte is; equal leads decide nothing.
        lead.iter_mut().zip(&key.as_bytes()[shared..]).for_each(|(lead, byte)| *lead = *byte);
        u64::from_be_bytes(lead)
    };
    let mut sorted: Vec<(u64, u32)> = keys.iter().map(lead).zip(0..).collect();
    sorted.sort_unstable_by(|a, b| {
        a.0.cmp(&b.0).then_with(|| keys[a.1 as usize].cmp(&keys[b.1 as usize])).then(a.1.cmp(&b.1))
    });
    sorted.into_iter().map(|(_, place)| place).collect()
}

/// Looks up all keys, and returns their targets in the order in which they were asked. O(keys x depth).
///
/// The keys are looked up in key order. The descent to a key begins where it parts from the descent to the key before.
pub(crate) fn get(tree: &mut PartialTree, keys: &Keys) -> Attempt<Vec<Option<Cid>>> {
    let mut targets = vec![None; keys.len()];
    let mut missing = BTreeSet::new();
    tree.expect(NODES_PER_KEY * keys.len().min(MAX_EXPECTED_KEYS));
    let mut path = SharedPath { tree, steps: Vec::new(), last: (PartialTree::TOP, 0) };
    let mut before: Option<&[u8]> = None;
    for &at in &keys.sorted {
        let key = keys.keys[at as usize].as_bytes();
        let (id, floor) = path.part(before.and_then(|before| first_difference(before, key)));
        match descend(&mut path, id, floor, &mut ToKey(key)) {
            Ok(landing) if landing.end == End::Found => {
                targets[at as usize] = Some(Cid::trusted(path.tree.arena.target(landing.id)));
            }
            Ok(_) => {}
            Err(Interrupt::Pages(pages)) if missing.len() < MAX_MISSING_PAGES => missing.extend(pages),
            Err(Interrupt::Pages(_)) => break,
            Err(interrupt) => return Err(interrupt),
        }
        before = Some(key);
    }
    if missing.is_empty() { Ok(targets) } else { Err(Interrupt::Pages(missing)) }
}

/// The nodes of a tree, and the path of the descent to the last key.
struct SharedPath<'t> {
    tree: &'t mut PartialTree,
    steps: Vec<Step<NodeId>>,
    /// The node at the end of the path, which may be missing, and its floor.
    last: (NodeId, u32),
}

impl SharedPath<'_> {
    /// Goes back to the first node at which a key leaves the path, if it differs from the last key at `bit` first.
    fn part(&mut self, bit: Option<u32>) -> (NodeId, u32) {
        while let (Some(step), Some(bit)) = (self.steps.last(), bit)
            && step.bit >= bit
        {
            self.last = (step.from, step.floor);
            self.steps.pop();
        }
        self.last
    }
}

impl Nodes for SharedPath<'_> {
    type Id = NodeId;
    /// A key is found without counts, and those of children are on pages that need not be read.
    type Counts = ();

    #[inline(always)]
    fn visit(&mut self, id: NodeId, floor: u32) -> Attempt<Visited<'_, NodeId, ()>> {
        self.last = (id, floor);
        self.tree.visit(id)?;
        let shape = self.tree.arena.shape(id, floor).ok_or(Failure::Stub)?;
        Ok(Visited { shape, counts: () })
    }

    #[inline(always)]
    fn step(&mut self, step: Step<NodeId>) -> Attempt<()> {
        self.steps.push(step);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn keys_are_sorted_as_their_bytes_are(
            prefix in prop::sample::select(vec!["", "a\u{0}", "users/"]),
            ends in prop::collection::vec("[a\u{0}\u{1}b]{1,11}", 1..40),
        ) {
            let key = |end| Key::from_text(&format!("{prefix}{end}")).expect("a path");
            let keys: Vec<Key> = ends.iter().map(key).collect();
            let mut expected: Vec<u32> = (0..keys.len() as u32).collect();
            expected.sort_by_key(|&place| keys[place as usize].as_bytes());
            prop_assert_eq!(sort(&keys), expected);
        }
    }
}
