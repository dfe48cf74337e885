//! The class `List`: a whole list in memory, as a sequence that proves what it says.

use std::collections::VecDeque;

use core::{Cid, InputCode, Missing, Snapshot, Suite};
use coregw_core as core;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySlice, PyString, PyTuple};

use crate::cid::{hash, text};
use crate::convert::{self, Fault};
use crate::detach::{self, Work};
use crate::errors::{call, invalid, missing, type_name};
use crate::tuples;

/// A list of targets: the tree of protocol section 3, whole and in memory. Immutable, hashable by its root.
///
/// It is a `collections.abc.Sequence` of the targets' CIDs as text; a slice is a plain list. Two lists are equal if
/// their roots are. A changed list shares with the old one what did not change.
///
/// Args:
///     elements: The targets.
///     sizes: The measure of each element, at least 1, such as the bytes of a chunk; None gives each the measure 1.
///     suite: The hash function of the tree, ``sha2-256`` or ``blake3``.
///
/// Raises:
///     InvalidInput: An element is no CID (code ``invalid_cid``), a size is not from 1 to 2^53 - 1 or there are more or
///         fewer of them than elements, they sum to 2^53 or more, or the suite is unknown. Names the element.
///
/// O(n); other threads run meanwhile.
///
/// >>> l = List([payload_cid(b"hello"), payload_cid(b"world!")], sizes=[5, 6])
/// >>> len(l), l.total_size, l[-1] == payload_cid(b"world!")
/// (2, 11, True)
#[pyclass(frozen, sequence, module = "coregw")]
pub struct List(Snapshot);

#[pymethods]
impl List {
    #[new]
    #[pyo3(signature = (elements, sizes = None, suite = "sha2-256"))]
    fn new(
        py: Python<'_>,
        elements: &Bound<'_, PyAny>,
        sizes: Option<&Bound<'_, PyAny>>,
        suite: &str,
    ) -> PyResult<Self> {
        let suite = call(|| Suite::from_name(suite))?;
        let elements = collect(elements, sizes)?;
        detach::run(py, Work::Items { count: elements.len() }, || Snapshot::list(suite, &elements)).map(Self)
    }

