//! Lookups of several keys of a map at once (protocol section 4, `get(keys)`).

use std::collections::BTreeSet;

use crate::bits::first_difference;
use crate::error::{Error, Result};
use crate::id::cid::Cid;
use crate::interrupt::{Attempt, Interrupt};
use crate::key::Key;
use crate::page::partial::{MAX_MISSING_PAGES, PartialTree};
use crate::tree::arena::NodeId;
use crate::tree::descent::{Counts, End, Nodes, Step, ToKey, Visited, descend};

/// The maximum number of keys in one multiproof.
pub const MAX_KEYS: usize = 10_000;

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
        let mut sorted: Vec<u32> = (0..keys.len() as u32).collect();
        sorted.sort_by(|&a, &b| keys[a as usize].cmp(&keys[b as usize]));
        // The sort is stable: of equal keys the later one comes second.
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

/// Looks up all keys, and returns their targets in the order in which they were asked. O(keys x depth).
///
/// The keys are looked up in key order. The descent to a key begins where it parts from the descent to the key before.
pub(crate) fn get(tree: &mut PartialTree, keys: &Keys) -> Attempt<Vec<Option<Cid>>> {
    let mut targets = vec![None; keys.len()];
    let mut missing = BTreeSet::new();
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
    type Counts = Counts;

    #[inline(always)]
    fn visit(&mut self, id: NodeId, floor: u32) -> Attempt<Visited<'_, NodeId, Counts>> {
        self.last = (id, floor);
        self.tree.visit(id)?;
        self.tree.visited(id, floor)
    }

    #[inline(always)]
    fn step(&mut self, step: Step<NodeId>) -> Attempt<()> {
        self.steps.push(step);
        Ok(())
    }
}
