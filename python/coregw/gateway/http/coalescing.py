"""I/O coalescing: what connections read and write within an event loop iteration is parsed and sent together.

An optimisation only: `GatewayProtocol` works without it. Figures: ``docs/decisions/0083-answers-go-out-together.md``
and ``docs/decisions/0084-what-is-read-is-parsed-together.md``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, ClassVar, Final, cast

from coregw.gateway.http.connection import GatewayProtocol, Refusal
from coregw.gateway.settings import Settings

__all__ = ["MAX_HELD_BYTES", "MAX_SHORT_READ_BYTES", "CoalescingProtocol", "protocol_for"]

logger = logging.getLogger(__name__)

MAX_HELD_BYTES: Final = 64 << 10
"""Limit on what a transport holds until the end of an iteration, and on what is copied for that."""

MAX_SHORT_READ_BYTES: Final = 16 << 10
"""Limit on a read that is held. After a read this short, uvloop does not read the connection again in an iteration."""


class _Iteration:
    """The connections with data to parse, and the transports with data to send, in the current iteration."""

    def __init__(self) -> None:
        self._to_parse: list[CoalescingProtocol] = []
        self._to_flush: list[_CoalescingTransport] = []

    def parse_later(self, protocol: CoalescingProtocol) -> None:
        """Have a protocol parse what it holds after all connections have been read."""
        if not self._to_parse:
            asyncio.get_running_loop().call_soon(self._parse)
        self._to_parse.append(protocol)

    def flush_later(self, transport: _CoalescingTransport) -> None:
        """Have a transport send what it holds after all callbacks that are ready."""
        if not self._to_flush:
            asyncio.get_running_loop().call_soon(self._flush)
        self._to_flush.append(transport)

    def _parse(self) -> None:
        protocols, self._to_parse = self._to_parse, []
        for protocol in protocols:
            try:
                protocol.parse_held()
            except Exception:
                logger.exception("a connection failed")
                protocol.transport.abort()

    def _flush(self) -> None:
        transports, self._to_flush = self._to_flush, []
        for transport in transports:
            transport.flush()


class _CoalescingTransport:
    """A transport that sends what is written in an iteration in one piece, at the iteration's end.

    Uvicorn writes a response's head and body separately: two system calls and two packets. And if responses are sent
    between other work, a client on the same machine that is faster than the gateway goes to sleep between any two of
    them; waking it costs the gateway more than a lookup.
    """

    __slots__ = ("_held", "_iteration", "_transport")

    def __init__(self, transport: asyncio.Transport, iteration: _Iteration) -> None:
        self._transport = transport
        self._iteration = iteration
        self._held = b""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all other attributes of a transport
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Hold a piece. Flow control does not see what is held, so it is limited to `MAX_HELD_BYTES`."""
        if len(self._held) + len(data) > MAX_HELD_BYTES:
            held, self._held = self._held, b""
            self._transport.writelines([held, data] if held else [data])
        else:
            if not self._held:
                self._iteration.flush_later(self)
            self._held += data

    def flush(self) -> None:
        """Send what is held, unless the connection is closing."""
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self._transport.write(held)

    def close(self) -> None:
        """Close the connection after what has been written."""
        self.flush()
        self._transport.close()


class CoalescingProtocol(GatewayProtocol):
    """A connection that parses short reads together with those of other connections.

    uvloop releases the GIL after each of its own callbacks, two for each read, and takes it back a microsecond later.
    A thread that waits for the GIL is woken each time and finds it taken.
    """

    iteration: ClassVar[_Iteration]

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's own arguments
        super().__init__(*args, **kwargs)
        self._held = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Wrap the transport."""
        super().connection_made(cast("asyncio.Transport", _CoalescingTransport(transport, self.iteration)))

    def data_received(self, data: bytes) -> None:
        """Hold a short read, and parse a longer one at once."""
        if self._held or len(data) > MAX_SHORT_READ_BYTES:
            self.parse_held()
            super().data_received(data)
        else:
            self._unset_keepalive_if_required()  # the connection is not idle, although nothing is parsed yet
            self._held = data
            self.iteration.parse_later(self)

    def parse_held(self) -> None:
        """Parse what is held."""
        held, self._held = self._held, b""
        if held:
            super().data_received(held)

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio's
        """As `GatewayProtocol.eof_received`, after what was read before."""
        self.parse_held()
        return super().eof_received()

    def shutdown(self) -> None:
        """As `GatewayProtocol.shutdown`, after what was read before."""
        self.parse_held()
        super().shutdown()

    def _expire(self, on_expiry: Callable[[], None]) -> None:
        """Ignore a deadline that data read in the same iteration has met; uvloop runs timers before parsing."""
        timer = self._timer
        self.parse_held()
        if self._timer is timer:
            super()._expire(on_expiry)


def protocol_for(settings: Settings, refusal: Refusal) -> type[GatewayProtocol]:
    """Return the protocol class of a server, which uvicorn instantiates for each connection."""
    bound = {"settings": settings, "refusal": staticmethod(refusal), "iteration": _Iteration()}
    return type("BoundProtocol", (CoalescingProtocol,), bound)
