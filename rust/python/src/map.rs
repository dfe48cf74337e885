//! The class `Map`: a whole map in memory, as a mapping that proves its keys.

use std::collections::VecDeque;

use core::{Arcs, Cid, Key, Keys, Missing, Snapshot, Suite, Window};
use coregw_core as core;
use coregw_folders::parallel::{self, Cores};
use coregw_ops::json;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyMapping, PyNotImplemented, PyString, PyTuple, PyType};

use crate::cid::{hash, text};
use crate::convert::{self, ArgumentError};
use crate::detach::{self, Work};
use crate::errors::{call, not_found};
use crate::path::{self, PathLike};
use crate::sorting::pairs;
use crate::{change, tuples};

/// A whole map in memory, from paths to targets (protocol section 3). Immutable; hashable by its root.
///
/// It is a `collections.abc.Mapping` from the text form of a path to the target's CID as text, in key order. Wherever
/// it takes a path, it takes segments too. Two maps are equal if their roots are, a map and another mapping if their
/// items are. A changed map shares all unchanged subtrees with the old one.
///
/// O(n log n); the GIL is released while the tree is built.
///
/// Args:
///     arcs: A mapping from path to CID, or pairs of the two, or the JSON bytes of an object ``{path: cid}``, which is
///         parsed as strictly as a request (protocol section 5).
///     suite: The hash function of the tree, ``sha2-256`` or ``blake3``.
///
/// Raises:
///     InvalidInput: If a path or CID is malformed (code ``invalid_path`` or ``invalid_cid``), two arcs have the same
///         path, the JSON is not such an object, or the suite is unknown. The message names the arc.
///
/// >>> m = Map({"docs/readme": payload_cid(b"hello"), "docs": payload_cid(b"index")})
/// >>> list(m), m[["docs", "readme"]] == payload_cid(b"hello")
/// (['docs', 'docs/readme'], True)
/// >>> m == Map(reversed(list(m.items()))) == dict(m)
/// True
#[pyclass(frozen, mapping, module = "coregw")]
pub struct Map(Snapshot);

#[pymethods]
impl Map {
    #[new]
    #[pyo3(signature = (arcs, suite = "sha2-256"))]
    fn new(py: Python<'_>, arcs: &Bound<'_, PyAny>, suite: &str) -> PyResult<Self> {
        let suite = call(|| Suite::from_name(suite))?;
        let arcs = collect(arcs)?;
        detach::run(py, Work::Items { count: arcs.len() }, || Snapshot::map_by(&Cores, suite, arcs)).map(Self)
    }

