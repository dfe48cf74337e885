"""A static tree in a bucket of any S3 server: objects that appear whole, with the headers that caches need.

An object is acknowledged before any that leads to it is sent, and is whole and durable then. So an export that was
interrupted leaves no gaps, and nothing has to say that one is running. Exports may run side by side, since what they
write never differs; only one should publish a name at a time, as S3 servers have no compare-and-set in common.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import IO, Final, Self

from coregw.client.static.tree import EXPLORER_TYPES, MAX_SMALL_BYTES, NO_PAYLOADS, TreeState
from coregw.concurrency import for_each
from coregw.store.buckets import Bucket, first_bytes, next_names

__all__ = ["StaticBucket"]

_AT_ONCE: Final = 32
_LISTED_AT_ONCE: Final = 1000
"""The number of names in one answer of an S3 server."""

_PART_BYTES: Final = 8 << 20
_PARTS_AT_ONCE: Final = 4
_IMMUTABLE: Final = {
    "Content-Type": "application/octet-stream",
    "Cache-Control": "public, max-age=31536000, immutable",
}
_CHANGING: Final = {"Content-Type": "application/json", "Cache-Control": "public, max-age=60"}


class StaticBucket:
    """Implements `coregw.client.static.tree.StaticTree` in a bucket.

    Where a folder has fewer than 1,000 names when the export begins, one request lists them all, and none is made to
    see whether an object is there. So a first export costs no lookups, and the next one a lookup for each page and
    payload that a new page leads to.

    Args:
        url: The address of the bucket (`coregw.store.addresses.BucketAddress`).
        payloads: Whether the export writes payloads.

    Raises:
        InvalidInput: The address is malformed.
    """

    may_be_torn: bool = False
    at_once: int = _AT_ONCE

    def __init__(self, url: str, *, payloads: bool = True) -> None:
        self._bucket = Bucket(url)
        self._objects = self._bucket.objects
        prefix = self._bucket.address.prefix
        self.place = f"s3://{self._bucket.address.bucket}{prefix and '/'}{prefix}"
        self.payloads = payloads
        self.may_have_gaps = False
        self._known: dict[str, set[str]] = {}
        """The paths below each folder of which all are known."""

    async def __aenter__(self) -> Self:
        for folder in ("v1/pages", "v1/roots", "v1/cas"):
            found, has_more = await self._first(folder)
            if not has_more:
                self._known[folder] = {f"/{folder}/{name}" for name in found}
        self.may_have_gaps = self.payloads and await self._size(NO_PAYLOADS) is not None
        if not self.payloads:
            await self.put([(f"/{NO_PAYLOADS}", b"")])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See `StaticTree.__aexit__`. Nothing says that an export runs, so nothing has to be removed."""

    async def state(self) -> TreeState:
        """See `StaticTree.state`."""
        pages, _ = await self._first("v1/pages")
        return TreeState(bool(pages), is_unfinished=False, has_payloads=await self._size(NO_PAYLOADS) is None)

    async def missing(self, paths: Sequence[str]) -> list[str]:
        """See `StaticTree.missing`."""
        absent = {path for path in paths if not self._may_be_there(path)}

        async def look_up(path: str) -> None:
            if await self._size(path[1:]) is None:
                absent.add(path)

        unknown = [path for path in paths if path not in absent and _folder(path) not in self._known]
        await for_each(unknown, look_up, _AT_ONCE)
        return [path for path in paths if path in absent]

    async def read(self, paths: Sequence[str]) -> list[bytes | None]:
        """See `StaticTree.read`."""
        found: dict[str, bytes] = {}

        async def get(path: str) -> None:
            with suppress(FileNotFoundError):
                found[path] = await self._bucket.call(
                    lambda: first_bytes(self._objects.get(path[1:]), MAX_SMALL_BYTES + 1)
                )

        await for_each(paths, get, _AT_ONCE)
        return [found.get(path) for path in paths]

    async def chunks(self, path: str) -> AsyncIterator[bytes]:
        """See `StaticTree.chunks`. Of a long object in ranges: a request for all of it would exceed the timeout."""
        answer = await self._bucket.call(lambda: self._objects.get(path[1:]))
        size = answer.meta["size"]
        if size <= _PART_BYTES:
            yield await self._bucket.call(lambda: bytes(answer.bytes()))
            return
        for start in range(0, size, _PART_BYTES):
            read = partial(self._objects.get_range, path[1:], start=start, end=min(start + _PART_BYTES, size))
            yield bytes(await self._bucket.call(read))

    async def listed(self, folder: str) -> list[str]:
        """See `StaticTree.listed`."""
        found: list[str] = []
        listing = self._objects.list(f"{folder}/", chunk_size=_LISTED_AT_ONCE)
        while batch := await self._bucket.call(partial(next_names, listing)):
            found += [each["path"].removeprefix(f"{folder}/") for each in batch]
        return sorted(found)

    async def put(self, objects: Sequence[tuple[str, bytes]], *, is_durable: bool = False) -> None:
        """See `StaticTree.put`. What an S3 server has acknowledged is durable."""

        async def put(each: tuple[str, bytes]) -> None:
            path, content = each
            call = partial(self._objects.put, path[1:], content, attributes=_headers_of(path), use_multipart=False)
            await self._bucket.call(call)
            self._note(path)

        await for_each(objects, put, _AT_ONCE)

    async def put_file(self, path: str, file: IO[bytes]) -> int:
        """See `StaticTree.put_file`. A long file is a multipart upload, which becomes an object at its end."""
        size = file.seek(0, 2)
        file.seek(0)
        if size <= _PART_BYTES:
            await self.put([(path, file.read())])
            return size
        is_stopped = threading.Event()
        call = partial(
            self._objects.put,
            path[1:],
            _parts(file, is_stopped),
            attributes=_IMMUTABLE,
            chunk_size=_PART_BYTES,
            max_concurrency=_PARTS_AT_ONCE,
        )
        await self._bucket.call(call, is_stopped.set)
        self._note(path)
        return size

    async def settle(self) -> None:
        """See `StaticTree.settle`. Everything is durable already."""

    def _note(self, path: str) -> None:
        if (known := self._known.get(_folder(path))) is not None:
            known.add(path)

    def _may_be_there(self, path: str) -> bool:
        known = self._known.get(_folder(path))
        return known is None or path in known

    async def _first(self, folder: str) -> tuple[list[str], bool]:
        """Return the first names in a folder, and whether there may be more."""
        listing = self._objects.list(f"{folder}/", chunk_size=_LISTED_AT_ONCE)
        batch = await self._bucket.call(partial(next_names, listing))
        return [each["path"].removeprefix(f"{folder}/") for each in batch], len(batch) >= _LISTED_AT_ONCE

    async def _size(self, path: str) -> int | None:
        try:
            return (await self._bucket.call(lambda: self._objects.head(path)))["size"]
        except FileNotFoundError:
            return None


def _folder(path: str) -> str:
    return path[1:].rpartition("/")[0]


def _parts(file: IO[bytes], is_stopped: threading.Event) -> Iterator[bytes]:
    while chunk := file.read(_PART_BYTES):
        if is_stopped.is_set():
            raise InterruptedError
        yield chunk


def _headers_of(path: str) -> dict[str, str]:
    """Return the headers with which a web server sends a small file of a static tree."""
    if path in EXPLORER_TYPES:
        return {"Content-Type": EXPLORER_TYPES[path], "Cache-Control": "no-cache"}
    return _IMMUTABLE if path.startswith("/v1/") else _CHANGING
