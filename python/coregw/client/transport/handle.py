"""One libcurl handle with the call that it carries: what is sent, what has arrived, and what its errors mean.

libcurl reports an exception of a callback on stderr and forgets it, and a signal handler may raise in any Python
function. So the callbacks of a driver that polls append to lists, which `process` empties outside of libcurl;
a driver that libcurl calls from an event loop (`is_live`) processes in the callbacks, which keep their exception. They
gather what a sink gets.
"""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Final
from urllib.parse import urlencode

import pycurl

from coregw.client.transport.exchange import Answer, Attempt, Call, SentOnce
from coregw.client.transport.gateways import Target
from coregw.errors import CoregwError, InvalidInput, ProofError, Unavailable
from coregw.text import printable

__all__ = ["Handle"]

_LOST: Final = "the connection was lost"

_REASONS: Final = {
    pycurl.E_RECV_ERROR: _LOST,
    pycurl.E_SEND_ERROR: _LOST,
    pycurl.E_SEND_FAIL_REWIND: _LOST,
    pycurl.E_GOT_NOTHING: _LOST,
    pycurl.E_PARTIAL_FILE: _LOST,
}

# The call can't be sent as it is: a path, or a certificate of this client.
_OWN_FAULTS: Final = frozenset(
    {
        pycurl.E_URL_MALFORMAT,
        pycurl.E_SSL_CERTPROBLEM,
        pycurl.E_SSL_CACERT_BADFILE,
        pycurl.E_BAD_FUNCTION_ARGUMENT,  # a key that can't be decrypted
    }
)
_ALERT: Final = "alert"  # TLS 1.3 refuses a client's certificate after the handshake, as an error of reading
_PROXY_REFUSED: Final = "CONNECT tunnel failed"
_CREDENTIALS: Final = re.compile(r"\S*@")
"""What may be credentials in libcurl's messages: it quotes the address of a proxy that it can't use."""

_GATHERED_BYTES: Final = 256 << 10
"""Bytes that are passed to a call's sink at once, if this many arrive before somebody calls `process`."""

_BLANK: Final = frozenset((b"\r\n", b"\n"))

_READ_HEADERS: Final = {
    name.encode(): name
    for name in ("content-encoding", "content-length", "content-range", "content-type", "retry-after")
}

# Failures of a callback: it keeps its exception, or a signal handler raised before the callback's first instruction.
_CALLBACK_FAILED: Final = frozenset({pycurl.E_WRITE_ERROR, pycurl.E_READ_ERROR, pycurl.E_ABORTED_BY_CALLBACK})