    /// The root's CID as text.
    #[getter]
    fn root<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        text(py, &self.0.root().cid())
    }

    /// The sum of the elements' measures.
    #[getter]
    fn total_size(&self) -> u64 {
        self.0.measure()
    }

    fn __len__(&self) -> usize {
        self.0.count() as usize
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            return Ok(self.slice(slice)?.into_any());
        }
        let length = self.__len__();
        let place = match index.extract::<isize>() {
            // False and True are integers to every sequence.
            Ok(at) if at < 0 => length.checked_add_signed(at),
            Ok(at) => usize::try_from(at).ok(),
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                let what = format!("an index of a List is an int or a slice, not {}", type_name(index));
                return Err(PyTypeError::new_err(what));
            }
            Err(_) => None,
        };
        let found = match place {
            Some(at) if at < length => call(|| self.element(at))?,
            _ => None,
        };
        match found {
            Some(target) => Ok(text(py, &target).into_any()),
            None => Err(missing(Missing::Index, format!("the list has {length} elements, so not the one asked for"))),
        }
    }

    fn __iter__(&self) -> Targets {
        Targets(Elements::of(&self.0))
    }

    fn __contains__(&self, target: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.places(target)?.next()?.is_some())
    }

    /// The first index of `value` from `start` on and before `stop`, both counted as slices count. O(n).
    ///
    /// Raises `ValueError` if it is not there.
    #[pyo3(signature = (value, start = 0, stop = None))]
    fn index(&self, value: &Bound<'_, PyAny>, start: isize, stop: Option<isize>) -> PyResult<usize> {
        let length = self.__len__();
        let clamp = |at: isize| match at {
            at if at < 0 => length.saturating_add_signed(at),
            at => at as usize,
        };
        let (start, stop) = (clamp(start), stop.map_or(length, clamp));
        let mut places = self.places(value)?;
        while let Some(at) = places.next()? {
            if at >= stop {
                break;
            }
            if at >= start {
                return Ok(at);
            }
        }
        Err(PyValueError::new_err("the target is not in the list"))
    }

    /// How many elements are `value`. O(n).
    fn count(&self, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        let (mut places, mut count) = (self.places(value)?, 0);
        while places.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0.root() == other.0.root()
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        hash(py, &self.0.root().cid())
    }

    fn __repr__(&self) -> String {
        format!("<coregw.List {} of {} elements>", self.0.root(), self.0.count())
    }

    /// For pickling and copying: the elements, their sizes, and the suite.
    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let whole = detach::run(py, Work::Entries { count: self.__len__() }, || self.0.range(0, None))?.0;
        let elements: Vec<_> = whole.segments.iter().map(|target| text(py, target)).collect();
        (elements, whole.sizes, self.0.root().suite.name()).into_pyobject(py)
    }

    /// The proof of an element, or that the list is shorter, for `verify_index` (protocol section 4, *get*).
    ///
    /// O(log n).
    ///
    /// Args:
    ///     index: The index, from 0; it need not be in the list. Not counted from the end.
    ///
    /// Raises:
    ///     InvalidInput: `index` is not from 0 to 2^53 - 1.
    ///
    /// >>> l = List([payload_cid(b"hello")])
    /// >>> verify_index(l.root, 0, l.prove(0)).target == payload_cid(b"hello")
    /// True
    fn prove<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let index = convert::amount(index, "index")?;
        let proof = call(|| self.0.index(index).map(|(_, proof)| proof()))?;
        Ok(PyBytes::new(py, &proof))
    }

    /// The proof of the elements that a range of the list's measure meets, for `verify_range` (section 4, *range*).
    ///
    /// O(log n + elements).
    ///
    /// Args:
    ///     start: Where the range starts, in units of the measure (bytes, where sizes are bytes).
    ///     end: Where it ends, itself left out; None, or anything past the total, is the total.
    ///
    /// Raises:
    ///     InvalidInput: A bound is not from 0 to 2^53 - 1.
    ///
    /// >>> l = List([payload_cid(b"hello"), payload_cid(b"world!")], sizes=[5, 6])
    /// >>> verify_range(l.root, 0, 5, l.prove_range(0, 5)).segments == [payload_cid(b"hello")]
    /// True
    #[pyo3(signature = (start, end = None))]
    fn prove_range<'py>(
        &self,
        py: Python<'py>,
        start: &Bound<'py, PyAny>,
        end: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let start = convert::amount(start, "start")?;
        let end = end.map(|end| convert::amount(end, "end")).transpose()?;
        let work = Work::Entries { count: self.elements_in(start, end) };
        let (_, proof) = detach::run(py, work, || self.0.range(start, end))?;
        Ok(PyBytes::new(py, &proof))
    }

    /// The list after changes, and the proof from which `verify_changes` derives its root (section 4, *apply*).
    ///
    /// O(changes x log n). This list stays as it is.
    ///
    /// Args:
    ///     changes: `Change` tuples in any order, one an index: replacements, and either appends without a gap or
    ///         removals of the list's end.
    ///
    /// Returns:
    ///     ``Applied(tree, proof)``, the tree a `List`.
    ///
    /// Raises:
    ///     Conflict: A `before` is not what is there (code ``before_mismatch``); or the changes leave a gap, remove what is
    ///         not the end, append and remove, or change an index twice or not at all (code ``invalid_change``).
    ///     InvalidInput: There are no changes, or one of them is none. Names its place.
    ///
    /// >>> l = List([payload_cid(b"hello")])
    /// >>> applied = l.apply([Change(1, None, payload_cid(b"world"), size=5)])
    /// >>> len(applied.tree), applied.tree.total_size
    /// (2, 6)
    fn apply<'py>(&self, py: Python<'py>, changes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let changes = convert::list_changes(changes)?;
        let (tree, proof) = detach::run(py, Work::Items { count: changes.len() }, || self.0.change_list(changes))?;
        tuples::APPLIED.fill(py, (Self(tree), PyBytes::new(py, &proof)))
    }
}

impl List {
    fn element(&self, at: usize) -> core::Result<Option<Cid>> {
        self.0.index(at as u64).map(|(element, _)| element.target)
    }

