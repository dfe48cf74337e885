//! New lists, built from their elements.

use crate::error::Result;
use crate::id::cid::{Cid, Kind};
use crate::id::suite::Suite;
use crate::interrupt::Attempt;
use crate::page::layout::{Built, Destination, Subtree};
use crate::query::build::Builder;
use crate::workers::{self, Workers};

/// The elements of a part: a power of two, so that all parts but the last are complete subtrees.
const PART_ELEMENTS: usize = 8192;

/// Builds the list of these elements, of valid sizes. O(n) hashing.
pub(crate) fn build(
    suite: Suite,
    elements: &[(Cid, u64)],
    destination: Destination,
    workers: &dyn Workers,
) -> Result<Built> {
    let (parts, rest) = elements.as_chunks::<PART_ELEMENTS>();
    let subtree = |part: usize| -> Attempt<Subtree> {
        let mut builder = Builder::new(Kind::List, suite, destination);
        builder.reserve(PART_ELEMENTS);
        push_all(&mut builder, &parts[part])?;
        builder.into_subtree()
    };
    let subtrees = workers::map(workers, parts.len(), subtree)?;
    let whole = || -> Attempt<Built> {
        let mut builder = Builder::new(Kind::List, suite, destination);
        for subtree in subtrees {
            builder.adopt(subtree?)?;
            join_equal(&mut builder)?;
        }
        push_all(&mut builder, rest)?;
        while builder.open_count() > 1 {
            builder.join(0)?;
        }
        builder.finish()
    };
    whole().map_err(|interrupt| interrupt.in_build("elements"))
}

fn push_all(builder: &mut Builder, elements: &[(Cid, u64)]) -> Attempt<()> {
    for (target, measure) in elements {
        builder.leaf(*measure, &[], target.as_bytes())?;
        join_equal(builder)?;
    }
    Ok(())
}

/// Joins complete subtrees: their counts, from left to right, are decreasing powers of two.
fn join_equal(builder: &mut Builder) -> Attempt<()> {
    while builder.last_two_equal() {
        builder.join(0)?;
    }
    Ok(())
}
