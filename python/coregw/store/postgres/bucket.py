"""Chunks of uploads in a bucket of any S3 server.

A chunk is written once, under the random name of its upload, and never replaced. So nothing depends on what a server
does with two writers of one name. Which chunks belong to a payload is decided in the database.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from coregw.errors import Unavailable
from coregw.extras import missing_extra
from coregw.store.postgres.address import BucketAddress

try:
    import obstore
    from obstore.exceptions import BaseError, NotFoundError
    from obstore.store import S3Store
except ModuleNotFoundError as error:
    raise missing_extra(error, "a bucket", "s3") from error

__all__ = ["BucketChunks"]

_CONNECT_SECONDS: Final = "5s"
_REQUEST_SECONDS: Final = "30s"
_RETRY_SECONDS: Final = 10
_DELETED_AT_ONCE: Final = 1000


class BucketChunks:
    """Chunks in objects ``PREFIX/chunks/UPLOAD/NUMBER`` of a bucket of any S3 server.

    Raises:
        InvalidInput: The address is malformed.
    """

    inline_bytes: Final = 64 << 10

    def __init__(self, url: str) -> None:
        address = BucketAddress.parse(url)
        options: dict[str, Any] = {"virtual_hosted_style_request": address.virtual_hosted}
        if address.endpoint is not None:
            options["endpoint"] = address.endpoint
            options.setdefault("region", "us-east-1")
        if address.region is not None:
            options["region"] = address.region
        self._name = address.bucket
        self._bucket = S3Store(
            address.bucket,
            prefix=address.prefix or None,
            client_options={
                "allow_http": (address.endpoint or "").startswith("http://"),
                "connect_timeout": _CONNECT_SECONDS,
                "timeout": _REQUEST_SECONDS,
            },
            retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
            **options,
        )

    async def put(self, upload: UUID, number: int, data: bytes) -> None:
        """See `Chunks.put`."""
        await self._call(obstore.put_async(self._bucket, _path(upload, number), data, use_multipart=False))

    async def get(self, upload: UUID, number: int, start: int, end: int) -> bytes | None:
        """See `Chunks.get`."""
        with suppress(FileNotFoundError):
            found = await self._call(obstore.get_range_async(self._bucket, _path(upload, number), start=start, end=end))
            return bytes(found)
        return None

    async def drop(self, upload: UUID) -> None:
        """See `Chunks.drop`."""
        listed = obstore.list(self._bucket, f"chunks/{upload.hex}/", chunk_size=_DELETED_AT_ONCE)
        while objects := await self._call(_next(listed)):
            paths = [each["path"] for each in objects]
            with suppress(FileNotFoundError):
                await self._call(obstore.delete_async(self._bucket, paths))

    async def check(self) -> None:
        """Check that the bucket can be reached.

        Raises:
            Unavailable: It does not exist, does not answer, or refuses the credentials.
        """
        await self._call(_next(obstore.list(self._bucket, "chunks/", chunk_size=1)))

    async def _call(self, call: Awaitable[Any]) -> Any:  # noqa: ANN401 - what the call returns
        try:
            return await call
        except (FileNotFoundError, NotFoundError) as error:
            raise FileNotFoundError(str(error)) from error
        except (BaseError, OSError) as error:
            reason = str(error).partition("\n")[0][:300]
            raise Unavailable(f"the bucket {self._name} failed: {reason}") from error


async def _next(listed: Any) -> Sequence[Any]:  # noqa: ANN401 - obstore's stream
    try:
        found: Sequence[Any] = await anext(aiter(listed))
    except StopAsyncIteration:
        return []
    return found


def _path(upload: UUID, number: int) -> str:
    return f"chunks/{upload.hex}/{number:08}"
