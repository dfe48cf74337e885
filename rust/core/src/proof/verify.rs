//! Verification: run the query on what was sent, and compare its digest with the root (protocol section 4).
//!
//! Every function here either returns what is proven or an error; on any bytes it ends, in time and memory in
//! proportion to them. No I/O, no state: the caller's root is all the trust there is.

use crate::error::{Error, InputCode, Result};
use crate::id::cid::{Cid, Kind, RootCid};
use crate::key::{Key, Window};
use crate::proof::lookup;
use crate::proof::prove::{Answer, Ask, Element, Task};
use crate::tree::list::{self, Span};
use crate::tree::map::{self, Listing};
use crate::tree::{Halt, Tree};

/// The longest proof of one key or index that is looked at, in bytes, unless told otherwise.
pub const PROOF_LIMIT: usize = 1 << 20;
/// The longest proof of a range, a listing or changes that is looked at, in bytes, unless told otherwise.
pub const WIDE_PROOF_LIMIT: usize = 16 << 20;

/// Offsets inside a proof are 32 bits wide.
const MAX_LIMIT: usize = u32::MAX as usize / 2;

const OTHER_ANSWER: &str = "the query gave an answer of another kind";

/// Reads the pruned tree `proof` and checks that it is `root`'s.
pub(crate) fn open(root: &RootCid, proof: &[u8], limit: usize) -> Result<Tree> {
    let mut tree = Tree::of_proof(root.kind, root.suite);
    read(&mut tree, root, proof, limit)?;
    Ok(tree)
}

/// The same into `tree`, in its place: to move it would take longer than to hash a node.
#[inline(always)]
fn read(tree: &mut Tree, root: &RootCid, proof: &[u8], limit: usize) -> Result<()> {
    let limit = limit.min(MAX_LIMIT);
    if proof.len() > limit {
        return Err(Error::proof(format!("the proof is {} bytes long; {limit} is the limit", proof.len())));
    }
    tree.read(proof).map_err(|fault| Error::Proof { check: fault.why.to_owned(), step: None, at: Some(fault.at) })?;
    let digest = tree.node(Tree::TOP).sum.digest;
    if digest != root.digest {
        return Err(Error::proof(format!("the proof's digest is {digest}, not the root's")));
    }
    Ok(())
}

/// Checks that a tree shows no more than the query needed.
pub(crate) fn check_all_visited(tree: &Tree) -> Result<()> {
    match tree.all_shown_visited() {
        true => Ok(()),
        false => Err(Error::proof("the proof shows more than the query needs")),
    }
}

/// Runs `ask` on the pruned tree `proof` and checks that it is `root`'s and shows no more than that.
///
/// # Errors
/// [`Error::Proof`] if `proof` does not prove it.
#[doc(hidden)]
pub fn replay(root: &RootCid, ask: Ask, proof: &[u8], limit: usize) -> Result<Answer> {
    if let Ask::Key(key) = &ask
        && let Some(target) = look_up(root, key.as_bytes(), proof, limit)
    {
        return Ok(Answer::Key(target));
    }
    query(root, ask, proof, limit)
}

/// The same for each kind of question in the same way: on a tree.
pub(crate) fn query(root: &RootCid, ask: Ask, proof: &[u8], limit: usize) -> Result<Answer> {
    let mut tree = Tree::of_proof(root.kind, root.suite);
    read(&mut tree, root, proof, limit)?;
    let answer = Task::from(ask).run(&mut tree).map_err(refuse)?;
    check_all_visited(&tree)?;
    Ok(answer)
}

/// The same for a key in one pass; None where that is not enough to say.
#[inline(always)]
fn look_up(root: &RootCid, key: &[u8], proof: &[u8], limit: usize) -> Option<Option<Cid>> {
    if proof.len() > limit.min(MAX_LIMIT) {
        return None;
    }
    Some(lookup::check(root, key, proof)?.map(Cid::trusted))
}

/// What a halt means on a proof.
pub(crate) fn refuse(halt: Halt) -> Error {
    match halt {
        Halt::Stub | Halt::Pages | Halt::Budget => Error::proof("the query needs a node that the proof does not show"),
        Halt::Faulty(why) | Halt::Full(why) => Error::proof(why),
        Halt::Conflict { why, .. } => Error::proof(format!("the changes do not fit the tree: {why}")),
        Halt::Damaged(error) => error,
    }
}

