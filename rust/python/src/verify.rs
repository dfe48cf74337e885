//! Verifiers of single proofs. Those of whole operations, with their JSON, are in `results`.

use core::{InputCode, Keys, Kind, RootCid, verify};
use coregw_core as core;
use coregw_folders::parallel;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::cid::{CidLike, text};
use crate::convert::{self, ArgumentError, BytesLike};
use crate::detach::{self, Work};
use crate::errors::{call, exception, invalid};
use crate::path::{self, PathLike, PendingKey};
use crate::{change, tuples};

/// Verify an inclusion or absence proof of a path (protocol section 4, *get*).
///
/// O(depth) hashes, a few microseconds. A proof has at most 2,892,588 bytes.
///
/// Args:
///     root: The trusted root of the map.
///     path: The path, in text form or as segments.
///     proof: The proof that came with the answer.
///
/// Returns:
///     The target's CID as text, or None if the path is proven absent.
///
/// Raises:
///     ProofError: If `proof` does not prove either. The message names the check that failed, and where.
///     InvalidInput: If `root` is not the root of a map (code ``kind_mismatch``), or `path` is malformed.
///
/// >>> m = Map({"docs/readme": payload_cid(b"hello")})
/// >>> verify_key(m.root, "docs/readme", m.prove("docs/readme")) == payload_cid(b"hello")
/// True
/// >>> verify_key(m.root, "docs/guide", m.prove("docs/guide")) is None
/// True
#[pyfunction]
pub fn verify_key<'py>(
    py: Python<'py>,
    root: CidLike,
    path: PathLike,
    proof: BytesLike,
) -> PyResult<Option<Bound<'py, PyString>>> {
    let work = Work::ProofBytes { bytes: proof.len() };
    let target =
        detach::run(py, work, || verify::key(&RootCid::of(&root.0, Kind::Map)?, &path.0, &proof, verify::PROOF_LIMIT))?;
    Ok(target.map(|target| text(py, &target)))
}

/// Verify many proofs of one map as `verify_key` does, on all cores with the GIL released.
///
/// O(sum of depths) hashes.
///
/// Args:
///     root: The trusted root of the map.
///     items: Pairs of a path and its proof.
///
/// Returns:
///     For each pair the target's CID as text, or None if the path is proven absent.
///
/// Raises:
///     ProofError: If a proof is wrong. The message names the first such item.
///     InvalidInput: If `root` is not the root of a map (code ``kind_mismatch``), or a path is malformed. The message
///         names the first such item; this check comes before all proofs.
///
/// >>> m = Map({"a": payload_cid(b"hello")})
/// >>> verify_key_many(m.root, [(path, m.prove(path)) for path in ("a", "b")]) == [payload_cid(b"hello"), None]
/// True
#[pyfunction]
pub fn verify_key_many<'py>(
    py: Python<'py>,
    root: CidLike,
    items: &Bound<'py, PyAny>,
) -> PyResult<Vec<Option<Bound<'py, PyString>>>> {
    let root = call(|| RootCid::of(&root.0, Kind::Map))?;
    // One pass for the items, one for their halves and one for the paths: in a short loop the processor waits for several
    // objects at a time that are in no cache.
    let is_held = items.is_exact_instance_of::<PyList>() || items.is_exact_instance_of::<PyTuple>();
    let items = convert::collect(items, |_, item| if is_held { Ok(item) } else { settled(item) })?;
    let mut refused = None;
    let halves = items.iter().enumerate().map(|(index, item)| halves(index, item));
    let halves: Vec<_> = halves.map_while(|item| item.map_err(|error| refused = Some(error)).ok()).collect();
    let mut pairs = Vec::with_capacity(halves.len());
    for (index, (path, proof)) in halves.iter().enumerate() {
        match path::pending_key(path) {
            Ok(path) => pairs.push((path, proof.bytes())),
            Err(error) => {
                refused = Some(error.within(format_args!("item {index}")));
                break;
            }
        }
    }
    if let Some(error) = refused {
        return Err(first_malformed_path(&pairs).map_or(error.into(), exception));
    }
    let targets = detach::run(py, Work::Proofs { count: pairs.len() }, || {
        let verified = parallel::map_shares(&pairs, |pairs| verify_share(&root, pairs));
        let named = |(index, target): (usize, core::Result<_>)| target.map_err(|error| in_item(error, index));
        let targets = verified.into_iter().enumerate().map(named).collect::<core::Result<Vec<Option<String>>>>();
        targets.map_err(|error| first_malformed_path(&pairs).unwrap_or(error))
    })?;
    Ok(targets.into_iter().map(|target| target.map(|target| PyString::new(py, &target))).collect())
}

