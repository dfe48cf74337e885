"""A store in front of another: a bounded cache that reads through, checks what it reads, and keeps it.

```
            local store (RocksDB), at most max_bytes             origin store
read ──► has it? ──► yes                                         (gateway, static tree)
             └─────► no ──► one request, whoever asks ──────────────► checked ──► kept ──► answer
```

What it promises, of the contract of `coregw.store.Store`:

- **Immutable objects are always right**: pages, and payloads by multihash, are compared with their digests before they
  are kept. A root that was held once is held as long as it is kept here.
- **Nothing is linearizable or dated.** A root or payload that the upstream does not have now may be there a moment
  later, and the reverse; `renew` looks payloads up, and dates nothing. What was stored at the upstream before is read
  here as `coregw.store.testing.PayloadContract` says.
- **It takes no writes** (code ``read_only``), and has no rows of `Table.RECORDS` but its own.
- **While the upstream is away** it answers with what it has; the rest is `Unavailable`.
- **What was used least recently is removed** when it holds more than `max_bytes`, a tenth at a time.
"""

# ruff: noqa: D102 - the protocol documents the methods
from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import IO, Final, NamedTuple, NoReturn, cast

from coregw.errors import InvalidInput, PayloadNotFound, Unavailable
from coregw.store import CHUNK_BYTES, Stored, Table
from coregw.store.arguments import check_range
from coregw.store.collection import CollectableStore, Collection
from coregw.store.origin import OriginStore
from coregw.store.reading import ReadingStore, for_each, range_of, whole_of

__all__ = ["TierFigures", "TieredStore", "open_tiered"]

_log = logging.getLogger(__name__)

_ROOT: Final = b"e"
"""The first byte of the keys of `Table.RECORDS` that say that the upstream holds a root."""

_PAGE: Final = b"p"
_PAYLOAD: Final = b"c"
_ROOT_BYTES: Final = 64
"""What the row of a root counts."""

_KEPT_AFTER_EVICTION: Final = 0.9
_ITEMS_AT_ONCE: Final = 1000


class TierFigures(NamedTuple):
    """What a tiered store has counted.

    Attributes:
        hits: Pages, roots and payloads that were there.
        misses: Those that were requested of the upstream.
        evicted: Those that were removed for lack of room.
        bytes: What it holds now.
        max_bytes: What it may hold.
        requests: Requests to the upstream.
        received: Bytes of the bodies of its answers.
    """

    hits: int
    misses: int
    evicted: int
    bytes: int
    max_bytes: int
    requests: int
    received: int


async def open_tiered(local: CollectableStore, origin: OriginStore, max_bytes: int) -> TieredStore:
    """Return a tiered store over a local store, which must hold nothing else, and an origin. O(objects kept).

    Both are closed with it. Each object that is kept takes some 200 bytes of memory.
    """
    store = TieredStore(local, origin, max_bytes)
    try:
        await store.load()
    except BaseException:
        await store.close()
        raise
    return store


