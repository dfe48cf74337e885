"""The store of `coregw.store.tiered`."""

# ruff: noqa: D102 - the protocol documents the methods
from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import IO, NoReturn, cast

from coregw.errors import InvalidInput, PayloadNotFound, Unavailable
from coregw.failures import RepeatedFailure
from coregw.store import CHUNK_BYTES, Stored, Table
from coregw.store.arguments import check_range, check_renewal
from coregw.store.collection import CollectableStore
from coregw.store.origin import OriginStore
from coregw.store.reading import ReadingStore, for_each, range_of, whole_of
from coregw.store.tiered.kept import NAME, PAGE, PAYLOAD, ROOT, ROOT_BYTES, Kept, TierFigures
from coregw.store.tiered.order import UseOrder
from coregw.waiting import result_of

__all__ = ["TieredStore", "open_tiered"]

_log = logging.getLogger(__name__)


async def open_tiered(
    local: CollectableStore, origin: OriginStore, max_bytes: int, order: Path | None = None
) -> TieredStore:
    """Return a tiered store over a local store, which must hold nothing else, and an origin. O(objects kept).

    Args:
        local: What was read is kept here; closed with the result.
        origin: Where the rest is; closed with the result.
        max_bytes: The bytes of the objects that are kept. Each takes some 200 bytes of memory, too.
        order: The file in which the order of use outlives the process, 8 bytes for each object; None for none.
    """
    store = TieredStore(local, origin, Kept(local, max_bytes, None if order is None else UseOrder(order)))
    try:
        await store.load()
    except BaseException:
        await store.close()
        raise
    return store


