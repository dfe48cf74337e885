"""Buckets of S3 servers, by the library obstore: one way to open them, and to say what failed.

Needs the extra ``s3``. Nothing here depends on conditional PUT, in which S3 servers differ silently.

The blocking functions of obstore are called in threads. Its asynchronous ones return from threads of Rust that still
have to attach to the interpreter for a moment afterwards: in one of three processes that ended right after a call, this
met the end of the interpreter, and aborted the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final, TypeVar

from coregw.concurrency import finish
from coregw.errors import Unavailable
from coregw.extras import missing_extra
from coregw.store.addresses import BucketAddress, masked

try:
    from obstore.exceptions import BaseError, NotFoundError
    from obstore.store import S3Store
except ModuleNotFoundError as error:
    raise missing_extra(error, "a bucket", "s3") from error

__all__ = ["Bucket", "first_bytes", "next_names"]

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
