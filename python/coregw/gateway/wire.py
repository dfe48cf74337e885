"""HTTP framing: uvicorn's httptools protocol with the deadlines and the strictness that it leaves out.

What is added: a deadline for request lines and headers, a limit on their size, exactly one Host, a deadline for the
rest of a refused body, an end for clients that stop reading, a limit on connections, and errors in the gateway's shape.
What is read and what is written is gathered for a turn of the event loop.
Leaves out everything above framing. Bodies that stall are the routes' business (`bodies`), since only they know whether
they wait for one.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import struct
from collections.abc import Callable
from typing import Any, ClassVar, Final, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from coregw.gateway.settings import Settings
from coregw.messages import Error, encode

__all__ = ["GatewayProtocol", "Refusal", "protocol_for", "refusal"]

_log = logging.getLogger(__name__)

_HOST: Final = re.compile(rb"[0-9A-Za-z!$&'()*+,;=\-._~:\[\]@%]*")
"""What a Host consists of (RFC 3986 section 3.2)."""

Refusal = Callable[[bytes, str], bytes]
"""Makes the JSON body of the 400 to what is no HTTP request, from its target (empty if unknown) and a sentence."""


def refusal(_: bytes, message: str) -> bytes:
    """The gateway's `Refusal`: its one shape of failures, whatever was asked for."""
    return encode(Error(error="invalid_request", message=message))


_GATHERED_BYTES: Final = 64 << 10
"""The most that waits for the end of a turn, and the longest piece that is copied for that."""

_SHORT_READ: Final = 16 << 10
"""The longest piece that waits to be parsed; uvloop gives no other after one as short as this in the same turn."""


class _Refused(Exception):
    """Stops the parser; the reason is in the protocol."""


class _Turn:
    """The connections that wait, in this turn of the event loop, to have parsed what was read, and to send.

    uvloop lets go of the interpreter between any two of its own callbacks, and takes it back at once; a thread that
    waits for it is woken each time for nothing. So what was read on all connections is parsed in one callback
    (docs/decisions/0084).
    """

    def __init__(self) -> None:
        self._reading: list[GatewayProtocol] = []
        self._sending: list[_Gathering] = []

    def parse_soon(self, protocol: GatewayProtocol) -> None:
        """Has a protocol parse what it holds when all connections are read."""
        if not self._reading:
            asyncio.get_running_loop().call_soon(self._parse)
        self._reading.append(protocol)

    def send_soon(self, transport: _Gathering) -> None:
        """Has a transport send when all that is ready to run has run."""
        if not self._sending:
            asyncio.get_running_loop().call_soon(self._send)
        self._sending.append(transport)

    def _parse(self) -> None:
        reading, self._reading = self._reading, []
        for protocol in reading:
            try:
                protocol.parse_held()
            except Exception:  # noqa: BLE001 - a mistake in this program, which other connections shall not pay for
                _log.exception("a connection failed")
                protocol.transport.abort()

    def _send(self) -> None:
        sending, self._sending = self._sending, []
        for transport in sending:
            transport.send()


