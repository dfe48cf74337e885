"""Copies of payloads from a source to a static tree: many in one answer, long ones alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from coregw._core import Cid
from coregw.client.folders.parallel import for_each
from coregw.client.static.tree import StaticTree
from coregw.errors import PayloadNotFound, TooLarge
from coregw.store.origin import RAW, OriginStore, payload_path

__all__ = ["PayloadCopier"]

_ALONE_AT_ONCE: Final = 16
_ANSWERS_AT_ONCE: Final = 4
_ANSWER_BYTES: Final = 4 << 20
"""The maximum size of an answer with many payloads, which is kept in memory."""

_SHORT_BYTES: Final = _ANSWER_BYTES // 4
_FIRST_BATCH: Final = 64
_MAX_BATCH: Final = 1024


class PayloadCopier:
    """Copies payloads that are missing, by the fewest requests that its memory allows.

    The sizes of payloads are known only when they come. So the number that is requested together grows while answers
    are short, and is halved when one exceeds its limit; a payload that does so alone is streamed.

    Args:
        store: The source, which checks what it reads.
        tree: The destination.
        copied: Called with the size of each payload that was written.
    """

    def __init__(self, store: OriginStore, tree: StaticTree, copied: Callable[[int], None]) -> None:
        self._store = store
        self._tree = tree
        self._copied = copied
        self._batch = _FIRST_BATCH

    async def copy(self, multihashes: Iterable[bytes]) -> None:
        """Copy payloads, by multihash.

        Raises:
            PayloadNotFound: The source does not hold one of them.
            UpstreamDamaged, Unavailable, OSError: As `coregw.client.static.export.export_static`.
        """
        waiting = deque(multihashes)

        async def alone(multihash: bytes) -> None:
            await self._copy_alone(multihash)

        if not self._store.upstream.has_batches:
            await for_each(waiting, alone, _ALONE_AT_ONCE)
            return

        async def work(_: int) -> None:
            while waiting:
                some = [waiting.popleft() for _ in range(min(self._batch, len(waiting)))]
                waiting.extend(await self._copy_together(some))

        await for_each(range(_ANSWERS_AT_ONCE), work, _ANSWERS_AT_ONCE)

    async def _copy_together(self, multihashes: list[bytes]) -> list[bytes]:
        """Copy payloads that come in one answer. Returns those that have to be requested in a shorter one."""
        if len(multihashes) == 1:
            if await self._copy_alone(multihashes[0]) < _SHORT_BYTES:
                self._batch = max(self._batch, 2)
            return []
        try:
            found = await self._store.payload_batch(multihashes, _ANSWER_BYTES)
        except TooLarge:
            self._batch = min(self._batch, len(multihashes) // 2)
            return multihashes
        pairs = [*zip(multihashes, found, strict=True)]
        new = [(payload_path(name), data) for name, data in pairs if data is not None]
        await self._tree.put(new)
        for _, data in new:
            self._copied(len(data))
        if sum(len(data) for _, data in new) < _SHORT_BYTES:
            self._batch = min(_MAX_BATCH, max(self._batch, 2 * len(multihashes)))
        for name in (name for name, data in pairs if data is None):
            await self._copy_alone(name)
        return []

    async def _copy_alone(self, multihash: bytes) -> int:
        """Copy a payload of any size, and return the size."""
        file = await self._store.open_payload(multihash)
        if file is None:
            name, url = Cid(RAW + multihash).text, self._store.upstream.url
            raise PayloadNotFound(f"{url} does not hold the payload {name}; the source must hold everything")
        with file:
            size = await self._tree.put_file(payload_path(multihash), file)
        self._copied(size)
        return size
