//! Verification: replay the query on the proof, and compare the digest with the root (protocol section 4).
//!
//! Every function returns what is proven, or an error. On any input it terminates. It takes memory proportional to the
//! proof and the answer. Its time is proportional to the proof and to what the question allows to be in the answer: keys
//! are no longer than [`MAX_KEY`](crate::key::MAX_KEY) bytes, and a proof is refused at the first leaf more than the query
//! can visit, before that leaf is hashed. It does no I/O and trusts nothing but the caller's root.

use crate::error::{Error, InputCode, Result};
use crate::id::cid::{Cid, Kind, RootCid};
use crate::id::suite::Digest;
use crate::interrupt::{Attempt, Failure};
use crate::key::{Key, MAX_BITS, Window};
use crate::key_list::Keys;
use crate::page::partial::PartialTree;
use crate::proof::query::{Answer, Ask, Element, run_once};
use crate::proof::streamed::{self, KeyProof, UNVISITED};
use crate::proof::streamed_keys::{self, KeysProof};
use crate::query::changes::{ListChanges, MapChanges};
use crate::query::diff::{Diff, Differences, Half, check_same_suite};
use crate::query::list::Span;
use crate::query::map::Listing;
use crate::tree::pruned::{MAX_LIST_DEPTH, VisitLimits};

/// The default limit on the proof of one key or index, in bytes: no proof of a key is longer.
///
/// An inner node and the stub beside it take at most 44 bytes without the label, for each bit of the longest key. The
/// labels, the last node and its target take the rest.
pub const PROOF_LIMIT: usize = MAX_BITS as usize * 44 + 8300;
/// The default limit on the proof of several keys, a range, a listing, changes or a diff, in bytes.
pub const WIDE_PROOF_LIMIT: usize = 16 << 20;

/// Offsets in a proof have 32 bits.
const MAX_LIMIT: usize = u32::MAX as usize / 2;

/// A pruned tree, read from a proof.
trait Pruned {
    /// The digest of its top node.
    fn digest(&self) -> Digest;
    /// Whether it shows a node that the query did not visit.
    fn shows_unvisited(&self) -> bool;
}

impl Pruned for PartialTree {
    fn digest(&self) -> Digest {
        self.node(Self::TOP).digest
    }

    fn shows_unvisited(&self) -> bool {
        !self.all_shown_visited()
    }
}

impl Pruned for Half {
    fn digest(&self) -> Digest {
        self.tree.digest()
    }

    fn shows_unvisited(&self) -> bool {
        self.tree.shows_unvisited()
    }
}

impl Pruned for KeyProof {
    fn digest(&self) -> Digest {
        self.digest
    }

    /// The reader rejects siblings that are not stubs.
    fn shows_unvisited(&self) -> bool {
        false
    }
}

impl Pruned for KeysProof {
    fn digest(&self) -> Digest {
        self.digest
    }

    /// The reader rejects children that no key visits, unless they are stubs.
    fn shows_unvisited(&self) -> bool {
        false
    }
}

/// Decides whether proofs are accepted: each is the tree of its root, the query can be answered from what they show, and
/// they show nothing else.
#[inline(always)]
fn accept<P: Pruned, T, const N: usize>(
    roots: [&RootCid; N],
    proofs: &mut [P; N],
    query: impl FnOnce(&mut [P; N]) -> Attempt<T>,
) -> Result<T> {
    let in_step = |error: Error, step| if N == 1 { error } else { error.in_step(step) };
    for (step, (root, proof)) in roots.iter().zip(proofs.iter()).enumerate() {
        let digest = proof.digest();
        if digest != root.digest {
            return Err(in_step(Error::proof(format!("the proof's digest is {digest}, not the root's")), step));
        }
    }
    let answer = query(proofs).map_err(|interrupt| interrupt.on_proof())?;
    match proofs.iter().position(Pruned::shows_unvisited) {
        Some(step) => Err(in_step(Error::proof(UNVISITED), step)),
        None => Ok(answer),
    }
}

fn check_len(proof: &[u8], limit: usize) -> Result<()> {
    let limit = limit.min(MAX_LIMIT);
    match proof.len() <= limit {
        true => Ok(()),
        false => Err(Error::proof(format!("the proof has {} bytes; the limit is {limit}", proof.len()))),
    }
}

/// What a query can visit, as far as it limits that: the nodes besides siblings, and the leaves of a map.
///
/// Contiguous elements of a list are joined by fewer nodes than there are elements, besides those on the descents to the
/// first and the last. So are those of a map: the entries of a listing, the leaf before the first one, and what follows
/// the last one.
fn visit_limits(ask: &Ask) -> VisitLimits {
    let (visited, leaves) = match ask {
        Ask::Key(_) => (usize::MAX, 1),
        Ask::Keys(keys) => (usize::MAX, keys.len()),
        Ask::Index(_) => (MAX_LIST_DEPTH, 1),
        Ask::Range { max_segments, .. } => (max_segments.saturating_add(2 * MAX_LIST_DEPTH), *max_segments),
        Ask::Scan(window, entries) => {
            let leaves = entries.saturating_add(2);
            let descents = 8 * window.start().len() + MAX_BITS as usize;
            (leaves.saturating_mul(2).saturating_add(descents), leaves)
        }
        // Each change descends along its key to one leaf at most, or to a node whose bits diverge from the key.
        Ask::ChangeMap(changes) => (changes.keys().map(|key| 8 * key.len() + 1).sum(), changes.len()),
        Ask::ChangeList(changes) => (usize::MAX, changes.len()),
    };
    VisitLimits { nodes: visited.saturating_mul(2).saturating_add(1), leaves }
}

