//! The check that a stored list is a fixed list (protocol section 5, *mutations*), page by page.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use coregw_core::{FixedSizes, PageSource, Result, RootCid, Unchecked};

use crate::trees::Trees;

/// Pages that are checked at a time.
const MAX_PAGES: usize = 64;

/// Checks the sizes of all elements of `root`, whose number is known to fit. `source` provides the pages that are not to
/// be loaded.
///
/// Each distinct page is checked once, however often the list repeats it. O(distinct pages) time; memory for their
/// digests and for [`MAX_PAGES`] pages.
///
/// # Errors
/// [`coregw_core::Error::Conflict`] that names an element whose size is another.
pub(crate) async fn check_sizes(
    trees: &Trees,
    source: &dyn PageSource,
    root: &RootCid,
    sizes: &FixedSizes,
) -> Result<()> {
    let mut pending = vec![Unchecked { digest: root.digest, first: 0, has_last: true }];
    // Pages without the last element: where in the list they are makes no difference.
    let mut seen = HashSet::new();
    while !pending.is_empty() {
        let subtrees = pending.split_off(pending.len().saturating_sub(MAX_PAGES));
        let mut pages = BTreeMap::new();
        let mut missing = BTreeSet::new();
        for subtree in &subtrees {
            match source.page(&subtree.digest) {
                Some(page) => drop(pages.insert(subtree.digest, page)),
                None => drop(missing.insert(subtree.digest)),
            }
        }
        if !missing.is_empty() {
            pages.extend(trees.load(root, missing).await.into_iter().map(|page| (page.digest(), page)));
        }
        for Unchecked { digest, first, .. } in subtrees {
            let Some(page) = pages.get(&digest) else { continue };
            trees.spend(page.arena.nodes.len() as u64).await?;
            let below = sizes.check_page(page, first)?;
            pending.extend(below.into_iter().filter(|subtree| subtree.has_last || seen.insert(subtree.digest)));
        }
    }
    Ok(())
}
