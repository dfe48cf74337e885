"""A read-only store over objects that are read by name, from a gateway or from files of any web server.

```
page       /v1/pages/{digest}   64 characters of 0-9a-f
root       /v1/roots/{root}     CIDv1 in base32; the body is the page with the top node
payload    /v1/cas/{cid}        CIDv1 in base32, with codec raw
```
"""

# ruff: noqa: D102 - the protocol documents the methods

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from tempfile import SpooledTemporaryFile
from typing import IO, Final, NoReturn, Protocol, TypeVar

from coregw import _core
from coregw.concurrency import for_each, result_of
from coregw.errors import InvalidInput, PayloadNotFound, StoreDamaged, TooLarge, Unavailable, UpstreamDamaged
from coregw.store.protocol import (
    CHUNK_BYTES,
    PayloadWriter,
    Stored,
    Table,
    check_listing,
    check_range,
    check_renewal,
    check_whole_payload,
    raw_cid,
)

__all__ = [
    "MAX_PAGE_BYTES",
    "OriginStore",
    "ReadingStore",
    "Upstream",
    "UpstreamSink",
    "are_pages",
    "blocks_of",
    "is_root_page",
    "named_blocks_of",
    "page_path",
    "payload_path",
    "range_of",
    "root_path",
    "whole_of",
]

MAX_PAGE_BYTES: Final = 16_642
"""The maximum size of a page (docs/protocol.md, section 8)."""


class UpstreamSink(Protocol):
    """A destination for bytes that arrive in chunks."""

    def write(self, chunk: bytes) -> None:
        """Write the next chunk."""


class Upstream(Protocol):
    """Where objects are read from by path. For the tasks of one event loop.

    Every method raises `Unavailable` if the upstream does not answer, after its own retries, and `TooLarge` if an
    answer is longer than allowed.
    """

    @property
    def url(self) -> str:
        """The address that paths are below, for messages; without credentials."""

    @property
    def has_batches(self) -> bool:
        """Whether it answers `pages` and `payloads`, as gateways do and static trees do not."""

    async def get(self, path: str, max_bytes: int) -> bytes | None:
        """Return the bytes of an object; None if the upstream has none by this name."""

    async def download(self, path: str, sink: Callable[[], UpstreamSink]) -> bool:
        """Stream an object into what `sink` returns; called for each answer that starts over. False if absent."""

    async def size(self, path: str) -> int | None:
        """Return the size of an object in bytes, without reading it; None if absent."""

    async def pages(self, digests: Sequence[bytes], max_bytes: int) -> bytes:
        """Return the answer of ``POST /v1/pages/car`` for these digests."""

    async def payloads(self, multihashes: Sequence[bytes], max_bytes: int) -> bytes:
        """Return the answer of ``POST /v1/cas/car`` for the payloads with these multihashes, with the codec ``raw``."""

    async def aclose(self) -> None:
        """Close all connections."""


def are_pages(pages: Sequence[tuple[bytes, bytes]]) -> list[bool]:
    """Return for each pair of a digest and bytes whether the bytes are the page with this digest. O(bytes)."""
    return [links is not None for links in _core.page_links(pages)]


def is_root_page(root: bytes, page: bytes) -> bool:
    """Return whether the bytes are the page of a binary root CID, of its kind and suite. O(bytes)."""
    try:
        _core.root_block(root, page)
    except StoreDamaged:
        return False
    return True


def page_path(digest: bytes) -> str:
    """Return the path of a page."""
    return f"/v1/pages/{digest.hex()}"


def root_path(root: bytes) -> str:
    """Return the path of a root, by its binary CID."""
    return f"/v1/roots/{_core.Cid(root).text}"


def payload_path(multihash: bytes) -> str:
    """Return the path of a payload, by its binary multihash."""
    return f"/v1/cas/{raw_cid(multihash).text}"


_CID: Final = b"\x01\x55\x12\x20"  # CIDv1, codec raw, sha2-256 of 32 bytes

