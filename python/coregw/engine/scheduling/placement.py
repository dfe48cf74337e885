"""Placement of the engine's work: on the event loop, or in a worker thread. All thresholds of that decision.

Inside one call, the extension decides by itself whether it releases the GIL (`rust/python/src/detach.rs`).
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "HEAVY_BODY_BYTES",
    "MAX_CHANGES",
    "MAX_KEPT_BYTES",
    "MAX_KEPT_QUERIES",
    "MAX_LOADING_QUERIES",
    "MAX_LOOP_BLOCKS",
    "MAX_LOOP_BYTES",
    "MAX_LOOP_PAGES",
    "MULTIPROOF_FACTOR",
    "MUTATION_NODES_FACTOR",
    "SPANS_PER_VISIT",
    "WORKER_BUDGET_FACTOR",
    "batch_weight",
    "mutation_weight",
    "verify_weight",
]

MAX_LOOP_BYTES: Final = 64 << 10
"""Work of a greater weight, in bytes of a query, runs in a worker thread: it would block the loop for a millisecond."""

MAX_LOOP_BLOCKS: Final = 1024
"""The index of a CAR without trees that has more blocks than these is sorted in a worker thread."""

MAX_LOOP_PAGES: Final = 8
"""More pages than these are checked and parsed in a worker thread: each takes 8 to 19 microseconds."""

HEAVY_BODY_BYTES: Final = 1 << 20
"""Larger root creations, mutations and CARs in memory wait for a slot: they need more than the memory of their body."""

MAX_CHANGES: Final = 16
"""Root creations, mutations and CARs in memory, in progress in worker threads. So many share a sync of the store."""

MAX_KEPT_QUERIES: Final = 32
"""At most this many long queries wait for a thread, or a slot, with what they have found; others start again."""

MAX_KEPT_BYTES: Final = 1 << 20
"""A query that holds more than this does not wait with it, so that all those that wait hold little."""

MAX_LOADING_QUERIES: Final = 8
"""At most this many queries read more than `MAX_LOOP_PAGES` pages at once; others then find them in the cache."""

WORKER_BUDGET_FACTOR: Final = 4
"""A poll in a worker thread has this many times the budget of one on the event loop. The end of a slice of time
(`coregw.engine.scheduling.pool`) is noticed between two."""

SPANS_PER_VISIT: Final = 64
"""Spans of a spooled CAR (1 MiB in all) that are read in one visit of a worker thread."""

MUTATION_FACTOR: Final = 64
"""A byte of a mutation is as much work as this many of a query: each coordinate is a walk, hashes and new pages, which
take 30 microseconds."""

VERIFY_FACTOR: Final = 4
"""A byte of a result to verify is as much work as this many of a query: its proof is replayed."""

MUTATION_NODES_FACTOR: Final = 16
"""A mutation may visit this many times the nodes of a query. The first commitment to a fixed list checks all of it."""

MULTIPROOF_FACTOR: Final = 4
"""A byte of a map-proof request is as much work as this many of other queries: a key of some thirty bytes is a lookup,
which takes two microseconds."""

BATCH_FACTOR: Final = 64
"""A byte of a batch of resolves is as much work as this many of a query: a path has some dozens, and is a lookup."""


def mutation_weight(request: bytes) -> int:
    """The weight of applying a mutation, or of creating a root, in bytes of a query."""
    return MUTATION_FACTOR * len(request)


def verify_weight(envelope: bytes) -> int:
    """The weight of verifying a result, in bytes of a query."""
    return VERIFY_FACTOR * len(envelope)


def batch_weight(request: bytes) -> int:
    """The weight of a batch of resolves, in bytes of a query."""
    return BATCH_FACTOR * len(request)