/// The results of `verify_key` for some of the pairs. A proof whose path is malformed is not read.
fn verify_share(root: &RootCid, pairs: &[(PendingKey<'_>, &[u8])]) -> Vec<core::Result<Option<String>>> {
    let keys: Vec<_> = pairs.iter().map(|(path, _)| path.key()).collect();
    let proofs: Vec<_> =
        keys.iter().zip(pairs).filter_map(|(key, (_, proof))| Some((&**key.as_ref().ok()?, *proof))).collect();
    let mut verified = match verify::each_key(root, &proofs, verify::PROOF_LIMIT) {
        Ok(verified) => verified.into_iter(),
        Err(error) => return pairs.iter().map(|_| Err(error.clone())).collect(),
    };
    let result = |key: &core::Result<_>| match key {
        Ok(_) => Ok(verified.next().expect("a result for each proof")?.map(|target| target.text())),
        Err(error) => Err(error.clone()),
    };
    keys.iter().map(result).collect()
}

/// A path and a proof, borrowed from their tuple.
type Halves<'a, 'py> = (Borrowed<'a, 'py, PyAny>, ProofBytes<'a, 'py>);

/// A proof as it was given, or a copy of another buffer, whose bytes may change.
enum ProofBytes<'a, 'py> {
    Given(Borrowed<'a, 'py, PyBytes>),
    Copied(Bound<'py, PyBytes>),
}

impl ProofBytes<'_, '_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Given(bytes) => bytes.as_bytes(),
            Self::Copied(bytes) => bytes.as_bytes(),
        }
    }
}

/// An item of an iterator, whose buffers may be filled again for the next one: with a copy of its proof, unless that is
/// `bytes`. What is no pair is refused later.
fn settled<'py>(item: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match halves(0, &item) {
        Ok((path, ProofBytes::Copied(copy))) => Ok((path, copy).into_pyobject(item.py())?.into_any()),
        _ => Ok(item),
    }
}

fn halves<'a, 'py>(index: usize, item: &'a Bound<'py, PyAny>) -> Result<Halves<'a, 'py>, ArgumentError> {
    if let Ok(pair) = item.cast::<PyTuple>()
        && pair.len() == 2
        && let (Ok(path), Ok(proof)) = (pair.get_borrowed_item(0), pair.get_borrowed_item(1))
    {
        if let Ok(given) = proof.cast::<PyBytes>() {
            return Ok((path, ProofBytes::Given(given)));
        }
        if let Ok(copy) = convert::bytes(&proof) {
            return Ok((path, ProofBytes::Copied(copy)));
        }
    }
    Err(ArgumentError::Type(format!("item {index} is a tuple of a path and a proof (bytes)")))
}

