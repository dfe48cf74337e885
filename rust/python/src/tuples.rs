//! The named tuples of results, and `Change`.
//!
//! `collections.namedtuple` makes the classes, so they are tuples to everything. Instances are made by `tuple.__new__`,
//! which skips the argument handling of the classes' own constructors.

use coregw_core as core;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};

use crate::cid::text;

/// A named tuple: name, documentation, fields with theirs, and the class once it is made.
pub struct NamedTuple {
    pub name: &'static str,
    doc: &'static str,
    fields: &'static [(&'static str, &'static str)],
    /// Whether the last field may be omitted, and is then None.
    has_optional_last: bool,
    class: PyOnceLock<Py<PyType>>,
}

impl NamedTuple {
    const fn new(name: &'static str, doc: &'static str, fields: &'static [(&'static str, &'static str)]) -> Self {
        Self { name, doc, fields, has_optional_last: false, class: PyOnceLock::new() }
    }

    const fn with_optional_last(
        name: &'static str,
        doc: &'static str,
        fields: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { name, doc, fields, has_optional_last: true, class: PyOnceLock::new() }
    }

    /// The class, made on first use.
    pub fn class<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyType>> {
        self.class.get_or_try_init(py, || self.define(py)).map(|class| class.bind(py))
    }

    fn define(&self, py: Python<'_>) -> PyResult<Py<PyType>> {
        let names: Vec<_> = self.fields.iter().map(|field| field.0).collect();
        let keywords = PyDict::new(py);
        keywords.set_item("module", "coregw")?;
        if self.has_optional_last {
            keywords.set_item("defaults", (py.None(),))?;
        }
        let class = py.import("collections")?.getattr("namedtuple")?.call((self.name, names), Some(&keywords))?;
        class.setattr("__doc__", self.doc)?;
        for (name, doc) in self.fields {
            class.getattr(*name)?.setattr("__doc__", *doc)?;
        }
        Ok(class.cast_into::<PyType>()?.unbind())
    }

    /// An instance with all of these fields.
    pub fn instance<'py, T>(&self, py: Python<'py>, fields: T) -> PyResult<Bound<'py, PyAny>>
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

/// A `Scan`, of decoded entries.
pub fn scan<'py>(
    py: Python<'py>,
    entries: Vec<(Vec<String>, core::Cid)>,
    more: bool,
    proof: Bound<'py, PyBytes>,
) -> PyResult<Bound<'py, PyAny>> {
    let entries: Vec<_> = entries.into_iter().map(|(segments, target)| (segments, text(py, &target))).collect();
    SCAN.instance(py, (entries, more, proof))
}

/// All of them, for the module to export.
pub static ALL: [&NamedTuple; 19] = [
    &APPLIED,
    &ATTRIBUTES,
    &CHANGE,
    &DIFF,
    &ELEMENT,
    &FRONT_COUNTS,
    &FRONT_FIGURES,
    &FRONT_LIMITS,
    &LOGGED_REQUEST,
    &NEW_TREES,
    &PAGE_LINKS,
    &PAYLOAD_CHUNK,
    &RANGE,
    &READ_BATCH,
    &READ_OUTCOME,
    &ROUTE_TOTALS,
    &SCAN,
    &SURVEY_ENTRY,
    &WRITE_BATCH,
];

/// The result of `Map.apply` and `List.apply`.
pub static APPLIED: NamedTuple = NamedTuple::new(
    "Applied",
    "Result of `Map.apply` and `List.apply`: the changed tree and its transition proof.",
    &[
        ("tree", "The new `Map` or `List`; the old one does not change."),
        ("proof", "The transition proof, from which `verify_changes` derives the new root."),
    ],
);

