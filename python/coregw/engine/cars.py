"""Roots as CAR files (CARv1), out of the store and into it.

Out: the extension writes the tree nodes from pages; the payloads are put between them here. In: the bytes are spooled
to a file without a name while the hash of each block is checked; then the trees are checked from there; only then is
anything stored: payloads, pages, and the root records last. Leaves out the format (the extension) and HTTP.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple, ParamSpec, TypeVar

from coregw._core import Car, CarExport, CarReader, Cid, Need, PageCache, block_cid, block_head
from coregw.engine.driver import Driver
from coregw.errors import InvalidInput, StorageFull, Unavailable
from coregw.store import CHUNK_BYTES, Store, Table

__all__ = ["CarLimits", "Cars", "TakenIn"]

P = ParamSpec("P")
R = TypeVar("R")

PART_BYTES: Final = 256 << 10
"""About how many bytes of tree nodes are written at once."""

SPOOL_BYTES: Final = 1 << 20
"""So many bytes are hashed and written to the disk in one visit of a worker thread."""

SPANS_AT_ONCE: Final = 64
"""Reads of the spooled file in one visit of a worker thread: a MiB."""

SMALL_BYTES: Final = 64 << 10
"""Payloads of so many bytes are read several at once."""

READS_AT_ONCE: Final = 32
"""How many small payloads are read at once."""

PUTS_AT_ONCE: Final = 64
"""Payloads that are stored at once; they share syncs."""

TURN_BYTES: Final = 8 << 20
"""No more payloads are stored at once when those there are have so many bytes."""

BATCH_BYTES: Final = 1 << 20
"""The most bytes of pages given to the store at once."""

MAX_CID_BYTES: Final = 78
"""The longest binary CID."""

ROOTS_AT_ONCE: Final = 4096
"""Root records that are written at once."""


class CarLimits(NamedTuple):
    """What is taken in and written at most.

    Attributes:
        payload_bytes: Bytes of a payload.
        blocks: Blocks of a CAR; each takes some 60 bytes of memory.
        at_once: CARs taken in at once; for more there is `Unavailable`.
        exports: CARs written at once; as well.
        spool: The folder of the spooled bytes; None is the system's folder for temporary files.
        reserve_bytes: Room left on that disk below which nothing more is spooled.
    """

    payload_bytes: int = 64 << 20
    blocks: int = 4_000_000
    at_once: int = 2
    exports: int = 16
    spool: Path | None = None
    reserve_bytes: int = 0


class TakenIn(NamedTuple):
    """A CAR that was stored: the header's roots, and how many blocks and bytes it had."""

    roots: list[str]
    blocks: int
    bytes: int