/// The error for the first malformed path. A path in text form is parsed by the worker threads, after other items were
/// converted and verified, but its error comes before theirs.
fn first_malformed_path(pairs: &[(PendingKey<'_>, &[u8])]) -> Option<core::Error> {
    pairs.iter().enumerate().find_map(|(index, (path, _))| Some(in_item(path.key().err()?, index)))
}

fn in_item(error: core::Error, index: usize) -> core::Error {
    error.within(&format!("item {index}"))
}

/// Verify one proof of many paths of a map: a multiproof (protocol section 4, *get(keys)*).
///
/// O(nodes shown) hashes. A proof has at most 16 MiB.
///
/// Args:
///     root: The trusted root of the map.
///     paths: The requested paths, in text form or as segments, in any order.
///     proof: The proof that came with the answer.
///
/// Returns:
///     For each path, in the order of `paths`, the target's CID as text, or None if the path is proven absent.
///
/// Raises:
///     ProofError: If `proof` does not prove all of them, or shows more than they need. The message names the check
///         that failed, and where.
///     InvalidInput: If `root` is not the root of a map (code ``kind_mismatch``), a path is malformed or occurs twice,
///         or there are none or more than 10,000. The message names its place.
///
/// >>> m = Map({"a": payload_cid(b"hello")})
/// >>> verify_keys(m.root, ["a", ["b", "c"]], m.prove_keys(["a", "b/c"])) == [payload_cid(b"hello"), None]
/// True
#[pyfunction]
pub fn verify_keys<'py>(
    py: Python<'py>,
    root: CidLike,
    paths: &Bound<'py, PyAny>,
    proof: BytesLike,
) -> PyResult<Vec<Option<String>>> {
    let root = call(|| RootCid::of(&root.0, Kind::Map))?;
    let keys = path::keys(paths)?;
    let keys = call(|| Keys::new(keys.into_iter().collect()))?;
    detach::run(py, Work::ProofBytes { bytes: proof.len() }, || {
        let targets = verify::keys(&root, &keys, &proof, verify::WIDE_PROOF_LIMIT)?;
        Ok(targets.into_iter().map(|target| target.map(|target| target.text())).collect())
    })
}

/// Verify the proof of a list's element, or that the list is shorter (protocol section 4, *get*).
///
/// O(log n) hashes. A proof has at most 2,892,588 bytes.
///
/// Args:
///     root: The trusted root of the list.
///     index: The index, from 0.
///     proof: The proof that came with the answer.
///
/// Returns:
///     ``Element(target, size, length)``; target and size are None if the list is shorter.
///
/// Raises:
///     ProofError: If `proof` does not prove either. The message names the check that failed, and where.
///     InvalidInput: If `root` is not the root of a list (code ``kind_mismatch``), or `index` is not from 0 to
///         2^53 - 1.
///
/// >>> l = List([payload_cid(b"hello")], sizes=[5])
/// >>> verify_index(l.root, 0, l.prove(0)) == (payload_cid(b"hello"), 5, 1)
/// True
/// >>> verify_index(l.root, 7, l.prove(7))
/// Element(target=None, size=None, length=1)
#[pyfunction]
pub fn verify_index<'py>(
    py: Python<'py>,
    root: CidLike,
    index: &Bound<'py, PyAny>,
    proof: BytesLike,
) -> PyResult<Bound<'py, PyAny>> {
    let index = convert::integer(index, "index")?;
    let element = detach::run(py, Work::ProofBytes { bytes: proof.len() }, || {
        verify::index(&RootCid::of(&root.0, Kind::List)?, index, &proof, verify::PROOF_LIMIT)
    })?;
    let target = element.target.map(|target| text(py, &target));
    tuples::ELEMENT.instance(py, (target, element.size, element.length))
}

/// Verify a range proof: all elements of a list that overlap a range of its measure (section 4, *range*).
///
/// O(log n + elements) hashes. A proof has at most 16 MiB.
///
/// Args:
///     root: The trusted root of the list.
///     start: The start of the range, in units of the list's measure (bytes, where sizes are bytes).
///     end: The end of the range, exclusive; None, or anything past the total, means the total.
///     proof: The proof that came with the answer.
///
/// Returns:
///     ``Range(segments, sizes, offset, length, total_size)``.
///
/// Raises:
///     ProofError: If `proof` does not prove the elements. The message names the check that failed, and where.
///     InvalidInput: If `root` is not the root of a list (code ``kind_mismatch``), or a bound is not from 0 to
///         2^53 - 1.
///
/// >>> l = List([payload_cid(b"hello"), payload_cid(b"world!")], sizes=[5, 6])
/// >>> found = verify_range(l.root, 7, None, l.prove_range(7))
/// >>> found.segments == [payload_cid(b"world!")], found.offset, found.total_size
/// (True, 5, 11)
#[pyfunction]
pub fn verify_range<'py>(
    py: Python<'py>,
    root: CidLike,
    start: &Bound<'py, PyAny>,
    end: Option<&Bound<'py, PyAny>>,
    proof: BytesLike,
) -> PyResult<Bound<'py, PyAny>> {
    let start = convert::integer(start, "start")?;
    let end = end.map(|end| convert::integer(end, "end")).transpose()?;
    let span = detach::run(py, Work::ProofBytes { bytes: proof.len() }, || {
        verify::range(&RootCid::of(&root.0, Kind::List)?, start, end, &proof, verify::WIDE_PROOF_LIMIT)
    })?;
    let segments: Vec<_> = span.segments.iter().map(|target| text(py, target)).collect();
    tuples::RANGE.instance(py, (segments, span.sizes, span.offset, span.length, span.total_size))
}

