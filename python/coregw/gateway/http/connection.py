"""HTTP/1.1 connections: uvicorn's httptools protocol with stricter parsing, deadlines, and limits.

Added here: deadlines for request heads, for request bodies, for what remains of a rejected body, and for clients that
stop reading; limits on the size of request heads and trailers, on pipelined requests, on the number of connections, and
on unsent bytes; exactly one valid Host, which has to be one of the gateway's; no transfer coding but chunked; trailers
are discarded and offers to upgrade ignored; requests that are complete when a client half-closes are answered; requests
begin only when the responses before them have been read; errors in the service's JSON.

Besides this module and its parts, `coregw.gateway.http.deadlines` and `coregw.gateway.http.framing`, only
`coregw.gateway.http.server` uses interfaces that uvicorn does not document, so uvicorn is pinned to a minor version in
``pyproject.toml``. They are:

- ``HttpToolsProtocol`` (subclassed; `data_received` and `send_400_response` are replaced): the parser's callbacks,
  `timeout_keep_alive_handler`, `_start_asgi_task`, `_unset_keepalive_if_required`, and the attributes ``app``,
  ``app_state`` (copied into each scope), ``client``, ``cycle``, ``expect_100_continue``, ``flow``,
  ``headers`` (to which `on_header` appends), ``loop``, ``parser``, ``pipeline``, ``scope``, ``transport`` and ``url``;
- ``FlowControl`` (subclassed);
- ``RequestResponseCycle`` (subclassed): `send`, ``chunked_encoding``, ``disconnected``, ``flow``, ``keep_alive``,
  ``message_event``, ``response_complete``, ``response_started``, ``scope``, ``transport`` and
  ``waiting_for_100_continue``; and that it passes ``scope`` on as it is;
- ``STATUS_LINE``;
- ``uvicorn.Server``: `startup`, `shutdown`, `capture_signals`, `handle_exit`, ``lifespan`` and ``server_state`` (in
  `coregw.gateway.http.server`).
"""

from __future__ import annotations

from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from coregw.errors import ERROR_CODES
from coregw.gateway.http.deadlines import LimitedProtocol
from coregw.gateway.http.framing import (
    HEAD_END,
    SHORTEST_HEAD,
    Cycle,
    Fault,
    Rejected,
    Trailers,
    check_head,
    head_without_upgrade,
    replace_host,
)
from coregw.gateway.http.replies import UNCACHED, json_reply
from coregw.gateway.http.shared import Shared
from coregw.gateway.limits.tcp import CONTINUE, is_half_closed, is_reset
from coregw.gateway.metrics import REFUSALS
from coregw.gateway.settings import Settings
from coregw.messages import ErrorBody, encode

__all__ = ["GatewayProtocol", "protocol_for"]