class Cars:
    """The CARs of one store, ``engine.cars``."""

    def __init__(self, store: Store, driver: Driver, cache: PageCache, limits: CarLimits) -> None:
        """Made by `Engine`."""
        self._store = store
        self._driver = driver
        self._cache = cache
        self._limits = limits
        self._under_way = 0
        self._exports = 0

    # --- out ----------------------------------------------------------------------------------------------------------

    async def export(self, root: str, *, payloads: bool) -> AsyncGenerator[bytes, None]:
        """Begins to write a root as a CAR, and returns the rest as an iterator. Memory is bounded whatever the size.

        The tree's nodes come depth-first, then those of the held roots nested in it, each once. With `payloads` so do
        the payloads that leaves name, each once (but a payload may come again behind 131,072 others); those that the
        store does not have are left out.

        Raises:
            InvalidInput: `root` is no root CID.
            RootNotFound: The store does not hold it.
            Unavailable: Too many CARs at once.
            StoreDamaged: A page is missing or is not what its digest says. The iterator raises it as well, and
                `TooLarge` for a root with more than 262,144 others nested in it.
        """
        self._check_exports()
        work = CarExport(self._cache, root, payloads)
        first = await self._next_part(work)

        async def parts() -> AsyncGenerator[bytes, None]:
            self._check_exports()
            self._exports += 1  # here, since what is never begun is never ended
            try:
                part = first
                while part is not None:
                    written, cids = part
                    if written:
                        yield written
                    async for chunk in self._payloads(cids):
                        yield chunk
                    part = await self._next_part(work)
            finally:
                self._exports -= 1

        return parts()

    def _check_exports(self) -> None:
        if self._exports == self._limits.exports:
            raise Unavailable("too many CARs at once; try again")

    async def _next_part(self, work: CarExport) -> tuple[bytes, list[Cid]] | None:
        step = await self._driver.in_worker(work.run, PART_BYTES)
        while isinstance(step, Need):
            if step.roots is not None:
                work.supply_roots(await self._driver.are_held(step.roots))
            elif step.pages is not None:
                pages = await self._store.get(Table.PAGES, step.pages)
                await self._driver.in_worker(work.supply_pages, pages)
            step = await self._driver.in_worker(work.run, PART_BYTES)
        return step

    async def _payloads(self, cids: Sequence[Cid]) -> AsyncIterator[bytes]:
        """Payloads as blocks, small ones together; without those that the store does not have."""
        sizes = await self._store.stat_payloads([cid.multihash for cid in cids])
        held = [(cid, size) for cid, size in zip(cids, sizes, strict=True) if size is not None]
        small = [(cid, size) for cid, size in held if size <= SMALL_BYTES]
        for at in range(0, len(small), READS_AT_ONCE):
            yield b"".join(await asyncio.gather(*(self._small(*each) for each in small[at : at + READS_AT_ONCE])))
        for cid, size in held:
            if size > SMALL_BYTES:
                yield block_head(cid, size)
                async for chunk in self._store.read_payload(cid.multihash):
                    yield chunk

    async def _small(self, cid: Cid, size: int) -> bytes:
        chunks = [chunk async for chunk in self._store.read_payload(cid.multihash)]
        return b"".join([block_head(cid, size), *chunks])

    # --- in -----------------------------------------------------------------------------------------------------------

    async def take_in(self, chunks: AsyncIterator[bytes]) -> TakenIn:
        """Stores a CAR, all of it or nothing; durable on return. Memory grows by 60 bytes a block, whatever they hold.

        Its roots are held afterwards, and so are the roots nested in them whose nodes it has.

        Args:
            chunks: The bytes. What it raises passes through, and nothing is stored.

        Raises:
            InvalidInput: It is no CAR, a block has another hash, or the blocks are not whole trees; the message names
                the block.
            TooLarge: A payload, or the number of blocks, is past its limit.
            Unavailable: Too many CARs at once, or the store cannot write now (`StorageFull`: it has no room).
        """
        if self._under_way == self._limits.at_once:
            raise Unavailable("too many CARs at once; try again")
        self._under_way += 1
        try:
            with _spool_file(self._limits.spool) as file:
                spool = _Spool(file, self._limits)
                await self._receive(chunks, spool)
                taken = TakenIn(spool.reader.roots or [], spool.reader.blocks, spool.reader.bytes)
                await self._work(spool.finish)
                while not await self._work(spool.check):
                    pass
                await self._store_payloads(spool)
                await self._store_trees(spool)
            return taken
        finally:
            self._under_way -= 1

    async def _receive(self, chunks: AsyncIterator[bytes], spool: _Spool) -> None:
        pieces: list[bytes] = []
        size = 0
        async for chunk in chunks:
            pieces.append(chunk)
            size += len(chunk)
            if size >= SPOOL_BYTES:
                await self._work(spool.write, b"".join(pieces))
                pieces, size = [], 0
        await self._work(spool.write, b"".join(pieces))

    async def _store_payloads(self, spool: _Spool) -> None:
        """Stores the payloads that are not held, small ones together."""
        turn: list[_Block] = []
        while blocks := await self._work(spool.next_payloads):
            sizes = await self._store.stat_payloads([block.cid.multihash for block in blocks])
            for block in (block for block, size in zip(blocks, sizes, strict=True) if size is None):
                turn.append(block)
                if len(turn) == PUTS_AT_ONCE or sum(each.size for each in turn) > TURN_BYTES:
                    await self._put_all(spool, turn)
                    turn = []
        await self._put_all(spool, turn)

    async def _put_all(self, spool: _Spool, blocks: list[_Block]) -> None:
        outcomes = await asyncio.gather(*(self._put(spool, block) for block in blocks), return_exceptions=True)
        for outcome in outcomes:  # none is left under way
            if outcome is not None:
                raise outcome

    async def _put(self, spool: _Spool, block: _Block) -> None:
        async with self._store.begin_payload() as writer:
            for at in range(block.start, block.end, CHUNK_BYTES):
                await writer.write(await self._work(spool.read, at, min(at + CHUNK_BYTES, block.end)))
            await writer.commit(block.cid.multihash)

    async def _store_trees(self, spool: _Spool) -> None:
        """Stores all pages, then the records of all roots, the header's last."""
        pages = await self._work(spool.next_pages)
        while following := await self._work(spool.next_pages):
            await self._store.put({Table.PAGES: pages}, durable=False)
            pages = following
        roots = spool.roots
        for end in range(len(roots), 0, -ROOTS_AT_ONCE):
            records = [(root, b"") for root in roots[max(end - ROOTS_AT_ONCE, 0) : end]]
            await self._store.put({Table.PAGES: pages, Table.ROOTS: records})
            pages = []
        for root in roots:
            self._cache.remember(root)

    async def _work(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls a function in a worker thread, and waits for its end whatever happens: it uses the spooled file."""
        call = asyncio.ensure_future(self._driver.in_worker(function, *args, **kwargs))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            await asyncio.wait([call])
            raise


def _spool_file(folder: Path | None) -> IO[bytes]:
    try:
        return tempfile.TemporaryFile(dir=folder)
    except OSError as error:
        raise _no_spool(error) from error


def _no_spool(error: OSError) -> Unavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull("there is no room to take a CAR in")
    return Unavailable(f"a CAR can't be spooled: {error.strerror}")


class _Block(NamedTuple):
    """A payload in the spool: its name, and where its bytes are."""

    cid: Cid
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class _Spool:
    """The bytes of a CAR in a file, and what the extension knows of them. For worker threads; only reads at once."""

    def __init__(self, file: IO[bytes], limits: CarLimits) -> None:
        self._file = file
        self._reserve = limits.reserve_bytes
        self.reader = CarReader(limits.payload_bytes, limits.blocks)
        self._car: Car | None = None

    def write(self, data: bytes) -> None:
        self.reader.feed(data)
        disk = os.fstatvfs(self._file.fileno())
        if disk.f_bavail * disk.f_frsize < self._reserve + len(data):
            raise StorageFull("there is no room to take a CAR in")
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise _no_spool(error) from error

    def read(self, start: int, end: int) -> bytes:
        return os.pread(self._file.fileno(), end - start, start)

    def finish(self) -> None:
        self._car = self.reader.finish()

    @property
    def car(self) -> Car:
        """The CAR, once all its bytes are here."""
        if self._car is None:
            raise InvalidInput("the CAR is not here yet")
        return self._car

    @property
    def roots(self) -> list[bytes]:
        return self.car.roots

    def check(self) -> bool:
        """Goes on checking the trees for a while; whether that is done."""
        for _ in range(SPANS_AT_ONCE):
            span = self.car.check()
            if span is None:
                return True
            self.car.supply(span[0], self.read(*span))
        return False

    def next_pages(self) -> list[tuple[bytes, bytes]]:
        while isinstance(found := self.car.next_pages(BATCH_BYTES), tuple):
            self.car.supply(found[0], self.read(*found))
        return found

    def next_payloads(self) -> list[_Block]:
        blocks = []
        for start, end in self.car.next_payloads(PUTS_AT_ONCE):
            cid = block_cid(self.read(start, min(start + MAX_CID_BYTES, end)))
            blocks.append(_Block(cid, start + len(bytes(cid)), end))
        return blocks
