"""Write coalescing: what is written within an event loop iteration is sent at its end.

An optimisation only (decision 0083): `GatewayProtocol` works without it.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final, cast

from coregw.gateway.http.connection import GatewayProtocol, Refusal
from coregw.gateway.settings import Settings

__all__ = ["MAX_HELD_BYTES", "CoalescingProtocol", "protocol_for"]

MAX_HELD_BYTES: Final = 64 << 10
"""Limit on what a transport holds until the end of an iteration, and on what is copied for that."""


class _Iteration:
    """The transports with data to send in the current event loop iteration."""

    def __init__(self) -> None:
        self._to_flush: list[_CoalescingTransport] = []

    def flush_later(self, transport: _CoalescingTransport) -> None:
        """Have a transport send what it holds after all callbacks that are ready."""
        if not self._to_flush:
            asyncio.get_running_loop().call_soon(self._flush)
        self._to_flush.append(transport)

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
    """A connection whose writes are coalesced."""

    iteration: ClassVar[_Iteration]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Wrap the transport."""
        super().connection_made(cast("asyncio.Transport", _CoalescingTransport(transport, self.iteration)))


def protocol_for(settings: Settings, refusal: Refusal) -> type[GatewayProtocol]:
    """Return the protocol class of a server, which uvicorn instantiates for each connection."""
    bound = {"settings": settings, "refusal": staticmethod(refusal), "iteration": _Iteration()}
    return type("BoundProtocol", (CoalescingProtocol,), bound)
