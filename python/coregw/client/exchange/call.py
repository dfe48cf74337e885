"""A call: one request, the limit on its answer, and where the answer's body goes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, Self

import msgspec

from coregw.errors import CoregwError

__all__ = ["OCTETS", "Answer", "Body", "Call", "Divided", "Memory", "Partial", "SentOnce", "Sink"]

OCTETS: Final = "application/octet-stream"
"""The media type of binary bodies."""

_SHORT_BYTES: Final = 4096
"""Chunks below this size are joined in memory. A gateway may send one byte at a time."""


class Answer(NamedTuple):
    """A successful answer.

    Attributes:
        status: Its HTTP status.
        body: Its body, empty if the body went to a sink.
        length: Its Content-Length, if any.
        gateway: The address of the gateway that sent it.
        media_type: Its media type in lower case, without parameters; empty if it names none.
    """

    status: int
    body: bytes
    length: int | None = None
    gateway: str = ""
    media_type: str = ""


class Sink(Protocol):
    """A destination for the body of a successful answer, instead of memory.

    It may have `writelines` as well, as files do: it gets several chunks then, which are joined for others.
    """

    def write(self, chunk: bytes) -> None:
        """Write the next chunk."""


class Partial(Sink, Protocol):
    """What attempts at a call have received of its answer, which the next attempt continues.

    Attributes:
        senders: The addresses of the gateways that sent it.
    """

    senders: set[str]

    @property
    def size(self) -> int:
        """Number of bytes received."""

    def restarted(self) -> Sink:
        """Discard them, and return where the answer starts over."""


class Divided(Protocol):
    """What is received or sent by several calls, each of which may bring a part of it."""

    @property
    def done(self) -> int:
        """Number of bytes that have been received or sent, and need not be again."""

    def rest(self, error: CoregwError) -> Call | None:
        """Return the call to make after one that failed with this error; None if nothing is left."""


class Body(Protocol):
    """A streamed request body; every attempt calls `chunks` again."""

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield the chunks of the body, in order."""


class SentOnce:
    """A body in memory that an attempt sends at most once.

    libcurl repeats others, up to five times, if a connection that it has kept is closed before the answer.

    Attributes:
        data: The bytes.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data


class Call(msgspec.Struct, frozen=True, eq=False):
    """One request, and the limit on its answer. A struct is made ten times as fast as a frozen dataclass.

    Attributes:
        method: The HTTP method: GET, HEAD or POST.
        path: The path below the gateway's address, already safe in a URL.
        max_bytes: The maximum size of a successful answer.
        what: The call in words, for messages.
        content: The whole body, a streamed body, or None.
        content_type: The body's media type.
        preferred_type: The media type that the answer should have, if the route has several; empty for the usual one. A
            gateway that does not know it sends another.
        params: Query parameters.
        may_be_absent: Whether the protocol defines a 404 ``path_not_found`` for the call.
        sink: Returns the destination of a successful answer; called once per attempt. None keeps it in memory.
        partial: What was received before an answer was truncated, if the route honours ``Range`` and its answers never
            change: the next attempt requests the rest.
        divided: What the call is a part of, if another call continues it after a failure.
        token: The bearer token that the route takes, if any.
    """

    method: str
    path: str
    max_bytes: int
    what: str
    content: bytes | Body | SentOnce | None = None
    content_type: str = "application/json"
    preferred_type: str = ""
    params: Mapping[str, str] = {}
    sink: Callable[[], Sink] | None = None
    partial: Partial | None = None
    divided: Divided | None = None
    may_be_absent: bool = False
    token: str | None = None

    def __repr__(self) -> str:
        """Return what is asked, without the token."""
        return f"Call({self.method} {self.path}: {self.what})"

    @property
    def done(self) -> int:
        """Number of bytes that the next attempt need not request or send."""
        if self.divided is not None:
            return self.divided.done
        return self.partial.size if self.partial is not None else 0

    def again(self, error: CoregwError) -> Call | None:
        """Return the call to make after this one has failed; None if nothing is left to do."""
        return self if self.divided is None else self.divided.rest(error)

    @property
    def headers(self) -> dict[str, str]:
        """The request headers. They forbid compression, so that limits on bytes are limits on memory."""
        accept = f"{self.preferred_type}, */*;q=0.5" if self.preferred_type else "*/*"
        headers = {"accept": accept, "accept-encoding": "identity"}
        if self.content is not None:
            headers["content-type"] = self.content_type
        if self.partial is not None and (received := self.partial.size):
            headers["range"] = f"bytes={received}-"
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        return headers


class Memory:
    """A `Partial` that keeps the body in memory. Short chunks are joined: each would take an object."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._short = bytearray()
        self.size = 0
        self.senders: set[str] = set()

    def restarted(self) -> Self:
        """Discard what an earlier attempt received."""
        self._chunks.clear()
        self._short.clear()
        self.size = 0
        return self

    def write(self, chunk: bytes) -> None:
        """Keep the next chunk."""
        self.size += len(chunk)
        if len(chunk) < _SHORT_BYTES:
            self._short += chunk
            if len(self._short) < _SHORT_BYTES:
                return
            chunk = b""
        self._end_short()
        if chunk:
            self._chunks.append(chunk)

    def writelines(self, chunks: Sequence[bytes]) -> None:
        """Keep the next chunks."""
        for chunk in chunks:
            self.write(chunk)

    def value(self) -> bytes:
        """Return the bytes received. O(bytes)."""
        self._end_short()
        return b"".join(self._chunks)

    def _end_short(self) -> None:
        if self._short:
            self._chunks.append(bytes(self._short))
            self._short.clear()
