"""A gate that calls pass together, and that closes when the last of them has left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from coregw.errors import Unavailable

__all__ = ["DRAIN_SECONDS", "Gate"]

DRAIN_SECONDS: Final = 5.0
"""The longest time that closing the gate waits for the calls inside."""

_CLOSED_SECONDS: Final = 20.0
"""The longest time that a call waits at a closed gate."""


class Gate:
    """Shared access for calls (``with gate``), and exclusive access for what must not overlap with any (`closed`)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # taken directly where nobody waits: a condition's methods are Python functions
        self._changed = threading.Condition(self._lock)
        self._inside = 0
        self._is_closed = False
        self._closer = 0

    def __enter__(self) -> None:
        with self._lock:
            if (
                self._is_closed
                and self._closer != threading.get_ident()
                and not self._changed.wait_for(lambda: not self._is_closed, _CLOSED_SECONDS)
            ):
                raise Unavailable("the store is being reopened")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._is_closed:
                self._changed.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Let no call of another thread in, wait for those inside, and open again at the end.

        Raises:
            Unavailable: Calls were inside for `DRAIN_SECONDS`.
        """
        with self._changed:
            self._is_closed = True
            self._closer = threading.get_ident()
        try:
            self._drain()
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()

    def _drain(self) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: not self._inside, DRAIN_SECONDS):
                raise Unavailable(f"{self._inside} reads of the store did not end in {DRAIN_SECONDS:.0f} s")
