"""CARs in and out: frames of payloads, and the spool of what arrives.

An export gets tree nodes from an operation, and puts the payloads between them. An import spools the bytes while the
hash of each block is checked; only when its trees are checked as well is anything stored: payloads, pages, and the root
records last. The format is the extension's. A spool is an unnamed file.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self, cast

from coregw._core import (
    CarReader,
    Cid,
    Need,
    Operation,
    PageCache,
    block_cid,
    block_head,
    block_heads,
    payload_car_header,
    read_get_batch,
)
from coregw.engine.driver import Driver
from coregw.engine.scheduling import MAX_LOOP_BLOCKS, EngineLimits, Execution
from coregw.errors import InvalidInput, PayloadNotFound, StorageFull, StoreDamaged, TooLarge, Unavailable
from coregw.store import CHUNK_BYTES, Store, Stored

__all__ = [
    "Cars",
    "HeldPayload",
    "ReceivedCar",
    "ReceivedPayload",
    "Spool",
    "WholeCar",
    "find_payloads",
    "joined",
    "payload_blocks",
]

_log = logging.getLogger(__name__)

_BATCH_BYTES: Final = 1 << 20
"""Payloads are read and sent together up to this many bytes."""

IDENTITY_CODE: Final = 0x00
"""The first byte of a multihash that is the payload itself."""


class HeldPayload(NamedTuple):
    """A payload, its binary multihash, and its size in bytes."""

    cid: Cid
    multihash: bytes
    size: int

    def is_stored(self) -> bool:
        """Whether the store has it; the CID itself contains it otherwise."""
        return self.multihash[0] != IDENTITY_CODE


async def find_payloads(store: Store, cids: Sequence[Cid]) -> list[HeldPayload]:
    """Return which of these payloads are held, in the same order. One batch of lookups."""
    multihashes = [cid.multihash for cid in cids]
    stored = [each for each in multihashes if each[0] != IDENTITY_CODE]
    sizes = await store.stat_payloads(stored)
    if len(stored) < len(cids):
        found = iter(sizes)
        named = zip(cids, multihashes, strict=True)
        sizes = [next(found) if each[0] != IDENTITY_CODE else len(cid.digest) for cid, each in named]
    held = zip(cids, multihashes, sizes, strict=True)
    return [HeldPayload(cid, multihash, size) for cid, multihash, size in held if size is not None]


async def payload_blocks(
    store: Store, payloads: Sequence[HeldPayload], *, skip_damaged: bool
) -> AsyncGenerator[bytes, None]:
    """Yield the blocks of payloads in order, without those that were removed meanwhile.

    A chunk has at most 1 MiB and the heads of its blocks: a part of a payload of more than 1 MiB, or the blocks of
    several others. The store is read only as fast as the chunks are consumed.

    Args:
        store: The store.
        payloads: What `find_payloads` has found.
        skip_damaged: Whether a payload is left out, and reported in the log, if it is found to be damaged before its
            first byte is yielded.

    Raises:
        StoreDamaged: A part of a payload is missing or has the wrong size.
        PayloadNotFound: A payload of more than 1 MiB was removed after its first byte was yielded.
    """
    batch: list[HeldPayload] = []
    total = 0
    for payload in payloads:
        if batch and total + payload.size > _BATCH_BYTES:
            yield await _small_blocks(store, batch, skip_damaged=skip_damaged)
            batch, total = [], 0
        if payload.size <= CHUNK_BYTES:
            batch.append(payload)
            total += payload.size
        else:
            async for chunk in _large_block(store, payload, skip_damaged=skip_damaged):
                yield chunk
    if batch:
        yield await _small_blocks(store, batch, skip_damaged=skip_damaged)


async def _small_blocks(store: Store, payloads: Sequence[HeldPayload], *, skip_damaged: bool) -> bytes:
    stored = [multihash for _, multihash, _ in payloads if multihash[0] != IDENTITY_CODE]
    try:
        read = await store.get_payloads(stored)
    except InvalidInput as error:  # one of them is longer than its size said
        raise StoreDamaged(error.message) from error
    except StoreDamaged:
        if not skip_damaged:
            raise
        read = [await _get_undamaged(store, multihash) for multihash in stored]
    cids = [cid for cid, _, _ in payloads]
    if len(stored) < len(payloads):
        found = iter(read)
        read = [next(found) if payload.is_stored() else payload.cid.digest for payload in payloads]
    if None in read:
        cids = [cid for cid, data in zip(cids, read, strict=True) if data is not None]
    held = [data for data in read if data is not None]
    parts = [b""] * (2 * len(held))
    parts[::2] = block_heads(cids, held)
    parts[1::2] = held
    return b"".join(parts)


async def _get_undamaged(store: Store, multihash: bytes) -> bytes | None:
    try:
        (payload,) = await store.get_payloads([multihash])
    except StoreDamaged as error:
        _log.error("left out of a response: %s", error.message)
        return None
    return payload


async def _large_block(store: Store, payload: HeldPayload, *, skip_damaged: bool) -> AsyncIterator[bytes]:
    chunks = cast("AsyncGenerator[bytes, None]", store.read_payload(payload.multihash))
    async with aclosing(chunks):
        try:
            first = await anext(chunks)
        except PayloadNotFound:
            return
        except StoreDamaged as error:
            if not skip_damaged:
                raise
            _log.error("left out of a response: %s", error.message)
            return
        left = _left(payload, payload.size, first)
        yield block_head(payload.cid, payload.size) + first
        async for chunk in chunks:
            left = _left(payload, left, chunk)
            yield chunk
        if left:
            raise _other_size(payload)


def _left(payload: HeldPayload, left: int, chunk: bytes) -> int:
    """Return how many bytes follow a chunk, if the payload has the size that its head says."""
    if len(chunk) > left:
        raise _other_size(payload)
    return left - len(chunk)


def _other_size(payload: HeldPayload) -> StoreDamaged:
    """Return the exception for a size that another store has made up (`coregw.store.origin`)."""
    return StoreDamaged(f"the payload {payload.cid.text} does not have the {payload.size:,} bytes that it should have")


MAX_CID_BYTES: Final = 160
"""No binary CID is longer: an identity CID holds a payload of at most 128 bytes."""


SPOOL_WRITE_BYTES: Final = 1 << 20
"""Bytes of a body that are taken in one visit of a worker thread, about."""

CHECK_BYTES: Final = 1 << 20
"""Bytes that `Spool.check_more` reads and checks."""

MAX_FIRST_BLOCKS: Final = 16_384
"""Blocks that are checked as they arrive. They take 1 MiB of memory."""

SLICE_BYTES: Final = 64 << 10
"""Bytes that are checked at once as they arrive; they may have 13,000 blocks."""


MAX_WHOLE_BLOCKS: Final = 65_536
"""Blocks of a CAR that is imported from memory. They take 4 MiB of memory."""


async def joined(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Join the chunks of a body to parts of at least `SPOOL_WRITE_BYTES`, and a last one, which may be empty.

    Close it after use: it holds what it reads.
    """
    received: list[bytes] = []
    size = 0
    async for chunk in chunks:
        received.append(chunk)
        size += len(chunk)
        if size >= SPOOL_WRITE_BYTES:
            part = b"".join(received)
            received, size = [], 0
            yield part
            del part  # not held while the next one arrives
    yield b"".join(received)


