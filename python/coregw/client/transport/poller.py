"""Waiting for the sockets of one connection: `select.poll`, or what stands for it where there is none (Windows)."""

from __future__ import annotations

import select
import time
from typing import Final, Protocol

__all__ = ["ERROR", "HANG_UP", "INVALID", "READABLE", "WRITABLE", "Poller", "SelectPoller", "new_poller"]

READABLE: Final[int] = getattr(select, "POLLIN", 1)
WRITABLE: Final[int] = getattr(select, "POLLOUT", 4)
ERROR: Final[int] = getattr(select, "POLLERR", 8)
HANG_UP: Final[int] = getattr(select, "POLLHUP", 16)
INVALID: Final[int] = getattr(select, "POLLNVAL", 32)


class Poller(Protocol):
    """What is used of `select.poll`."""

    def register(self, fd: int, eventmask: int, /) -> object:
        """Wait for events of a socket from now on, instead of those that were given before."""

    def unregister(self, fd: int, /) -> object:
        """Wait for no event of a socket any more."""

    def poll(self, timeout: float, /) -> list[tuple[int, int]]:
        """Return sockets with their events, after `timeout` milliseconds none."""


class SelectPoller:
    """A `Poller` by ``select``. On Windows any socket will do; elsewhere, descriptors below 1024."""

    def __init__(self) -> None:
        self._watched: dict[int, int] = {}

    def register(self, fd: int, eventmask: int, /) -> None:
        """See `Poller`."""
        self._watched[fd] = eventmask

    def unregister(self, fd: int, /) -> None:
        """See `Poller`."""
        del self._watched[fd]

    def poll(self, timeout: float, /) -> list[tuple[int, int]]:
        """See `Poller`."""
        if not self._watched:  # which select refuses on Windows
            time.sleep(timeout / 1000)
            return []
        reads = [each for each, mask in self._watched.items() if mask & READABLE]
        writes = [each for each, mask in self._watched.items() if mask & WRITABLE]
        # A connection attempt that fails is an exceptional condition on Windows.
        found = select.select(reads, writes, [*self._watched], timeout / 1000)
        events: dict[int, int] = {}
        for sockets, event in zip(found, (READABLE, WRITABLE, ERROR), strict=True):
            for each in sockets:
                events[each] = events.get(each, 0) | event
        return list(events.items())


def new_poller() -> Poller:
    """Return the best poller of this system."""
    return select.poll() if hasattr(select, "poll") else SelectPoller()
