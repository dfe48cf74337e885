"""The open connections: limited per address and in all; the longest idle one makes room for a new one."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from typing import Final, Protocol

__all__ = ["Crowd", "Member"]

_BUSY_SECONDS: Final = 0.05
"""Time after which idle connections are looked for again, when there was none."""


class Member(Protocol):
    """A connection.

    Attributes:
        address: What the limit per address counts it under; None if that does not apply.
    """

    address: str | None

    def idle_since(self) -> float | None:
        """Return since when it has waited for its client, by the loop's clock; None if the client waits for it."""

    def make_room(self) -> None:
        """End it now."""


class Crowd:
    """The open connections of a server.

    A connection counts as idle while it waits for its client, also within a request: for the rest of a head or body
    that arrives too slowly, and for a response to be read. One whose request is being worked on is never closed.
    """

    def __init__(self, limit: int, per_address: int) -> None:
        """Args: the most connections of all clients together, and of one address."""
        self._limit = limit
        self._per_address = per_address
        self._open: dict[Member, int] = {}  # numbered, so that the heap never compares connections
        self._by_address: Counter[str] = Counter()
        self._numbers = itertools.count()
        self._heap: list[tuple[float, int, Member]] = []
        self._filled = self._next_fill = float("-inf")  # when the heap was filled, and may be filled again
        self.closed = 0
        """How many connections were closed to make room, or not taken."""

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, member: Member, now: float) -> bool:
        """Take a new connection, closing the longest idle one if there are too many. Amortised O(log connections).

        Returns:
            False if it was not taken, since no other is idle. The caller closes it.
        """
        address = member.address
        if address is not None and self._by_address[address] >= self._per_address:
            oldest = self._longest_idle_of(address)
        elif len(self._open) >= self._limit:
            oldest = self._longest_idle(now)
        else:
            oldest = member
        if oldest is None:
            self.closed += 1
            return False
        if oldest is not member:
            self.closed += 1
            self.leave(oldest)
            oldest.make_room()
        self._open[member] = next(self._numbers)
        if address is not None:
            self._by_address[address] += 1
        return True

    def leave(self, member: Member) -> None:
        """Forget a connection that has ended. Idempotent."""
        if self._open.pop(member, None) is not None and member.address is not None:
            self._by_address[member.address] -= 1
            if not self._by_address[member.address]:
                del self._by_address[member.address]

    def _longest_idle_of(self, address: str) -> Member | None:
        """Return the connection of an address that has been idle for the longest time. O(connections)."""
        of_address = (member for member in self._open if member.address == address)
        idle = [
            (since, self._open[member], member) for member in of_address if (since := member.idle_since()) is not None
        ]
        return min(idle)[2] if idle else None

    def _longest_idle(self, now: float) -> Member | None:
        """Return the connection that has been idle for the longest time. Amortised O(log connections)."""
        found = self._pop()
        if found is None and now >= self._next_fill:
            idle = ((member.idle_since(), number, member) for member, number in self._open.items())
            self._heap = [(since, number, member) for since, number, member in idle if since is not None]
            heapq.heapify(self._heap)
            self._filled = now
            found = self._pop()
            if found is None:
                self._next_fill = now + _BUSY_SECONDS
        return found

    def _pop(self) -> Member | None:
        """Return the longest idle connection of those in the heap, if no other can have been idle for longer.

        The heap holds connections by the time since which they were idle when they were pushed, which only grows. So
        the first whose time is still the same is the longest idle of them. Those that are not in the heap were not idle
        when it was filled.
        """
        while self._heap:
            pushed, number, member = heapq.heappop(self._heap)
            if self._open.get(member) != number:
                continue
            since = member.idle_since()
            if since is None or since > self._filled:
                continue  # it may be in the next heap
            if since == pushed:
                return member
            heapq.heappush(self._heap, (since, number, member))
        return None
