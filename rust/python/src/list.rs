//! The class `List`: a whole list in memory, as a sequence that proves its elements.

use std::collections::VecDeque;

use core::{Cid, InputCode, Missing, Snapshot, Suite};
use coregw_core as core;
use coregw_folders::parallel::Cores;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySlice, PyString, PyTuple};

use crate::change;
use crate::cid::{cid, hash, text};
use crate::convert::{self, ArgumentError, type_name};
use crate::detach::{self, Work};
use crate::errors::{call, invalid, not_found};
use crate::tuples;

/// A whole list of targets in memory (protocol section 3). Immutable; hashable by its root.
///
/// It is a `collections.abc.Sequence` of the targets' CIDs as text; a slice is a plain list. Two lists are equal if
/// their roots are. A changed list shares all unchanged subtrees with the old one.
///
/// O(n); the GIL is released while the tree is built.
///
/// Args:
///     elements: The targets.
///     sizes: The measure of each element, at least 1, such as the bytes of a chunk; None gives each the measure 1.
///     suite: The hash function of the tree, ``sha2-256`` or ``blake3``.
///
/// Raises:
///     InvalidInput: If an element is not a valid CID (code ``invalid_cid``), a size is not from 1 to 2^53 - 1, the
///         sizes sum to 2^53 or more, there are not as many sizes as elements, or the suite is unknown. The message
///         names the element.
///
/// >>> l = List([payload_cid(b"hello"), payload_cid(b"world!")], sizes=[5, 6])
/// >>> len(l), l.total_size, l[-1] == payload_cid(b"world!")
/// (2, 11, True)
#[pyclass(frozen, sequence, module = "coregw")]
pub struct List(pub(crate) Snapshot);

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
        detach::run(py, Work::Items { count: elements.len() }, || Snapshot::list_by(&Cores, suite, &elements)).map(Self)
    }

    /// The root CID, as text.
    #[getter]
    fn root<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        text(py, &self.0.root().cid())
    }

    /// The sum of the elements' measures, such as the bytes of all chunks.
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
        // As in every sequence, False and True are indices.
        let at = match index.extract::<isize>() {
            Ok(at) if at < 0 => length.checked_add_signed(at),
            Ok(at) => usize::try_from(at).ok(),
            Err(error) if error.is_instance_of::<PyOverflowError>(py) => None,
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                let what = format!("an index of a List is an int or a slice, not {}", type_name(index));
                return Err(PyTypeError::new_err(what));
            }
            Err(error) => return Err(error),
        };
        let found = match at {
            Some(at) if at < length => call(|| self.element(at))?,
            _ => None,
        };
        match found {
            Some(target) => Ok(text(py, &target).into_any()),
            None => Err(not_found(Missing::Index, format!("index out of range: the list has {length} elements"))),
        }
    }

    fn __iter__(&self) -> Targets {
        Targets(Elements::of(&self.0))
    }

    fn __contains__(&self, target: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.places(target)?.next()?.is_some())
    }

    /// Return the first index of `value` from `start` on and before `stop`, both counted as in slices. O(n).
    ///
    /// Raises:
    ///     ValueError: If it is not there.
    #[pyo3(signature = (value, start = SliceBound(0), stop = None), text_signature = "($self, value, start=0, stop=None)")]
    fn index(&self, value: &Bound<'_, PyAny>, start: SliceBound, stop: Option<SliceBound>) -> PyResult<usize> {
        let length = self.__len__();
        let (start, stop) = (start.within(length), stop.map_or(length, |stop| stop.within(length)));
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

    /// Return how many elements are `value`. O(n).
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

    /// Arguments of the constructor, for pickling and copying.
    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let whole = detach::run(py, Work::Entries { count: self.__len__() }, || self.0.range(0, None))?.0;
        let elements: Vec<_> = whole.segments.iter().map(|target| text(py, target)).collect();
        (elements, whole.sizes, self.0.root().suite.name()).into_pyobject(py)
    }

    /// Return the inclusion proof of an element, or the proof that the list is shorter (protocol section 4, *get*).
    ///
    /// O(log n). `verify_index` verifies it.
    ///
    /// Args:
    ///     index: The index, from 0; it need not be in the list. Negative ones do not count from the end.
    ///
    /// Raises:
    ///     InvalidInput: If `index` is not from 0 to 2^53 - 1.
    ///
    /// >>> l = List([payload_cid(b"hello")])
    /// >>> verify_index(l.root, 0, l.prove(0)).target == payload_cid(b"hello")
    /// True
    fn prove<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let index = convert::integer(index, "index")?;
        let proof = call(|| self.0.index(index).map(|(_, proof)| proof()))?;
        Ok(PyBytes::new(py, &proof))
    }

    /// Return the range proof of the elements that overlap a range of the list's measure (section 4, *range*).
    ///
    /// O(log n + elements). `verify_range` verifies it.
    ///
    /// Args:
    ///     start: The start of the range, in units of the measure (bytes, where sizes are bytes).
    ///     end: The end of the range, exclusive; None, or anything past the total, means the total.
    ///
    /// Raises:
    ///     InvalidInput: If a bound is not from 0 to 2^53 - 1.
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
        let start = convert::integer(start, "start")?;
        let end = end.map(|end| convert::integer(end, "end")).transpose()?;
        let work = Work::Entries { count: self.elements_in(start, end) };
        let (_, proof) = detach::run(py, work, || self.0.range(start, end))?;
        Ok(PyBytes::new(py, &proof))
    }

    /// Return the changed list and the transition proof (protocol section 4, *apply*).
    ///
    /// O(changes x log n). This list does not change. `verify_changes` derives the new root from the proof.
    ///
    /// Args:
    ///     changes: `Change` tuples in any order, at most one per index: replacements, and either appends without a gap
    ///         or removals at the end.
    ///
    /// Returns:
    ///     ``Applied(tree, proof)``; the tree is a `List`.
    ///
    /// Raises:
    ///     Conflict: If a `before` differs from the element (code ``before_mismatch``); or if the changes leave a gap,
    ///         remove elements that are not at the end, both append and remove, or change an index twice or not at all
    ///         (code ``invalid_change``).
    ///     InvalidInput: If there are no changes or one is malformed. The message names its place.
    ///
    /// >>> l = List([payload_cid(b"hello")])
    /// >>> applied = l.apply([Change(1, None, payload_cid(b"world"), size=5)])
    /// >>> len(applied.tree), applied.tree.total_size
    /// (2, 6)
    fn apply<'py>(&self, py: Python<'py>, changes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let changes = change::list_changes(changes)?;
        let (tree, proof) = detach::run(py, Work::Items { count: changes.len() }, || self.0.change_list(changes))?;
        tuples::APPLIED.instance(py, (Self(tree), PyBytes::new(py, &proof)))
    }
}

