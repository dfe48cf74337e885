"""One exchange with a gateway as values: the call, the bounded answer, and the error that a status stands for.

Sans-I/O: the clients in ``sync`` and ``aio`` move the bytes, this module decides. Leaves out what the answers mean
(``operations``). Whatever a gateway says is untrusted text: it is bounded, and made printable, before anybody sees it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from coregw import errors
from coregw.client.settings import ClientSettings
from coregw.errors import ERROR_CODES, CoregwError, ProofError, StorageFull, TooLarge, Unavailable

__all__ = ["Answer", "Body", "Call", "Receiver", "Sink", "decode", "error_from", "printable", "worth_retrying"]

_MAX_MESSAGE = 500
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_T = TypeVar("_T")

# For responses whose code is unknown or missing: a proxy's, for example.
_BY_STATUS: Mapping[int, tuple[str, type[CoregwError]]] = {
    401: ("unauthorized", errors.Unauthorized),
    403: ("unauthorized", errors.Unauthorized),
    404: ("route_not_found", errors.NotFound),
    409: ("invalid_change", errors.Conflict),
    413: ("too_large", errors.TooLarge),
    429: ("unavailable", errors.Unavailable),
    502: ("unavailable", errors.Unavailable),
    503: ("unavailable", errors.Unavailable),
    504: ("unavailable", errors.Unavailable),
    507: ("storage_full", errors.StorageFull),
}


class Answer(NamedTuple):
    """A success: its status, and its body (empty when the body went to a sink)."""

    status: int
    body: bytes


class Sink(Protocol):
    """Where the bytes of a success go piece by piece, instead of into memory."""

    def write(self, chunk: bytes) -> None:
        """Takes the next piece."""


class Body(Protocol):
    """A request body that is made while it is sent; `chunks` begins anew for every attempt."""

    def chunks(self) -> Generator[bytes, None, None]:
        """The pieces of the body, in order."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, and how much of an answer is taken.

    Attributes:
        method: The HTTP method.
        path: The path below the gateway's address; everything in it is already safe in a URL.
        content: The whole body, a body made while it is sent, or nothing.
        content_type: The body's media type.
        params: Query parameters.
        max_bytes: Most bytes of a success.
        sink: Makes the place where a success goes; called once for every attempt. None keeps it in memory.
        what: The call in words, for messages.
    """

    method: str
    path: str
    max_bytes: int
    what: str
    content: bytes | Body | None = None
    content_type: str = "application/json"
    params: Mapping[str, str] = field(default_factory=dict)
    sink: Callable[[], Sink] | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Request headers. Identity coding, because a limit on bytes must not be a limit on compressed bytes."""
        headers = {"accept": "*/*", "accept-encoding": "identity"}
        if self.content is not None:
            headers["content-type"] = self.content_type
        return headers


class _Memory:
    """The sink that keeps everything."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def write(self, chunk: bytes) -> None:
        self._chunks.append(chunk)

    def value(self) -> bytes:
        return b"".join(self._chunks)


class Receiver:
    """Takes one answer: bounded in bytes and in time, and either an `Answer` or the error that it stands for."""

    def __init__(self, call: Call, settings: ClientSettings, status: int, headers: Mapping[str, str]) -> None:
        """Begins an answer.

        Raises:
            ProofError: The answer is coded (compressed), though identity was asked for.
            TooLarge: It says that it is longer than the limit.
        """
        self._call = call
        self._status = status
        self._success = 200 <= status < 300
        self._limit = call.max_bytes if self._success else settings.max_result_bytes
        self._deadline = time.monotonic() + settings.answer_seconds
        self._seconds = settings.answer_seconds
        self._count = 0
        self._memory = _Memory()
        self._sink: Sink = call.sink() if self._success and call.sink is not None else self._memory
        if headers.get("content-encoding", "identity") != "identity":
            raise ProofError(f"{call.what}: the answer is compressed, which was not asked for", check="answer")
        declared = headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared) > self._limit:
            raise self._too_large()

    def feed(self, chunk: bytes) -> None:
        """Takes the next piece of the body.

        Raises:
            TooLarge: The answer is past its limit of bytes.
            Unavailable: It is past its limit of time.
        """
        self._count += len(chunk)
        if self._count > self._limit:
            raise self._too_large()
        if time.monotonic() > self._deadline:
            raise Unavailable(f"{self._call.what}: the answer took longer than {self._seconds:g} s")
        self._sink.write(chunk)

    def end(self) -> Answer:
        """The whole answer. Raises the error that the gateway answered with, if it did."""
        if self._success:
            return Answer(self._status, self._memory.value())
        raise error_from(self._call, self._status, self._memory.value())

    def _too_large(self) -> TooLarge:
        return TooLarge(f"{self._call.what}: the answer is longer than {self._limit} bytes")


class _ErrorBody(msgspec.Struct):
    """``{error, message, details?}``; read leniently, since proxies answer too."""

    error: str
    message: str
    details: msgspec.Raw = msgspec.Raw()


def error_from(call: Call, status: int, body: bytes) -> CoregwError:
    """The exception that an error answer stands for: by its code if that is known, else by its status.

    Args:
        call: What was asked, for the message.
        status: The HTTP status, not a success.
        body: The whole body.
    """
    try:
        said = msgspec.json.decode(body, type=_ErrorBody)
    except _NOT_JSON:
        code, kind = _BY_STATUS.get(status, ("internal", CoregwError))
        return kind(f"{call.what}: the gateway answered {status} without saying why", code=code)
    known = ERROR_CODES.get(said.error)
    code, kind = (said.error, known.exception) if known else _BY_STATUS.get(status, ("internal", CoregwError))
    details = bytes(said.details) if said.details else None
    return kind(f"{call.what}: {printable(said.message)} ({code})", code=code, details=details)


def printable(text: str, limit: int = _MAX_MESSAGE) -> str:
    """`text` on one line, without control characters, and no longer than `limit` characters."""
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in short)


def worth_retrying(error: BaseException) -> bool:
    """Whether the same request may succeed a little later. A full store won't be emptier by then."""
    return isinstance(error, Unavailable) and not isinstance(error, StorageFull)


def decode(call: Call, answer: Answer, kind: type[_T]) -> _T:
    """The answer's body as `kind`.

    Raises:
        ProofError: It has another shape, so that nothing in it may be believed.
    """
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except _NOT_JSON as error:
        why = printable(str(error), 120)
        raise ProofError(f"{call.what}: the answer can't be read: {why}", check="answer") from None
