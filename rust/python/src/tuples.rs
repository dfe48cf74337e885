//! The named tuples that results come as, and that changes are given as.
//!
//! They are made once by `collections.namedtuple`, so they are tuples to everything, and filled by `tuple.__new__`
//! directly, which skips the argument handling of their own constructor.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

/// A named tuple: what it is called, what its fields mean, and its class once that is made.
pub struct Named {
    pub name: &'static str,
    doc: &'static str,
    fields: &'static [(&'static str, &'static str)],
    /// The last field may be left out, and is None then.
    optional_last: bool,
    class: PyOnceLock<Py<PyType>>,
}

impl Named {
    const fn new(name: &'static str, doc: &'static str, fields: &'static [(&'static str, &'static str)]) -> Self {
        Self { name, doc, fields, optional_last: false, class: PyOnceLock::new() }
    }

    const fn with_optional_last(
        name: &'static str,
        doc: &'static str,
        fields: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { name, doc, fields, optional_last: true, class: PyOnceLock::new() }
    }

    /// The class.
    pub fn class<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyType>> {
        self.class.get_or_try_init(py, || self.define(py)).map(|class| class.bind(py))
    }

    fn define(&self, py: Python<'_>) -> PyResult<Py<PyType>> {
        let names: Vec<_> = self.fields.iter().map(|field| field.0).collect();
        let more = PyDict::new(py);
        more.set_item("module", "coregw")?;
        if self.optional_last {
            more.set_item("defaults", (py.None(),))?;
        }
        let class = py.import("collections")?.getattr("namedtuple")?.call((self.name, names), Some(&more))?;
        class.setattr("__doc__", self.doc)?;
        for (name, doc) in self.fields {
            class.getattr(*name)?.setattr("__doc__", *doc)?;
        }
        Ok(class.cast_into::<PyType>()?.unbind())
    }

    /// A tuple of this kind with these fields, all of them.
    pub fn fill<'py, T>(&self, py: Python<'py>, fields: T) -> PyResult<Bound<'py, PyAny>>
    where
        T: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>>,
    {
        static NEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let new =
            NEW.get_or_try_init(py, || py.get_type::<PyTuple>().getattr(intern!(py, "__new__")).map(Bound::unbind))?;
        let fields = fields.into_pyobject(py).map_err(Into::into)?;
        new.bind(py).call1((self.class(py)?, fields))
    }
}

/// All of them, for the module to export.
pub static ALL: [&Named; 7] = [&APPLIED, &CHANGE, &DIFF, &ELEMENT, &RANGE, &READ_OUTCOME, &SCAN];

/// What `apply` gives.
pub static APPLIED: Named = Named::new(
    "Applied",
    "What `Map.apply` and `List.apply` give: the changed tree, and the proof of the change.",
    &[
        ("tree", "The new `Map` or `List`; the old one is as it was."),
        ("proof", "The bytes from which `verify_changes` derives the new root."),
    ],
);

/// What `apply` and `verify_changes` take.
pub static CHANGE: Named = Named::with_optional_last(
    "Change",
    "One change of a map or a list: what stands at a coordinate now, and what is to stand there.\n\n\
     None for `before` is an addition, None for `after` a removal (protocol section 5, *mutate*).\n\n\
     >>> Change(\"docs/readme\", None, payload_cid(b\"hello\")).before is None\n\
     True",
    &[
        ("coordinate", "The path in a map (text form or segments), or the index in a list."),
        ("before", "The target that is there now, or None: nothing is."),
        ("after", "The target that is to be there, or None: nothing is to be."),
        ("size", "The measure of the list element `after`; None is 1. A map has none."),
    ],
);

/// What `verify_diff` gives.
pub static DIFF: Named = Named::new(
    "Diff",
    "A page of the differences between two maps, in key order, none left out.",
    &[
        ("entries", "Triples of the path's segments and the targets before and after; None where there is none."),
        ("more", "Whether differences of the window follow the last one."),
    ],
);

/// What `verify_index` gives.
pub static ELEMENT: Named = Named::new(
    "Element",
    "A proven element of a list, or the proven end of it.",
    &[
        ("target", "The target's CID as text, or None: the list is shorter."),
        ("size", "The element's measure, or None: the list is shorter."),
        ("length", "The number of elements of the list."),
    ],
);

/// What `verify_range` gives.
pub static RANGE: Named = Named::new(
    "Range",
    "The proven elements of a list that a range of its measure meets, none left out.",
    &[
        ("segments", "The targets' CIDs as text, in order."),
        ("sizes", "The measures of these elements."),
        ("offset", "Where the first of them starts in the list's measure, or None: there is none."),
        ("length", "The number of elements of the whole list."),
        ("total_size", "The sum of all measures of the list."),
    ],
);

/// What `verify_read` gives.
pub static READ_OUTCOME: Named = Named::new(
    "ReadOutcome",
    "What a verified read proves: a key, an element or a range (protocol section 5, *read*).",
    &[
        ("present", "False: the key or index is proven absent."),
        ("target", "The target's CID as text; of a range, the list's; None if absent."),
        ("segments", "Of a range, the targets' CIDs as text, in order; else None."),
        ("sizes", "Of a range, the measures of its elements; else None."),
        ("offset", "Of a range, where its first element starts; None if it has none."),
        ("length", "Of a list, the number of its elements; else None."),
        ("total_size", "Of a range, the sum of all measures of the list; else None."),
    ],
);

/// What listings give.
pub static SCAN: Named = Named::new(
    "Scan",
    "A page of a map's listing: the entries of a window in key order, none left out.",
    &[
        ("entries", "Pairs of the path's segments and the target's CID as text."),
        ("more", "Whether entries of the window follow the last one."),
        ("proof", "The bytes that prove the page, for `verify_scan`."),
    ],
);
