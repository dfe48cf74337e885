"""What one process may ask of a store that another one has open: the calls, their types, and errors as values.

The calls that `Store` has take and give what the protocol's annotations say, which are read here, so that they are
written once. Payloads have calls of their own, since an upload and a download are many messages.
"""

from __future__ import annotations

from collections.abc import Callable
from types import GenericAlias
from typing import Any, Final, NamedTuple, Protocol, get_type_hints

import msgspec

import coregw.errors
from coregw.errors import CoregwError
from coregw.store import Store


class PayloadCalls(Protocol):
    """The payload part of a `Store`, in messages of at most about `coregw.store.CHUNK_BYTES`."""

    async def read_piece(self, multihash: bytes, start: int, end: int | None) -> bytes:
        """The bytes from `start` to at most `end`, up to the next border between chunks; none past the payload's end.

        Raises:
            PayloadNotFound, StoreDamaged: As `Store.read_payload`.
        """

    async def write_chunk(self, upload: int, chunk: bytes) -> None:
        """Appends to an upload, which begins with its first chunk. The caller waits for one before it sends the next.

        Args:
            upload: A number that the caller uses for no other upload.
            chunk: The bytes.
        """

    async def commit_payload(self, upload: int, last: bytes, multihash: bytes) -> bool:
        """Appends the last bytes, makes it a payload, and ends the upload whatever comes of it."""

    async def abort_payload(self, upload: int) -> None:
        """Ends an upload without a payload."""


class Call(NamedTuple):
    """How the arguments and the result of a call are read."""

    arguments: msgspec.msgpack.Decoder[tuple[Any, ...]]
    result: msgspec.msgpack.Decoder[Any]


class Question(msgspec.Struct, array_like=True, frozen=True):
    """A call under way."""

    number: int
    name: str
    arguments: msgspec.Raw


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """An error of `coregw.errors`."""

    kind: str
    message: str
    code: str
    details: bytes | None

    @classmethod
    def of(cls, error: CoregwError) -> Failure:
        known = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in coregw.errors.__all__)
        return cls(known, error.message, error.code, error.details)

    def error(self) -> CoregwError:
        kind: type[CoregwError] = getattr(coregw.errors, self.kind)
        return kind(self.message, code=self.code, details=self.details)


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """The answer to a `Question`: a failure, or else the result."""

    number: int
    failure: Failure | None
    result: msgspec.Raw


def _call(function: Callable[..., Any]) -> Call:
    hints = get_type_hints(function)
    result = hints.pop("return")
    arguments: Any = GenericAlias(tuple, tuple(hints.values()))
    return Call(msgspec.msgpack.Decoder(arguments), msgspec.msgpack.Decoder(result))


STORE_CALLS: Final[dict[str, Call]] = {
    name: _call(getattr(Store, name))
    for name in (
        "get_pages",
        "put_pages",
        "has_roots",
        "put_roots",
        "put_payload",
        "stat_payload",
        "has_payloads",
        "get_record",
        "publish",
        "freeze",
        "list_records",
        "history",
        "put_plant",
        "get_plant",
        "healthy",
    )
}
"""The calls that are methods of `Store`."""

PAYLOAD_CALLS: Final[dict[str, Call]] = {
    name: _call(getattr(PayloadCalls, name))
    for name in ("read_piece", "write_chunk", "commit_payload", "abort_payload")
}
"""The calls that are methods of `PayloadCalls`."""

CALLS: Final = STORE_CALLS | PAYLOAD_CALLS
QUESTION: Final = msgspec.msgpack.Decoder(Question)
OUTCOME: Final = msgspec.msgpack.Decoder(Outcome)