class ReceivedPayload(NamedTuple):
    """A payload of a CAR: its multihash, and where its bytes start and end."""

    multihash: bytes
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.start


class ReceivedCar(ABC):
    """The bytes of a CAR, and the reader that checks them."""

    reader: CarReader

    @abstractmethod
    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end` (exclusive), fewer at the end of the CAR."""

    def payload(self, start: int, end: int) -> ReceivedPayload:
        """Return the payload whose block, CID and data, is from `start` to `end`."""
        cid, named = block_cid(self.read(start, min(start + MAX_CID_BYTES, end)))
        return ReceivedPayload(cid.multihash, start + named, end)

    def data(self, payloads: Sequence[ReceivedPayload]) -> list[tuple[bytes, bytes]]:
        """Return the multihash and the bytes of payloads."""
        return [(each.multihash, self.read(each.start, each.end)) for each in payloads]


class WholeCar(ReceivedCar):
    """A CAR in memory.

    Args:
        body: Its bytes.
        payload_bytes: Bound of one payload, in bytes.
        blocks: Bound of the number of blocks.
    """

    def __init__(self, body: bytes, payload_bytes: int, blocks: int) -> None:
        self.reader = CarReader(payload_bytes, min(blocks, MAX_WHOLE_BLOCKS))
        self._blocks = blocks
        self._body = body

    def check(self) -> bool:
        """Check the hashes of all blocks, unless there are more than `MAX_WHOLE_BLOCKS`: then return false. O(bytes).

        Raises:
            InvalidInput: If the bytes are not a CAR, or a block has another hash.
            TooLarge: If a limit is exceeded.
        """
        try:
            self.reader.feed(self._body)
        except TooLarge:
            if self.reader.blocks < MAX_WHOLE_BLOCKS or self._blocks <= MAX_WHOLE_BLOCKS:
                raise
            return False
        return True

    def read(self, start: int, end: int) -> bytes:
        """See `ReceivedCar.read`."""
        return self._body[start:end]


class Spool(ReceivedCar):
    """A context manager; its file is deleted on exit. All methods but `read` are for one thread at a time.

    Args:
        folder: Where the file is; None is the system's folder for temporary files.
        reserve_bytes: Free space on that disk below which nothing more is written.
        payload_bytes: Bound of one payload, in bytes.
        blocks: Bound of the number of blocks.

    Raises:
        Unavailable: If the file cannot be created (`StorageFull`: the disk is full).
    """

    def __init__(self, folder: Path | None, reserve_bytes: int, payload_bytes: int, blocks: int) -> None:
        self._reserve_bytes = reserve_bytes
        self._size = 0
        self.reader = CarReader(payload_bytes, blocks)
        try:
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `__exit__`
        except OSError as error:
            raise _unavailable(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        """Append the next bytes to the file, and check them if they are among the first. O(bytes) hashing.

        Raises:
            InvalidInput: If they are not a CAR, or a block has another hash.
            TooLarge: If a limit is exceeded.
            Unavailable: If they cannot be written (`StorageFull`: the disk is full).
        """
        if self.reader.bytes == self._size:
            self._check_first(data)
        disk = os.fstatvfs(self._file.fileno())
        if disk.f_bavail * disk.f_frsize < self._reserve_bytes + len(data):
            raise _full()
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise _unavailable(error) from error
        self._size += len(data)

    def check_more(self) -> bool:
        """Check a part of what has not been checked. Returns whether there is more. O(`CHECK_BYTES`) hashing.

        Raises:
            InvalidInput: If the bytes are not a CAR, or a block has another hash.
            TooLarge: If a limit is exceeded.
        """
        checked = self.reader.bytes
        self.reader.feed(self.read(checked, min(checked + CHECK_BYTES, self._size)))
        return self.reader.bytes < self._size

    def _check_first(self, data: bytes) -> None:
        """Check the next bytes, unless the CAR has many blocks already: the reader needs memory for each."""
        for at in range(0, len(data), SLICE_BYTES):
            if self.reader.blocks > MAX_FIRST_BLOCKS:
                return
            self.reader.feed(data[at : at + SLICE_BYTES])

    def read(self, start: int, end: int) -> bytes:
        """See `ReceivedCar.read`."""
        return os.pread(self._file.fileno(), end - start, start)


def _unavailable(error: OSError) -> Unavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _full()
    return Unavailable(f"the CAR cannot be spooled: {error}")


def _full() -> StorageFull:
    return StorageFull("there is not enough disk space to spool the CAR")


OUTPUT_BYTES: Final = 256 << 10
"""Bytes of tree nodes that are written at once, about."""


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

    def __init__(self, store: Store, driver: Driver, cache: PageCache, limits: EngineLimits) -> None:
        """Called by `Engine`."""
        self._store = store
        self._driver = driver
        self._cache = cache
        self._limits = limits
        self._imports = asyncio.Semaphore(limits.cars_at_once)

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
        execution = Execution(Operation.export_car(self._cache, root, payloads, OUTPUT_BYTES, after, occurrence))
        first = await self._driver.advance(execution)
        return self._parts(execution, first)

    async def _parts(self, execution: Execution, polled: bytes | Need) -> AsyncGenerator[bytes, None]:
        while isinstance(polled, Need):
            written, cids = polled.output or (b"", [])
            if written:
                yield written
            held = await find_payloads(self._store, cids)
            async with aclosing(payload_blocks(self._store, held, skip_damaged=False)) as blocks:
                async for chunk in blocks:
                    yield chunk
            polled = await self._driver.advance(execution)

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
        with Spool(limits.spool, limits.reserve_bytes, limits.payload_bytes, limits.car_blocks) as spool:
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
            car = WholeCar(body, self._limits.payload_bytes, self._limits.car_blocks)
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
        execution = Execution(operation, on_loop=polled is not None)
        execution.read = car.read
        with self._driver.changes.holding(operation):
            if has_trees:  # its payloads are older than its roots
                operation.since = await self._store.put({}, durable=False)
            if polled is None or (isinstance(polled, Need) and polled.payloads is None):
                execution.polled = polled
                polled = await self._driver.advance(execution)
            while isinstance(polled, Need):
                if taken is None:
                    taken = await self._driver.in_worker_to_end(_taken, car, polled.payloads or [])
                await self._store_payloads(car, taken)
                taken = None
                polled = await self._driver.advance(execution)
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
