//! Comparison of the crate's verifier with the reference, whose answers and refusals must be the same.

use coregw_core::{Differences, Digest, Error, Kind, RootCid, Suite, Window, verify};

use super::model::{Answer, Path, Query};
use super::reference;

const LIMIT: usize = verify::WIDE_PROOF_LIMIT;

/// Verifies a proof under a root in both ways; returns what is proven.
pub fn agree(root: &RootCid, query: &Query, proof: &[u8]) -> Option<Answer> {
    let ours = query.verify(root, proof);
    let slow = match query {
        Query::Key(path) => reference::key(root, &super::model::key(path), proof).map(Answer::Key),
        Query::Keys(paths) => {
            let keys: Vec<_> = paths.iter().map(super::model::key).collect();
            reference::keys(root, &keys, proof).map(Answer::Keys)
        }
        Query::Scan(prefix, after, limit) => {
            reference::scan(root, (prefix, after.as_deref()), *limit, proof).map(Answer::Listing)
        }
        Query::Index(index) => reference::index(root, *index, proof).map(Answer::Element),
        Query::Range(start, end) => reference::range(root, *start, *end, proof).map(Answer::Span),
        Query::ChangeMap(changes) => reference::map_changes(root, changes, proof).map(Answer::Root),
        Query::ChangeList(changes, fixed) => reference::list_changes(root, changes, *fixed, proof).map(Answer::Root),
    };
    let proven = slow.clone().ok();
    assert_eq!(ours.clone().ok(), proven, "{query:?} on {proof:02x?}: {ours:?}, {slow:?}");
    let on_tree = match query {
        Query::Key(path) => Some(coregw_core::Ask::Key(super::model::key(path))),
        Query::Keys(paths) => {
            let keys = coregw_core::Keys::new(paths.iter().map(super::model::key).collect());
            keys.ok().map(coregw_core::Ask::Keys)
        }
        _ => None,
    };
    if let Some(ask) = on_tree {
        let answer = ours.ok().map(|answer| match answer {
            Answer::Key(target) => coregw_core::Answer::Key(target),
            Answer::Keys(targets) => coregw_core::Answer::Keys(targets),
            other => unreachable!("{other:?} of keys"),
        });
        assert_eq!(verify::replay_on_tree(root, &ask, proof, LIMIT).ok(), answer);
    }
    proven
}

/// Verifies a proof in both ways under the roots of which it is a proof, if their owner had lied; returns what is proven.
pub fn agree_on_own_root(kind: Kind, suite: Suite, query: &Query, proof: &[u8]) -> Option<Answer> {
    let other = RootCid { kind, suite, digest: Digest([0; 32]) };
    let shown = query.verify(&other, proof).err().and_then(|error| shown_digest(&error));
    let digest = reference::own_digest(kind, suite, proof);
    // A query in streamed form stops at the first fault, and otherwise has the digest of what it has read.
    assert!(shown.is_none() || shown == digest, "{query:?} on {proof:02x?}: {shown:?}, {digest:?}");
    agree(&RootCid { digest: digest?, ..other }, query, proof)
}

/// Verifies the proof of a diff in both ways.
pub fn agree_on_diff(
    roots: [&RootCid; 2],
    (prefix, after): (&Path, Option<&Path>),
    limit: usize,
    proofs: [&[u8]; 2],
) -> Option<Differences> {
    let window = Window::new(prefix, after.map(Vec::as_slice)).expect("a window");
    let ours = verify::diff(roots, &window, limit, proofs, LIMIT);
    let slow = reference::diff(roots, (prefix, after.map(Vec::as_slice)), limit, proofs);
    assert_eq!(ours.clone().ok(), slow.clone().ok(), "{prefix:?} {after:?} {proofs:02x?}: {ours:?}, {slow:?}");
    slow.ok()
}

/// The digest of the proof that an error names.
fn shown_digest(error: &Error) -> Option<Digest> {
    let text = error.to_string();
    let (_, rest) = text.split_once("digest is ")?;
    let byte = |i: usize| u8::from_str_radix(rest.get(2 * i..2 * i + 2)?, 16).ok();
    let bytes: Option<Vec<_>> = (0..32).map(byte).collect();
    bytes?.try_into().ok().map(Digest)
}
