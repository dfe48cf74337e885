"""Connections after a fork: the child neither uses nor closes those of its parent.

Closing would end the parent's TLS sessions, and remove its sockets from an event loop that both processes share.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Final, Protocol

__all__ = ["Forkable", "watch_forks"]


class Forkable(Protocol):
    """A transport, as a child process finds it."""

    def forked(self) -> object:
        """Forget the connections of the parent process, and return them. Called in the child, before anything else."""


_watched: Final[weakref.WeakSet[Forkable]] = weakref.WeakSet()
_lock: Final = threading.RLock()
"""Held during a fork, and while `_watched` changes."""

_forking: Final[list[Forkable]] = []
"""Transports of a process that forks: a function that another library calls in the child may drop the last reference to
one, and what that closes must have been forgotten before."""

_kept: Final[list[object]] = []
"""In a child: the connections of its parent, so that nothing ever closes them there."""


def watch_forks(transport: Forkable) -> None:
    """Call `forked` of a transport in every child process that is forked while it exists."""
    with _lock:
        _watched.add(transport)


def _before() -> None:
    _lock.acquire()
    _forking.extend(_watched)


def _in_parent() -> None:
    _forking.clear()
    _lock.release()


def _in_child() -> None:
    _kept.extend([transport.forked() for transport in _forking])
    _forking.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