class GatewayProtocol(LimitedProtocol):
    """One connection: parses requests, and passes them on in order."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's own arguments
        super().__init__(*args, **kwargs)
        self._unused_bytes = 0  # fed to the parser since the last complete head or byte of a body
        self._body_is_open = False
        self._trailers = Trailers(self.settings.header_bytes)
        self._running: RequestResponseCycle | None = None  # the request that is being answered, or was last
        self._unparsed = bytearray()  # what arrived when too many requests were waiting
        self._refusal: bytes | None = None  # the response to malformed HTTP, to be sent after all others
        self._has_ended = False  # whether the client has closed its side
        self._is_awaited = self._is_probed = False  # see `has_left`
        self.url = b""  # uvicorn sets it when a request begins, which may never happen

    # --- the connection -----------------------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered."""
        self._unparsed.clear()
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection once the requests that have arrived are answered; called when the server stops."""
        if not self._body_is_open:
            self._unparsed.clear()  # requests that have not begun
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
        if self._is_awaited:
            self._probe()
        if self._unanswered() is None or self._body_is_open:
            self.loop.call_soon(self._close)  # after the first step of a request that has just been parsed
        return True

    def has_left(self) -> bool:
        """Whether the client has disconnected.

        One that has closed its side may still read, so it is sent an interim response (`CONTINUE`).
        """
        self._is_awaited = True
        if super().has_left():
            return True
        connection = self.transport.get_extra_info("socket")
        if self._has_ended or is_half_closed(connection):  # while reading is paused, only the kernel knows
            self._probe()
        return self._is_probed and is_reset(connection)

    def _probe(self) -> None:
        """Send an interim response if one may be sent now, once."""
        running = self._running
        if self._is_probed or running is None or running.response_started or running.disconnected:
            return
        if running.scope["http_version"] == "1.1" and not self.transport.is_closing():
            self._is_probed = True
            self.transport.write(CONTINUE)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, as far as requests may wait for their turn."""
        if self.transport.is_closing() or self._refusal is not None:
            return
        self._unset_keepalive_if_required()
        if self._unparsed or not self._fits(data):
            self._unparsed += data
            self._parse_held()
        else:
            self._parse(data)
        self._watch_reading()

    # --- parsing ------------------------------------------------------------------------------------------------------

    def _fits(self, data: bytes) -> bool:
        """Whether there is room for all requests in `data`."""
        if len(data) <= self._body_left:
            return True
        room = self.settings.pipelined_requests - len(self.pipeline)
        if len(data) <= room * SHORTEST_HEAD:
            return True
        # One head may end with the first byte. Most data has few line ends: JSON has no CR in strings.
        at = -1
        for _ in range(room):
            at = data.find(b"\r", at + 1)
            if at < 0:
                return True
        return data.count(HEAD_END) < room

    def _parse_held(self) -> None:
        """Parse `_unparsed` while there is room for requests. Reading stops until all of it is parsed."""
        while self._unparsed and (room := self.settings.pipelined_requests - len(self.pipeline)) > 0:
            size = max(room * SHORTEST_HEAD, self._body_left)
            piece = bytes(self._unparsed[:size])
            del self._unparsed[:size]
            self._parse(piece)
        if self._unparsed:
            self.flow.hold()
        elif self._refusal is None and not self.transport.is_closing():
            self.flow.holds = False
            if not self.pipeline:  # otherwise the next response resumes reading
                self.flow.resume_reading()

    def _parse(self, data: bytes) -> None:
        """Feed the parser. It ends at a head that offers an upgrade, which the next one gets without the offer."""
        self._unused_bytes += len(data)
        while data:
            try:
                self.parser.feed_data(data)
                break
            except HttpParserUpgrade as offer:
                head = (self.parser.get_method(), self.url, self.parser.get_http_version(), self.headers)
                data = head_without_upgrade(*head) + data[offer.args[0] :]
                self.parser = HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
            except HttpParserError as error:
                reason = error.__context__
                self.send_400_response(str(reason) if isinstance(reason, Rejected) else "malformed HTTP request")
                return
        if self._unused_bytes > self.settings.header_bytes:
            part = "trailers" if self._body_is_open else "request line and headers"
            self.send_400_response(f"the {part} are longer than the limit of {self.settings.header_bytes} bytes")

    # --- one request --------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Parser callback: the first byte of a request."""
        super().on_message_begin()
        self._arm_head()

    def on_headers_complete(self) -> None:
        """Parser callback: the head is complete. Validates it and starts the request, or lets it wait for its turn."""
        self._unused_bytes = 0
        self._disarm()
        method, is_http_1_1 = self.parser.get_method(), self.parser.get_http_version() != "1.0"
        replace_host(self.url, self.headers, is_http_1_1=is_http_1_1)
        self._body_left, fault = check_head(
            method,
            self.url,
            self.headers,
            self.shared.origins,
            is_http_1_1=is_http_1_1,
            max_bytes=self.settings.header_bytes,
        )
        if not is_http_1_1:
            self.expect_100_continue = False  # such a client cannot parse it (RFC 9110 section 10.1.1)
        if self.parser.should_upgrade():
            if method == b"CONNECT":
                raise Rejected("the gateway is not a proxy: CONNECT is not supported")
            return  # the parser stops here
        if fault is None:
            super().on_headers_complete()
        else:
            self.app, app = self._refusing(fault), self.app
            super().on_headers_complete()
            self.app = app
        self._body_is_open = True
        self._trailers.size = 0
        self.headers = self._trailers
        if not self.pipeline:
            self._running = self.cycle

    def on_body(self, body: bytes) -> None:
        """Parser callback: a part of the body."""
        self._unused_bytes = 0
        self._body_left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Parser callback: the body is complete, or the rest of it has been discarded."""
        if self.parser.should_upgrade():
            return  # the head is about to be parsed again
        self._unused_bytes = 0
        self._body_is_open = False
        self._disarm()
        self._end_arrival()
        super().on_message_complete()
        if self.cycle.response_complete:
            self._arm(self.settings.keep_alive_seconds, self._close)

    def on_response_complete(self) -> None:
        """Start the next request, or begin to discard what remains of an unread body, with a deadline."""
        self._active_at = self.loop.time()
        self.flow.settle()  # before the next request begins
        if self.pipeline:
            self._running = self.pipeline[-1][0]
        super().on_response_complete()
        if self._unparsed and not self.transport.is_closing():
            self._parse_held()
            self._watch_reading()
        if self._refusal is not None:
            if self._is_idle():
                self._refuse(self._refusal)
        elif self._unanswered() is None:
            if self._has_ended:
                self.transport.close()
            elif self._body_is_open and not self.transport.is_closing():
                self._arm(self.settings.drain_seconds, self._close)
        self._watch_closing()

    def send_400_response(self, msg: str) -> None:
        """Answer malformed HTTP after all requests before it, and close the connection.

        If the malformed part is in the body of a request whose response has begun, that response is truncated.

        Args:
            msg: What is wrong, for the client.
        """
        self._disarm()
        self._unparsed.clear()
        if self._body_is_open:
            if self.cycle.response_complete:
                self._close()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.pipeline:
                self.pipeline.popleft()  # the newest
            elif self.cycle.response_started:
                self.transport.abort()
                return
        REFUSALS["malformed_http"] += 1
        body = encode(ErrorBody(error="invalid_request", message=msg))
        headers = {"content-type": "application/json", "content-length": len(body), "connection": "close", **UNCACHED}
        head = "".join(f"{name.lower()}: {value}\r\n" for name, value in headers.items())
        self._refusal = STATUS_LINE[400] + f"{head}\r\n".encode() + body
        if self._is_idle():
            self._refuse(self._refusal)
        else:
            self.flow.hold()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401 - as uvicorn's
        """Begin a request, but only when the responses before it have been read: its own would be held as well."""
        cycle.__class__ = Cycle  # uvicorn names the class that it makes, and asks nobody for another
        super()._start_asgi_task(cycle, _after_draining(cycle, app) if self.flow.write_paused else app)

    def _refusing(self, fault: Fault) -> Any:  # noqa: ANN401 - an ASGI application
        """Return an application that refuses the request whose head has just been parsed."""
        REFUSALS[fault.code] += 1
        body = encode(ErrorBody(error=fault.code, message=fault.message))
        headers = {"X-Content-Type-Options": "nosniff", **UNCACHED}
        return json_reply(body, ERROR_CODES[fault.code].status, headers)

    def _refuse(self, response: bytes) -> None:
        self.transport.write(response)
        self._close()

    def _is_idle(self) -> bool:
        """Whether no response is due, or will be written."""
        running = self._running
        return running is None or running.response_complete or running.disconnected

    def _watch_reading(self) -> None:
        """Arm the deadline for what should arrive next."""
        if self.transport.is_closing() or self._refusal is not None:
            return
        if self._body_is_open:
            self._watch_body()
        elif self._timer is None and self._unanswered() is None:  # any byte between requests begins a head
            self._arm_head()


def _after_draining(cycle: RequestResponseCycle, app: Any) -> Any:  # noqa: ANN401 - uvicorn's and Litestar's types differ
    """Return an application that begins when the client has read what is unsent, and not if it disconnects instead."""

    async def drained(*channels: Any) -> None:  # noqa: ANN401
        await cycle.flow.drain()
        if not cycle.disconnected:
            await app(*channels)

    return drained


def protocol_for(settings: Settings) -> type[GatewayProtocol]:
    """Return the protocol class of a server, which uvicorn instantiates for each connection."""
    attributes = {"settings": settings, "shared": Shared.of(settings)}
    return type("BoundProtocol", (GatewayProtocol,), attributes)