    /// The root CID, as text.
    #[getter]
    fn root<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        text(py, &self.0.root().cid())
    }

    fn __len__(&self) -> usize {
        self.0.count() as usize
    }

    fn __iter__(&self) -> Paths {
        Paths(Entries::of(&self.0))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, path: PathLike) -> PyResult<Bound<'py, PyString>> {
        match self.find(&path.0)? {
            Some(target) => Ok(text(py, &target)),
            None => Err(not_found(Missing::Path, format!("the map has no {:?}", path.0.text()))),
        }
    }

    fn __contains__(&self, path: &Bound<'_, PyAny>) -> PyResult<bool> {
        match path::key(path) {
            Ok(key) => Ok(self.find(&key)?.is_some()),
            Err(ArgumentError::Python(error)) => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Return the target of a path, or `default` if the map has no such path. O(depth).
    ///
    /// Raises:
    ///     InvalidInput: If `path` is malformed; its code is ``invalid_path``.
    #[pyo3(signature = (path, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        path: PathLike,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find(&path.0)?.map(|target| text(py, &target).into_any()).or(default))
    }

    /// Return a set-like view of the paths as text, in key order.
    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static VIEW: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        VIEW.import(slf.py(), "collections.abc", "KeysView")?.call1((slf,))
    }

    /// Return a view of the targets' CIDs as text, in key order.
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static VIEW: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        VIEW.import(slf.py(), "collections.abc", "ValuesView")?.call1((slf,))
    }

    /// Return a set-like view of the pairs of path and target, in key order.
    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static VIEW: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        VIEW.import(slf.py(), "collections.abc", "ItemsView")?.call1((slf,))
    }

    fn __eq__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        let equal = if let Ok(other) = other.cast::<Self>() {
            self.0.root() == other.get().0.root()
        } else if let Ok(other) = other.cast::<PyMapping>() {
            self.has_items_of(other)?
        } else {
            return Ok(PyNotImplemented::get(py).to_owned().into_any());
        };
        Ok(equal.into_pyobject(py)?.to_owned().into_any())
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        hash(py, &self.0.root().cid())
    }

    fn __repr__(&self) -> String {
        format!("<coregw.Map {} of {} arcs>", self.0.root(), self.0.count())
    }

    /// Arguments of the constructor, for pickling and copying.
    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let mut entries = Entries::of(&self.0);
        let mut arcs = Vec::with_capacity(self.__len__());
        while let Some((segments, target)) = entries.next()? {
            arcs.push((segments.join("/"), text(py, &target)));
        }
        (arcs, self.0.root().suite.name()).into_pyobject(py)
    }

    /// Return the inclusion proof or absence proof of a path (protocol section 4, *get*).
    ///
    /// O(depth). `verify_key` verifies it.
    ///
    /// Args:
    ///     path: The path, in text form or as segments. It need not be in the map.
    ///
    /// Raises:
    ///     InvalidInput: If `path` is malformed; its code is ``invalid_path``.
    ///
    /// >>> m = Map({"a": payload_cid(b"hello")})
    /// >>> verify_key(m.root, "b", m.prove("b")) is None
    /// True
    fn prove<'py>(&self, py: Python<'py>, path: PathLike) -> PyResult<Bound<'py, PyBytes>> {
        let proof = call(|| self.0.prove(&path.0))?;
        Ok(PyBytes::new(py, &proof))
    }

    /// Return what `prove` returns for each of many paths, computed on all cores with the GIL released.
    ///
    /// O(sum of depths).
    ///
    /// Args:
    ///     paths: The paths, in text form or as segments.
    ///
    /// Raises:
    ///     InvalidInput: If a path is malformed; its code is ``invalid_path``. The message names its place.
    ///
    /// >>> m = Map({"a": payload_cid(b"hello")})
    /// >>> m.prove_many(["a", ["b"]]) == [m.prove("a"), m.prove("b")]
    /// True
    fn prove_many<'py>(&self, py: Python<'py>, paths: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let keys = path::keys(paths)?;
        let proofs = detach::run(py, Work::Items { count: keys.len() }, || {
            parallel::map(&keys, |key| self.0.prove(key)).into_iter().collect::<core::Result<Vec<Vec<u8>>>>()
        })?;
        Ok(proofs.iter().map(|proof| PyBytes::new(py, proof)).collect())
    }

    /// Return one proof for many paths, present or absent: a multiproof (protocol section 4, *get(keys)*).
    ///
    /// O(paths x depth). `verify_keys` verifies it. It is smaller than the proofs of the single paths together, since
    /// each node is shown once.
    ///
    /// Args:
    ///     paths: 1 to 10,000 distinct paths, in text form or as segments. Their order does not change the proof.
    ///
    /// Raises:
    ///     InvalidInput: If a path is malformed (code ``invalid_path``), occurs twice, or there are none or too many.
    ///         The message names its place.
    ///
    /// >>> m = Map({"a": payload_cid(b"hello"), "b": payload_cid(b"world")})
    /// >>> proof = m.prove_keys(["b", "a", "c"])
    /// >>> verify_keys(m.root, ["b", "a", "c"], proof) == [payload_cid(b"world"), payload_cid(b"hello"), None]
    /// True
    fn prove_keys<'py>(&self, py: Python<'py>, paths: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let keys = path::keys(paths)?;
        let keys = call(|| Keys::new(keys.into_iter().collect()))?;
        let proof = detach::run(py, Work::Items { count: keys.len() }, || Ok(self.0.keys(keys)?.1()))?;
        Ok(PyBytes::new(py, &proof))
    }

    /// Return one page of a listing, with the listing proof that it is complete (protocol section 4, *scan*).
    ///
    /// O(depth + entries). `verify_scan` verifies it.
    ///
    /// Args:
    ///     prefix: The path whose subtree is listed, the path itself included; empty for the whole map.
    ///     after: The whole path (prefix included) after which the page starts, such as the last one of the page
    ///         before; None for the first page.
    ///     limit: The largest number of entries, at least 1.
    ///
    /// Returns:
    ///     ``Scan(entries, more, proof)``.
    ///
    /// Raises:
    ///     InvalidInput: If a path is malformed or `after` is not below `prefix` (code ``invalid_path``), or `limit` is
    ///         not from 1 to 2^53 - 1.
    ///
    /// >>> m = Map({"a/b": payload_cid(b"hello"), "a/c": payload_cid(b"world"), "d": payload_cid(b"")})
    /// >>> page = m.scan("a", limit=1)
    /// >>> page.entries == [(["a", "b"], payload_cid(b"hello"))], page.more
    /// (True, True)
    /// >>> [segments for segments, _ in m.scan("a", after=["a", "b"]).entries]
    /// [['a', 'c']]
    #[pyo3(signature = (prefix = None, after = None, limit = None),
           text_signature = "($self, prefix=(), after=None, limit=1000)")]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        prefix: Option<&Bound<'py, PyAny>>,
        after: Option<&Bound<'py, PyAny>>,
        limit: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let window = path::window(prefix, after)?;
        let limit = limit.map_or(Ok(1000), convert::limit)?;
        let (entries, more, proof) = detach::run(py, Work::Entries { count: limit.min(self.__len__()) }, || {
            let (listing, proof) = self.0.scan(window, limit)?;
            Ok((listing.decoded(), listing.more, proof()))
        })?;
        tuples::scan(py, entries, more, PyBytes::new(py, &proof))
    }

    /// Return the changed map and the transition proof (protocol section 4, *apply*).
    ///
    /// O(changes x depth). This map does not change. `verify_changes` derives the new root from the proof.
    ///
    /// Args:
    ///     changes: `Change` tuples in any order, at most one per path. None for `before` means that the path is absent
    ///         now, None for `after` removes it.
    ///
    /// Returns:
    ///     ``Applied(tree, proof)``; the tree is a `Map`.
    ///
    /// Raises:
    ///     Conflict: If a `before` differs from the target (code ``before_mismatch``), or a path is changed twice or
    ///         not at all (code ``invalid_change``). The message names the path.
    ///     InvalidInput: If there are no changes or one is malformed. The message names its place.
    ///
    /// >>> m = Map({"a": payload_cid(b"old")})
    /// >>> applied = m.apply([Change("a", payload_cid(b"old"), None), Change("b/c", None, payload_cid(b"new"))])
    /// >>> list(applied.tree), list(m)
    /// (['b/c'], ['a'])
    fn apply<'py>(&self, py: Python<'py>, changes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let changes = change::map_changes(changes)?;
        let (tree, proof) = detach::run(py, Work::Items { count: changes.len() }, || self.0.change_map(changes))?;
        tuples::APPLIED.instance(py, (Self(tree), PyBytes::new(py, &proof)))
    }
}

