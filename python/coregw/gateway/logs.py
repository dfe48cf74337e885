"""Logging of a serving process: lines for people or JSON for programs, request ids, and the access log.

A thread writes the lines, so that a reader of stderr that has stopped does not stop the service: of what waits for it,
a mebibyte is kept, and the lines beyond are dropped, counted and reported.

A line that is logged while a request is served carries the request's id: that of a sane ``X-Request-Id``, or a random
one that is made when it is first needed. No log has bytes of a payload or a credential: headers, bodies and query
strings are never logged, and in paths the identity CIDs, which contain their payload, are left out.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, cast

from litestar.enums import ScopeType

from coregw._core import Cid, LoggedRequest, __version__
from coregw.errors import InvalidInput
from coregw.gateway.settings import Settings
from coregw.text import encode_json

if TYPE_CHECKING:
    from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

__all__ = [
    "CURRENT",
    "REQUEST_ID_HEADER",
    "AccessLog",
    "dropped_lines",
    "log_hot_request",
    "log_to_stderr",
    "loggable_path",
    "request_id",
]

CURRENT: Final[ContextVar[HTTPScope | None]] = ContextVar("CURRENT", default=None)
"""The scope of the request that the current task serves."""

REQUEST_ID_HEADER: Final = "X-Request-Id"

access_logger = logging.getLogger("coregw.access")
logger = logging.getLogger("coregw.gateway")

_STDERR: Final = 2
_MAX_WAITING_BYTES: Final = 1 << 20
_FLUSH_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 0.05

_HEADER: Final = REQUEST_ID_HEADER.lower().encode()
_SANE: Final = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_KEY: Final = "coregw.request_id"
_MAX_PATH: Final = 300
_MAX_SEGMENTS: Final = 16
_MAX_WORD: Final = 40
_MAX_WORD_OF_PAYLOADS: Final = 10
_PAYLOAD_ROUTES: Final = frozenset({"cas", "ipfs"})
"""After these segments a path has CIDs of payloads, and only short words besides."""


def request_id(scope: HTTPScope) -> str:
    """Return the id of a request: that which the client sent, if it is sane, or a new one; the same at every call."""
    state = cast("dict[str, Any]", scope)
    known = state.get(_KEY)
    if known is None:
        given = next((value for name, value in scope["headers"] if name == _HEADER), b"")
        known = state[_KEY] = given.decode() if _SANE.fullmatch(given) else secrets.token_hex(8)
    return str(known)


def loggable_path(path: str) -> str:
    """Return a path that may be logged: shortened, in ASCII without control characters, and without payloads.

    CIDs of digests and short words are shown, identity CIDs and everything else is not: it may be a mistyped one.
    """
    return ascii("/".join(_loggable_segments(path))[:_MAX_PATH])[1:-1]


def log_to_stderr(settings: Settings) -> None:
    """Log to stderr, unless the program has configured logging itself. The first line is the version."""
    if logging.getLogger().handlers:
        return
    handler = _BackgroundHandler()
    handler.setFormatter(_JsonLines() if settings.log_format == "json" else _TextLines())
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    logging.getLogger("coregw").info("coregw %s", __version__)
    if settings.access_log:
        access_logger.setLevel(logging.INFO)


def dropped_lines() -> int:
    """Return how many lines of the log this process has dropped since it was started, because nobody read them."""
    return sum(each.dropped for each in logging.getLogger().handlers if isinstance(each, _BackgroundHandler))


class _BackgroundHandler(logging.Handler):
    """Writes lines to stderr in a thread, so that whoever logs never waits for their reader.

    Counters are changed by one side each: `emit` runs under the lock of `logging.Handler`. The thread takes no lock of
    Python's streams, which would stop the interpreter's exit while a write is blocked.

    Attributes:
        dropped: The number of lines that were not written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dropped = 0
        self._reported = 0
        self._queued_bytes = 0
        self._written_bytes = 0
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._writer: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line, or drop it if too many bytes wait."""
        try:
            line = f"{self.format(record)}\n".encode("utf-8", "backslashreplace")
        except Exception:  # noqa: BLE001 - as every handler of logging: a line that fails must not fail its caller
            self.handleError(record)
            return
        if self._queued_bytes - self._written_bytes + len(line) > _MAX_WAITING_BYTES:
            self.dropped += 1
            return
        self._queued_bytes += len(line)
        self._lines.put(line)
        if self._writer is None or not self._writer.is_alive():  # it is not, in a child after a fork
            self._writer = threading.Thread(target=self._write_lines, name="coregw-log", daemon=True)
            self._writer.start()

    def flush(self) -> None:
        """Wait until all is written, but not long: at the exit of the process nobody may read."""
        deadline = time.monotonic() + _FLUSH_SECONDS
        while self._written_bytes != self._queued_bytes and time.monotonic() < deadline:
            time.sleep(_RETRY_SECONDS / 10)

    def _write_lines(self) -> None:
        while True:
            line = self._lines.get()
            _write(line)
            if self.dropped > self._reported and self._lines.empty():
                count, self._reported = self.dropped - self._reported, self.dropped
                _write(f"{self.format(_dropped_record(count))}\n".encode())
            self._written_bytes += len(line)


def _write(line: bytes) -> None:
    """Write a line to stderr; if that fails, nobody can be told."""
    with contextlib.suppress(OSError):
        while line:
            try:
                line = line[os.write(_STDERR, line) :]
            except BlockingIOError:
                time.sleep(_RETRY_SECONDS)


def _dropped_record(count: int) -> logging.LogRecord:
    about = "%d lines of the log were dropped: stderr was not read"
    return logging.LogRecord("coregw.log", logging.WARNING, __file__, 0, about, (count,), None)


class AccessLog:
    """An ASGI application that logs each request once it is answered, and sends the id of the request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry point. Only scopes of type ``http`` are logged."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        began, path = time.perf_counter(), scope["path"]  # Litestar normalises it
        status = size = 0

        async def send_counted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [each for each in message["headers"] if each[0] != _HEADER]
                message["headers"] = [*headers, (_HEADER, request_id(scope).encode())]
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_counted)
        finally:
            _log_access(scope, path, status, size, time.perf_counter() - began)


