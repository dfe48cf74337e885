"""Reading batches of resolves of one root (protocol section 5, *batches*), and saying which path of one is wrong.

Resolving them is the extension's work (`coregw._core.ResolveBatch`), driven like one query's (`coregw.engine.driver`).
"""

from __future__ import annotations

from coregw._core import PageCache, ResolveBatch
from coregw.engine.items import check_count, of_item
from coregw.errors import InvalidInput
from coregw.messages import decode
from coregw.messages.batch import MAX_BATCH_PATHS, ResolveBatchRequest

__all__ = ["read_resolve_batch"]


def read_resolve_batch(cache: PageCache, request: bytes, max_lookups: int, max_bytes: int) -> ResolveBatch:
    """Reads the JSON text of ``POST /v1/resolve/batch``. O(bytes).

    Args:
        cache: Where pages are found and kept.
        request: The JSON text.
        max_lookups: Look-ups that one path may need.
        max_bytes: The most bytes of all outcomes together.

    Raises:
        InvalidInput: It is no such request, or one path is wrong: then the message and the details name its index.
        TooLarge: It has more than 1,000 paths.
    """
    wanted = decode(request, ResolveBatchRequest)
    check_count("paths", len(wanted.paths), MAX_BATCH_PATHS)
    batch = ResolveBatch(cache, wanted.root, max_lookups, max_bytes)
    for index, segments in enumerate(wanted.paths):
        try:
            batch.add(segments)
        except InvalidInput as error:
            raise of_item("paths", index, error) from None
    return batch
