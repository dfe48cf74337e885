//! Queries on stored trees: their answers and the proofs of them.
//!
//! A [`Query`] does no I/O. It is run until it has its answer. When it is interrupted because pages are missing, supply
//! them and run it again; when its budget is spent, run it again with more.

use std::sync::Arc;

use crate::error::Result;
use crate::id::cid::{Cid, Kind, RootCid};
use crate::interrupt::{Attempt, Failure, Interrupt};
use crate::key::{Key, Window};
use crate::key_list::Keys;
use crate::page::cache::PageSource;
use crate::page::draft::{Drafting, EncodedPage};
use crate::page::format::Page;
use crate::page::partial::{PartialTree, Visiting};
use crate::page::path::{Finder, PagePath};
use crate::page::supply::Supply;
use crate::page::union::PageUnion;
use crate::query::changes::{ListChanges, MapChanges};
use crate::query::diff::{Diff, Differences, Half, check_same_suite};
use crate::query::list::{self, Span};
use crate::query::map::{self, Listing, Made};
use crate::query::scan;
use crate::tree::descent::{End, ToIndex, ToKey, descend};
use crate::tree::node::Summary;

/// A query on one tree.
#[derive(Debug, Clone)]
pub enum Ask {
    /// The target of a key of a map.
    Key(Key),
    /// The targets of keys of a map.
    Keys(Keys),
    /// An element of a list.
    Index(u64),
    /// The elements of a list whose span of measure meets `start..end`.
    Range {
        /// The start of the range, in units of measure.
        start: u64,
        /// The end of the range, exclusive; None for the end of the list.
        end: Option<u64>,
        /// The maximum number of elements in the answer.
        max_segments: usize,
    },
    /// One page of the listing of a window, of at most so many entries.
    Scan(Window, usize),
    /// The map after these changes.
    ChangeMap(MapChanges),
    /// The list after these changes.
    ChangeList(ListChanges),
}

impl Ask {
    /// Where the search in a map begins: at the keys, or at the start of the listing, which is empty for all keys.
    ///
    /// Nothing of a list, and nothing for changes. O(bytes of the keys).
    pub fn starts(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Key(key) => vec![key.as_bytes().to_vec()],
            Self::Keys(keys) => keys.iter().map(<[u8]>::to_vec).collect(),
            Self::Scan(window, _) => vec![window.start().to_vec()],
            Self::Index(_) | Self::Range { .. } | Self::ChangeMap(_) | Self::ChangeList(_) => Vec::new(),
        }
    }
}

/// The answer to an [`Ask`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The target of the key; None if it is absent.
    Key(Option<Cid>),
    /// The targets of the keys, in the order in which they were asked; None for an absent one.
    Keys(Vec<Option<Cid>>),
    /// The element of the index, if the list has it.
    Element(Element),
    /// The elements that the range meets.
    Span(Span),
    /// The page of the listing.
    Listing(Listing),
    /// The summary of the tree after the changes.
    Changed(Summary),
}

/// An element of a list, or the fact that the list is shorter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The target; None if the list is shorter.
    pub target: Option<Cid>,
    /// The element's measure; None if the list is shorter.
    pub size: Option<u64>,
    /// The number of elements in the list.
    pub length: u64,
}

/// Runs a query on a partial tree. This is the one place where a query meets a tree, stored or pruned.
#[inline]
pub(crate) fn run(ask: &Ask, tree: &mut PartialTree, made: &mut Made) -> Attempt<Answer> {
    Ok(match ask {
        Ask::Key(key) => Answer::Key(target(tree, key.as_bytes())?),
        // Only for comparison: `page::union` and `proof::streamed_keys` descend to all keys at once.
        Ask::Keys(keys) => {
            let mut targets = vec![None; keys.len()];
            for (place, key) in keys.iter().enumerate() {
                targets[keys.asked(place)] = target(tree, key)?;
            }
            Answer::Keys(targets)
        }
        Ask::Index(index) => {
            let found = list::get(tree, *index)?;
            Answer::Element(Element {
                target: found.map(|id| Cid::trusted(tree.arena.target(id))),
                size: found.map(|id| tree.sum(id).measure),
                length: tree.sum(PartialTree::TOP).count,
            })
        }
        Ask::Range { start, end, max_segments } => Answer::Span(list::range(tree, *start, *end, *max_segments)?),
        Ask::Scan(window, limit) => Answer::Listing(scan::scan(tree, window, *limit)?),
        Ask::ChangeMap(changes) => {
            let top = map::apply(tree, changes, made)?;
            Answer::Changed(tree.sum(top))
        }
        Ask::ChangeList(changes) => {
            let top = list::apply(tree, changes, made)?;
            Answer::Changed(tree.sum(top))
        }
    })
}

