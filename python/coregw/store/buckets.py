"""Buckets of S3 servers, by the library obstore: one way to open them, and to say what failed.

Needs the extra ``s3``. Nothing here depends on conditional PUT, in which S3 servers differ silently.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import Any, Final

from coregw.errors import Unavailable
from coregw.extras import missing_extra
from coregw.store.addresses import BucketAddress

try:
    from obstore.exceptions import BaseError, NotFoundError
    from obstore.store import S3Store
except ModuleNotFoundError as error:
    raise missing_extra(error, "a bucket", "s3") from error

__all__ = ["Bucket", "next_names"]

_CONNECT_SECONDS: Final = "5s"
_REQUEST_SECONDS: Final = "30s"
_RETRY_SECONDS: Final = 10


class Bucket:
    """A bucket, or what is below a prefix in one.

    Args:
        url: Its address (`BucketAddress`). Credentials come from ``AWS_ACCESS_KEY_ID`` and the other variables of AWS.

    Attributes:
        address: The parsed address.
        objects: The objects, for the functions of obstore; their paths are relative to the prefix.

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

    async def call(self, call: Awaitable[Any]) -> Any:  # noqa: ANN401 - what the call returns
        """Await a call of obstore.

        Raises:
            FileNotFoundError: The object does not exist.
            Unavailable: The bucket does not exist, does not answer, or refuses the credentials.
        """
        try:
            return await call
        except (FileNotFoundError, NotFoundError) as error:
            raise FileNotFoundError(str(error)) from error
        except (BaseError, OSError) as error:
            reason = str(error).partition("\n")[0][:300]
            raise Unavailable(f"the bucket {self.address.bucket} failed: {reason}") from error


async def next_names(listed: Any) -> Sequence[Any]:  # noqa: ANN401 - obstore's stream
    """Return the next objects of a listing, none at its end."""
    try:
        found: Sequence[Any] = await anext(aiter(listed))  # the stream does not support a default for anext
    except StopAsyncIteration:
        return []
    return found
