"""Memory of responses that clients have not read: a budget for all connections together."""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["SlowReader", "Unsent"]

_STALLED_SECONDS: Final = 0.5
"""A client that has read nothing for this long is stalled. Acknowledgements take a round trip."""

_HARD_LIMIT: Final = 1.5
"""At this multiple of the budget, clients are not given that time."""


class SlowReader(Protocol):
    """A client that has not read all of its responses."""

    def update(self, now: float) -> tuple[int, float]:
        """Return the bytes in the process's memory that it keeps there, and when it was last seen reading."""

    def reset(self) -> None:
        """End its connection at once."""


class Unsent:
    """The memory that the unsent bytes of all connections keep, but for those that have few.

    While there are more than the budget, stalled clients are disconnected, the longest stalled first. So clients that
    read are not affected by those that do not.
    """

    def __init__(self, limit: int) -> None:
        """Args: the budget in bytes."""
        self._limit = limit
        self._held: dict[SlowReader, int] = {}
        self.total = 0
        """Bytes that are held, as last seen."""
        self.reset = 0
        """How many clients were disconnected because they read nothing and memory was short."""
        self.slow = 0
        """How many clients were disconnected because they read too slowly."""

    def hold(self, reader: SlowReader, size: int, now: float) -> None:
        """Count what a client keeps, and disconnect stalled clients if it is too much. O(1) below the budget.

        Args:
            reader: The client.
            size: The bytes that are held for it, until `release`.
            now: The event loop's clock.
        """
        self.total += size - self._held.get(reader, 0)
        self._held[reader] = size
        if self.total > self._limit:
            self._relieve(reader, now)

    def release(self, reader: SlowReader) -> None:
        """Forget a client that has read enough, or is gone. Idempotent."""
        self.total -= self._held.pop(reader, 0)

    def _relieve(self, newest: SlowReader, now: float) -> None:
        """Disconnect clients, those first that have read nothing for the longest time. The newest has had no time."""
        read_at: dict[SlowReader, float] = {}
        for reader in self._held:
            size, read_at[reader] = reader.update(now)
            self.total += size - self._held[reader]
            self._held[reader] = size
        for reader in sorted(read_at, key=read_at.__getitem__):
            is_stalled = now - read_at[reader] >= _STALLED_SECONDS
            if self.total <= self._limit * (1 if is_stalled else _HARD_LIMIT):
                return
            if reader is not newest:
                self.release(reader)
                self.reset += 1
                reader.reset()
