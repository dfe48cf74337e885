"""One HTTP exchange as values: the call, its attempts, the answer or the error."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, Self, TypeVar

import msgspec
from msgspec.structs import replace

from coregw.client.settings import ClientSettings
from coregw.errors import ERROR_CODES, CoregwError, ProofError, StorageFull, TooLarge, Unavailable
from coregw.text import printable
from coregw.undecodable import UNDECODABLE

__all__ = [
    "NO_DOCUMENT",
    "OCTETS",
    "Answer",
    "Attempt",
    "Body",
    "Call",
    "Divided",
    "Memory",
    "PartialAnswer",
    "SentOnce",
    "Sink",
    "Traffic",
    "decode",
    "error_from",
    "is_retryable",
    "unproven",
]

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


class PartialAnswer(Sink, Protocol):
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


class Traffic:
    """Counts of the exchanges of some calls, each attempt of them. For the tasks of one event loop.

    Attributes:
        requests: The number of requests.
        sent: The number of bytes of their bodies.
        received: The number of bytes of the bodies of successful answers.
        on_sent: Called with further numbers of bytes that are sent.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.sent = 0
        self.received = 0
        self.on_sent: Callable[[int], None] = lambda count: None

    def count_sent(self, size: int) -> None:
        """Count bytes of a body."""
        self.sent += size
        self.on_sent(size)


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
        traffic: Where its exchanges are counted, if anywhere.
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
    partial: PartialAnswer | None = None
    divided: Divided | None = None
    may_be_absent: bool = False
    token: str | None = None
    traffic: Traffic | None = None

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
        if self.divided is None:
            return self
        rest = self.divided.rest(error)
        return rest if rest is None or self.traffic is None else replace(rest, traffic=self.traffic)

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
    """A `PartialAnswer` that keeps the body in memory. Short chunks are joined: each would take an object."""

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


NO_DOCUMENT: Final = "without an error document"
"""In the message of every error that is no gateway's answer, but perhaps that of a proxy."""

_MAX_NUMBER_BYTES: Final = 20
"""Longest body that is a number: the size of a log, as witnesses answer it."""

_T = TypeVar("_T")

# The codes for answers without a known one, such as those of proxies. All other statuses are "internal".
_CODE_BY_STATUS: Mapping[int, str] = {
    401: "unauthorized",
    403: "unauthorized",
    404: "route_not_found",
    407: "unauthorized",
    409: "invalid_change",
    413: "too_large",
    429: "unavailable",
    502: "unavailable",
    503: "unavailable",
    504: "unavailable",
    507: "storage_full",
}


class _ErrorBody(msgspec.Struct):
    """``{error, message, details?}``; decoded leniently, since proxies answer too."""

    error: str
    message: str
    details: msgspec.Raw = msgspec.Raw()


def error_from(call: Call, status: int, body: bytes) -> CoregwError:
    """Return the exception for an error answer: by its code if that is known, else by its status.

    Args:
        call: The call, for the message.
        status: The HTTP status, not a success.
        body: The whole body.
    """
    fallback = _CODE_BY_STATUS.get(status, "internal")
    try:
        problem = msgspec.json.decode(body, type=_ErrorBody)
    except UNDECODABLE:
        number = body.strip() if len(body) <= _MAX_NUMBER_BYTES and body.strip().isdigit() else None
        why = f"the gateway answered {status} {NO_DOCUMENT}: it may be another server, or a proxy"
        return _exception(call, why, fallback, number)
    code = problem.error if problem.error in ERROR_CODES else fallback
    if code == "path_not_found" and not call.may_be_absent:
        return unproven(call.what)
    details = bytes(problem.details) if problem.details else None
    return _exception(call, f"{printable(problem.message)} ({code})", code, details)


def unproven(what: str) -> ProofError:
    """Return the exception for a claimed absence that the protocol requires a proof of."""
    return ProofError(f"{what}: an absence without a proof", check="absence")


def _exception(call: Call, why: str, code: str, details: bytes | None) -> CoregwError:
    error = ERROR_CODES[code].exception(f"{call.what}: {why}", code=code, details=details)
    error.path = call.path
    return error


def is_retryable(error: BaseException) -> bool:
    """Return whether the same request may succeed shortly after. A full store will still be full."""
    return isinstance(error, Unavailable) and not isinstance(error, StorageFull)


def decode(call: Call, answer: Answer, kind: type[_T]) -> _T:
    """Return the answer's body as a `kind`.

    Raises:
        ProofError: The body is not a valid `kind`, so nothing in it may be trusted.
    """
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except UNDECODABLE as error:
        why = printable(str(error), 120)
        raise ProofError(f"{call.what}: the answer is not a valid {kind.__name__}: {why}", check="answer") from None


_MAX_DIGITS: Final = 20
"""A number of more digits is above every limit; Python refuses to read one of more than 4,300."""