_CID_BYTES: Final = len(_CID) + 32


def blocks_of(car: bytes) -> list[bytes]:
    """Return the bytes of all blocks, without the header. O(bytes); no hash is checked.

    Raises:
        ValueError: The bytes do not end where a block ends, or a CID is not one of plain bytes.
    """
    blocks: list[bytes] = []
    for begin, end in _frames(car):
        if not car.startswith(_CID, begin) or end - begin < _CID_BYTES:
            raise ValueError(f"byte {begin}: expected the CID of a block of bytes")
        blocks.append(car[begin + _CID_BYTES : end])
    return blocks


def named_blocks_of(car: bytes, cids: Sequence[bytes]) -> list[bytes | None]:
    """Return the bytes of the block with each of these CIDs, None for those that were left out.

    O(bytes); no hash is checked.

    Args:
        car: The bytes of the CAR.
        cids: Binary CIDs, in the order in which their blocks come.

    Raises:
        ValueError: The bytes do not end where a block ends, or a block has none of the remaining CIDs.
    """
    blocks: list[bytes | None] = [None] * len(cids)
    remaining = iter(enumerate(cids))
    for begin, end in _frames(car):
        for number, cid in remaining:
            if car.startswith(cid, begin, end):  # a CID says where it ends: none begins with another
                blocks[number] = car[begin + len(cid) : end]
                break
        else:
            raise ValueError(f"byte {begin}: a block that was not requested here")
    return blocks


def _frames(car: bytes) -> Iterator[tuple[int, int]]:
    """Yield where the CID of each block begins, and the block ends."""
    _, end = _frame(car, 0)  # the header names no block
    while end < len(car):
        begin, end = _frame(car, end)
        yield begin, end


def _frame(car: bytes, at: int) -> tuple[int, int]:
    """Return where the frame whose length is at byte `at` begins and ends."""
    length, begin = _core.read_varint(car, at)
    if length > len(car) - begin:
        raise ValueError(f"byte {at}: no whole block")
    return begin, begin + length


K = TypeVar("K")

R = TypeVar("R")


