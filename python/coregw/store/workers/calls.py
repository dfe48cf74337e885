"""The calls between a worker process and the owner process: their messages, argument types and errors.

The calls are methods of `Store` and of `PayloadCalls`; their types are read from the annotations there. Payloads need
calls of their own, since an upload or a download takes many messages.
"""

from __future__ import annotations

from collections.abc import Callable
from types import GenericAlias
from typing import Any, Final, NamedTuple, Protocol, get_type_hints

import msgspec

import coregw.errors
from coregw.errors import CoregwError
from coregw.store.protocol import Store

__all__ = [
    "CALLS",
    "PAYLOAD_CALLS",
    "REQUEST",
    "RESPONSE",
    "WORKER_CALLS",
    "Failure",
    "PayloadCalls",
    "Request",
    "Response",
    "WorkerCalls",
]


class PayloadCalls(Protocol):
    """Uploads and downloads, in messages of about `coregw.store.CHUNK_BYTES` at most."""

    async def read_piece(self, multihash: bytes, start: int, end: int | None) -> bytes:
        """Read the bytes from `start` to the next chunk boundary, `end` or the payload's end, whichever comes first.

        Raises:
            PayloadNotFound, StoreDamaged: As `Store.read_payload`.
        """

    async def write_chunk(self, upload: int, chunk: bytes) -> None:
        """Append to an upload, which begins with its first chunk. The caller awaits each call before the next.

        Args:
            upload: A number that the caller uses for no other upload.
            chunk: The bytes.
        """

    async def commit_payload(self, upload: int, last: bytes, multihash: bytes) -> bool:
        """Append the last bytes and commit the upload, which ends whether or not that succeeds."""

    async def abort_payload(self, upload: int) -> None:
        """End an upload without a payload."""


class WorkerCalls(Protocol):
    """What a worker tells the owner about itself."""

    async def report(self, report: bytes) -> None:
        """Replace the worker's report, which the store does not interpret."""


class CallCodec(NamedTuple):
    """Decoders of a call's arguments and result."""

    arguments: msgspec.msgpack.Decoder[tuple[Any, ...]]
    result: msgspec.msgpack.Decoder[Any]


class Request(msgspec.Struct, array_like=True, frozen=True):
    """A call by a worker. `number` identifies its `Response`."""

    number: int
    name: str
    arguments: msgspec.Raw


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """An exception of `coregw.errors`."""

    kind: str
    message: str
    code: str
    details: bytes | None

    @classmethod
    def of(cls, error: CoregwError) -> Failure:
        """Describe an exception by its most specific public class."""
        known = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in coregw.errors.__all__)
        return cls(known, error.message, error.code, error.details)

    def error(self) -> CoregwError:
        """Make the exception again."""
        kind: type[CoregwError] = getattr(coregw.errors, self.kind)
        return kind(self.message, code=self.code, details=self.details)


class Response(msgspec.Struct, array_like=True, frozen=True):
    """The owner's response to a `Request`: a failure, or a result; and its `Store.expiries`."""

    number: int
    failure: Failure | None
    result: msgspec.Raw
    expiries: int


def _call(function: Callable[..., Any]) -> CallCodec:
    hints = get_type_hints(function)
    result = hints.pop("return")
    arguments: Any = GenericAlias(tuple, tuple(hints.values()))
    return CallCodec(msgspec.msgpack.Decoder(arguments), msgspec.msgpack.Decoder(result))


_STORE_CALLS: Final[dict[str, CallCodec]] = {
    name: _call(getattr(Store, name))
    for name in (
        "get",
        "put",
        "compare_and_set",
        "list_rows",
        "delete",
        "renew",
        "put_payloads",
        "stat_payloads",
        "healthy",
        "obstacles",
    )
}

PAYLOAD_CALLS: Final[dict[str, CallCodec]] = {
    name: _call(getattr(PayloadCalls, name))
    for name in ("read_piece", "write_chunk", "commit_payload", "abort_payload")
}
"""The calls that are methods of `PayloadCalls`."""

WORKER_CALLS: Final[dict[str, CallCodec]] = {"report": _call(WorkerCalls.report)}
"""The calls that are methods of `WorkerCalls`."""

CALLS: Final = _STORE_CALLS | PAYLOAD_CALLS | WORKER_CALLS
"""All calls; the others are methods of `Store`."""

REQUEST: Final = msgspec.msgpack.Decoder(Request)
RESPONSE: Final = msgspec.msgpack.Decoder(Response)