    /// About how many elements a range meets, if they are of like sizes.
    fn elements_in(&self, start: u64, end: Option<u64>) -> usize {
        let total = self.0.measure();
        let width = end.unwrap_or(total).min(total).saturating_sub(start);
        (width / (total / self.0.count().max(1)).max(1)) as usize
    }

    fn slice<'py>(&self, slice: &Bound<'py, PySlice>) -> PyResult<Bound<'py, PyList>> {
        let py = slice.py();
        let found = slice.indices(self.0.count() as isize)?;
        let (mut at, mut targets) = (found.start, Vec::with_capacity(found.slicelength));
        for _ in 0..found.slicelength {
            if let Some(target) = call(|| self.element(at as usize))? {
                targets.push(text(py, &target));
            }
            at += found.step;
        }
        PyList::new(py, targets)
    }

    /// The indices at which a target is; none for what is no CID.
    fn places(&self, target: &Bound<'_, PyAny>) -> PyResult<Places> {
        let target = match convert::cid(target) {
            Ok(cid) => Some(cid),
            Err(Fault::Python(error)) => return Err(error),
            Err(_) => None,
        };
        Ok(Places { elements: Elements::of(&self.0), at: 0, target })
    }
}

/// The elements that Python gives, with their sizes.
fn collect(elements: &Bound<'_, PyAny>, sizes: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<(Cid, u64)>> {
    let mut all = Vec::with_capacity(elements.len().unwrap_or(0));
    for (i, element) in elements.try_iter()?.enumerate() {
        let cid = convert::cid(&element?).map_err(|fault| fault.within(&format!("element {i}")))?;
        all.push((cid, 1));
    }
    let Some(sizes) = sizes else {
        return Ok(all);
    };
    let mut given = 0;
    for (i, size) in sizes.try_iter()?.enumerate() {
        let size = convert::amount(&size?, &format!("size {i}"))?;
        if let Some(element) = all.get_mut(i) {
            element.1 = size;
        }
        given += 1;
    }
    if given != all.len() {
        return Err(invalid(InputCode::InvalidRequest, format!("sizes: {given} sizes for {} elements", all.len())));
    }
    Ok(all)
}

/// The elements of a list in order, fetched by ranges of measure that hold some hundreds of them.
struct Elements {
    tree: Snapshot,
    ready: VecDeque<Cid>,
    /// The measure of all that was fetched: where the next element starts.
    offset: u64,
    /// The measure of the next range.
    width: u64,
}

impl Elements {
    fn of(tree: &Snapshot) -> Self {
        let mean = tree.measure() / tree.count().max(1);
        Self { tree: tree.clone(), ready: VecDeque::new(), offset: 0, width: 8 * mean.max(1) }
    }

    fn next(&mut self) -> PyResult<Option<Cid>> {
        if self.ready.is_empty() && self.offset < self.tree.measure() {
            let span = call(|| self.tree.range(self.offset, Some(self.offset + self.width)))?.0;
            // Ranges grow from few elements to some hundreds, and shrink where elements get small.
            match span.segments.len() {
                0..128 => self.width = self.width.saturating_mul(2).min(core::SUM_LIMIT),
                512.. => self.width = (self.width / 2).max(1),
                _ => {}
            }
            self.offset += span.sizes.iter().sum::<u64>();
            self.ready = span.segments.into();
        }
        Ok(self.ready.pop_front())
    }
}

/// The indices at which one target is.
struct Places {
    elements: Elements,
    at: usize,
    target: Option<Cid>,
}

impl Places {
    fn next(&mut self) -> PyResult<Option<usize>> {
        let Some(target) = self.target else {
            return Ok(None);
        };
        while let Some(element) = self.elements.next()? {
            self.at += 1;
            if element == target {
                return Ok(Some(self.at - 1));
            }
        }
        Ok(None)
    }
}

/// Iterates over the targets of a list as text.
#[pyclass(module = "coregw._core")]
struct Targets(Elements);

#[pymethods]
impl Targets {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        Ok(self.0.next()?.map(|target| text(py, &target)))
    }
}
