//! The verifiers of proofs: what is proven comes back, all else is a `ProofError`.
//!
//! Verification of whole operations, with their JSON, is in `operations`.

use core::{InputCode, Kind, RootCid, map, verify};
use coregw_core as core;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::cid::text;
use crate::convert::{self, CidLike, Fault, Path, PathLike};
use crate::detach::{self, Work};
use crate::errors::{call, invalid};
use crate::{parallel, tuples};

/// The key that a tree holds for a path (protocol section 2). O(bytes).
///
/// Args:
///     segments: The path, as segments or in text form.
///
/// Raises:
///     InvalidInput: There is no segment, one is empty or contains ``/``, or the text form is longer than 4,096 bytes; its
///         code is ``invalid_path``.
///
/// >>> encode_key(["docs", "readme"])
/// b'docs\x00\x01readme\x00\x00'
#[pyfunction]
pub fn encode_key<'py>(py: Python<'py>, segments: PathLike) -> Bound<'py, PyBytes> {
    PyBytes::new(py, segments.0.as_bytes())
}

/// The target that a key of a map leads to, or None: the key is proven absent (protocol section 4, *get*).
///
/// O(depth) hashes, some microseconds. A proof is at most 1 MiB long.
///
/// Args:
///     root: The trusted root of the map.
///     path: The path, in text form or as segments.
///     proof: What came with the answer.
///
/// Returns:
///     The target's CID as text, or None.
///
/// Raises:
///     ProofError: `proof` does not prove it. Names the check that failed and where.
///     InvalidInput: `root` is no root of a map (code ``kind_mismatch``), or `path` is no path.
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
    proof: &[u8],
) -> PyResult<Option<Bound<'py, PyString>>> {
    let work = Work::ProofBytes { bytes: proof.len() };
    let target =
        detach::run(py, work, || verify::key(&RootCid::of(&root.0, Kind::Map)?, &path.0, proof, verify::PROOF_LIMIT))?;
    Ok(target.map(|target| text(py, &target)))
}

/// What `verify_key` gives for each of many proofs of one map, in one call: without the interpreter, on all cores.
///
/// O(sum of depths) hashes.
///
/// Args:
///     root: The trusted root of the map.
///     items: Pairs of a path and its proof.
///
/// Returns:
///     For each pair the target's CID as text, or None: the key is proven absent.
///
/// Raises:
///     ProofError: One of the proofs does not hold: the first such, which the message names.
///     InvalidInput: `root` is no root of a map (code ``kind_mismatch``), or a path is none.
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
    // What is asked is borrowed from the items, which are held here.
    let items: Vec<Bound<'py, PyAny>> = items.try_iter()?.collect::<PyResult<_>>()?;
    let mut asked = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        match pair(i, item) {
            Ok(pair) => asked.push(pair),
            Err(fault) => return Err(no_path(&asked).map_or(fault, Fault::Core).into()),
        }
    }
    let targets = detach::run(py, Work::Proofs { count: asked.len() }, || {
        let verified = parallel::map(&asked, |(path, proof)| {
            let target = verify::key(&root, &*path.key()?, proof, verify::PROOF_LIMIT)?;
            Ok(target.map(|target| target.text()))
        });
        let named = |(i, target): (usize, core::Result<_>)| target.map_err(|error| error.within(&format!("item {i}")));
        let targets = verified.into_iter().enumerate().map(named).collect::<core::Result<Vec<Option<String>>>>();
        targets.map_err(|error| no_path(&asked).unwrap_or(error))
    })?;
    Ok(targets.into_iter().map(|target| target.map(|target| PyString::new(py, &target))).collect())
}

fn pair<'a>(index: usize, item: &'a Bound<'_, PyAny>) -> Result<(Path<'a>, &'a [u8]), Fault> {
    if let Ok(pair) = item.cast::<PyTuple>()
        && let [path, proof] = pair.as_slice()
        && let Ok(proof) = proof.cast::<PyBytes>()
    {
        let path = convert::path(path).map_err(|fault| fault.within(&format!("item {index}")))?;
        return Ok((path, proof.as_bytes()));
    }
    Err(Fault::Type(format!("item {index} is a tuple of a path and a proof (bytes)")))
}