/// The result of `decode_attributes`.
pub static ATTRIBUTES: NamedTuple = NamedTuple::new(
    "Attributes",
    "What is known of a path of a folder (protocol section 7). None for what is unknown.",
    &[
        ("kind", "``file``, ``link`` (a symbolic link) or ``folder``."),
        ("size", "The size of a file in bytes."),
        ("mode", "The permission bits of a file or folder, at most ``0o7777``."),
        ("mtime_ns", "The time of the last modification, in nanoseconds since 1970."),
        ("link", "The target of a symbolic link, as bytes; None for anything else."),
        ("owner", "The numeric ids of the owner and the group."),
        ("xattrs", "Extended attributes by name; empty if there are none."),
    ],
);

/// The argument of `apply` and `verify_changes`.
pub static CHANGE: NamedTuple = NamedTuple::with_optional_last(
    "Change",
    "A change of a map or a list at one coordinate.\n\n\
     None for `before` adds, None for `after` removes (protocol section 5, *mutate*).\n\n\
     >>> Change(\"docs/readme\", None, payload_cid(b\"hello\")).before is None\n\
     True",
    &[
        ("coordinate", "The path in a map (text form or segments), or the index in a list."),
        ("before", "The current target, or None if the coordinate is absent."),
        ("after", "The target that will be there, or None to remove it."),
        ("size", "The measure of a list's element `after`; None means 1. Always None for a map."),
    ],
);

/// The result of `verify_diff`.
pub static DIFF: NamedTuple = NamedTuple::new(
    "Diff",
    "A complete page of the differences between two maps, in key order.",
    &[
        ("entries", "Triples of the path's segments, the target before and the target after; None for an absent one."),
        ("more", "Whether the window has differences after the last entry."),
    ],
);

/// The result of `verify_index`.
pub static ELEMENT: NamedTuple = NamedTuple::new(
    "Element",
    "A proven element of a list, or the proof that the list is shorter.",
    &[
        ("target", "The target's CID as text, or None if the list is shorter."),
        ("size", "The element's measure, or None if the list is shorter."),
        ("length", "The number of elements of the list."),
    ],
);

/// The result of `Front.counts`.
pub static FRONT_COUNTS: NamedTuple = NamedTuple::new(
    "FrontCounts",
    "What was counted of the answers of a front.",
    &[
        ("routes", "A `RouteTotals` for each method of a route that was used."),
        ("bodies", "Sizes of complete request bodies: their sum, then how many have each number of bits."),
        ("refusals", "How often each code of errors was answered, if it was."),
    ],
);

/// The result of `Front.figures`.
pub static FRONT_FIGURES: NamedTuple = NamedTuple::new(
    "FrontFigures",
    "What a front has counted, and holds now.",
    &[
        ("connections", "Connections that are open."),
        ("requests", "Requests that are not answered completely."),
        ("unsent_bytes", "Bytes of answers that clients have not read."),
        ("buffered_bytes", "Bytes of the bodies of hot requests."),
        ("no_room", "Connections that were closed to make room, or not taken, and streams that were refused."),
        ("unread_responses", "Connections whose clients read nothing when memory was short."),
        ("slow_reader", "Connections whose clients read too slowly."),
        ("floods", "Connections whose clients gave up one request after the other."),
        ("exhausted", "How often the system had no descriptor or memory for a connection."),
        ("jobs", "Calls for queries that run on threads for work, or wait for one."),
        ("dropped_lines", "Lines of the log that were dropped, since nobody took them."),
    ],
);

