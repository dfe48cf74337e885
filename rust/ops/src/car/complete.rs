//! Whether a stored root is held completely: all pages, all nested roots and theirs, and all payloads.
//!
//! The operation names the payloads; its caller has them renewed, and gives it up if one is missing. Each page is visited
//! once, so the work is in proportion to what is stored even where a tree repeats itself. Of a tree that was made by few
//! changes of another one, below which everything is held, only the difference is visited.

use std::collections::HashSet;
use std::sync::Arc;

use coregw_core::internals::arena::State;
use coregw_core::{Cid, Digest, Error, InputCode, Page, PageCache, PageSource, Result, RootCid};

use crate::run::{Operation, WantedPage};
use crate::trees::Trees;

/// Pages to request at once.
const PAGES_AT_ONCE: usize = 64;
/// Nested roots to renew at once.
const ROOTS_AT_ONCE: usize = 1024;
/// Payloads to name at once, in the order of their names, in which a store reads many together.
const PAYLOADS_AT_ONCE: usize = 16_384;
/// The limit on pages and on roots together; each takes about 50 bytes of memory.
const MAX_VISITED: usize = 1 << 18;
/// Pages of a complete tree that are compared at once with those of another one. Where more are different, the rest is visited.
const MAX_COMPARED: usize = 256;

impl Operation {
    /// Visits the tree of a root and of all roots nested in it, and outputs the payloads that they name.
    ///
    /// What is below a `complete` root, which the caller knows to be held completely, need not be visited.
    ///
    /// Its response is the text of a nested root that the store does not hold completely, or empty. The caller has
    /// checked the root itself. The operation fails with [`Error::Damaged`] if a page is missing, and with
    /// [`Error::Input`] (`TooLarge`) above a limit.
    pub fn check_complete(cache: Arc<PageCache>, root: RootCid, complete: Option<RootCid>) -> Self {
        Self::new(move |slot| check(Visit::new(Trees { cache, slot }, root, complete)))
    }
}

async fn check(mut visit: Visit) -> Result<Vec<u8>> {
    loop {
        while let Some(root) = visit.trees_to_visit.pop() {
            visit.visit_tree(root).await?;
        }
        if visit.undecided.is_empty() {
            break;
        }
        let roots = std::mem::take(&mut visit.undecided);
        for roots in roots.chunks(ROOTS_AT_ONCE) {
            // The first answer tells the caller which of them have lost pages; the second counts them as not held.
            let held = visit.trees.slot.roots(roots.to_vec()).await;
            let renewed = visit.trees.slot.renewal(roots.to_vec()).await;
            let mut both = held.iter().zip(&renewed);
            if let Some(index) = both.position(|(is_held, is_renewed)| !(*is_held && *is_renewed)) {
                return Ok(roots[index].cid().text().into_bytes());
            }
        }
        visit.trees_to_visit = roots;
    }
    visit.name_payloads().await;
    Ok(Vec::new())
}

struct Visit {
    trees: Trees,
    trees_to_visit: Vec<RootCid>,
    /// Nested roots of which it is not known yet whether they are held.
    undecided: Vec<RootCid>,
    roots: HashSet<RootCid>,
    /// Pages that were visited or are queued.
    pages: HashSet<Digest>,
    payloads: Vec<Cid>,
    /// Roots of trees that are held completely, and were not compared yet.
    complete: Vec<RootCid>,
}

impl Visit {
    fn new(trees: Trees, root: RootCid, complete: Option<RootCid>) -> Self {
        Self {
            trees,
            trees_to_visit: vec![root],
            undecided: Vec::new(),
            roots: HashSet::from([root]),
            pages: HashSet::new(),
            payloads: Vec::new(),
            complete: complete.into_iter().collect(),
        }
    }