class TieredStore(ReadingStore):
    """See the module; made by `open_tiered`."""

    def __init__(self, local: CollectableStore, origin: OriginStore, kept: Kept) -> None:
        self._local = local
        self._origin = origin
        self._kept = kept
        self._loading: dict[bytes, asyncio.Future[None]] = {}
        """By kind and key: requests for objects in progress."""
        upstream = f"the upstream {origin.upstream.url}"
        self._away = RepeatedFailure(_log, f"{upstream} does not answer", f"{upstream} answers again")
        self._unkept = RepeatedFailure(_log, "nothing can be kept", "what is read is kept again")

    async def load(self) -> None:
        """Take stock of what an earlier process has kept."""
        await self._kept.load()

    def figures(self) -> TierFigures:
        """Return figures for metrics. O(1)."""
        upstream = self._origin.upstream
        return self._kept.figures(upstream.requests, upstream.received)

    # --- rows ---------------------------------------------------------------------------------------------------------

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        if table is Table.PAGES:
            return await self._rows(PAGE, keys, self._load_pages)
        if table is Table.ROOTS:
            return await self._rows(ROOT, keys, self._load_roots)
        return await self._local.get(table, keys)

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
    ) -> int:
        if rows.keys() != {Table.RECORDS} or not all(key.startswith(NAME) for key, _ in rows[Table.RECORDS]):
            self._refuse()
        return await self._local.put(rows, durable, requires, since)

    async def list_rows(
        self, table: Table, prefix: bytes, after: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        rows = await self._local.list_rows(table, prefix, after, limit)
        return [row for row in rows if not row[0].startswith(ROOT)]

    async def _rows(
        self,
        kind: bytes,
        keys: Sequence[bytes],
        load: Callable[[Sequence[bytes]], Awaitable[dict[bytes, bytes]]],
    ) -> list[bytes | None]:
        """Return rows that are kept, or are to be had."""
        rows = await self._kept_rows(kind, keys)
        missing = [key for key, row in rows.items() if row is None]
        for key, row in rows.items():
            if row is not None:
                self._kept.hit(kind + key, len(row))
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
                self._kept.misses += len(own)
                found = await load(own)
            finally:
                for key in own:
                    self._loading.pop(kind + key, None)
                future.set_result(None)
        for other in {*others.values()}:
            await result_of(other)
        if others:
            rows = await self._kept_rows(kind, list(others))
            found |= {key: row for key, row in rows.items() if row is not None}
            if lost := [key for key, row in rows.items() if row is None]:  # the other failed, or could not keep it
                self._kept.misses += len(lost)
                found |= await load(lost)
        return found

    async def _kept_rows(self, kind: bytes, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """Return the rows of pages or roots that the local store has, by key; None for those that it has not."""
        if kind is PAGE:
            return dict(zip(keys, await self._local.get(Table.PAGES, keys), strict=True))
        return dict(zip(keys, await self._local.get(Table.RECORDS, [kind + key for key in keys]), strict=True))

    async def _load_pages(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        with self._asking():
            pages = await self._origin.get(Table.PAGES, digests)
        found = {digest: page for digest, page in zip(digests, pages, strict=True) if page is not None}
        await self._keep({Table.PAGES: [*found.items()]}, ((PAGE + key, len(page)) for key, page in found.items()))
        return found

    async def _load_roots(self, roots: Sequence[bytes]) -> dict[bytes, bytes]:
        with self._asking():
            rows = await self._origin.get(Table.ROOTS, roots)
        found = {root: row for root, row in zip(roots, rows, strict=True) if row is not None}
        named = [(ROOT + root, row) for root, row in found.items()]
        await self._keep({Table.RECORDS: named}, ((key, ROOT_BYTES) for key, _ in named))
        return found

    async def _keep(
        self, rows: Mapping[Table, Sequence[tuple[bytes, bytes]]], notes: Iterable[tuple[bytes, int]]
    ) -> None:
        try:
            await self._local.put(rows, durable=False)
        except Unavailable as error:
            self._unkept.occurs(error.message)
            return
        self._unkept.ends()
        for key, size in notes:
            self._kept.note(key, size)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """The context of a request to the upstream, to log when it is away."""
        upstream = self._origin.upstream
        requests = upstream.requests
        try:
            yield
        except Unavailable as error:
            self._away.occurs(error.message)
            raise
        if upstream.requests > requests:  # a page may have come with its root, before the upstream was away
            self._away.ends()

    # --- payloads -----------------------------------------------------------------------------------------------------

    async def stat_payloads(self, multihashes: Sequence[bytes]) -> list[int | None]:
        """Return the sizes of payloads.

        A single one that is not kept is loaded, so its size is true: an answer that caches may keep depends on it. Of
        several, the sizes are what the upstream says.
        """
        if len(multihashes) != 1:
            return await self._said_sizes(multihashes)
        if (other := self._loading.get(PAYLOAD + multihashes[0])) is not None:
            await result_of(other)
        (size,) = await self._local.stat_payloads(multihashes)
        if size is None and (file := await self._payload(multihashes[0])) is not None:
            with file:
                size = file.seek(0, 2)
        return [size]

    async def renew(self, kind: Stored, keys: Sequence[bytes]) -> list[int | None]:
        """Look payloads up, whose sizes are what the upstream says."""
        check_renewal(kind)
        if kind is Stored.ROOTS:
            self._refuse()
        return await self._said_sizes(keys)

    async def _said_sizes(self, multihashes: Sequence[bytes]) -> list[int | None]:
        sizes = dict(zip(multihashes, await self._local.stat_payloads(multihashes), strict=True))
        if missing := [multihash for multihash, size in sizes.items() if size is None]:
            with self._asking():
                sizes |= zip(missing, await self._origin.stat_payloads(missing), strict=True)
        return [sizes[multihash] for multihash in multihashes]

    async def get_payloads(self, multihashes: Sequence[bytes]) -> list[bytes | None]:
        found = dict(zip(multihashes, await self._local.get_payloads(multihashes), strict=True))
        for multihash, payload in found.items():
            if payload is not None:
                self._kept.hit(PAYLOAD + multihash, len(payload))
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
                self._kept.hit(PAYLOAD + multihash, None)
                while chunk is not None:
                    taken, chunk = [chunk], None
                    yield taken.pop()  # not held while the caller waits to ask for the next one
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
        name = PAYLOAD + multihash
        if (other := self._loading.get(name)) is not None:
            await result_of(other)
            if (copy := await self._copy(multihash)) is not None:
                return copy
        self._kept.misses += 1
        future = self._loading[name] = asyncio.get_running_loop().create_future()
        try:
            with self._asking():
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
        self._kept.hit(PAYLOAD + multihash, None)
        return file

    async def _keep_payload(self, multihash: bytes, file: IO[bytes]) -> None:
        """Keep a payload that is checked, if there is room. Leaves the file at its start."""
        size = file.seek(0, 2)
        file.seek(0)
        if size > self._kept.max_bytes // 4:
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
            self._unkept.occurs(error.message)
        else:
            self._unkept.ends()
            self._kept.note(PAYLOAD + multihash, size)
        finally:
            file.seek(0)

    # --- the store as a whole -----------------------------------------------------------------------------------------

    async def healthy(self) -> bool:
        return await self._local.healthy()

    async def obstacles(self) -> list[str]:
        """Return why nothing can be read; that nothing can be written is normal for an edge."""
        return [] if await self._local.healthy() else await self._local.obstacles()

    async def close(self) -> None:
        await self._kept.close()
        await self._origin.close()
        await self._local.close()

    def _refuse(self) -> NoReturn:
        where = self._origin.upstream.url
        raise InvalidInput(f"this is an edge, which accepts no writes: send them to {where}", code="read_only")
