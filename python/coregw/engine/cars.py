"""Roots as CARv1 files: export from the store, and import into it.

An export gets tree nodes from an operation, and puts the payloads between them. An import spools the bytes while the
hash of each block is checked; only when its trees are checked as well is anything stored: payloads, pages, and the root
records last. The format is the extension's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final, NamedTuple

from coregw._core import Need, Operation, PageCache, payload_car_header, read_get_batch
from coregw.engine.driver import Driver
from coregw.engine.frames import HeldPayload, find_payloads, payload_blocks
from coregw.engine.scheduling.placement import MAX_LOOP_BLOCKS
from coregw.engine.spool import ReceivedCar, ReceivedPayload, Spool, WholeCar, joined
from coregw.errors import InvalidInput
from coregw.store import CHUNK_BYTES, Store, Stored

__all__ = ["CarLimits", "Cars"]

OUTPUT_BYTES: Final = 256 << 10
"""Bytes of tree nodes that are written at once, about."""


class CarLimits(NamedTuple):
    """Limits of imports and exports.

    Attributes:
        payload_bytes: Bytes of one imported payload.
        blocks: Blocks of an imported CAR; each takes about 60 bytes of memory.
        at_once: Spooled CARs that are checked and stored at once; more wait, when they are spooled.
        spool: The folder of spooled bytes; None is the system's folder for temporary files.
        reserve_bytes: Free space on that disk below which nothing more is spooled.
    """

    payload_bytes: int = 64 << 20
    blocks: int = 4_000_000
    at_once: int = 2
    spool: Path | None = None
    reserve_bytes: int = 0


class _Taken(NamedTuple):
    """Payloads to store: the multihashes and bytes of short ones, and where longer ones are."""

    short: list[tuple[bytes, bytes]]
    long: list[ReceivedPayload]


class _Begun(NamedTuple):
    """An import whose blocks are checked; what it needs first, and the payloads that these are, if that is known."""

    operation: Operation
    has_trees: bool
    polled: bytes | Need | None = None
    taken: _Taken | None = None


class Cars:
    """The CARs of one store, ``engine.cars``."""

    def __init__(self, store: Store, driver: Driver, cache: PageCache, limits: CarLimits) -> None:
        """Called by `Engine`."""
        self._store = store
        self._driver = driver
        self._cache = cache
        self._limits = limits
        self._imports = asyncio.Semaphore(limits.at_once)

    # --- export -------------------------------------------------------------------------------------------------------

    async def export_car(
        self, root: str, *, payloads: bool, after: str | None = None, occurrence: int = 1
    ) -> AsyncGenerator[bytes, None]:
        """Begin to write a root as a CAR, and return an iterator over its bytes. Memory is bounded whatever the size.

        The nodes of the tree come depth first, then those of the held roots nested in it, each once. With `payloads`,
        the payloads that leaves name are included, each once (but a payload may be repeated after 131,072 others), as
        far as the store has them.

        Args:
            root: The root.
            payloads: Whether payloads are included.
            after: The CID of a block of the same export: the header is followed by what comes after it.
            occurrence: Which of the blocks with this CID it is, from 1.

        Raises:
            InvalidInput: If `root` is not a root CID, or there is no such block.
            RootNotFound: If the store does not hold it.
            StoreDamaged: If a page is missing or damaged. The iterator raises this as well, and `TooLarge` if more than
                262,144 roots are nested in the root.
        """
        operation = Operation.export_car(self._cache, root, payloads, OUTPUT_BYTES, after, occurrence)
        first = await self._driver.advance(operation)
        return self._parts(operation, first)

    async def _parts(self, operation: Operation, polled: bytes | Need) -> AsyncGenerator[bytes, None]:
        while isinstance(polled, Need):
            written, cids = polled.output or (b"", [])
            if written:
                yield written
            held = await find_payloads(self._store, cids)
            async with aclosing(payload_blocks(self._store, held, skip_damaged=False)) as blocks:
                async for chunk in blocks:
                    yield chunk
            polled = await self._driver.advance(operation)

    # --- payloads alone -----------------------------------------------------------------------------------------------

    async def export_payloads(self, request: bytes) -> AsyncGenerator[bytes, None]:
        """Begin to write the payloads that a request names as a CAR, and return an iterator over its bytes.

        The blocks come in the order of the request, without those of payloads that are not held, or that are found to
        be damaged before their first byte is written. Memory is bounded whatever the size.

        Args:
            request: The JSON body of ``POST /v1/cas/car``.

        Raises:
            InvalidInput: If the request is malformed; the message names the CID.
            TooLarge: If it names more than 4,096 payloads.
            Unavailable: If the store does not answer.
            StoreDamaged: If a row of the store is damaged. The iterator raises it for a payload of more than 1 MiB that
                is found to be damaged after its first byte.
        """
        cids = await self._driver.call(len(request), read_get_batch, request)
        return self._payload_parts(await find_payloads(self._store, cids))

    async def _payload_parts(self, payloads: Sequence[HeldPayload]) -> AsyncGenerator[bytes, None]:
        yield payload_car_header()
        async with aclosing(payload_blocks(self._store, payloads, skip_damaged=True)) as blocks:
            async for chunk in blocks:
                yield chunk

    # --- import -------------------------------------------------------------------------------------------------------

    async def import_car(self, chunks: AsyncIterator[bytes], *, version: int | None = None) -> bytes:
        """Store a CAR, all or nothing; durable on return. Memory grows by about 60 bytes for each block.

        While the bytes arrive, memory is bounded: only the beginning of the CAR is checked then. The rest is checked
        when all has been spooled, and one of the places for it is free. So slow uploads keep nobody waiting.

        Its roots are held afterwards, and so are the roots nested in them whose nodes it contains.

        Args:
            chunks: The bytes. An exception of the iterator passes through, and nothing is stored.
            version: The version that it must have; either if it is None.

        Returns:
            ``{"roots": [...], "blocks": ..., "bytes": ...}`` as JSON, the roots of the header.

        Raises:
            InvalidInput: If it is not a CAR, a block has another hash, or the nodes do not form whole trees; the
                message names the block. If it has another version, the code is ``unsupported_media_type``.
            TooLarge: If a payload, the number of blocks, or the memory for their positions exceeds its limit.
            Unavailable: If the store cannot write (`StorageFull`: it is full), or all changes need too much memory.
        """
        limits = self._limits
        with Spool(limits.spool, limits.reserve_bytes, limits.payload_bytes, limits.blocks) as spool:
            await self._receive(chunks, spool)
            async with self._imports:
                await self._check(spool)
                _check_version(spool, version=version)
                has_trees = spool.reader.nodes > 0
                begun = _Begun(Operation.import_car(self._cache, spool.reader), has_trees)
                return await self._store_all(spool, begun)

    async def import_whole(self, body: bytes, *, version: int | None = None) -> bytes:
        """Store a CAR that is in memory, as `import_car` does."""
        imported = await self._import_from_memory(body, version=version)
        # By now the reader of the first attempt is freed: its memory would add to that of the second.
        return imported if imported is not None else await self.import_car(_one_chunk(body), version=version)

    async def _import_from_memory(self, body: bytes, *, version: int | None) -> bytes | None:
        """Store a CAR without a spool; return None, having stored nothing, if it has too many blocks for that.

        Its place is among the other changes whose body is in memory: spooled imports take theirs for long.
        """
        async with self._driver.changes.place_for(body):
            car = WholeCar(body, self._limits.payload_bytes, self._limits.blocks)
            begun = await self._driver.in_worker(self._begin, car, version)
            return None if begun is None else await self._store_all(car, begun)

    def _begin(self, car: WholeCar, version: int | None) -> _Begun | None:
        """Check a CAR in memory; if it has only few payloads, take the first of them as well, in the same visit.

        For a worker thread. Beside a long import, each visit costs as much as the work on a CAR of 256 KiB.
        """
        if not car.check():
            return None
        _check_version(car, version=version)
        has_trees, is_short = car.reader.nodes > 0, car.reader.blocks <= MAX_LOOP_BLOCKS
        operation = Operation.import_car(self._cache, car.reader)
        if has_trees or not is_short:
            return _Begun(operation, has_trees)
        polled = self._driver.poll_in_thread(operation)
        blocks = polled.payloads if isinstance(polled, Need) else None
        return _Begun(operation, has_trees, polled, None if blocks is None else _taken(car, blocks))

    async def _store_all(self, car: ReceivedCar, begun: _Begun) -> bytes:
        """Check the trees of a CAR whose blocks are checked, and store everything; return the response."""
        operation, has_trees, polled, taken = begun
        on_loop = polled is not None
        with self._driver.changes.holding(operation):
            if has_trees:  # its payloads are older than its roots
                operation.since = await self._store.put({}, durable=False)
            if polled is None or (isinstance(polled, Need) and polled.payloads is None):
                polled = await self._driver.advance(operation, polled, on_loop=on_loop, read=car.read)
            while isinstance(polled, Need):
                if taken is None:
                    taken = await self._driver.in_worker_to_end(_taken, car, polled.payloads or [])
                await self._store_payloads(car, taken)
                taken = None
                polled = await self._driver.advance(operation, on_loop=on_loop, read=car.read)
            return polled

    async def _check(self, spool: Spool) -> None:
        """Check the blocks that were not checked when they arrived."""
        changes = self._driver.changes
        with changes.holding(spool.reader):
            while await self._driver.in_worker_to_end(spool.check_more):
                changes.hold(spool.reader)

    async def _receive(self, chunks: AsyncIterator[bytes], spool: Spool) -> None:
        async with aclosing(joined(chunks)) as parts:
            async for part in parts:
                await self._driver.in_worker_to_end(spool.write, part)

    async def _store_payloads(self, car: ReceivedCar, taken: _Taken) -> None:
        """Store payloads: those of one chunk in one step, longer ones as uploads if they are not held."""
        if taken.short:
            await self._store.put_payloads(taken.short)
        if taken.long:
            sizes = await self._store.renew(Stored.PAYLOADS, [payload.multihash for payload in taken.long])
            for payload in (payload for payload, size in zip(taken.long, sizes, strict=True) if size is None):
                await self._upload(car, payload)

    async def _upload(self, car: ReceivedCar, payload: ReceivedPayload) -> None:
        async with self._store.begin_payload() as writer:
            for at in range(payload.start, payload.end, CHUNK_BYTES):
                end = min(at + CHUNK_BYTES, payload.end)
                await writer.write(await self._driver.in_worker_to_end(car.read, at, end))
            await writer.commit(payload.multihash)


def _check_version(car: ReceivedCar, *, version: int | None) -> None:
    """Raise `InvalidInput` if a CAR has another version than it must have."""
    if version not in (None, car.reader.version):
        message = f"Content-Type says version={version}, but the body is a CARv{car.reader.version}"
        raise InvalidInput(message, code="unsupported_media_type")


async def _one_chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _taken(car: ReceivedCar, blocks: Sequence[tuple[int, int]]) -> _Taken:
    """Take the payloads of blocks: the bytes of those of one chunk."""
    payloads = [car.payload(*block) for block in blocks]
    short = [payload for payload in payloads if payload.size <= CHUNK_BYTES]
    return _Taken(car.data(short), [payload for payload in payloads if payload.size > CHUNK_BYTES])