/// The target of a key of a map.
#[inline]
fn target(tree: &mut PartialTree, key: &[u8]) -> Attempt<Option<Cid>> {
    let landing = descend(&mut Visiting::<false>::new(tree), PartialTree::TOP, 0, &mut ToKey(key))?;
    Ok((landing.end == End::Found).then(|| Cid::trusted(tree.arena.target(landing.id))))
}

/// Runs a query on a tree that needs no more input.
#[inline]
pub(crate) fn run_once(ask: &Ask, tree: &mut PartialTree) -> Attempt<Answer> {
    run(ask, tree, &mut Made::NONE.clone())
}

/// Descends to the leaf that a query looks for, on pages.
#[inline]
pub(crate) fn run_on_pages<P: std::ops::Deref<Target = Page>, F: Finder<P>>(
    leaf: &Leaf,
    path: &mut PagePath<P, F>,
) -> Attempt<Answer> {
    Ok(match leaf {
        Leaf::Key(key) => {
            path.run(&mut ToKey(key.as_bytes()))?;
            Answer::Key(path.target())
        }
        Leaf::Index(index) => {
            path.run(&mut ToIndex(*index))?;
            Answer::Element(element(path))
        }
    })
}

/// The element at the end of a path.
pub(crate) fn element<P: std::ops::Deref<Target = Page>, F: Finder<P>>(path: &PagePath<P, F>) -> Element {
    Element { target: path.target(), size: path.measure(), length: path.top().count }
}

/// A query for a single leaf.
pub(crate) enum Leaf {
    Key(Key),
    Index(u64),
}

/// A query on one stored tree.
pub struct Query {
    root: RootCid,
    nodes: Held,
}

/// The nodes that a query has loaded. A query for a single leaf, or for several keys, needs no tree.
enum Held {
    Pages(PagePath<Arc<Page>, Supply>, Leaf),
    Union(Box<PageUnion<Arc<Page>, Supply>>),
    Tree(Box<HeldTree>),
}

/// A tree that a query loads.
struct HeldTree {
    tree: PartialTree,
    ask: Ask,
    made: Made,
    drafting: Drafting,
}

/// About how many bytes of new pages are created at once.
const MAX_DRAFTED_BYTES: usize = 1 << 20;

impl Query {
    /// Creates a query on the tree of `root`; pages that `source` does not have are asked for.
    pub fn open(root: &RootCid, source: Arc<dyn PageSource>, ask: Ask) -> Self {
        let pages =
            |leaf, source| Held::Pages(PagePath::new(root.kind, root.suite, root.digest, Supply::from(source)), leaf);
        let nodes = match ask {
            Ask::Key(key) => pages(Leaf::Key(key), source),
            Ask::Index(index) => pages(Leaf::Index(index), source),
            Ask::Keys(keys) if root.kind == Kind::Map => {
                Held::Union(Box::new(PageUnion::new(root.suite, root.digest, Supply::from(source), keys)))
            }
            ask => return Self::on_tree(root, source, ask),
        };
        Self { root: *root, nodes }
    }

    /// Creates a query that loads a tree, whatever it asks.
    pub(crate) fn on_tree(root: &RootCid, source: Arc<dyn PageSource>, ask: Ask) -> Self {
        let tree = PartialTree::open(root, source);
        let held = HeldTree { tree, ask, made: Made::NONE, drafting: Drafting::default() };
        Self { root: *root, nodes: Held::Tree(Box::new(held)) }
    }

    /// Runs the query, loading at most `budget` nodes, and subtracts the nodes that it loaded from `budget`; keys of a
    /// listing cost one more for every 64 bytes.
    ///
    /// # Errors
    /// An [`Interrupt`]; unless the query failed, it can be run again.
    pub fn run(&mut self, budget: &mut u64) -> Result<Answer, Interrupt> {
        let answer = match &mut self.nodes {
            Held::Pages(path, leaf) => {
                path.budget = *budget;
                let answer = run_on_pages(leaf, path);
                *budget = path.budget;
                answer
            }
            Held::Union(union) => {
                union.nodes.budget = *budget;
                let answer = union.run().map(Answer::Keys);
                *budget = union.nodes.budget;
                answer
            }
            Held::Tree(held) => {
                let HeldTree { tree, ask, made, .. } = &mut **held;
                tree.budget = *budget;
                let answer = run(ask, tree, made);
                *budget = tree.budget;
                answer
            }
        };
        answer.map_err(|interrupt| self.explain(interrupt))
    }

