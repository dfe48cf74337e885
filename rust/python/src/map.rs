//! The class `Map`: a whole map in memory, as a mapping that proves what it says.

use std::collections::VecDeque;

use core::{Arcs, Cid, Key, Missing, Snapshot, Suite, Window};
use coregw_core as core;
use coregw_ops::json;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyMapping, PyNotImplemented, PyString, PyTuple, PyType};

use crate::cid::{hash, text};
use crate::convert::{self, Fault, PathLike};
use crate::detach::{self, Work};
use crate::errors::{call, missing, type_name};
use crate::{parallel, tuples, verify};

/// A map from paths to targets: the tree of protocol section 3, whole and in memory. Immutable, hashable by its root.
///
/// It is a `collections.abc.Mapping` from the text form of a path to the target's CID as text, in key order, and takes
/// a path as segments wherever it takes one. Two maps are equal if their roots are, a map and another mapping if their
/// items are. A changed map shares with the old one what did not change.
///
/// Args:
///     arcs: A mapping from path to CID, or pairs of the two, or the JSON bytes of an object ``{path: cid}``, which is
///         read as strictly as a request (protocol section 5).
///     suite: The hash function of the tree, ``sha2-256`` or ``blake3``.
///
/// Raises:
///     InvalidInput: A path or CID is none (code ``invalid_path`` or ``invalid_cid``), two arcs have the same path, the
///         JSON is no such object, or the suite is unknown. Names the arc.
///
/// O(n log n); other threads run meanwhile.
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
        detach::run(py, Work::Items { count: arcs.len() }, || Snapshot::map(suite, arcs)).map(Self)
    }

    /// The root's CID as text.
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
            None => Err(missing(Missing::Path, format!("the map has no {:?}", path.0.text()))),
        }
    }

    fn __contains__(&self, path: &Bound<'_, PyAny>) -> PyResult<bool> {
        match convert::key(path) {
            Ok(key) => Ok(self.find(&key)?.is_some()),
            Err(Fault::Python(error)) => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// The target of a path, or `default` if the map has no such path. Raises `InvalidInput` for what is no path.
    ///
    /// O(depth).
    #[pyo3(signature = (path, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        path: PathLike,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find(&path.0)?.map(|target| text(py, &target).into_any()).or(default))
    }

    /// The paths as text, in key order, as a set-like view.
    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static VIEW: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        VIEW.import(slf.py(), "collections.abc", "KeysView")?.call1((slf,))
    }

    /// The targets' CIDs as text, in key order, as a view.
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static VIEW: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        VIEW.import(slf.py(), "collections.abc", "ValuesView")?.call1((slf,))
    }

    /// Pairs of path and target, in key order, as a set-like view.
    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static VIEW: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        VIEW.import(slf.py(), "collections.abc", "ItemsView")?.call1((slf,))
    }

    fn __eq__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        let equal = if let Ok(other) = other.cast::<Self>() {
            self.0.root() == other.get().0.root()
        } else if let Ok(other) = other.cast::<PyMapping>() {
            self.same_items(other)?
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

    /// For pickling and copying: the arcs, and the suite.
    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let mut entries = Entries::of(&self.0);
        let mut arcs = Vec::with_capacity(self.__len__());
        while let Some((segments, target)) = entries.next()? {
            arcs.push((segments.join("/"), text(py, &target)));
        }
        (arcs, self.0.root().suite.name()).into_pyobject(py)
    }

    /// The proof of a key's target, or of its absence, for `verify_key` (protocol section 4, *get*). O(depth).
    ///
    /// Args:
    ///     path: The path, in text form or as segments. It need not be in the map.
    ///
    /// Raises:
    ///     InvalidInput: `path` is no path; its code is ``invalid_path``.
    ///
    /// >>> m = Map({"a": payload_cid(b"hello")})
    /// >>> verify_key(m.root, "b", m.prove("b")) is None
    /// True
    fn prove<'py>(&self, py: Python<'py>, path: PathLike) -> PyResult<Bound<'py, PyBytes>> {
        let proof = call(|| self.prove_key(&path.0))?;
        Ok(PyBytes::new(py, &proof))
    }

    /// What `prove` gives for each of many paths, in one call: without the interpreter, on all cores.
    ///
    /// O(sum of depths).
    ///
    /// Args:
    ///     paths: The paths, in text form or as segments.
    ///
    /// Raises:
    ///     InvalidInput: A path is none; its code is ``invalid_path``. Names its place.
    ///
    /// >>> m = Map({"a": payload_cid(b"hello")})
    /// >>> m.prove_many(["a", ["b"]]) == [m.prove("a"), m.prove("b")]
    /// True
    fn prove_many<'py>(&self, py: Python<'py>, paths: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        if paths.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("paths is a sequence of paths, not one path"));
        }
        let one = |(i, path): (usize, PyResult<Bound<'_, PyAny>>)| {
            convert::key(&path?).map_err(|fault| PyErr::from(fault.within(&format!("path {i}"))))
        };
        let keys: Vec<Key> = paths.try_iter()?.enumerate().map(one).collect::<PyResult<_>>()?;
        let proofs = detach::run(py, Work::Items { count: keys.len() }, || {
            parallel::map(&keys, |key| self.prove_key(key)).into_iter().collect::<core::Result<Vec<Vec<u8>>>>()
        })?;
        Ok(proofs.iter().map(|proof| PyBytes::new(py, proof)).collect())
    }

    /// One page of a listing, with the proof that it leaves nothing out (protocol section 4, *scan*).
    ///
    /// O(depth + entries).
    ///
    /// Args:
    ///     prefix: The path below which entries are listed, itself included; empty for the whole map.
    ///     after: The whole path (prefix included) behind which the page starts, such as the last page's last.
    ///     limit: The most entries of the page, at least 1.
    ///
    /// Returns:
    ///     ``Scan(entries, more, proof)``.
    ///
    /// Raises:
    ///     InvalidInput: A path is none or `after` is not in the window (code ``invalid_path``), or `limit` is 0.
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
        let window = convert::window(prefix, after)?;
        let limit = limit.map_or(Ok(1000), convert::limit)?;
        let (listing, proof) = detach::run(py, Work::Entries { count: limit.min(self.__len__()) }, || {
            let (listing, proof) = self.0.scan(window, limit)?;
            Ok((listing, proof()))
        })?;
        verify::page(py, listing, PyBytes::new(py, &proof))
    }

    /// The map after changes, and the proof from which `verify_changes` derives its root (section 4, *apply*).
    ///
    /// O(changes x depth). This map stays as it is.
    ///
    /// Args:
    ///     changes: `Change` tuples in any order, one a path. None for `before` means absent now, None for `after`
    ///         removes.
    ///
    /// Returns:
    ///     ``Applied(tree, proof)``, the tree a `Map`.
    ///
    /// Raises:
    ///     Conflict: A `before` is not what is there (code ``before_mismatch``); or a path is changed twice or not at all
    ///         (code ``invalid_change``). Names the path.
    ///     InvalidInput: There are no changes, or one of them is none. Names its place.
    ///
    /// >>> m = Map({"a": payload_cid(b"old")})
    /// >>> applied = m.apply([Change("a", payload_cid(b"old"), None), Change("b/c", None, payload_cid(b"new"))])
    /// >>> list(applied.tree), list(m)
    /// (['b/c'], ['a'])
    fn apply<'py>(&self, py: Python<'py>, changes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let changes = convert::map_changes(changes)?;
        let (tree, proof) = detach::run(py, Work::Items { count: changes.len() }, || self.0.change_map(changes))?;
        tuples::APPLIED.fill(py, (Self(tree), PyBytes::new(py, &proof)))
    }
}

