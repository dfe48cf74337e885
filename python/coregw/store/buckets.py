"""Buckets of S3 servers, by the library obstore: one way to open them and to say what failed, and chunks in one.

Needs the extra ``s3``. Nothing here depends on conditional PUT, in which S3 servers differ silently.

The blocking functions of obstore are called in threads. Its asynchronous ones return from threads of Rust that still
have to attach to the interpreter for a moment afterwards: in one of three processes that ended right after a call, this
met the end of the interpreter, and aborted the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from coregw.concurrency import finish
from coregw.errors import Unavailable
from coregw.extras import missing_extra
from coregw.store.addresses import BucketAddress, masked

try:
    from obstore.exceptions import BaseError, NotFoundError
    from obstore.store import S3Store
except ModuleNotFoundError as error:
    raise missing_extra(error, "a bucket", "s3") from error

__all__ = ["Bucket", "BucketChunks", "first_bytes", "next_names"]

T = TypeVar("T")

_CALLS_AT_ONCE: Final = 32
_CONNECT_SECONDS: Final = "5s"
_REQUEST_SECONDS: Final = "30s"
_RETRY_SECONDS: Final = 10


class Bucket:
    """A bucket, or what is below a prefix in one.

    Args:
        url: Its address (`BucketAddress`). Credentials come from ``AWS_ACCESS_KEY_ID`` and the other variables of AWS.

    Attributes:
        address: The parsed address.
        objects: The objects, for `call` with obstore's methods; their paths are relative to the prefix.

    Raises:
        InvalidInput: The address is malformed.
    """

    def __init__(self, url: str) -> None:
        self.address = BucketAddress.parse(url)
        options: dict[str, Any] = {"virtual_hosted_style_request": self.address.virtual_hosted}
        if self.address.endpoint is not None:
            options["endpoint"] = self.address.endpoint
            options.setdefault("region", "us-east-1")
        if self.address.region is not None:
            options["region"] = self.address.region
        self.objects: Final = S3Store(
            self.address.bucket,
            prefix=self.address.prefix or None,
            client_options={
                "allow_http": (self.address.endpoint or "").startswith("http://"),
                "connect_timeout": _CONNECT_SECONDS,
                "timeout": _REQUEST_SECONDS,
            },
            retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
            **options,
        )
        self._threads = ThreadPoolExecutor(_CALLS_AT_ONCE, "bucket")  # its threads end with this object

    async def call(self, work: Callable[[], T], stop: Callable[[], object] = lambda: None) -> T:
        """Call blocking methods of `objects` in a thread. A call that is cancelled is waited for.

        Args:
            work: What calls them.
            stop: Called when this is cancelled, so that long work may end soon.

        Raises:
            FileNotFoundError: The object does not exist.
            Unavailable: The bucket does not exist, does not answer, or refuses the credentials.
        """
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await finish(future, stop)
        except (FileNotFoundError, NotFoundError) as error:
            raise FileNotFoundError(str(error)) from error
        except (BaseError, OSError) as error:
            reason = str(error).partition("\n")[0]
            if (endpoint := self.address.endpoint) is not None:
                reason = reason.replace(endpoint, masked(endpoint))
            raise Unavailable(f"the bucket {self.address.bucket} failed: {reason[:300]}") from error


def first_bytes(answer: Any, limit: int) -> bytes:  # noqa: ANN401 - obstore's result of a GET
    """Return the body of an answer, at most this many bytes of it. Blocks."""
    content = b""
    for chunk in answer.stream(min_chunk_size=limit):
        content += bytes(memoryview(chunk)[: limit - len(content)])
        if len(content) >= limit:
            break
    return content


def next_names(listed: Iterator[Any]) -> Sequence[Any]:
    """Return the next objects of a listing, none at its end. Blocks."""
    try:
        found: Sequence[Any] = next(listed)  # the stream does not support a default
    except StopIteration:
        return []
    return found


_DELETED_AT_ONCE: Final = 1000
_CLAIM: Final = "coregw-store.json"
"""The object that says whose the bucket is (`coregw.store.postgres.checks.identify`)."""


class BucketChunks:
    """Chunks of uploads in objects ``PREFIX/chunks/UPLOAD/NUMBER`` (`coregw.store.postgres.payloads.Chunks`).

    A chunk is written once, under the random name of its upload, and never replaced. So nothing depends on what a
    server does with two writers of one name. Which chunks belong to a payload is decided in the database.

    Args:
        url: The address of the bucket.

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