def log_hot_request(line: LoggedRequest) -> None:
    """Log what the front says of a request that it has answered."""
    scope = cast("HTTPScope", {"headers": [], _KEY: line.id})
    if line.failure is not None:
        path, reason = loggable_path(line.path), " ".join(line.failure.split())
        with _current(scope):
            logger.error("%s '%s' failed: %s", line.method, path, reason)
        return
    fields = {
        "client": line.client or "",
        "method": line.method,
        "path": loggable_path(line.path),
        "status": line.status,
        "bytes": line.bytes,
        "seconds": round(line.seconds, 6),
    }
    _log_fields(scope, fields)


def _log_access(scope: HTTPScope, path: str, status: int, size: int, seconds: float) -> None:
    client = scope.get("client")
    fields = {
        "client": client[0] if client else "",
        "method": scope["method"],
        "path": loggable_path(path),
        "status": status,
        "bytes": size,
        "seconds": round(seconds, 6),
    }
    _log_fields(scope, fields)


def _log_fields(scope: HTTPScope, fields: Mapping[str, object]) -> None:
    line = "%(client)s %(method)s %(path)s %(status)d %(bytes)d %(seconds).6f"
    with _current(scope):
        access_logger.info(line, fields, extra={"fields": fields})


@contextlib.contextmanager
def _current(scope: HTTPScope) -> Iterator[None]:
    """Log lines of a request while the context is active."""
    token = CURRENT.set(scope)
    try:
        yield
    finally:
        CURRENT.reset(token)


class _TextLines(logging.Formatter):
    """Lines for people, with the request's id in brackets."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's
        line = super().formatMessage(record).rstrip()  # uvicorn's end with a line feed
        scope = CURRENT.get()
        return line if scope is None else f"{line} [{request_id(scope)}]"


class _JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        scope = CURRENT.get()
        if scope is not None:
            line["request_id"] = request_id(scope)
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return encode_json(line).decode()


def _loggable_segments(path: str) -> Iterator[str]:
    max_length = _MAX_WORD
    for segment in path.split("/", _MAX_SEGMENTS):
        try:
            yield "(identity CID)" if Cid(segment).hash_name == "identity" else segment
        except InvalidInput:
            yield segment if len(segment) <= max_length else f"({len(segment)} characters)"
        if segment in _PAYLOAD_ROUTES:
            max_length = _MAX_WORD_OF_PAYLOADS