impl Map {
    fn find(&self, key: &Key) -> PyResult<Option<Cid>> {
        call(|| self.0.key(key).map(|(target, _)| target))
    }

    fn has_items_of(&self, other: &Bound<'_, PyMapping>) -> PyResult<bool> {
        if other.len()? != self.__len__() {
            return Ok(false);
        }
        let mut count = 0;
        for item in other.call_method0("items")?.try_iter()? {
            let (path, target) = item?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
            // The keys of this mapping are the text forms alone.
            let found = match path.cast::<PyString>().map(|path| path::key(path)) {
                Ok(Ok(key)) => self.find(&key)?,
                _ => None,
            };
            count += 1;
            match found {
                // A mapping written in Python may have more items than its length.
                Some(found) if count <= self.__len__() && target.eq(text(other.py(), &found))? => {}
                _ => return Ok(false),
            }
        }
        Ok(count == self.__len__())
    }
}

/// Bytes of key and target of an arc with a path of some 90 bytes. Memory that is not written to takes none, but growing
/// it copies all arcs to new memory.
const RESERVED_ARC_BYTES: usize = 128;

/// The arcs that Python passes in.
fn collect(given: &Bound<'_, PyAny>) -> PyResult<Arcs> {
    if let Ok(body) = given.cast::<PyBytes>() {
        let body = body.as_bytes();
        return detach::run(given.py(), Work::JsonArcs { bytes: body.len() }, || json::arcs(body));
    }
    let mut collected = Arcs::default();
    let count = convert::held_len(given);
    collected.try_reserve(count, count.saturating_mul(RESERVED_ARC_BYTES)).map_err(|_| PyMemoryError::new_err(()))?;
    pairs::for_each(given, |index, path, target| pairs::push_pair(index, path, target, &mut collected))?;
    Ok(collected)
}

/// The entries of a map in key order, listed in pages.
struct Entries {
    tree: Snapshot,
    ready: VecDeque<(Vec<String>, Cid)>,
    /// The last entry that was listed; None before the first.
    after: Option<Vec<String>>,
    more: bool,
    /// Entries of the next page. The first page is small: often only a few entries are used.
    size: usize,
}

impl Entries {
    const LARGEST: usize = 256;

    fn of(tree: &Snapshot) -> Self {
        Self { tree: tree.clone(), ready: VecDeque::new(), after: None, more: true, size: 8 }
    }

    fn next(&mut self) -> PyResult<Option<(Vec<String>, Cid)>> {
        if self.ready.is_empty() && self.more {
            let listing = call(|| {
                let window = Window::new::<&str, _>(&[], self.after.as_deref())?;
                self.tree.scan(window, self.size).map(|(listing, _)| listing)
            })?;
            self.more = listing.more;
            self.ready = listing.decoded().into();
            self.after = self.ready.back().map(|entry| entry.0.clone());
            self.size = (2 * self.size).min(Self::LARGEST);
        }
        Ok(self.ready.pop_front())
    }
}

/// Iterates over the paths of a map as text.
#[pyclass(module = "coregw._core")]
struct Paths(Entries);

#[pymethods]
impl Paths {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self) -> PyResult<Option<String>> {
        Ok(self.0.next()?.map(|(segments, _)| segments.join("/")))
    }
}