class ReadingStore(ABC):
    """The methods of `coregw.store.Store` that write: all of them refuse. Nothing has a date."""

    @property
    def expiries(self) -> int:
        return 0

    def watch_expiries(self, on_expiry: Callable[[], None]) -> None:  # noqa: B027 - nothing expires here
        """See `coregw.store.Store.watch_expiries`: nothing expires here."""

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
    ) -> int:
        self._refuse()

    async def compare_and_set(
        self,
        table: Table,
        key: bytes,
        expected: bytes | None,
        value: bytes,
        further: Sequence[tuple[bytes, bytes]] = (),
        requires: Sequence[bytes] = (),
    ) -> bool:
        self._refuse()

    async def delete(self, table: Table, keys: Sequence[bytes]) -> None:
        self._refuse()

    async def renew(self, kind: Stored, keys: Sequence[bytes], below_held: bool = False) -> list[int | None]:
        """Look payloads up: nothing here has a date. Roots are renewed for writes alone, which are refused."""
        check_renewal(kind)
        if kind is Stored.ROOTS:
            self._refuse()
        return await self.stat_payloads(keys)

    def begin_payload(self) -> PayloadWriter:
        self._refuse()

    async def put_payloads(self, payloads: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        self._refuse()

    @abstractmethod
    async def stat_payloads(self, multihashes: Sequence[bytes]) -> list[int | None]: ...

    @abstractmethod
    def _refuse(self) -> NoReturn:
        """Raise `InvalidInput` (code ``read_only``), which says where to send writes."""


def range_of(file: IO[bytes], start: int, end: int | None) -> Iterator[bytes]:
    """Yield the bytes `start` to `end` (exclusive, None for all) of a payload as `Store.read_payload`."""
    file.seek(start)
    left = -1 if end is None else end - start
    while left and (chunk := file.read(CHUNK_BYTES if left < 0 else min(left, CHUNK_BYTES))):
        left -= len(chunk) if left > 0 else 0
        yield chunk


def whole_of(file: IO[bytes], multihash: bytes) -> bytes:
    """Return a payload as `Store.get_payloads`, and close it.

    Raises:
        InvalidInput: It is longer than `CHUNK_BYTES`.
    """
    with file:
        check_whole_payload(multihash, file.seek(0, 2))
        file.seek(0)
        return file.read()


async def _results(function: Callable[[K], Awaitable[R]], keys: Sequence[K]) -> list[R]:
    """Call a function for all keys at once, and return the results; if one call fails, the others are cancelled."""
    if len(keys) == 1:
        return [await function(keys[0])]
    found: dict[int, R] = {}

    async def call(number: int) -> None:
        found[number] = await function(keys[number])

    await for_each(range(len(keys)), call, len(keys))
    return [found[number] for number in range(len(keys))]


_BATCH_PAGES: Final = 256
"""The number of pages in one request to a gateway, which may have 4 MiB."""

_MIN_BATCH_PAGES: Final = 3
"""Fewer pages are requested one by one, since caches between here and the gateway may have them."""

_BLOCK_HEAD_BYTES: Final = 64

_TOPS: Final = 64
"""The number of top pages that are kept from the answer about their roots until they are read."""

_THREAD_PAGES: Final = 8
"""More pages than these are checked in a worker thread."""


class _Cancelled(Exception):
    """The call whose request others wait for was cancelled, so one of them has to make it."""


class OriginStore(ReadingStore):
    """Reads from an `Upstream`, checks everything, and keeps nothing but a few top pages.

    Args:
        upstream: Where objects are; `close` closes it.
        requests_at_once: Requests for objects in progress.
    """

    def __init__(self, upstream: Upstream, *, requests_at_once: int = 16) -> None:
        self.upstream = upstream
        self._places = asyncio.Semaphore(requests_at_once)
        self._tops: OrderedDict[bytes, bytes] = OrderedDict()
        self._asked: dict[bytes, asyncio.Future[bytes | None]] = {}
        """The requests for roots in progress, by digest: their pages need no request of their own."""
        self._asked_roots: dict[bytes, asyncio.Future[bytes | None]] = {}
        """The same, by root."""
        self._is_closed = False

    # --- rows ---------------------------------------------------------------------------------------------------------

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        self._require_open()
        if table is Table.PAGES:
            return await self._pages(keys)
        if table is Table.ROOTS:
            pages = await _results(self._root, keys)
            return [None if page is None else b"" for page in pages]
        return [None] * len(keys)

    async def list_rows(
        self, table: Table, prefix: bytes, after: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        self._require_open()
        check_listing(limit)
        return []

    # --- payloads -----------------------------------------------------------------------------------------------------

    async def stat_payloads(self, multihashes: Sequence[bytes]) -> list[int | None]:
        """Ask for the sizes of payloads. They are what the upstream says: only reading a payload checks it."""
        self._require_open()
        return await _results(lambda multihash: self.upstream.size(payload_path(multihash)), multihashes)

    async def get_payloads(self, multihashes: Sequence[bytes]) -> list[bytes | None]:
        self._require_open()
        return await _results(self._small_payload, multihashes)

    async def read_payload(self, multihash: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Read a range of a payload. All of the payload is read and checked first: a part of it can't be checked.

        Raises:
            PayloadNotFound: The upstream does not hold the payload.
            UpstreamDamaged: It sent other bytes.
            TooLarge: The payload is longer than the limit of the upstream.
            Unavailable: It can't be reached.
        """
        check_range(start, end)
        file = await self.open_payload(multihash)
        if file is None:
            raise PayloadNotFound(f"the payload {multihash.hex()} is not held by {self.upstream.url}")
        with file:
            for chunk in range_of(file, start, end):
                yield chunk

    async def open_payload(self, multihash: bytes) -> IO[bytes] | None:
        """Read and check a whole payload; in memory up to 1 MiB, in a temporary file if it is longer.

        Returns:
            A file at its start, for the caller to close; None if the upstream does not have the payload.

        Raises:
            UpstreamDamaged: The bytes do not have the multihash.
            TooLarge: The payload is longer than the upstream's limit.
        """
        self._require_open()
        received = _Received(raw_cid(multihash))
        path = payload_path(multihash)
        try:
            async with self._places:
                if not await self.upstream.download(path, received.restarted):
                    received.file.close()
                    return None
            if not received.is_whole():
                raise self._damaged(path, f"the bytes do not have the multihash {multihash.hex()}")
        except BaseException:
            received.file.close()
            raise
        received.file.seek(0)
        return received.file

    async def payload_batch(self, multihashes: Sequence[bytes], max_bytes: int) -> list[bytes | None]:
        """Read and check payloads by one request to a gateway. O(bytes), all of them in memory.

        Returns:
            The payloads; None for those that the gateway has left out, because it does not hold them or they are
            damaged: `open_payload` says which.

        Raises:
            UpstreamDamaged: The answer is malformed, or a payload does not have its multihash.
            TooLarge: The answer is longer than `max_bytes`.
        """
        self._require_open()
        async with self._places:
            answer = await self.upstream.payloads(multihashes, max_bytes)
        return await asyncio.to_thread(self._payloads_of, answer, multihashes)

    # --- the store as a whole -----------------------------------------------------------------------------------------

    async def healthy(self) -> bool:
        return not self._is_closed

    async def obstacles(self) -> list[str]:
        return ["the store is closed" if self._is_closed else f"{self.upstream.url} is only read"]

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            await self.upstream.aclose()

    # --- pages and roots ----------------------------------------------------------------------------------------------

    async def _pages(self, digests: Sequence[bytes]) -> list[bytes | None]:
        await asyncio.sleep(0)  # a request for their root may begin in this iteration of the event loop
        distinct = dict.fromkeys(digests)
        missing = [digest for digest in distinct if digest not in self._tops and digest not in self._asked]
        found: dict[bytes, bytes | None] = {}
        if self.upstream.has_batches and len(missing) >= _MIN_BATCH_PAGES:
            starts = range(0, len(missing), _BATCH_PAGES)
            parts = await _results(self._batch, [missing[at : at + _BATCH_PAGES] for at in starts])
            for part in parts:
                found |= part
        rest = [digest for digest in distinct if digest not in found]
        found |= zip(rest, await _results(self._page, rest), strict=True)
        return [found[digest] for digest in digests]

    async def _page(self, digest: bytes) -> bytes | None:
        if (asked := self._asked.get(digest)) is not None:
            with suppress(UpstreamDamaged, _Cancelled):  # the page may still be had on its own
                await result_of(asked)
        if (top := self._tops.pop(digest, None)) is not None:
            return top
        path = page_path(digest)
        page = await self._bounded(path)
        if page is not None and are_pages([(digest, page)]) != [True]:
            raise self._damaged(path, "the bytes are not the page with this digest")
        return page

    async def _batch(self, digests: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """Request pages together. What the answer leaves out, or has wrong, is not in the result."""
        limit = (len(digests) + 1) * (MAX_PAGE_BYTES + _BLOCK_HEAD_BYTES)
        async with self._places:
            answer = await self.upstream.pages(digests, limit)
        try:
            pages = blocks_of(answer)
        except ValueError as error:
            raise self._damaged("/v1/pages/car", f"the answer is malformed: {error}") from None
        found: dict[bytes, bytes | None] = {}
        pairs = list(zip(digests, pages, strict=False))
        if len(pages) == len(digests) and all(await self._are_pages(pairs)):
            found.update(pairs)
            return found
        remaining = iter(pages)
        page = next(remaining, None)
        for digest in digests:  # those that are left out are skipped
            if page is not None and are_pages([(digest, page)]) == [True]:
                found[digest] = page
                page = next(remaining, None)
        return found

    async def _are_pages(self, pairs: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        if len(pairs) <= _THREAD_PAGES:
            return are_pages(pairs)
        return await asyncio.to_thread(are_pages, pairs)

    async def _root(self, root: bytes) -> bytes | None:
        """Ask for a root, and keep its page until it is read. Concurrent calls share a request, and how it ends."""
        while (asked := self._asked_roots.get(root)) is not None:
            with suppress(_Cancelled):
                return await result_of(asked)
        digest = root[-32:]
        future = self._asked[digest] = self._asked_roots[root] = asyncio.get_running_loop().create_future()
        try:
            page = await self._bounded(path := root_path(root))
            if page is not None:
                if not is_root_page(root, page):
                    raise self._damaged(path, "the bytes are not the page of this root")
                self._tops[digest] = page
                if len(self._tops) > _TOPS:
                    self._tops.popitem(last=False)
            future.set_result(page)
        except Exception as error:
            future.set_exception(error)
            raise
        finally:
            if self._asked.get(digest) is future:  # another kind of tree may have the same top node
                del self._asked[digest]
            del self._asked_roots[root]
            if not future.done():
                future.set_exception(_Cancelled())
            future.exception()  # retrieved, or asyncio would log it if nobody waits
            del future  # the exception refers to this frame: as a cycle, they would keep what the call used
        return page

    async def _bounded(self, path: str) -> bytes | None:
        """Request a page."""
        try:
            async with self._places:
                return await self.upstream.get(path, MAX_PAGE_BYTES)
        except TooLarge:
            raise self._damaged(path, f"the answer is longer than {MAX_PAGE_BYTES:,} bytes, as no page is") from None

    def _payloads_of(self, answer: bytes, multihashes: Sequence[bytes]) -> list[bytes | None]:
        try:
            payloads = named_blocks_of(answer, [bytes(raw_cid(multihash)) for multihash in multihashes])
        except ValueError as error:
            raise self._damaged("/v1/cas/car", f"the answer is malformed: {error}") from None
        for multihash, payload in zip(multihashes, payloads, strict=True):
            if payload is not None and not _core.payload_matches(raw_cid(multihash), payload):
                raise self._damaged("/v1/cas/car", f"a payload does not have the multihash {multihash.hex()}")
        return payloads

    async def _small_payload(self, multihash: bytes) -> bytes | None:
        file = await self.open_payload(multihash)
        return None if file is None else whole_of(file, multihash)

    def _damaged(self, path: str, why: str) -> UpstreamDamaged:
        return UpstreamDamaged(f"{self.upstream.url}{path}: {why}; nothing of it is used")

    def _require_open(self) -> None:
        if self._is_closed:
            raise Unavailable("the store is closed")

    def _refuse(self) -> NoReturn:
        self._require_open()
        raise InvalidInput(f"{self.upstream.url} is only read: nothing can be stored here", code="read_only")


class _Received:
    """A payload as it arrives: hashed, and spooled."""

    def __init__(self, cid: _core.Cid) -> None:
        self._cid = cid
        self._check = _core.PayloadCheck(cid)
        # Closed by whoever the payload is given to.
        self.file: IO[bytes] = SpooledTemporaryFile(max_size=CHUNK_BYTES, prefix="coregw-")  # noqa: SIM115

    def restarted(self) -> _Received:
        """Forget what an earlier attempt has received."""
        self.file.seek(0)
        self.file.truncate()
        self._check = _core.PayloadCheck(self._cid)
        return self

    def write(self, chunk: bytes) -> None:
        self._check.update(chunk)
        self.file.write(chunk)

    def is_whole(self) -> bool:
        """Whether what has arrived has the digest."""
        return self._check.matches()