/// An argument of `Front`.
pub static FRONT_LIMITS: NamedTuple = NamedTuple::new(
    "FrontLimits",
    "The limits of a front. Times are in seconds.",
    &[
        ("threads", "Threads for connections."),
        ("connections", "Connections at once."),
        ("connections_per_address", "Those of one address."),
        ("unsent_bytes", "Memory for answers that clients have not read."),
        ("buffered_bytes", "Memory for the bodies of hot requests."),
        ("buffered_bytes_per_address", "What those of one address may have of it, small bodies aside."),
        ("payload_cache_bytes", "Memory for small payloads."),
        ("log_bytes", "Memory for lines of the log that nobody has taken."),
        ("head_bytes", "The largest head of a request, and the largest trailers."),
        ("header_fields", "Header fields of a request, at most 128."),
        ("head_seconds", "Time for a head to arrive."),
        ("idle_seconds", "Time from an answer to the next request."),
        ("min_rate_bytes", "Bytes a second that a client has to send of a body, or read of an answer."),
        ("rate_grace_seconds", "Time before that applies."),
        ("body_pause_seconds", "The longest pause of a body."),
        ("body_seconds", "Time for a whole body."),
        ("read_pause_seconds", "The longest pause of a client that reads an answer."),
        ("drain_seconds", "Time to discard what a client sends after its last answer."),
        ("json_body_bytes", "The largest body that has no other limit."),
        ("verify_body_bytes", "The largest body of the verify routes."),
        ("resolve_batch_body_bytes", "The largest batch of resolves."),
        ("batch_answer_bytes", "The largest answer to a batch of resolves."),
        ("payload_bytes", "The largest payload."),
        ("change_body_bytes", "The largest body of a new root and of a mutation."),
        ("node_budget", "Nodes that a query visits before it leaves the thread of its connection."),
        ("max_nodes", "Nodes that a query, or all of a batch, may visit."),
        ("operation_seconds", "Time that a query may take."),
        ("long_queries", "Queries of more than a millisecond at once."),
        ("worker_threads", "Threads for long work, and as many for short work."),
        ("upstream_idle_seconds", "Unused connections to the application are left after this time."),
    ],
);

/// What `Front.take_log` returns.
pub static LOGGED_REQUEST: NamedTuple = NamedTuple::new(
    "LoggedRequest",
    "What is logged of a request.",
    &[
        ("client", "The address of the client; None if it has none."),
        ("method", "The method."),
        ("path", "The path, decoded, as the client sent it: not everything in it may be logged."),
        ("id", "The id of the request."),
        ("status", "The status of the answer; None for a failure."),
        ("bytes", "Bytes of the body that were sent."),
        ("seconds", "Time from the head of the request to the end of the answer."),
        ("failure", "What has failed, or None."),
    ],
);

/// The result of `page_links`.
pub static PAGE_LINKS: NamedTuple = NamedTuple::new(
    "PageLinks",
    "A stored page that has its digest, and what it leads to.",
    &[
        ("root", "The binary CID of the root whose top node the page begins with, whether the store holds it or not."),
        ("pages", "The digests of the pages below it, 32 bytes each, in tree order."),
        ("roots", "The binary CIDs of the roots that its leaves name."),
        ("payloads", "The multihashes of the payloads that its leaves name, without identity CIDs."),
    ],
);

/// The result of `verify_range`.
pub static RANGE: NamedTuple = NamedTuple::new(
    "Range",
    "All elements of a list that overlap a range of its measure, proven.",
    &[
        ("segments", "The targets' CIDs as text, in order."),
        ("sizes", "The measures of these elements."),
        ("offset", "The start of the first of them in the list's measure, or None if the range is empty."),
        ("length", "The number of elements of the whole list."),
        ("total_size", "The sum of all measures of the list."),
    ],
);

/// What `StoreWrites.next` returns.
pub static WRITE_BATCH: NamedTuple = NamedTuple::new(
    "WriteBatch",
    "What is written to a store at once.",
    &[
        ("id", "What `StoreWrites.done` and `StoreWrites.fail` are told."),
        ("payloads", "Payloads of at most 1 MiB: the binary multihash and the bytes of each."),
        ("trees", "Parts of trees."),
        ("renewals", "Binary CIDs of roots to date as if they were stored now, a list for each request."),
        ("chunks", "Chunks of longer payloads, never two of one upload."),
        ("dropped", "Numbers of uploads that have ended otherwise than with a last chunk that was stored."),
    ],
);

/// Chunks of a `WriteBatch`.
pub static PAYLOAD_CHUNK: NamedTuple = NamedTuple::new(
    "PayloadChunk",
    "A part of a payload that arrives in chunks.",
    &[
        ("upload", "The number of the upload."),
        ("data", "1 MiB, or less in the last one."),
        ("ends", "The binary multihash of the payload, which is stored with its last chunk; None for the others."),
    ],
);