/// Why the first of some paths is none. A text shows that when its key is made, after the items behind it were taken
/// and proofs before it checked; yet it counts before both.
fn no_path(asked: &[(Path<'_>, &[u8])]) -> Option<core::Error> {
    asked.iter().enumerate().find_map(|(i, (path, _))| Some(path.key().err()?.within(&format!("item {i}"))))
}

/// An element of a list, or the proven end of the list (protocol section 4, *get*). O(log n) hashes.
///
/// A proof is at most 1 MiB long.
///
/// Args:
///     root: The trusted root of the list.
///     index: The index asked for, from 0.
///     proof: What came with the answer.
///
/// Returns:
///     ``Element(target, size, length)``; target and size are None if the list is shorter.
///
/// Raises:
///     ProofError: `proof` does not prove it. Names the check that failed and where.
///     InvalidInput: `root` is no root of a list (code ``kind_mismatch``), or `index` is not from 0 to 2^53 - 1.
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
    proof: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let index = convert::amount(index, "index")?;
    let element = detach::run(py, Work::ProofBytes { bytes: proof.len() }, || {
        verify::index(&RootCid::of(&root.0, Kind::List)?, index, proof, verify::PROOF_LIMIT)
    })?;
    let target = element.target.map(|target| text(py, &target));
    tuples::ELEMENT.fill(py, (target, element.size, element.length))
}

/// The elements of a list that a range of its measure meets, none left out (protocol section 4, *range*).
///
/// O(log n + elements) hashes. A proof is at most 16 MiB long.
///
/// Args:
///     root: The trusted root of the list.
///     start: Where the range starts, in units of the list's measure (bytes, where sizes are bytes).
///     end: Where it ends, itself left out; None, or anything past the total, is the total.
///     proof: What came with the answer.
///
/// Returns:
///     ``Range(segments, sizes, offset, length, total_size)``.
///
/// Raises:
///     ProofError: `proof` does not prove it. Names the check that failed and where.
///     InvalidInput: `root` is no root of a list (code ``kind_mismatch``), or a bound is not from 0 to 2^53 - 1.
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
    proof: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let start = convert::amount(start, "start")?;
    let end = end.map(|end| convert::amount(end, "end")).transpose()?;
    let span = detach::run(py, Work::ProofBytes { bytes: proof.len() }, || {
        verify::range(&RootCid::of(&root.0, Kind::List)?, start, end, proof, verify::WIDE_PROOF_LIMIT)
    })?;
    let segments: Vec<_> = span.segments.iter().map(|target| text(py, target)).collect();
    tuples::RANGE.fill(py, (segments, span.sizes, span.offset, span.length, span.total_size))
}

/// A page of a map's listing, none of its entries left out (protocol section 4, *scan*).
///
/// O(depth + entries) hashes. A proof is at most 16 MiB long.
///
/// Args:
///     root: The trusted root of the map.
///     prefix: The path below which entries are listed, itself included; empty for the whole map.
///     after: The whole path (prefix included) behind which the page starts, or None.
///     limit: The most entries of the page, at least 1: the one that was asked for, for the proof depends on it.
///     proof: What came with the answer.
///
/// Returns:
///     ``Scan(entries, more, proof)``.
///
/// Raises:
///     ProofError: `proof` does not prove it. Names the check that failed and where.
///     InvalidInput: `root` is no root of a map (code ``kind_mismatch``), a path is none, `after` is not in the window,
///         or `limit` is 0.
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
    proof: Bound<'py, PyBytes>,
) -> PyResult<Bound<'py, PyAny>> {
    let window = convert::window(Some(prefix), after)?;
    let limit = convert::limit(limit)?;
    let bytes = proof.as_bytes();
    let listing = detach::run(py, Work::ProofBytes { bytes: bytes.len() }, || {
        verify::scan(&RootCid::of(&root.0, Kind::Map)?, window, limit, bytes, verify::WIDE_PROOF_LIMIT)
    })?;
    page(py, listing, proof)
}

/// A page of a listing as the `Scan` that Python sees.
pub fn page<'py>(py: Python<'py>, listing: map::Listing, proof: Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
    let entries: Vec<_> = listing.entries.into_iter().map(|(segments, target)| (segments, text(py, &target))).collect();
    tuples::SCAN.fill(py, (entries, listing.more, proof))
}

/// The root that a map or list gets by changes, derived without its data (protocol section 5, *transition*).
///
/// O(changes x depth) hashes. A proof is at most 16 MiB long. Accepting the new root stays the caller's decision.
///
/// Args:
///     root: The trusted root that the changes start from.
///     changes: The caller's own changes, in any order; coordinates are paths for a map, indices for a list.
///     proof: What came with the receipt.
///
/// Returns:
///     The new root as text.
///
/// Raises:
///     ProofError: `proof` does not show what the changes need, or they do not fit. Names the check that failed.
///     Conflict: The changes contradict each other or change nothing, whatever the tree is (code ``invalid_change``).
///     InvalidInput: `root` is no root (code ``kind_mismatch``), there are no changes, or one of them is none.
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
    proof: &[u8],
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
            let changes = convert::map_changes(changes)?;
            detach::run(py, work, || verify::map_changes(&root, changes, proof, limit))
        }
        Kind::List => {
            let changes = convert::list_changes(changes)?;
            detach::run(py, work, || verify::list_changes(&root, changes, proof, limit))
        }
    }?;
    Ok(text(py, &changed.cid()))
}