class TieredStore(ReadingStore):
    """See the module; made by `open_tiered`."""

    def __init__(self, local: CollectableStore, origin: OriginStore, max_bytes: int) -> None:
        self._local = local
        self._origin = origin
        self._max_bytes = max_bytes
        self._sizes: OrderedDict[bytes, int] = OrderedDict()
        """What is kept, the least recently used first: sizes by kind and key."""
        self._total = self._hits = self._misses = self._evicted = 0
        self._loading: dict[bytes, asyncio.Future[None]] = {}
        """By kind and key: requests for objects in progress."""
        self._evicting: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Take stock of what an earlier process has kept. What is not used from now on is removed first."""
        async with self._local.collect(0) as collection:
            for kind, stored in ((_PAGE, Stored.PAGES), (_PAYLOAD, Stored.PAYLOADS)):
                after = None
                while items := await collection.list_items(stored, after, _ITEMS_AT_ONCE):
                    after = items[-1].key
                    for item in items:
                        self._note(kind + item.key, item.size)
        row = None
        while rows := await self._local.list_rows(Table.RECORDS, _ROOT, row, _ITEMS_AT_ONCE):
            row = rows[-1][0]
            for key, _ in rows:
                self._note(key, _ROOT_BYTES)

    def figures(self) -> TierFigures:
        """Return figures for metrics. O(1)."""
        upstream = self._origin.upstream
        return TierFigures(
            self._hits,
            self._misses,
            self._evicted,
            self._total,
            self._max_bytes,
            upstream.requests,
            upstream.received,
        )

    # --- rows ---------------------------------------------------------------------------------------------------------

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        if table is Table.PAGES:
            return await self._rows(_PAGE, Table.PAGES, keys, self._load_pages)
        if table is Table.ROOTS:
            return await self._rows(_ROOT, Table.RECORDS, keys, self._load_roots)
        return await self._local.get(table, keys)

    async def list_rows(
        self, table: Table, prefix: bytes, after: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        rows = await self._local.list_rows(table, prefix, after, limit)
        return [row for row in rows if not row[0].startswith(_ROOT)]

    async def _rows(
        self,
        kind: bytes,
        table: Table,
        keys: Sequence[bytes],
        load: Callable[[Sequence[bytes]], Awaitable[dict[bytes, bytes]]],
    ) -> list[bytes | None]:
        """Return rows that are kept, or are to be had."""
        local = [key if kind is _PAGE else kind + key for key in keys]
        rows = dict(zip(keys, await self._local.get(table, local), strict=True))
        missing = [key for key, row in rows.items() if row is None]
        for key, row in rows.items():
            if row is not None:
                self._hit(kind + key, len(row))
        if missing:
            rows |= await self._shared(kind, missing, load)
        return [rows.get(key) for key in keys]

    async def _shared(
        self, kind: bytes, keys: Sequence[bytes], load: Callable[[Sequence[bytes]], Awaitable[dict[bytes, bytes]]]
    ) -> dict[bytes, bytes]:
        """Load rows; those that another task is loading are loaded when it has them, or has failed."""
        others = {key: self._loading[kind + key] for key in keys if kind + key in self._loading}
        own = [key for key in keys if key not in others]
        found: dict[bytes, bytes] = {}
        if own:
            future = asyncio.get_running_loop().create_future()
            self._loading |= dict.fromkeys((kind + key for key in own), future)
            try:
                self._misses += len(own)
                found = await load(own)
            finally:
                for key in own:
                    self._loading.pop(kind + key, None)
                future.set_result(None)
        for other in {*others.values()}:
            await asyncio.shield(other)
        if others:
            table = Table.PAGES if kind is _PAGE else Table.RECORDS
            local = [key if kind is _PAGE else kind + key for key in others]
            again = zip(others, await self._local.get(table, local), strict=True)
            rows = dict(again)
            found |= {key: row for key, row in rows.items() if row is not None}
            if lost := [key for key, row in rows.items() if row is None]:  # the other failed, or could not keep it
                self._misses += len(lost)
                found |= await load(lost)
        return found

    async def _load_pages(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        pages = await self._origin.get(Table.PAGES, digests)
        found = {digest: page for digest, page in zip(digests, pages, strict=True) if page is not None}
        await self._keep({Table.PAGES: [*found.items()]}, ((_PAGE + key, len(page)) for key, page in found.items()))
        return found

    async def _load_roots(self, roots: Sequence[bytes]) -> dict[bytes, bytes]:
        rows = await self._origin.get(Table.ROOTS, roots)
        found = {root: row for root, row in zip(roots, rows, strict=True) if row is not None}
        named = [(_ROOT + root, row) for root, row in found.items()]
        await self._keep({Table.RECORDS: named}, ((key, _ROOT_BYTES) for key, _ in named))
        return found

    async def _keep(
        self, rows: Mapping[Table, Sequence[tuple[bytes, bytes]]], notes: Iterable[tuple[bytes, int]]
    ) -> None:
        try:
            await self._local.put(rows, durable=False)
        except Unavailable as error:
            _log.warning("nothing can be kept: %s", error.message)
            return
        for key, size in notes:
            self._note(key, size)

    # --- payloads -----------------------------------------------------------------------------------------------------

    async def stat_payloads(self, multihashes: Sequence[bytes]) -> list[int | None]:
        """Return the sizes of payloads. Of those that are not kept, they are what the upstream says."""
        sizes = dict(zip(multihashes, await self._local.stat_payloads(multihashes), strict=True))
        if missing := [multihash for multihash, size in sizes.items() if size is None]:
            sizes |= zip(missing, await self._origin.stat_payloads(missing), strict=True)
        return [sizes[multihash] for multihash in multihashes]

    async def get_payloads(self, multihashes: Sequence[bytes]) -> list[bytes | None]:
        found = dict(zip(multihashes, await self._local.get_payloads(multihashes), strict=True))
        for multihash, payload in found.items():
            if payload is not None:
                self._hit(_PAYLOAD + multihash, len(payload))
        missing = [multihash for multihash, payload in found.items() if payload is None]
        found |= zip(missing, await for_each(self._whole, missing), strict=True)
        return [found[multihash] for multihash in multihashes]

    async def read_payload(self, multihash: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        check_range(start, end)
        chunks = cast("AsyncGenerator[bytes, None]", self._local.read_payload(multihash, start, end))
        async with aclosing(chunks):
            try:
                chunk = await anext(chunks, None)
            except PayloadNotFound:
                pass
            else:
                self._hit(_PAYLOAD + multihash, None)
                while chunk is not None:
                    yield chunk
                    chunk = await anext(chunks, None)
                return
        file = await self._payload(multihash)
        if file is None:
            raise PayloadNotFound(f"the payload {multihash.hex()} is not held by {self._origin.upstream.url}")
        with file:
            for part in range_of(file, start, end):
                yield part

    async def _whole(self, multihash: bytes) -> bytes | None:
        file = await self._payload(multihash)
        return None if file is None else whole_of(file, multihash)

    async def _payload(self, multihash: bytes) -> IO[bytes] | None:
        """Request a payload, and keep it. If another task is loading it, copy what that has kept."""
        name = _PAYLOAD + multihash
        if (other := self._loading.get(name)) is not None:
            await asyncio.shield(other)
            if (copy := await self._copy(multihash)) is not None:
                return copy
        self._misses += 1
        future = self._loading[name] = asyncio.get_running_loop().create_future()
        try:
            file = await self._origin.open_payload(multihash)
            if file is not None:
                try:
                    await self._keep_payload(multihash, file)
                except BaseException:
                    file.close()
                    raise
            return file
        finally:
            if self._loading.get(name) is future:
                del self._loading[name]
            future.set_result(None)

    async def _copy(self, multihash: bytes) -> IO[bytes] | None:
        from tempfile import SpooledTemporaryFile  # noqa: PLC0415 - seldom needed

        file: IO[bytes] = SpooledTemporaryFile(max_size=CHUNK_BYTES, prefix="coregw-")  # noqa: SIM115 - returned
        try:
            async for chunk in self._local.read_payload(multihash):
                file.write(chunk)
        except PayloadNotFound:
            file.close()
            return None
        except BaseException:
            file.close()
            raise
        file.seek(0)
        self._hit(_PAYLOAD + multihash, None)
        return file

    async def _keep_payload(self, multihash: bytes, file: IO[bytes]) -> None:
        """Keep a payload that is checked, if there is room. Leaves the file at its start."""
        size = file.seek(0, 2)
        file.seek(0)
        if size > self._max_bytes // 4:
            return  # it would replace too much
        try:
            if size <= CHUNK_BYTES:
                await self._local.put_payloads([(multihash, file.read())])
            else:
                async with self._local.begin_payload() as writer:
                    while chunk := file.read(CHUNK_BYTES):
                        await writer.write(chunk)
                    await writer.commit(multihash)
        except Unavailable as error:
            _log.warning("nothing can be kept: %s", error.message)
        else:
            self._note(_PAYLOAD + multihash, size)
        finally:
            file.seek(0)

    # --- the store as a whole -----------------------------------------------------------------------------------------

    async def healthy(self) -> bool:
        return await self._local.healthy()

    async def obstacles(self) -> list[str]:
        """Return why nothing can be read; that nothing can be written is no obstacle to an edge."""
        return [] if await self._local.healthy() else await self._local.obstacles()

    async def close(self) -> None:
        if self._evicting is not None:
            self._evicting.cancel()
            await asyncio.wait([self._evicting])
        await self._origin.close()
        await self._local.close()

    # --- what is kept -------------------------------------------------------------------------------------------------

    def _hit(self, name: bytes, size: int | None) -> None:
        self._hits += 1
        if name in self._sizes:
            self._sizes.move_to_end(name)
        elif size is not None:
            self._note(name, size)

    def _note(self, name: bytes, size: int) -> None:
        self._total += size - self._sizes.pop(name, 0)
        self._sizes[name] = size
        if self._total > self._max_bytes and (self._evicting is None or self._evicting.done()):
            self._evicting = asyncio.get_running_loop().create_task(self._evict())

    async def _evict(self) -> None:
        """Remove what was used least recently, until there is room again."""
        try:
            async with self._local.collect(0) as collection:
                while self._total > self._max_bytes * _KEPT_AFTER_EVICTION and self._sizes:
                    oldest: dict[bytes, int] = {}
                    excess = self._total - self._max_bytes * _KEPT_AFTER_EVICTION
                    while self._sizes and len(oldest) < _ITEMS_AT_ONCE and sum(oldest.values()) < excess:
                        name, size = self._sizes.popitem(last=False)
                        self._total -= size
                        oldest[name] = size
                    if not await self._remove(collection, oldest):
                        break
        except Unavailable as error:
            _log.warning("what is not used any more cannot be removed: %s", error.message)

    async def _remove(self, collection: Collection, oldest: Mapping[bytes, int]) -> int:
        """Remove objects by kind and key; return how many. Those that the local store does not remove stay."""
        removed = 0
        for kind, stored in ((_PAGE, Stored.PAGES), (_PAYLOAD, Stored.PAYLOADS)):
            names = [name for name in oldest if name.startswith(kind)]
            for name, is_gone in zip(names, await collection.remove(stored, [name[1:] for name in names]), strict=True):
                removed += is_gone
                if not is_gone:
                    self._sizes[name] = oldest[name]
                    self._total += oldest[name]
        roots = [name for name in oldest if name.startswith(_ROOT)]
        await self._local.delete(Table.RECORDS, roots)
        self._evicted += removed + len(roots)
        return removed + len(roots)

    def _refuse(self) -> NoReturn:
        where = self._origin.upstream.url
        raise InvalidInput(f"this is an edge, which takes no writes: send them to {where}", code="read_only")
