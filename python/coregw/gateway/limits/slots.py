"""Slots for long transfers: a limited number of them, of which stalled ones are given to others."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Final

from coregw.errors import Unavailable
from coregw.gateway.limits.arrival import Arrival
from coregw.gateway.limits.peers import Peer

__all__ = ["Slot", "Slots"]

_STALLED_SECONDS: Final = 1.0
"""A transfer that has waited this long for its client may lose its slot."""


class Slot:
    """One transfer.

    Attributes:
        peer: Its client.
        waits_since: Since when it has waited for the client; None while the gateway works on it.
    """

    __slots__ = ("_upload", "peer", "waits_since")

    def __init__(self, peer: Peer, upload: Arrival | None) -> None:
        self.peer = peer
        self.waits_since: float | None = None
        self._upload = upload

    def idle_since(self) -> float:
        """Return since when it has waited for the client; infinity if it does not wait."""
        since = self.waits_since if self._upload is None else self._upload.idle_since()
        return math.inf if since is None else since

    def end(self, error: Unavailable) -> None:
        """End it: the reader of an upload raises `error`, a download is cut."""
        if self._upload is None:
            self.peer.reset()
        else:
            self._upload.refuse(error)


class Slots:
    """The slots of one kind of transfer."""

    def __init__(self, transfers: str, limit: int, per_address: int, clock: Callable[[], float]) -> None:
        """Begin with all slots free.

        Args:
            transfers: What they are, for messages: a plural.
            limit: The number of slots.
            per_address: How many of them one address may have.
            clock: Returns the time in seconds.
        """
        self._transfers = transfers
        self._limit = limit
        self._per_address = per_address
        self._clock = clock
        self._taken: set[Slot] = set()

    def make_room(self, peer: Peer) -> None:
        """Make sure that a slot is free, if necessary by ending the transfer that is stalled for the longest time.

        Raises:
            Unavailable: If all are taken by transfers that are not stalled, or too many by the client's address.
        """
        of_address = sum(slot.peer.address == peer.address for slot in self._taken)
        if peer.address is not None and of_address >= self._per_address:
            raise Unavailable(f"too many {self._transfers} of your address are in progress; try again")
        if len(self._taken) < self._limit:
            return
        longest = min(self._taken, key=Slot.idle_since)
        if self._clock() - longest.idle_since() < _STALLED_SECONDS:
            raise Unavailable(f"too many {self._transfers} are in progress; try again")
        self._taken.discard(longest)
        longest.end(Unavailable(f"this was stalled, and other {self._transfers} need its place; try again"))

    def take(self, peer: Peer, upload: Arrival | None = None) -> Slot:
        """Take a slot until `leave`.

        Args:
            peer: The client.
            upload: What is being received, if that is the transfer; then `Slot.waits_since` is not used.

        Raises:
            Unavailable: As `make_room`.
        """
        self.make_room(peer)
        slot = Slot(peer, upload)
        self._taken.add(slot)
        return slot

    @contextmanager
    def held(self, peer: Peer) -> Iterator[None]:
        """Hold a place while work is done before a transfer.

        Raises:
            Unavailable: As `make_room`.
        """
        place = self.take(peer)
        try:
            yield
        finally:
            self.leave(place)

    async def occupy(self, chunks: AsyncGenerator[bytes, None], peer: Peer) -> AsyncGenerator[bytes, None]:
        """Yield the chunks of a response, which has a slot meanwhile.

        Raises:
            Unavailable: As `make_room`, at the first chunk.
        """
        async with aclosing(chunks):
            slot = self.take(peer)  # not earlier: a generator that is never started is never closed
            try:
                async for chunk in chunks:
                    slot.waits_since = self.now()
                    yield chunk
                    del chunk  # not held while the next one is awaited
                    slot.waits_since = None
            finally:
                self.leave(slot)

    def leave(self, slot: Slot) -> None:
        """Give a slot back. Idempotent."""
        self._taken.discard(slot)

    def now(self) -> float:
        """Return the time, for `Slot.waits_since`."""
        return self._clock()
