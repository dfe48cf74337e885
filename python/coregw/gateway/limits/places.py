"""Places for long transfers: a limited number of them, of which stalled ones are given to others."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from coregw.errors import Unavailable
from coregw.gateway.limits.arrival import Arrival
from coregw.gateway.limits.peers import Peer

__all__ = ["Place", "Places"]

_STALLED_SECONDS: Final = 1.0
"""A transfer that has waited this long for its client may lose its place."""


class Place:
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


class Places:
    """The places of one kind of transfer."""

    def __init__(self, transfers: str, limit: int, per_address: int, clock: Callable[[], float]) -> None:
        """Begin with all places free.

        Args:
            transfers: What they are, for messages: a plural.
            limit: The number of places.
            per_address: How many of them one address may have.
            clock: Returns the time in seconds.
        """
        self._transfers = transfers
        self._limit = limit
        self._per_address = per_address
        self._clock = clock
        self._taken: set[Place] = set()

    def make_room(self, peer: Peer) -> None:
        """Make sure that a place is free, if necessary by ending the transfer that is stalled for the longest time.

        Raises:
            Unavailable: If all are taken by transfers that are not stalled, or too many by the client's address.
        """
        of_address = sum(place.peer.address == peer.address for place in self._taken)
        if peer.address is not None and of_address >= self._per_address:
            raise Unavailable(f"too many {self._transfers} of your address are in progress; try again")
        if len(self._taken) < self._limit:
            return
        longest = min(self._taken, key=Place.idle_since)
        if self._clock() - longest.idle_since() < _STALLED_SECONDS:
            raise Unavailable(f"too many {self._transfers} are in progress; try again")
        self._taken.discard(longest)
        longest.peer.reset()

    def take(self, peer: Peer, upload: Arrival | None = None) -> Place:
        """Take a place until `leave`.

        Args:
            peer: The client.
            upload: What is being received, if that is the transfer; then `Place.waits_since` is not used.

        Raises:
            Unavailable: As `make_room`.
        """
        self.make_room(peer)
        place = Place(peer, upload)
        self._taken.add(place)
        return place

    async def occupy(self, chunks: AsyncGenerator[bytes, None], peer: Peer) -> AsyncGenerator[bytes, None]:
        """Yield the chunks of a response, which has a place meanwhile.

        Raises:
            Unavailable: As `make_room`, at the first chunk.
        """
        async with aclosing(chunks):
            place = self.take(peer)  # not earlier: a generator that is never started is never closed
            try:
                async for chunk in chunks:
                    place.waits_since = self.now()
                    yield chunk
                    del chunk  # not held while the next one is awaited
                    place.waits_since = None
            finally:
                self.leave(place)

    def leave(self, place: Place) -> None:
        """Give a place back. Idempotent."""
        self._taken.discard(place)

    def now(self) -> float:
        """Return the time, for `Place.waits_since`."""
        return self._clock()