impl List {
    fn element(&self, at: usize) -> core::Result<Option<Cid>> {
        self.0.index(at as u64).map(|(element, _)| element.target)
    }

    /// About how many elements overlap a range, if their sizes are similar.
    fn elements_in(&self, start: u64, end: Option<u64>) -> usize {
        let total = self.0.measure();
        let width = end.unwrap_or(total).min(total).saturating_sub(start);
        (width / (total / self.0.count().max(1)).max(1)) as usize
    }

    fn slice<'py>(&self, slice: &Bound<'py, PySlice>) -> PyResult<Bound<'py, PyList>> {
        let py = slice.py();
        let found = slice.indices(self.0.count() as isize)?;
        let mut targets = Vec::with_capacity(found.slicelength);
        for place in 0..found.slicelength {
            // Within the list, so it can't overflow; the place after the last one may.
            let at = found.start + place as isize * found.step;
            if let Some(target) = call(|| self.element(at as usize))? {
                targets.push(text(py, &target));
            }
        }
        PyList::new(py, targets)
    }

    /// The indices of a target; empty if `value` is not a CID.
    fn places(&self, target: &Bound<'_, PyAny>) -> PyResult<Places> {
        let target = match cid(target) {
            Ok(cid) => Some(cid),
            Err(ArgumentError::Python(error)) => return Err(error),
            Err(_) => None,
        };
        Ok(Places { elements: Elements::of(&self.0), at: 0, target })
    }
}

/// A bound of a slice: any integer, where one beyond `isize` is as good as the nearest one within.
struct SliceBound(isize);

impl SliceBound {
    /// The index from 0 that it means in a sequence of this length.
    fn within(&self, length: usize) -> usize {
        if self.0 < 0 { length.saturating_add_signed(self.0) } else { self.0 as usize }
    }
}

impl<'py> FromPyObject<'_, 'py> for SliceBound {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match value.extract::<isize>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
                Ok(Self(if value.lt(0)? { isize::MIN } else { isize::MAX }))
            }
            bound => bound.map(Self),
        }
    }
}

/// The elements and sizes that Python passes in.
fn collect(elements: &Bound<'_, PyAny>, sizes: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<(Cid, u64)>> {
    let mut taken = convert::collect(elements, |index, element| {
        cid(&element).map(|cid| (cid, 1)).map_err(|error| error.within(format_args!("element {index}")).into())
    })?;
    let Some(sizes) = sizes else {
        return Ok(taken);
    };
    let mut count = 0;
    convert::for_each(sizes, |index, size| {
        let size = convert::integer(&size, &format!("size {index}"))?;
        let Some(element) = taken.get_mut(index) else {
            let what = format!("sizes: more sizes than the {index} elements");
            return Err(invalid(InputCode::InvalidRequest, what));
        };
        element.1 = size;
        count += 1;
        Ok(())
    })?;
    if count < taken.len() {
        let what = format!("sizes: {count} sizes for {} elements", taken.len());
        return Err(invalid(InputCode::InvalidRequest, what));
    }
    Ok(taken)
}

/// The elements of a list in order, fetched by ranges of the measure with a few hundred elements each.
struct Elements {
    tree: Snapshot,
    ready: VecDeque<Cid>,
    /// The measure of all elements fetched so far: the start of the next one.
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
            // Ranges grow from a few elements to some hundreds, and shrink where elements get small.
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

/// The indices of one target.
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