class _Gathering:
    """A transport that sends what is written in a turn at once, behind all other work of the turn.

    Uvicorn writes the head of an answer by itself: one more call of the system, and a packet for which a client wakes
    up in vain. And where answers go out between other work, a client on the same machine that is faster than the
    gateway falls asleep between any two; to wake it takes longer than a look-up (docs/decisions/0083).
    """

    __slots__ = ("_held", "_on_close", "_transport", "_turn")

    def __init__(self, transport: asyncio.Transport, turn: _Turn, on_close: Callable[[], None] = lambda: None) -> None:
        self._transport = transport
        self._turn = turn
        self._on_close = on_close
        self._held = b""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else a transport has
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Takes a piece. Never holds more than `_GATHERED_BYTES`, which no flow control sees."""
        if len(self._held) + len(data) > _GATHERED_BYTES:
            held, self._held = self._held, b""
            self._transport.writelines([held, data] if held else [data])
        else:
            if not self._held:
                self._turn.send_soon(self)
            self._held += data

    def send(self) -> None:
        """Sends what is held, unless the connection is gone."""
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self._transport.write(held)

    def close(self) -> None:
        """Closes the connection behind what was written."""
        self.send()
        self._transport.close()
        self._on_close()


class GatewayProtocol(HttpToolsProtocol):
    """One connection. At most one timer of its own runs, beside uvicorn's keep-alive timer and the write timer."""

    settings: ClassVar[Settings]
    turn: ClassVar[_Turn]
    refusal: ClassVar[Refusal]

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's own arguments
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._in_head = True
        self._body_open = False
        self._head_bytes = 0
        self._refusal = "this is no valid HTTP request"
        self._held = b""  # what was read and is not parsed yet
        self._ended = False  # whether the client sends no more
        self.url = b""  # uvicorn sets it with the first request, which may never begin

    # --- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Starts the clock for the first request; a connection too many is closed."""
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", _Gathering(transport, self.turn, self._closing))
        if len(self.connections) > self.settings.connections:
            transport.abort()
        else:
            self._arm(self.settings.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops all clocks."""
        self._disarm()
        self._stop_write_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server ends; requests that are here are answered first."""
        self.parse_held()
        super().shutdown()

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio's
        """The client sends no more. Requests that are here whole are answered before the connection closes.

        Where a part of another request follows them, only what can be answered at once is.
        """
        self.parse_held()
        self._ended = True
        if self._unanswered() is None or self._body_open:
            self.loop.call_soon(self.transport.close)  # behind the first step of a request that was parsed just now
        return True

    def data_received(self, data: bytes) -> None:
        """Holds a short piece until all connections are read, and parses a longer one."""
        if self._held or len(data) > _SHORT_READ:
            self.parse_held()
            self._parse(data)
        else:
            self._unset_keepalive_if_required()  # as a request that is here must not meet the end of the wait for it
            self._held = data
            self.turn.parse_soon(self)

    def parse_held(self) -> None:
        """Parses what is held, unless the connection is gone."""
        held, self._held = self._held, b""
        if held:
            self._parse(held)

    def _parse(self, data: bytes) -> None:
        """Feeds the parser. Between two requests, any byte starts the clock for the next one."""
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head and self._head_bytes > self.settings.header_bytes:
            self._refuse_long_head()
            self.send_400_response("")
        elif self._timer is None and self._unanswered() is None:
            self._arm(self.settings.header_seconds)

    # --- one request --------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._in_head = True
        self._arm(self.settings.header_seconds)

    def on_headers_complete(self) -> None:
        """The whole head is here: judges what the parser does not, and starts the request."""
        self._in_head = False
        self._head_bytes = 0
        self._disarm()
        self._judge_head()
        self._body_open = True
        super().on_headers_complete()
        if self.parser.should_upgrade():  # no other protocol is spoken here, and the parser won't go on after this
            self.cycle.keep_alive = False

    def _judge_head(self) -> None:
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self.settings.header_bytes:
            self._refuse_long_head()
            raise _Refused
        modern = self.parser.get_http_version() != "1.0"
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1 or (modern and not hosts):
            self._refusal = "a request needs exactly one Host header"
            raise _Refused
        if hosts and _HOST.fullmatch(hosts[0]) is None:
            self._refusal = "the Host header names no host"
            raise _Refused
        codings = [value.strip().lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings and not (modern and codings == [b"chunked"]):  # another coding would be stored as it is
            self._refusal = "the one transfer coding taken is chunked, in HTTP/1.1"
            raise _Refused

    def on_message_complete(self) -> None:
        """The whole body is here, or the last of it was dropped."""
        self._body_open = False
        super().on_message_complete()
        if self.cycle.response_complete:
            self._arm(self.settings.keep_alive_seconds)

    def on_response_complete(self) -> None:
        """The answer is out. What is left of an unread body is dropped, but not for ever."""
        super().on_response_complete()
        if self._ended and self._unanswered() is None:
            self.transport.close()
        elif self._body_open and not self.transport.is_closing():
            self._arm(self.settings.drain_seconds)

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP, and closes. An answer that is half out already can only be cut."""
        cycle = self._unanswered()
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.abort()
                return
        body = type(self).refusal(self.url, self._refusal)
        head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[400] + head.encode() + body)
        self.transport.close()

    def _unanswered(self) -> RequestResponseCycle | None:
        """The newest request, if its answer is not complete."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # uvicorn sets None at first
        return None if cycle is None or cycle.response_complete else cycle

    def _refuse_long_head(self) -> None:
        self._refusal = f"the request line and headers are longer than {self.settings.header_bytes} bytes"

    # --- clocks -------------------------------------------------------------------------------------------------------

    def _arm(self, seconds: float) -> None:
        """Closes the connection in `seconds`, unless something comes first."""
        self._disarm()
        self._timer = self.loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        """Closes the connection, unless what was read in this turn already stops the clock."""
        timer = self._timer
        self.parse_held()
        if self._timer is timer:
            self.transport.close()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pause_writing(self) -> None:
        """The client reads more slowly than the gateway writes; watches that it reads at all."""
        super().pause_writing()
        self._watch_writing(self.transport.get_write_buffer_size())

    def _closing(self) -> None:
        """The connection closes behind what is still to be sent; watches that the client reads it."""
        waiting = self.transport.get_write_buffer_size()
        if waiting and self._write_timer is None:
            self._watch_writing(waiting)

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        self._stop_write_timer()

    def _watch_writing(self, waiting: int) -> None:
        self._stop_write_timer()
        self._write_timer = self.loop.call_later(self.settings.write_seconds, self._check_writing, waiting)

    def _check_writing(self, waiting: int) -> None:
        """Cuts the connection if the client took nothing since the last look."""
        still_waiting = self.transport.get_write_buffer_size()
        if still_waiting >= waiting:
            self._cut()
        else:
            self._watch_writing(still_waiting)

    def _cut(self) -> None:
        """Ends the connection with a reset, so that the system frees what waits for a client that won't read."""
        connection = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def protocol_for(settings: Settings, refusal: Refusal) -> type[GatewayProtocol]:
    """The protocol with these limits and this wording; uvicorn makes the instances."""
    bound = {"settings": settings, "refusal": staticmethod(refusal), "turn": _Turn()}
    return type("BoundGatewayProtocol", (GatewayProtocol,), bound)