/// Verify a listing proof: a complete page of a map's entries (protocol section 4, *scan*).
///
/// O(depth + entries) hashes. A proof has at most 16 MiB.
///
/// Args:
///     root: The trusted root of the map.
///     prefix: The path whose subtree is listed, the path itself included; empty for the whole map.
///     after: The whole path (prefix included) after which the page starts, or None.
///     limit: The largest number of entries, at least 1. It must be that of the request: the proof depends on it.
///     proof: The proof that came with the answer.
///
/// Returns:
///     ``Scan(entries, more, proof)``.
///
/// Raises:
///     ProofError: If `proof` does not prove the page. The message names the check that failed, and where.
///     InvalidInput: If `root` is not the root of a map (code ``kind_mismatch``), a path is malformed, `after` is not
///         below `prefix`, or `limit` is not from 1 to 2^53 - 1.
///
/// >>> m = Map({"a/b": payload_cid(b"hello"), "a/c": payload_cid(b"world"), "d": payload_cid(b"")})
/// >>> page = verify_scan(m.root, "a", None, 10, m.scan("a", limit=10).proof)
/// >>> [segments for segments, _ in page.entries], page.more
/// ([['a', 'b'], ['a', 'c']], False)
#[pyfunction]
pub fn verify_scan<'py>(
    py: Python<'py>,
    root: CidLike,
    prefix: &Bound<'py, PyAny>,
    after: Option<&Bound<'py, PyAny>>,
    limit: &Bound<'py, PyAny>,
    proof: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let window = path::window(Some(prefix), after)?;
    let limit = convert::limit(limit)?;
    let proof = convert::bytes(proof)?;
    let bytes = proof.as_bytes();
    let (entries, more) = detach::run(py, Work::ProofBytes { bytes: bytes.len() }, || {
        let root = RootCid::of(&root.0, Kind::Map)?;
        let listing = verify::scan(&root, window, limit, bytes, verify::WIDE_PROOF_LIMIT)?;
        Ok((listing.decoded(), listing.more))
    })?;
    tuples::scan(py, entries, more, proof)
}

/// Derive the new root of a map or list from changes and their transition proof (protocol section 5, *transition*).
///
/// O(changes x depth) hashes. A proof has at most 16 MiB. Whether to accept the new root is the caller's decision.
///
/// Args:
///     root: The trusted root before the changes.
///     changes: The caller's own changes, in any order; coordinates are paths for a map, indices for a list.
///     proof: The proof that came with the receipt.
///
/// Returns:
///     The new root CID, as text.
///
/// Raises:
///     ProofError: If `proof` does not show all that the changes touch, or a `before` differs from the tree. The
///         message names the check that failed.
///     Conflict: If the changes contradict each other or one changes nothing (code ``invalid_change``).
///     InvalidInput: If `root` is not a root (code ``kind_mismatch``), there are no changes, or one is malformed.
///
/// >>> m = Map({"a": payload_cid(b"old")})
/// >>> changes = [Change("a", payload_cid(b"old"), payload_cid(b"new"))]
/// >>> verify_changes(m.root, changes, m.apply(changes).proof) == Map({"a": payload_cid(b"new")}).root
/// True
#[pyfunction]
pub fn verify_changes<'py>(
    py: Python<'py>,
    root: CidLike,
    changes: &Bound<'py, PyAny>,
    proof: BytesLike,
) -> PyResult<Bound<'py, PyString>> {
    let Some(root) = root.0.root() else {
        return Err(invalid(
            InputCode::KindMismatch,
            format!("{} is a payload, not the root of a map or list", root.0),
        ));
    };
    let limit = verify::WIDE_PROOF_LIMIT;
    let work = Work::ProofBytes { bytes: proof.len() };
    let changed = match root.kind {
        Kind::Map => {
            let changes = change::map_changes(changes)?;
            detach::run(py, work, || verify::map_changes(&root, changes, &proof, limit))
        }
        Kind::List => {
            let changes = change::list_changes(changes)?;
            detach::run(py, work, || verify::list_changes(&root, changes, &proof, limit))
        }
    }?;
    Ok(text(py, &changed.cid()))
}
