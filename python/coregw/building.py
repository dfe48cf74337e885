"""Maps of any size, from an iterable of arcs: sorted outside of memory, and stored page by page."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from coregw._core import ArcSorter
from coregw.extras import missing_extra
from coregw.verify import CidLike

__all__ = ["build", "store_sorted"]


def build(
    arcs: Mapping[str, CidLike] | Iterable[tuple[str | Sequence[str], CidLike]],
    *,
    store: str | os.PathLike[str] | None = None,
    suite: str = "sha2-256",
    temporary: str | os.PathLike[str] | None = None,
) -> str:
    """Return the root of the map of arcs in any order and of any number, and store the map if `store` is given.

    O(n log n) time. Memory is about 200 MiB at most, whatever the number of arcs; more than about 300,000 go through
    an unnamed temporary file of about 70 bytes for each. `Map` is for maps that are to be kept in memory.

    Args:
        arcs: A mapping from path to CID, or pairs of the two. It is iterated once.
        store: The directory of a RocksDB store that no gateway has open; made if it is missing. All pages and the root
            are durable on return, or the root is not held. None only computes the root. Needs the ``server`` extra, and
            cannot be used while an event loop runs in this thread.
        suite: The hash function of the tree, ``sha2-256`` or ``blake3``.
        temporary: The folder of the temporary file; by default the store's, or the system's without a store.

    Raises:
        InvalidInput: If a path or CID is malformed (code ``invalid_path`` or ``invalid_cid``), or two arcs have the
            same path (the message names the arc); or if the suite is unknown.
        TooLarge: If too many paths of thousands of bytes continue each other.
        StorageFull, Unavailable, StoreDamaged: If the store cannot be opened or written.
        OSError: If the temporary file cannot be written.
        RuntimeError: If `store` is given and an event loop runs in this thread.

    >>> from coregw import Map, build, payload_cid
    >>> arcs = [(f"logs/{number}", payload_cid(b"%d" % number)) for number in range(1000)]
    >>> build(iter(arcs)) == Map(arcs).root
    True
    """
    if store is not None:
        _require_no_event_loop()  # before the arcs are read
    folder = temporary if temporary is not None else store
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    sorter = ArcSorter(folder)
    sorter.add(arcs)
    sorter.end()
    return sorter.root(suite) if store is None else store_sorted(sorter, store, suite)


def _require_no_event_loop() -> None:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("an event loop runs in this thread: call coregw.build with a store in another thread")


def store_sorted(sorter: ArcSorter, store: str | os.PathLike[str], suite: str) -> str:
    """Store the map of sorted arcs in the store in a directory, and return its root. Raises as `build`."""
    try:
        from coregw.upkeep.offline import store_map
    except ModuleNotFoundError as error:
        raise missing_extra(error, "coregw.build with a store", "server") from error
    return store_map(sorter, store, suite)