/// What a diff of so many differences can visit of one of the maps.
///
/// A leaf is a difference; or it is equal to one below a node of the other map, all other leaves of which are differences.
/// At either end of the window there may be two that are outside, or whose counterparts are. One more may follow the
/// last difference, and one wait for it.
fn diff_limits(entries: usize) -> VisitLimits {
    VisitLimits { nodes: usize::MAX, leaves: entries.saturating_add(6) }
}

/// Decodes a proof into `tree`, in place: moving a tree would cost as much as hashing a node.
#[inline(always)]
fn decode(tree: &mut PartialTree, proof: &[u8], limit: usize, limits: VisitLimits) -> Result<()> {
    check_len(proof, limit)?;
    tree.read(proof, limits).map_err(|fault| Failure::Malformed(fault).on_proof())
}

/// Answers `ask` from `proof`, which must be accepted under `root`.
///
/// # Errors
/// [`Error::Proof`] if `proof` does not prove the answer.
pub fn replay(root: &RootCid, ask: Ask, proof: &[u8], limit: usize) -> Result<Answer> {
    match &ask {
        Ask::Key(key) if root.kind == Kind::Map => Ok(Answer::Key(look_up(root, key, proof, limit)?)),
        Ask::Keys(keys) if root.kind == Kind::Map => Ok(Answer::Keys(look_up_all(root, keys, proof, limit)?)),
        _ => replay_on_tree(root, &ask, proof, limit),
    }
}

/// Replays any query on the decoded tree, the lookup of keys too. For comparison with [`replay`], which does not decode
/// the proof of keys into a tree.
///
/// # Errors
/// As [`replay`].
#[doc(hidden)]
pub fn replay_on_tree(root: &RootCid, ask: &Ask, proof: &[u8], limit: usize) -> Result<Answer> {
    let mut tree = PartialTree::of_proof(root.kind, root.suite);
    decode(&mut tree, proof, limit, visit_limits(ask))?;
    accept([root], std::array::from_mut(&mut tree), |[tree]| run_once(ask, tree))
}

/// Replays the lookup of a key as the proof is read.
#[inline(always)]
fn look_up(root: &RootCid, key: &Key, proof: &[u8], limit: usize) -> Result<Option<Cid>> {
    check_len(proof, limit)?;
    accept_key(root, streamed::read(root.suite, key.as_bytes(), proof))
}

/// Replays the lookups of several keys as the proof is read.
fn look_up_all(root: &RootCid, keys: &Keys, proof: &[u8], limit: usize) -> Result<Vec<Option<Cid>>> {
    check_len(proof, limit)?;
    let mut shown = streamed_keys::read(root.suite, keys, proof).map_err(|interrupt| interrupt.on_proof())?;
    accept([root], std::array::from_mut(&mut shown), |[shown]| Ok(std::mem::take(&mut shown.targets)))
}

#[inline(always)]
fn accept_key(root: &RootCid, shown: Attempt<KeyProof>) -> Result<Option<Cid>> {
    let mut shown = shown.map_err(|interrupt| interrupt.on_proof())?;
    accept([root], std::array::from_mut(&mut shown), |[shown]| Ok(shown.target))
}

fn expect(root: &RootCid, kind: Kind) -> Result<()> {
    if root.kind == kind {
        return Ok(());
    }
    let what = format!("{root} is a {}, not the root of a {}", root.kind.name(), kind.name());
    Err(Error::input(InputCode::KindMismatch, what))
}

fn unexpected() -> Error {
    Error::proof("the query gave an answer of another kind")
}

/// Verifies an inclusion or absence proof: the target of `key` in the map `root`, or None if it is proven absent. O(depth)
/// hashes.
///
/// # Errors
/// [`Error::Proof`] if `proof` does not prove it; [`Error::Input`] if `root` is not a map.
pub fn key(root: &RootCid, key: &Key, proof: &[u8], limit: usize) -> Result<Option<Cid>> {
    expect(root, Kind::Map)?;
    look_up(root, key, proof, limit)
}

/// Verifies an inclusion or absence proof for each of several keys, as [`key`] does; nodes of several proofs are hashed
/// at a time. O(sum of depths) hashes.
///
/// # Errors
/// [`Error::Input`] if `root` is not a map. The results hold an [`Error::Proof`] for each proof that does not prove it.
pub fn each_key(root: &RootCid, proofs: &[(&Key, &[u8])], limit: usize) -> Result<Vec<Result<Option<Cid>>>> {
    expect(root, Kind::Map)?;
    // A proof that is too long is not read.
    let readable = |proof| check_len(proof, limit).map_or(&[][..], |()| proof);
    let mut results = vec![Ok(None); proofs.len()];
    let keys = proofs.iter().map(|(key, proof)| (key.as_bytes(), readable(proof)));
    streamed::read_many(root.suite, keys, |item, shown| {
        results[item] = check_len(proofs[item].1, limit).and_then(|()| accept_key(root, shown));
    });
    Ok(results)
}