class Attempt:
    """One attempt at a call: its body as it is sent, and its answer, bounded in bytes and in time.

    The driver sends the call, and calls `sent` for each chunk of a streamed body and at its end, then `start`, `feed`
    for each chunk of the answer, and `end`.
    """

    def __init__(self, call: Call, settings: ClientSettings, gateway: str = "") -> None:
        """Start the clock.

        Args:
            call: The call.
            settings: The client's settings.
            gateway: The address of the gateway that is asked.

        Attributes:
            deadline: The value of `time.monotonic` at which the attempt is given up. Streamed chunks postpone it.
        """
        self._call = call
        self._settings = settings
        self._gateway = gateway
        self.deadline = time.monotonic() + settings.answer_seconds
        whole = call.content.data if isinstance(call.content, SentOnce) else call.content or b""
        self._is_sent = isinstance(whole, bytes)
        self._streamed = 0
        self._count = 0
        self._length: int | None = None
        if (traffic := call.traffic) is not None:
            traffic.requests += 1
            if isinstance(whole, bytes):
                traffic.count_sent(len(whole))

    def sent(self, chunk: bytes | None) -> None:
        """Take the next chunk of the call's streamed body, which is about to be sent, or None at its end."""
        if chunk is None:
            self._is_sent = True
            return
        self._allow_time_for(len(chunk))
        self._streamed += len(chunk)
        if self._call.traffic is not None:
            self._call.traffic.count_sent(len(chunk))

    @property
    def idle_seconds(self) -> float:
        """How long nothing may be sent or received.

        A gateway is silent between a streamed body and its answer while it works on all of it. That may take as long as
        sending it.
        """
        settings = self._settings
        if not self._is_sent or not self._streamed:
            return settings.idle_seconds
        return max(settings.idle_seconds, self._streamed / settings.stream_bytes_per_second)

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the status and headers of the answer.

        Raises:
            ProofError: The answer is compressed, though the request forbids it; or it is a success, though the gateway
                did not wait for the whole body: what it stored is not what was to be sent; or it is not the rest that
                was requested.
            TooLarge: Its content length exceeds the limit.
        """
        call = self._call
        self._status = status
        self._retry_after = headers.get("retry-after", "")
        self._media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        self._success = 200 <= status < 300
        self._limit = call.max_bytes if self._success else self._settings.max_result_bytes
        if self._success and not self._is_sent:
            raise ProofError(f"{call.what}: the gateway answered before everything was sent", check="answer")
        self._sink = self._destination(headers) if self._success else Memory()
        if headers.get("content-encoding", "identity") != "identity":
            raise ProofError(f"{call.what}: the answer is compressed, which the request forbids", check="answer")
        declared = headers.get("content-length", "")
        if declared.isascii() and declared.isdigit():
            digits = declared.lstrip("0") or "0"
            if len(digits) > _MAX_DIGITS or int(digits) > self._limit:
                raise self._too_large()
            self._length = int(digits)

    def feed(self, *chunks: bytes) -> None:
        """Take the next chunks of the body.

        Raises:
            TooLarge: The answer exceeds its limit in bytes.
        """
        size = sum(map(len, chunks))
        self._count += size
        if self._count > self._limit:
            raise self._too_large()
        if self._call.sink is not None:
            self._allow_time_for(size)
        if self._call.traffic is not None and self._success:
            self._call.traffic.received += size
        if len(chunks) == 1:
            self._sink.write(chunks[0])
        elif (writelines := getattr(self._sink, "writelines", None)) is not None:
            writelines(chunks)
        else:
            self._sink.write(b"".join(chunks))

    def end(self) -> Answer:
        """Return the complete answer. Raises the exception of an error code, or `Unavailable` if a part has no rest."""
        body = self._sink.value() if isinstance(self._sink, Memory) else b""
        if self._success:
            return Answer(self._status, body, self._length, self._gateway, self._media_type)
        partial = self._call.partial
        if self._status == 416 and partial is not None and partial.size:  # what was received may be too long
            partial.restarted()
            raise Unavailable(f"{self._call.what}: the gateway does not continue its answer")
        error = error_from(self._call, self._status, body)
        if isinstance(error, Unavailable):
            error.retry_after = _delay(self._retry_after)
        raise error

    def _destination(self, headers: Mapping[str, str]) -> Sink:
        """Return where a successful answer goes, after what it continues."""
        call, partial = self._call, self._call.partial
        if partial is None:
            return call.sink() if call.sink is not None else Memory()
        if self._status == 206 and (received := partial.size):
            if not headers.get("content-range", "").startswith(f"bytes {received}-"):
                raise ProofError(f"{call.what}: the answer is not what follows byte {received}", check="answer")
            self._limit -= received
            partial.senders.add(self._gateway)
            return partial
        partial.senders = {self._gateway}
        return partial.restarted()

    def overdue(self) -> Unavailable:
        """Return the exception to raise after the deadline."""
        seconds = self._settings.answer_seconds
        return Unavailable(f"{self._call.what}: the exchange took longer than {seconds:g} s")

    def _allow_time_for(self, size: int) -> None:
        self.deadline += size / self._settings.stream_bytes_per_second

    def _too_large(self) -> TooLarge:
        return TooLarge(f"{self._call.what}: the answer is longer than {self._limit} bytes")


def _delay(retry_after: str) -> float | None:
    """Return the seconds that a ``Retry-After`` asks to wait, None without a valid one (RFC 9110, section 10.2.3)."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after[:9])
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