/// Trees of a `WriteBatch`.
pub static NEW_TREES: NamedTuple = NamedTuple::new(
    "NewTrees",
    "Pages and roots that are stored together or not at all. If all roots are held, they are dated instead.",
    &[
        ("pages", "Digests and pages."),
        ("differences", "Digests of some of the pages, and their differences to others; see `apply_difference`."),
        ("roots", "Binary CIDs of roots that are held from then on; without any, the pages need not be durable."),
        ("requires", "Binary CIDs of roots that must be held, since the trees share pages with theirs."),
        ("since", "What the first write of the same change returned; None if this is the first."),
    ],
);

/// What `StoreReads.next` returns.
pub static READ_BATCH: NamedTuple = NamedTuple::new(
    "ReadBatch",
    "What one visit of a store is for.",
    &[
        ("id", "What `StoreReads.supply` and `StoreReads.fail` are told."),
        ("pages", "Digests of pages, 32 bytes each."),
        ("roots", "Binary CIDs of roots whose records are wanted."),
        ("descents", "Digests of top pages of maps, each with keys to whose paths the inner pages may be read early."),
        ("payloads", "Binary multihashes of payloads: their sizes, and the bytes of small ones."),
        ("sizes", "Binary multihashes of payloads whose sizes are wanted."),
        ("chunks", "Parts of payloads: the binary multihash, the start, and the end (exclusive)."),
    ],
);

/// The result of `verify_read`.
pub static READ_OUTCOME: NamedTuple = NamedTuple::new(
    "ReadOutcome",
    "What a verified read proves: a key, an element or a range (protocol section 5, *read*).",
    &[
        ("present", "False if the key or index is proven absent."),
        ("target", "The target's CID as text; of a range, the list's; None if absent."),
        ("segments", "Of a range, the targets' CIDs as text, in order; otherwise None."),
        ("sizes", "Of a range, the measures of its elements; otherwise None."),
        ("offset", "Of a range, the start of its first element; None if it has none."),
        ("length", "Of a list, the number of its elements; otherwise None."),
        ("total_size", "Of a range, the sum of all measures of the list; otherwise None."),
    ],
);

/// An item of `FrontCounts`.
pub static ROUTE_TOTALS: NamedTuple = NamedTuple::new(
    "RouteTotals",
    "What was counted of one method of one route.",
    &[
        ("method", "The method."),
        ("route", "The template of the path."),
        ("statuses", "How many answers had each status."),
        ("nanoseconds", "Times from heads to heads of answers: their sum, then how many have each number of bits."),
        ("sizes", "Sizes of the bodies of answers, in the same form."),
    ],
);

/// The result of listings.
pub static SCAN: NamedTuple = NamedTuple::new(
    "Scan",
    "A complete page of a map's listing: entries of a window, in key order.",
    &[
        ("entries", "Pairs of the path's segments and the target's CID as text."),
        ("more", "Whether the window has entries after the last one."),
        ("proof", "The listing proof of the page, for `verify_scan`."),
    ],
);

/// An item of a `Survey`.
pub static SURVEY_ENTRY: NamedTuple = NamedTuple::new(
    "SurveyEntry",
    "A file, symbolic link or folder that a survey found.",
    &[
        ("path", "Its path in the folder's map, in text form."),
        ("kind", "``file``, ``link`` or ``folder``."),
        ("size", "The size of a file, or of a link's target, in bytes; 0 for a folder."),
        ("mode", "The permission bits, at most ``0o7777``."),
        ("mtime_ns", "The time of the last modification, in nanoseconds since 1970; at most 292 years from then."),
        ("ctime_ns", "The time of the last change of content or state, in nanoseconds since 1970."),
        ("inode", "The number of the inode."),
        ("device", "The number of the device."),
        ("owner", "The numeric ids of the owner and the group."),
    ],
);
