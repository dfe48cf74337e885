"""HTTP/1.1 connections with deadlines, and with their share of what a server has for all clients.

What is parsed, and when a request begins, is in `coregw.gateway.http.connection`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from coregw.gateway.http.framing import HeldFlow
from coregw.gateway.http.shared import Shared
from coregw.gateway.limits.arrival import Arrival
from coregw.gateway.limits.outgoing import Outgoing, reset
from coregw.gateway.limits.peers import Peer
from coregw.gateway.settings import Settings

__all__ = ["LimitedProtocol"]


class LimitedProtocol(HttpToolsProtocol):
    """One connection: watches how fast its client sends and reads.

    At most one deadline for reading is armed at a time, besides uvicorn's keep-alive timeout, and one for writing.

    Attributes:
        address: See `coregw.gateway.limits.crowd.Member`.
    """

    settings: ClassVar[Settings]
    shared: ClassVar[Shared]
    flow: HeldFlow
    address: str | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's own arguments
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._outgoing: Outgoing | None = None  # while much is unsent
        self._arrival: Arrival | None = None  # while a body is arriving
        self._body_left = 0  # how much of a body with a Content-Length has not arrived; less for others
        self._peer: Peer | None = None
        self._active_at = 0.0  # when the connection was opened, or the last response completed

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Arm the deadline of the first request head, or close a connection for which there is no room."""
        super().connection_made(transport)
        self.flow = HeldFlow(transport)
        self.address = self.shared.proxies.key_of(self.client[0] if self.client else None)
        self._peer = Peer(self.address, self.make_room, self.has_left, self.shared.share)
        self.app_state = self._peer.as_state()
        self._active_at = self.loop.time()
        if self.shared.crowd.enter(self, self._active_at):
            self._arm_head()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all deadlines, and give back what the connection has taken."""
        self._disarm()
        self._stop_watching_writes()
        self._end_arrival()
        self.shared.crowd.leave(self)
        if self._peer is not None:
            self._peer.forget()
        super().connection_lost(exc)

    def idle_since(self) -> float | None:
        """See `coregw.gateway.limits.crowd.Member`."""
        if self._outgoing is not None:
            return max(self._active_at, self._outgoing.update(self.loop.time())[1])
        if self._unanswered() is None:
            return self._active_at
        return None if self._arrival is None else self._arrival.idle_since()

    def has_left(self) -> bool:
        """Whether the client has disconnected."""
        return self.transport.is_closing()

    def make_room(self) -> None:
        """Close the connection at once, and free what it holds."""
        if self._outgoing is not None:
            reset(self.transport)
        else:
            self.transport.abort()

    def _unanswered(self) -> RequestResponseCycle | None:
        """Return the newest request if its response is not complete."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        return None if cycle is None or cycle.response_complete else cycle

    # --- deadlines for reading ----------------------------------------------------------------------------------------

    def _arm(self, seconds: float, on_expiry: Callable[[], None]) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, on_expiry)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm_head(self) -> None:
        self._arm(self.settings.header_seconds, self._on_head_overdue)

    def _on_head_overdue(self) -> None:
        """Close the connection, unless the client waits: reading has stopped, or a response is due."""
        if self.flow.read_paused or self._unanswered() is not None:
            self._arm_head()
        else:
            self._close()

    def _watch_body(self) -> None:
        """Note that a part of a body has arrived. Bodies that are complete, as most are, never get here."""
        if self._arrival is not None:
            self._arrival.move(self._body_left)
        elif (cycle := self._unanswered()) is not None:  # otherwise the rest is discarded, with a deadline of its own
            clock, seconds = self.loop.time, self.settings.body_seconds
            self._arrival = Arrival(
                self.shared.body_rate, seconds, self._body_left, clock, self._is_not_reading, self._wake_reader
            )
            self._arrival.bind(cycle.scope["state"])
            self._arm(self._arrival.seconds_left(), self._on_body_overdue)

    def _is_not_reading(self) -> bool:
        """Whether the client has to wait for the gateway before it may send more of a body."""
        return self.flow.read_paused or bool(self.cycle.waiting_for_100_continue)

    def _wake_reader(self) -> None:
        """Let the reader of a body find that it will not be complete, and close the connection after its response."""
        self.cycle.keep_alive = False
        self.cycle.message_event.set()

    def _on_body_overdue(self) -> None:
        """Give up the body if it is overdue; progress does not rearm the timer."""
        if self._arrival is None:
            return
        seconds = self._arrival.seconds_left()
        if seconds > 0:
            self._arm(seconds, self._on_body_overdue)
        else:
            self._arrival.give_up()

    def _end_arrival(self) -> None:
        if self._arrival is not None:
            self._arrival.forget()
            self._arrival = None

    # --- deadlines for writing ----------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Begin to check that the client reads, since much is unsent."""
        super().pause_writing()
        self._watch_writes()

    def resume_writing(self) -> None:
        """Stop checking that the client reads."""
        super().resume_writing()
        self._active_at = self.loop.time()
        self._stop_watching_writes()

    def _close(self) -> None:
        """Close the connection after what has been written."""
        self.transport.close()
        self._watch_closing()

    def _watch_closing(self) -> None:
        """Check that the client reads what is unsent, if the connection is closing."""
        if self.transport.is_closing() and self._outgoing is None and self.transport.get_write_buffer_size():
            self._watch_writes()

    def _watch_writes(self) -> None:
        if self._outgoing is None:
            shared, part_bytes = self.shared, self.flow.part_bytes
            self._outgoing = Outgoing(self.transport, part_bytes, shared.read_rate, shared.unsent, self.loop)

    def _stop_watching_writes(self) -> None:
        if self._outgoing is not None:
            self._outgoing.stop()
            self._outgoing = None
