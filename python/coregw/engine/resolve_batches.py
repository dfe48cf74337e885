"""Requests for batches of resolves (protocol section 5, *batches*)."""

from __future__ import annotations

from coregw._core import Operation, PageCache
from coregw.engine.items import check_count
from coregw.messages import decode
from coregw.messages.batch import MAX_BATCH_PATHS, ResolveBatchRequest

__all__ = ["start_resolve_batch"]


def start_resolve_batch(cache: PageCache, request: bytes, max_lookups: int, max_bytes: int) -> tuple[Operation, int]:
    """Read the JSON text of ``POST /v1/resolve/batch``, and return its operation and the number of paths. O(bytes).

    Args:
        cache: The page cache.
        request: The JSON text.
        max_lookups: Bound of the look-ups for each path.
        max_bytes: Bound of all outcomes together, in bytes.

    Raises:
        InvalidInput: If the request is malformed; if a path is invalid, message and details name its index.
        TooLarge: If there are more than 1,000 paths.
    """
    batch = decode(request, ResolveBatchRequest)
    check_count("paths", len(batch.paths), MAX_BATCH_PATHS)
    return Operation.resolve_batch(cache, batch.root, batch.paths, max_lookups, max_bytes), len(batch.paths)