class Handle:
    """A libcurl handle, reused from call to call: `begin`, `process` whenever something may have arrived, `end`.

    Args:
        is_live: Whether to process what arrives in libcurl's callbacks.

    Attributes:
        curl: The handle, for a multi handle.
        chunks: The chunks of the call's streamed body, None if it has none.
        is_starved: Whether libcurl waits for `supply`.
        on_starved: Called when libcurl begins to wait for `supply`.
    """

    def __init__(self, *, is_live: bool) -> None:
        self.curl = pycurl.Curl()
        self.chunks: Generator[bytes, None, None] | None = None
        self._pending = memoryview(b"")
        self.is_starved = False
        self.on_starved: Callable[[], None] = lambda: None
        self._target: Target | None = None
        self._url = ""
        self._lines: list[bytes] = []
        self._received: list[bytes] = []
        self._failure: BaseException | None = None
        self._gathered = 0
        self._options: list[tuple[int, object]] = [
            (pycurl.HEADERFUNCTION, self._on_line if is_live else self._lines.append),
            (pycurl.WRITEFUNCTION, self._on_received if is_live else self._received.append),
        ]
        self._is_live = is_live
        if is_live:  # a driver that polls measures silence itself, more exactly
            self._options.append((pycurl.LOW_SPEED_LIMIT, 1))

    def begin(self, target: Target, call: Call, attempt: Attempt) -> None:
        """Prepare an attempt at a call; then add the handle to a multi handle.

        Raises:
            InvalidInput: The call can't be sent.
        """
        self._call, self._attempt = call, attempt
        self._has_head = False
        self._failure = None
        self._lines.clear()
        self._received.clear()
        self._gathered = 0
        query = f"?{urlencode(call.params)}" if call.params else ""
        try:
            if target is not self._target:
                self._configure(target)
            self._set_body(call, target)
            self.curl.setopt(pycurl.URL, f"{self._url}{call.path}{query}")
            self._set_headers({**target.headers, **call.headers} if target.headers else call.headers)
            self._watch_silence()
        except (pycurl.error, UnicodeError) as error:
            raise InvalidInput(f"{call.what}: {error}") from None

    def supply(self, chunk: bytes | None) -> None:
        """Give libcurl the next chunk of the streamed body, or None at its end."""
        self._attempt.sent(chunk)
        self._pending = memoryview(chunk if chunk is not None else b"")
        self._is_complete = chunk is None
        self.is_starved = False
        if chunk is None:
            self._watch_silence()
        with suppress(pycurl.error):  # the transfer has just failed, which its end reports
            self.curl.unpause()

    def process(self) -> None:
        """Pass what has arrived to the attempt. Raises what the attempt raises."""
        if self._lines:
            self._take_head()
        if self._received:
            chunks = self._received[:]
            self._received.clear()
            self._gathered = 0
            self._attempt.feed(*chunks)

    def end(self) -> Answer:
        """Return the answer of a transfer that libcurl reports as complete.

        Raises:
            CoregwError: The gateway answered with an error.
            Unavailable: It did not answer with a complete head.
        """
        self.process()
        if not self._has_head:
            raise self._unavailable(_LOST)
        return self._attempt.end()

    def release(self) -> None:
        """Release what the call holds, after the handle was removed from its multi handle."""
        if self.chunks is not None:
            self.chunks.close()
            self.chunks = None
        self._pending = memoryview(b"")
        del self._call, self._attempt

    def failure(self, error: pycurl.error) -> BaseException:
        """Return the exception to raise for libcurl's error."""
        code = error.args[0]
        if self._failure is not None:
            return self._failure
        with suppress(CoregwError):  # an answer that has arrived says more than the connection that broke after it
            self.process()
        if code in _CALLBACK_FAILED:
            return KeyboardInterrupt()
        if code == pycurl.E_OPERATION_TIMEDOUT:
            return self.idle() if self.has_connected() else self._unavailable("connecting timed out")
        message = _CREDENTIALS.sub("***@", printable(str(error.args[1])))
        if code in _OWN_FAULTS:
            return InvalidInput(f"{self._call.what}: {message}")
        if code == pycurl.E_BAD_CONTENT_ENCODING:
            return ProofError(f"{self._call.what}: gateway {self._url}: {message}", check="answer")
        number = self.curl.getinfo(pycurl.OS_ERRNO)
        if code == pycurl.E_COULDNT_CONNECT and number not in (0, errno.EINPROGRESS):
            message = os.strerror(number)
        is_lasting = code == pycurl.E_PEER_FAILED_VERIFICATION or _ALERT in message
        if is_lasting or message.startswith(_PROXY_REFUSED):
            return self._unavailable(message, is_lasting=is_lasting)
        return self._unavailable(_REASONS.get(code, message))

    def idle(self) -> Unavailable:
        """Return the exception to raise when nothing was sent or received for too long."""
        return self._unavailable("sending the request timed out" if self.is_starved else "the answer timed out")

    def has_connected(self) -> bool:
        """Return whether the connection of the call is established."""
        return bool(self.curl.getinfo(pycurl.PRETRANSFER_TIME))

    def _unavailable(self, why: str, *, is_lasting: bool = False) -> Unavailable:
        error = Unavailable(f"{self._call.what}: gateway {self._url}: {why}")
        error.is_lasting = is_lasting
        error.is_interrupted = self.has_connected()
        return error

    def _configure(self, target: Target) -> None:
        self.curl.reset()
        self._target, self._url = target, target.address.url
        for option, value in (*target.options, *self._options):
            if value is None:
                self.curl.unsetopt(option)
            else:
                self.curl.setopt(option, value)
        self._headers: dict[str, str] = {}
        self._idle_seconds = 0.0

    def _watch_silence(self) -> None:
        """Let libcurl give up when nothing was sent or received for too long."""
        seconds = self._attempt.idle_seconds
        if self._is_live and seconds != self._idle_seconds:
            self.curl.setopt(pycurl.LOW_SPEED_TIME, min(math.ceil(seconds), (1 << 31) - 1))
            self._idle_seconds = seconds

    def _set_headers(self, headers: dict[str, str]) -> None:
        if headers != self._headers:
            # libcurl would wait for a "100 Continue" before it sends more than 1 MiB.
            self.curl.setopt(pycurl.HTTPHEADER, [*(f"{name}: {value}" for name, value in headers.items()), "Expect:"])
            self._headers = headers

    def _set_body(self, call: Call, target: Target) -> None:
        body, curl = call.content, self.curl
        self.is_starved = self._is_complete = False
        if call.method in ("GET", "HEAD"):
            curl.setopt(pycurl.HTTPGET, 1)
            if call.method == "HEAD":
                curl.setopt(pycurl.NOBODY, 1)  # until the next HTTPGET or POST
            return
        if body is None or isinstance(body, bytes):
            curl.setopt(pycurl.POST, 1)
            curl.setopt(pycurl.POSTFIELDSIZE_LARGE, len(body or b""))
            curl.setopt(pycurl.POSTFIELDS, body or b"")
        else:
            self._configure(target)  # libcurl has no other way to forget the body of an earlier call
            if isinstance(body, SentOnce):
                self._pending, self._is_complete, size = memoryview(body.data), True, len(body.data)
            else:
                self.chunks, self._pending, size = body.chunks(), memoryview(b""), -1
            curl.setopt(pycurl.POST, 1)
            curl.setopt(pycurl.POSTFIELDSIZE_LARGE, size)
            curl.setopt(pycurl.READFUNCTION, self._on_read)

    def _take_head(self) -> None:
        """Start the attempt's answer once its head is complete. Skips informational answers, and trailers."""
        if self._lines[-1].strip() and not self._received:  # the lines of a head may arrive one by one
            return
        lines = self._lines[:]
        self._lines.clear()
        start = 0
        for end, line in enumerate(lines):
            if line.strip() or self._has_head:
                continue
            status, headers = _parsed(lines[start:end])
            start = end + 1
            if status >= 200:
                self._has_head = True
                self._attempt.start(status, headers)

    # libcurl's callbacks

    def _on_read(self, size: int) -> bytes | int:
        pending = self._pending
        if pending:
            self._pending = pending[size:]
            return bytes(pending[:size])
        if self._is_complete:
            return b""
        self.is_starved = True
        self.on_starved()
        return int(pycurl.READFUNC_PAUSE)

    def _on_line(self, line: bytes) -> int | None:
        self._lines.append(line)
        return self._processed() if line in _BLANK else None

    def _on_received(self, chunk: bytes) -> int | None:
        self._received.append(chunk)
        if self._call.sink is not None:
            # A chunk has at most 16 KiB, and passing on each of them costs more than copying it.
            self._gathered += len(chunk)
            if self._gathered < _GATHERED_BYTES:
                return None
        return self._processed()

    def _processed(self) -> int | None:
        """Process in a callback. Returns -1, which aborts the transfer, after an exception, which is kept."""
        try:
            self.process()
        except BaseException as error:  # noqa: BLE001 - raised by the driver
            self._failure = error
            return -1
        return None


def _parsed(lines: list[bytes]) -> tuple[int, dict[str, str]]:
    """Return the status, and those headers of a head that `Attempt.start` reads. libcurl has checked their form."""
    words = lines[0].split(None, 2) if lines else []
    status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    headers: dict[str, str] = {}
    for line in lines[1:]:
        key, _, rest = line.partition(b":")
        if (name := _READ_HEADERS.get(key.strip().lower())) is not None:
            value = rest.decode("latin-1").strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return status, headers