/// Verifies a multiproof: the targets of `keys` in the map `root`, in the order of `keys`, None for a key that is proven
/// absent. O(shown nodes) hashes, O(keys x depth) steps.
///
/// # Errors
/// [`Error::Proof`] if `proof` does not prove it; [`Error::Input`] if `root` is not a map.
pub fn keys(root: &RootCid, keys: &Keys, proof: &[u8], limit: usize) -> Result<Vec<Option<Cid>>> {
    expect(root, Kind::Map)?;
    look_up_all(root, keys, proof, limit)
}

/// Verifies element `index` of the list `root`, or that the list is shorter. O(log n) hashes.
///
/// # Errors
/// [`Error::Proof`] if `proof` does not prove it; [`Error::Input`] if `root` is not a list.
pub fn index(root: &RootCid, index: u64, proof: &[u8], limit: usize) -> Result<Element> {
    expect(root, Kind::List)?;
    match replay(root, Ask::Index(index), proof, limit)? {
        Answer::Element(element) => Ok(element),
        _ => Err(unexpected()),
    }
}

/// Verifies a range proof: all elements of the list `root` whose span of measure meets `start..end`. O(log n + segments)
/// hashes.
///
/// # Errors
/// [`Error::Proof`] if `proof` does not prove it; [`Error::Input`] if `root` is not a list.
pub fn range(root: &RootCid, start: u64, end: Option<u64>, proof: &[u8], limit: usize) -> Result<Span> {
    expect(root, Kind::List)?;
    match replay(root, Ask::Range { start, end, max_segments: usize::MAX }, proof, limit)? {
        Answer::Span(span) => Ok(span),
        _ => Err(unexpected()),
    }
}

/// Verifies a listing proof: one complete page of the listing of `window` in the map `root`. O(depth + entries) hashes.
///
/// # Errors
/// [`Error::Proof`] if `proof` does not prove it; [`Error::Input`] if `root` is not a map or `entries` is 0.
pub fn scan(root: &RootCid, window: Window, entries: usize, proof: &[u8], limit: usize) -> Result<Listing> {
    expect(root, Kind::Map)?;
    if entries == 0 {
        return Err(Error::request("limit: a listing has at least 1 entry per page"));
    }
    match replay(root, Ask::Scan(window, entries), proof, limit)? {
        Answer::Listing(listing) => Ok(listing),
        _ => Err(unexpected()),
    }
}

fn changed(root: &RootCid, ask: Ask, proof: &[u8], limit: usize) -> Result<RootCid> {
    match replay(root, ask, proof, limit)? {
        Answer::Changed(sum) => Ok(RootCid { digest: sum.digest, ..*root }),
        _ => Err(unexpected()),
    }
}

/// Verifies a transition proof: the root of the map `root` after `changes`, computed without its data. O(changes x depth)
/// hashes.
///
/// # Errors
/// [`Error::Proof`] if `proof` does not show what the changes need, or they do not fit.
pub fn map_changes(root: &RootCid, changes: MapChanges, proof: &[u8], limit: usize) -> Result<RootCid> {
    expect(root, Kind::Map)?;
    changed(root, Ask::ChangeMap(changes), proof, limit)
}

/// Verifies a transition proof: the root of the list `root` after `changes`, computed without its data. O(changes x log n)
/// hashes.
///
/// # Errors
/// [`Error::Proof`] if `proof` does not show what the changes need, or they do not fit.
pub fn list_changes(root: &RootCid, changes: ListChanges, proof: &[u8], limit: usize) -> Result<RootCid> {
    expect(root, Kind::List)?;
    changed(root, Ask::ChangeList(changes), proof, limit)
}

/// Verifies a diff proof: the differences between two maps in a window, complete up to the last one. O(differences x depth)
/// hashes.
///
/// # Errors
/// [`Error::Proof`] if the proofs do not prove it; [`Error::Input`] if a root is not a map or `entries` is 0.
pub fn diff(
    roots: [&RootCid; 2],
    window: &Window,
    entries: usize,
    proofs: [&[u8]; 2],
    limit: usize,
) -> Result<Differences> {
    if entries == 0 {
        return Err(Error::request("limit: a page has at least 1 difference"));
    }
    check_same_suite(roots)?;
    let open = |i: usize| -> Result<Half> {
        let mut tree = PartialTree::of_proof(roots[i].kind, roots[i].suite);
        decode(&mut tree, proofs[i], limit, diff_limits(entries)).map_err(|error| error.in_step(i))?;
        Ok(Half::new(tree))
    };
    accept(roots, &mut [open(0)?, open(1)?], |halves| Diff::new(window.clone(), entries).run(halves))
}
