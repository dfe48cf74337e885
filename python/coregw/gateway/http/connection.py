"""HTTP/1.1 connections: uvicorn's httptools protocol with stricter parsing, deadlines, and limits.

Added here: deadlines for request heads, for request bodies, for what remains of a rejected body, and for clients that
stop reading; limits on the size of request heads and on the number of connections; exactly one valid Host; no transfer
coding but chunked; requests that are complete when a client half-closes are answered; errors in the service's JSON.

This is the only module, besides `coregw.gateway.http.coalescing` and the server class in `coregw.gateway.server`, that
uses interfaces that uvicorn does not document, so uvicorn is pinned to a minor version in ``pyproject.toml``. They are:

- ``HttpToolsProtocol`` (subclassed): the parser's callbacks, `send_400_response`, `timeout_keep_alive_handler`,
  and the attributes ``connections``, ``cycle``, ``flow.read_paused``, ``headers``,
  ``loop``, ``parser``, ``scope``, ``transport`` and ``url``;
- ``RequestResponseCycle``: ``disconnected``, ``keep_alive``, ``message_event``, ``response_complete``,
  ``response_started`` and ``waiting_for_100_continue``; and that it passes ``scope`` on as it is;
- ``STATUS_LINE``;
- ``uvicorn.Server``: `startup`, `capture_signals` and `handle_exit` (in `coregw.gateway.server`).
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import Callable
from typing import Any, ClassVar, Final, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from coregw.gateway.http.bodies import BODY_OVERDUE
from coregw.gateway.settings import Settings
from coregw.messages import Error, encode

__all__ = ["GatewayProtocol", "Refusal", "refusal"]

_HOST: Final = re.compile(rb"[0-9A-Za-z!$&'()*+,;=\-._~:\[\]@%]*")
"""The characters of a Host (RFC 3986 section 3.2)."""

Refusal = Callable[[bytes, str], bytes]
"""Returns the JSON body of the 400 to malformed HTTP, from its target (empty if unknown) and a sentence."""


def refusal(_: bytes, message: str) -> bytes:
    """Return an error body of the gateway; see `Refusal`."""
    return encode(Error(error="invalid_request", message=message))


class _Rejected(Exception):
    """Stops the parser. The reason is in the protocol."""


class GatewayProtocol(HttpToolsProtocol):
    """One connection.

    At most one deadline for reading is armed at a time, besides uvicorn's keep-alive timeout, and one for writing.
    """

    settings: ClassVar[Settings]
    refusal: ClassVar[Refusal]

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's own arguments
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._in_head = True
        self._head_bytes = 0
        self._body_is_open = False
        self._body_deadline: float | None = None
        self._has_ended = False  # whether the client has closed its side
        self._reason = "malformed HTTP request"
        self.url = b""  # uvicorn sets it when a request begins, which may never happen

    # --- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Arm the deadline of the first request head, or close a connection beyond the limit."""
        super().connection_made(transport)
        if len(self.connections) > self.settings.connections:
            transport.abort()
        else:
            self._arm(self.settings.header_seconds, self._close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all deadlines."""
        self._disarm()
        self._stop_watching_writes()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection once the requests that have arrived are answered; called when the server stops."""
        super().shutdown()
        self._watch_closing()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        super().timeout_keep_alive_handler()
        self._watch_closing()

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio's
        """Close the connection when all complete requests are answered.

        If a truncated request follows them, only errors that are known at once are still sent.
        """
        self._has_ended = True
        if self._unanswered() is None or self._body_is_open:
            self.loop.call_soon(self._close)  # after the first step of a request that has just been parsed
        return True

    def data_received(self, data: bytes) -> None:
        """Feed the parser."""
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head and self._head_bytes > self.settings.header_bytes:
            self._reject_long_head()
            self.send_400_response("")
        elif self._body_is_open:
            self._watch_body()
        elif self._timer is None and self._unanswered() is None:  # any byte between requests begins a head
            self._arm(self.settings.header_seconds, self._close)

    # --- one request --------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Parser callback: the first byte of a request."""
        super().on_message_begin()
        self._in_head = True
        self._arm(self.settings.header_seconds, self._close)

    def on_headers_complete(self) -> None:
        """Parser callback: the head is complete. Validates it and starts the request."""
        self._in_head = False
        self._head_bytes = 0
        self._disarm()
        self._check_head()
        self._body_is_open = True
        self._body_deadline = None
        super().on_headers_complete()
        if self.parser.should_upgrade():  # no other protocol is supported, and the parser stops here
            self.cycle.keep_alive = False

    def _check_head(self) -> None:
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self.settings.header_bytes:
            self._reject_long_head()
            raise _Rejected
        is_http_1_1 = self.parser.get_http_version() != "1.0"
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1 or (is_http_1_1 and not hosts):
            self._reason = f"{len(hosts)} Host headers, expected exactly one"
            raise _Rejected
        if hosts and _HOST.fullmatch(hosts[0]) is None:
            self._reason = "invalid Host header"
            raise _Rejected
        codings = [value.strip().lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings and not (is_http_1_1 and codings == [b"chunked"]):  # another coding would be stored undecoded
            self._reason = "unsupported Transfer-Encoding, expected chunked in HTTP/1.1"
            raise _Rejected

    def on_message_complete(self) -> None:
        """Parser callback: the body is complete, or the rest of it has been discarded."""
        self._body_is_open = False
        self._disarm()
        super().on_message_complete()
        if self.cycle.response_complete:
            self._arm(self.settings.keep_alive_seconds, self._close)

    def on_response_complete(self) -> None:
        """Begin to discard what remains of an unread body, with a deadline."""
        super().on_response_complete()
        if self._has_ended and self._unanswered() is None:
            self.transport.close()
        elif self._body_is_open and not self.transport.is_closing():
            self._arm(self.settings.drain_seconds, self._close)
        self._watch_closing()

    def send_400_response(self, msg: str) -> None:
        """Answer malformed HTTP and close the connection. A response that has begun is truncated instead."""
        cycle = self._unanswered()
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.abort()
                return
        body = type(self).refusal(self.url, self._reason)
        head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[400] + head.encode() + body)
        self._close()

    def _unanswered(self) -> RequestResponseCycle | None:
        """Return the newest request if its response is not complete."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        return None if cycle is None or cycle.response_complete else cycle

    def _reject_long_head(self) -> None:
        self._reason = f"the request line and headers are longer than the limit of {self.settings.header_bytes} bytes"

    # --- deadlines for reading ----------------------------------------------------------------------------------------

    def _arm(self, seconds: float, on_expiry: Callable[[], None]) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, on_expiry)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch_body(self) -> None:
        """Arm the deadline for the next part of a body. Complete bodies, as most are, never get here."""
        if self._unanswered() is None:
            return  # the rest is being discarded, with a deadline of its own
        now = self.loop.time()
        if self._body_deadline is None:
            self._body_deadline = now + self.settings.body_seconds
        self._arm(min(self.settings.body_idle_seconds, self._body_deadline - now), self._on_body_overdue)

    def _on_body_overdue(self) -> None:
        """Tell the reader of the body that it is overdue, unless the gateway itself has stopped reading it."""
        is_late = self._body_deadline is not None and self.loop.time() >= self._body_deadline
        if not is_late and (self.flow.read_paused or self.cycle.waiting_for_100_continue):
            self._watch_body()
            return
        cast("dict[str, Any]", self.scope).setdefault("extensions", {})[BODY_OVERDUE] = {}
        self.cycle.message_event.set()

    # --- deadlines for writing ----------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Begin to check that the client reads, since much is unsent."""
        super().pause_writing()
        self._watch_writes(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Stop checking that the client reads."""
        super().resume_writing()
        self._stop_watching_writes()

    def _close(self) -> None:
        """Close the connection after what has been written."""
        self.transport.close()
        self._watch_closing()

    def _watch_closing(self) -> None:
        """Check that the client reads what is unsent, if the connection is closing."""
        if self.transport.is_closing() and self._write_timer is None:
            unsent = self.transport.get_write_buffer_size()
            if unsent:
                self._watch_writes(unsent)

    def _watch_writes(self, unsent: int) -> None:
        self._stop_watching_writes()
        self._write_timer = self.loop.call_later(self.settings.write_seconds, self._check_writes, unsent)

    def _check_writes(self, unsent_before: int) -> None:
        """Reset the connection if the client has read nothing since the last check."""
        unsent = self.transport.get_write_buffer_size()
        if unsent >= unsent_before:
            self._reset()
        else:
            self._watch_writes(unsent)

    def _reset(self) -> None:
        """End the connection with a RST, so that the kernel frees what the client does not read."""
        connection = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _stop_watching_writes(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