fn expect(root: &RootCid, kind: Kind) -> Result<()> {
    if root.kind == kind {
        return Ok(());
    }
    let what = format!("{root} is a {}, not the root of a {}", root.kind.name(), kind.name());
    Err(Error::input(InputCode::KindMismatch, what))
}

/// The target that `key` leads to in the map `root`, or None: it is proven that there is none. O(depth) hashes.
///
/// # Errors
/// [`Error::Proof`] if `proof` does not prove it; [`Error::Input`] if `root` is no map.
pub fn key(root: &RootCid, key: &Key, proof: &[u8], limit: usize) -> Result<Option<Cid>> {
    expect(root, Kind::Map)?;
    // What `replay` does, without moving the answer about: this is the verification that there is most of.
    if let Some(target) = look_up(root, key.as_bytes(), proof, limit) {
        return Ok(target);
    }
    match query(root, Ask::Key(key.clone()), proof, limit)? {
        Answer::Key(target) => Ok(target),
        _ => Err(Error::proof(OTHER_ANSWER)),
    }
}

/// Element `index` of the list `root`, or the proof that the list is shorter. O(log n) hashes.
///
/// # Errors
/// [`Error::Proof`] if `proof` does not prove it; [`Error::Input`] if `root` is no list.
pub fn index(root: &RootCid, index: u64, proof: &[u8], limit: usize) -> Result<Element> {
    expect(root, Kind::List)?;
    match replay(root, Ask::Index(index), proof, limit)? {
        Answer::Element(element) => Ok(element),
        _ => Err(Error::proof(OTHER_ANSWER)),
    }
}

/// The elements of the list `root` whose span of measure meets `start..end`, complete. O(log n + segments) hashes.
///
/// # Errors
/// [`Error::Proof`] if `proof` does not prove it; [`Error::Input`] if `root` is no list.
pub fn range(root: &RootCid, start: u64, end: Option<u64>, proof: &[u8], limit: usize) -> Result<Span> {
    expect(root, Kind::List)?;
    match replay(root, Ask::Range { start, end, max_segments: usize::MAX }, proof, limit)? {
        Answer::Span(span) => Ok(span),
        _ => Err(Error::proof(OTHER_ANSWER)),
    }
}

/// One page of the listing of `window` in the map `root`, complete. O(depth + entries) hashes.
///
/// # Errors
/// [`Error::Proof`] if `proof` does not prove it; [`Error::Input`] if `root` is no map or `entries` is 0.
pub fn scan(root: &RootCid, window: Window, entries: usize, proof: &[u8], limit: usize) -> Result<Listing> {
    expect(root, Kind::Map)?;
    if entries == 0 {
        return Err(Error::request("limit: a listing has at least 1 entry a page"));
    }
    match replay(root, Ask::Scan(window, entries), proof, limit)? {
        Answer::Listing(listing) => Ok(listing),
        _ => Err(Error::proof(OTHER_ANSWER)),
    }
}

fn changed(root: &RootCid, ask: Ask, proof: &[u8], limit: usize) -> Result<RootCid> {
    match replay(root, ask, proof, limit)? {
        Answer::Changed(changed) => Ok(RootCid { digest: changed.sum.digest, ..*root }),
        _ => Err(Error::proof(OTHER_ANSWER)),
    }
}

/// The root that the map `root` gets by `changes`, computed without its data. O(changes x depth) hashes.
///
/// # Errors
/// [`Error::Proof`] if `proof` does not show what the changes need, or they do not fit.
pub fn map_changes(root: &RootCid, changes: map::Changes, proof: &[u8], limit: usize) -> Result<RootCid> {
    expect(root, Kind::Map)?;
    changed(root, Ask::ChangeMap(changes), proof, limit)
}

/// The root that the list `root` gets by `changes`, computed without its data. O(changes x log n) hashes.
///
/// # Errors
/// [`Error::Proof`] if `proof` does not show what the changes need, or they do not fit.
pub fn list_changes(root: &RootCid, changes: list::Changes, proof: &[u8], limit: usize) -> Result<RootCid> {
    expect(root, Kind::List)?;
    changed(root, Ask::ChangeList(changes), proof, limit)
}
