"""The pace at which a client has to send a body, or read a response."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Pace", "Rate"]


class Rate(NamedTuple):
    """What `Pace` demands.

    Attributes:
        bytes_per_second: The minimum rate; 0 if any progress counts.
        grace_seconds: Time before the rate applies.
        pause_seconds: The longest pause, however fast the transfer was before.
    """

    bytes_per_second: int
    grace_seconds: float
    pause_seconds: float


class Pace:
    """The deadline of a transfer, which moves with its progress. All times are those of the event loop's clock.

    Bytes that move extend the deadline by the time that they may take at the minimum rate, but never beyond the longest
    pause. So a client that was fast has time for a pause, and one that trickles is overdue soon after the grace period.

    Attributes:
        deadline: When the transfer is overdue.
        since: Since when it has been slower than the minimum rate.
    """

    __slots__ = ("_moved", "_rate", "deadline", "since")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._moved = 0  # since `since`
        self.restart(now)

    def restart(self, now: float) -> None:
        """Begin again with a grace period: until now it was not the client who kept the transfer waiting."""
        self.deadline = now + min(self._rate.grace_seconds, self._rate.pause_seconds)
        self.since = now
        self._moved = 0

    def move(self, count: int, now: float) -> None:
        """Note that `count` bytes have moved. O(1)."""
        if count <= 0:
            return
        rate, _, pause = self._rate
        latest = now + pause
        self.deadline = latest if rate == 0 else min(self.deadline + count / rate, latest)
        self._moved += count
        if self._moved >= rate * (now - self.since):
            self.since = now
            self._moved = 0