    async fn visit_tree(&mut self, root: RootCid) -> Result<()> {
        let mut queue = Vec::new();
        if self.pages.insert(root.digest) {
            queue.push(root.digest);
        }
        let is_alike = |other: &RootCid| (other.kind, other.suite) == (root.kind, root.suite);
        if let Some(at) = self.complete.iter().position(is_alike) {
            let complete = self.complete.swap_remove(at);
            queue = self.visit_difference(&root, queue, &complete).await?;
        }
        while !queue.is_empty() {
            let digests = queue.split_off(queue.len().saturating_sub(PAGES_AT_ONCE));
            for page in self.load(&root, digests).await {
                self.trees.spend(page.arena.nodes.len() as u64).await?;
                self.visit_page(&page, &mut queue, &Below::default());
            }
            if self.pages.len() + self.roots.len() > MAX_VISITED {
                let what = format!("{root}: more than {MAX_VISITED} pages and nested roots");
                return Err(Error::input(InputCode::TooLarge, what));
            }
            while self.payloads.len() >= PAYLOADS_AT_ONCE {
                self.name_payloads().await;
            }
        }
        Ok(())
    }

    /// Visits the pages of a tree that a complete one does not have, level by level: what the pages of one level of that lead
    /// to is not visited. Returns the pages that are still to be visited.
    async fn visit_difference(
        &mut self,
        root: &RootCid,
        mut queue: Vec<Digest>,
        complete: &RootCid,
    ) -> Result<Vec<Digest>> {
        let mut others = vec![complete.digest];
        while !queue.is_empty() && !others.is_empty() && queue.len().max(others.len()) <= MAX_COMPARED {
            let mut below = Below::default();
            for page in self.load(complete, others).await {
                self.trees.spend(page.arena.nodes.len() as u64).await?;
                below.add(&page);
            }
            let (mut next, mut shared) = (Vec::new(), Below::default());
            for page in self.load(root, queue).await {
                self.trees.spend(page.arena.nodes.len() as u64).await?;
                self.visit_page(&page, &mut next, &below);
                shared.add(&page);
            }
            self.complete.extend(below.targets.difference(&shared.targets).filter_map(Cid::root));
            (queue, others) = (next, below.pages.difference(&shared.pages).copied().collect());
        }
        Ok(queue)
    }

    /// Pages of a tree. Those that are not in the cache do not go into it, whose content is worth more.
    async fn load(&self, root: &RootCid, digests: Vec<Digest>) -> Vec<Arc<Page>> {
        let mut pages = Vec::with_capacity(digests.len());
        let mut wanted = Vec::new();
        for digest in digests {
            match self.trees.cache.page(&digest) {
                Some(page) if page.kind == root.kind && page.suite == root.suite => pages.push(page),
                _ => wanted.push(WantedPage { root: *root, digest }),
            }
        }
        if !wanted.is_empty() {
            pages.extend(self.trees.slot.pages(wanted).await);
        }
        pages
    }

    /// Queues the pages and notes the targets that a page leads to, without those that are held.
    fn visit_page(&mut self, page: &Page, queue: &mut Vec<Digest>, held: &Below) {
        for node in &page.arena.nodes {
            match node.state {
                State::Stub { .. } if held.pages.contains(&node.digest) => {}
                State::Stub { .. } if self.pages.insert(node.digest) => queue.push(node.digest),
                State::Leaf { target, target_len, .. } => {
                    let target = target_of(page, target, target_len);
                    if held.targets.contains(&target) {
                        continue;
                    }
                    match target.root() {
                        Some(nested) if self.roots.insert(nested) => self.undecided.push(nested),
                        None if target.identity().is_none() => self.payloads.push(target),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
    }

    async fn name_payloads(&mut self) {
        let rest = self.payloads.split_off(self.payloads.len().min(PAYLOADS_AT_ONCE));
        let mut payloads = std::mem::replace(&mut self.payloads, rest);
        payloads.sort_unstable_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
        if !payloads.is_empty() {
            self.trees.slot.output(Vec::new(), payloads).await;
        }
    }
}

/// What pages lead to.
#[derive(Default)]
struct Below {
    pages: HashSet<Digest>,
    targets: HashSet<Cid>,
}

impl Below {
    fn add(&mut self, page: &Page) {
        for node in &page.arena.nodes {
            match node.state {
                State::Stub { .. } => {
                    self.pages.insert(node.digest);
                }
                State::Leaf { target, target_len, .. } => {
                    self.targets.insert(target_of(page, target, target_len));
                }
                _ => {}
            }
        }
    }
}

fn target_of(page: &Page, start: u32, length: u8) -> Cid {
    let start = start as usize;
    Cid::trusted(&page.arena.bytes[start..start + usize::from(length)])
}
