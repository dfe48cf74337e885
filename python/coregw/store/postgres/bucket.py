"""Chunks of uploads in a bucket of any S3 server.

A chunk is written once, under the random name of its upload, and never replaced. So nothing depends on what a server
does with two writers of one name. Which chunks belong to a payload is decided in the database.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final
from uuid import UUID

from coregw.store.buckets import Bucket, next_names

__all__ = ["BucketChunks"]

_DELETED_AT_ONCE: Final = 1000
_CLAIM: Final = "coregw-store.json"
"""The object that says whose the bucket is (`coregw.store.postgres.checks.identify`)."""


class BucketChunks:
    """Chunks in objects ``PREFIX/chunks/UPLOAD/NUMBER`` of a bucket of any S3 server.

    Raises:
        InvalidInput: The address is malformed.
    """

    inline_bytes: Final = 64 << 10

    def __init__(self, url: str) -> None:
        self._bucket = Bucket(url)
        self._objects = self._bucket.objects

    async def put(self, upload: UUID, number: int, data: bytes) -> None:
        """See `Chunks.put`."""
        await self._bucket.call(lambda: self._objects.put(_path(upload, number), data, use_multipart=False))

    async def get(self, upload: UUID, number: int, start: int, end: int) -> bytes | None:
        """See `Chunks.get`."""
        with suppress(FileNotFoundError):
            path = _path(upload, number)
            return await self._bucket.call(lambda: bytes(self._objects.get_range(path, start=start, end=end)))
        return None

    async def drop(self, upload: UUID) -> None:
        """See `Chunks.drop`."""
        listed = self._objects.list(f"chunks/{upload.hex}/", chunk_size=_DELETED_AT_ONCE)
        while objects := await self._bucket.call(partial(next_names, listed)):
            paths = [each["path"] for each in objects]
            with suppress(FileNotFoundError):
                await self._bucket.call(partial(self._objects.delete, paths))

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        address = self._bucket.address
        return f"s3://{address.bucket}{address.prefix and '/'}{address.prefix}"

    async def claim(self) -> str | None:
        """Read the claim to the bucket; None if nobody has claimed it.

        Raises:
            Unavailable: The bucket does not exist, does not answer, or refuses the credentials.
        """
        with suppress(FileNotFoundError):
            return await self._bucket.call(lambda: bytes(self._objects.get(_CLAIM).bytes()).decode("utf-8", "replace"))
        return None

    async def set_claim(self, claim: str) -> None:
        """Replace the claim to the bucket, durably. Raises as `claim`."""
        await self._bucket.call(lambda: self._objects.put(_CLAIM, claim.encode(), use_multipart=False))


def _path(upload: UUID, number: int) -> str:
    return f"chunks/{upload.hex}/{number:08}"