impl Map {
    fn find(&self, key: &Key) -> PyResult<Option<Cid>> {
        call(|| self.0.key(key).map(|(target, _)| target))
    }

    fn prove_key(&self, key: &Key) -> core::Result<Vec<u8>> {
        self.0.key(key).map(|(_, proof)| proof())
    }

    fn same_items(&self, other: &Bound<'_, PyMapping>) -> PyResult<bool> {
        if other.len()? != self.__len__() {
            return Ok(false);
        }
        for item in other.call_method0("items")?.try_iter()? {
            let (path, target) = item?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
            // A path as segments is no key of a mapping from text.
            let found = match path.cast::<PyString>().map(|path| convert::key(path)) {
                Ok(Ok(key)) => self.find(&key)?,
                _ => None,
            };
            match found {
                Some(found) if target.eq(text(other.py(), &found))? => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// The arcs that Python gives, in the form that the core sorts.
fn collect(given: &Bound<'_, PyAny>) -> PyResult<Arcs> {
    if let Ok(body) = given.cast::<PyBytes>() {
        let body = body.as_bytes();
        return detach::run(given.py(), Work::JsonArcs { bytes: body.len() }, || json::arcs(body));
    }
    let pairs = match given.cast::<PyMapping>() {
        Ok(mapping) => mapping.call_method0("items")?,
        Err(_) => given.clone(),
    };
    let mut arcs = Arcs::with_capacity(given.len().unwrap_or(0));
    for (i, item) in pairs.try_iter()?.enumerate() {
        let item = item?;
        let Some((path, target)) = pair(&item)? else {
            return Err(PyTypeError::new_err(format!(
                "arc {i} is a pair of a path and a CID, not {}",
                type_name(&item)
            )));
        };
        let key = convert::key(&path).map_err(|fault| fault.within(&format!("arc {i}")))?;
        let target = convert::cid(&target).map_err(|fault| fault.within(&format!("arc {:?}", key.text())))?;
        arcs.push(&key, &target);
    }
    Ok(arcs)
}

/// The two halves of a pair, as `dict` takes pairs; None for what is none.
fn pair<'py>(item: &Bound<'py, PyAny>) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    if let Ok(pair) = item.cast::<PyTuple>()
        && pair.len() == 2
    {
        return Ok(Some((pair.get_item(0)?, pair.get_item(1)?)));
    }
    match item.cast::<PyList>() {
        Ok(pair) if pair.len() == 2 => Ok(Some((pair.get_item(0)?, pair.get_item(1)?))),
        _ => Ok(None),
    }
}

/// The entries of a map in key order, listed a page at a time.
struct Entries {
    tree: Snapshot,
    ready: VecDeque<(Vec<String>, Cid)>,
    /// The last entry that was listed; None before the first.
    after: Option<Vec<String>>,
    more: bool,
    /// Entries of the next page. The first is small, for those who want only a few.
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
            self.after = listing.entries.last().map(|entry| entry.0.clone());
            self.size = (2 * self.size).min(Self::LARGEST);
            self.ready = listing.entries.into();
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