    fn explain(&self, interrupt: Interrupt<Failure>) -> Interrupt {
        interrupt.map(|failure| failure.on_stored(&self.root))
    }

    /// Creates pages of the changed tree that no store has yet, and encodes them: some of them at a time, until it returns
    /// none. Call it after the answer.
    ///
    /// # Errors
    /// An [`Interrupt`]; unless it failed, it can be called again.
    pub fn new_pages(&mut self) -> Result<Vec<EncodedPage>, Interrupt> {
        match &mut self.nodes {
            Held::Tree(held) => {
                let HeldTree { tree, made, drafting, .. } = &mut **held;
                tree.encoded_pages(made.top, drafting, MAX_DRAFTED_BYTES).map_err(|interrupt| self.explain(interrupt))
            }
            Held::Pages(..) | Held::Union(_) => Ok(Vec::new()),
        }
    }

    /// Supplies pages that were missing.
    pub fn supply(&mut self, pages: impl IntoIterator<Item = Arc<Page>>) {
        match &mut self.nodes {
            Held::Pages(path, _) => path.finder.add(pages),
            Held::Union(union) => union.finder().add(pages),
            Held::Tree(held) => held.tree.supply.add(pages),
        }
    }

    /// The bytes of memory that the nodes of its tree take, those that it has made included, or the proof of several
    /// keys. 0 for lookups. O(1).
    pub fn tree_bytes(&self) -> usize {
        match &self.nodes {
            Held::Pages(..) => 0,
            Held::Union(union) => union.nodes.proof_bytes(),
            Held::Tree(held) => held.tree.arena.memory(),
        }
    }

    #[cfg(test)]
    pub(crate) fn hold_at_most(&mut self, bytes: usize) {
        if let Held::Tree(held) = &mut self.nodes {
            held.tree.released.max_held_bytes = bytes;
        }
    }

    /// The root of the tree.
    pub fn root(&self) -> &RootCid {
        &self.root
    }

    /// Whether the map has keys that share with the key that was looked for all bits before `bit`, but not this one. Call
    /// it after the answer of [`Ask::Key`]. O(log depth).
    pub fn branches_at(&self, bit: u32) -> bool {
        match &self.nodes {
            Held::Pages(path, _) => path.branches_at(bit),
            Held::Union(_) | Held::Tree(_) => true,
        }
    }

    /// Encodes the proof of the answer. Call it once, after the answer.
    pub fn proof(&mut self) -> Vec<u8> {
        match &mut self.nodes {
            Held::Pages(path, _) => path.proof(),
            Held::Union(union) => union.nodes.take_proof(),
            Held::Tree(held) => held.tree.proof(),
        }
    }
}

/// A diff of two stored maps.
pub struct DiffQuery {
    roots: [RootCid; 2],
    halves: [Half; 2],
    diff: Diff,
}

impl DiffQuery {
    /// Creates a diff of at most `limit` differences; pages that `source` does not have are asked for.
    ///
    /// # Errors
    /// [`Error::Input`](crate::Error::Input) if a root is not a map, or their suites differ.
    pub fn open(roots: [RootCid; 2], source: &Arc<dyn PageSource>, window: Window, limit: usize) -> Result<Self> {
        check_same_suite([&roots[0], &roots[1]])?;
        let halves = roots.map(|root| Half::new(PartialTree::open(&root, Arc::clone(source))));
        Ok(Self { roots, halves, diff: Diff::new(window, limit) })
    }

    /// Runs the diff, loading at most `budget` nodes of each tree, and subtracts the nodes that it loaded from `budget`.
    ///
    /// # Errors
    /// An [`Interrupt`]; unless the diff failed, it can be run again.
    pub fn run(&mut self, budget: &mut u64) -> Result<Differences, Interrupt> {
        let given = *budget;
        self.halves.iter_mut().for_each(|half| half.tree.budget = given);
        let found = self.diff.run(&mut self.halves);
        let loaded: u64 = self.halves.iter().map(|half| given.saturating_sub(half.tree.budget)).sum();
        *budget = given.saturating_sub(loaded);
        found.map_err(|interrupt| interrupt.map(|failure| failure.on_stored(&self.roots[0])))
    }

    /// Supplies pages that were missing.
    pub fn supply(&mut self, pages: &[Arc<Page>]) {
        for half in &mut self.halves {
            half.tree.supply.add(pages.iter().map(Arc::clone));
        }
    }

    /// Encodes the proofs of both trees. Call it after the answer.
    pub fn proofs(&self) -> [Vec<u8>; 2] {
        self.halves.each_ref().map(|half| half.tree.proof())
    }
}

#[cfg(test)]
#[path = "../../tests/unit/proof_query.rs"]
mod tests;
