"""What a fork does to connections: the child neither uses nor closes those of its parent.

Closing would end the parent's TLS sessions, and remove its sockets from an event loop that both processes share.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol

__all__ = ["Forkable", "watch_forks"]


class Forkable(Protocol):
    """A transport, as a child process finds it."""

    def forked(self) -> object:
        """Forget the connections of the parent process, and return them. Called in the child, before anything else."""


_watched: Final[weakref.WeakSet[Forkable]] = weakref.WeakSet()
_kept: Final[list[object]] = []
"""In a child: the connections of its parent, so that nothing ever closes them there."""


def watch_forks(transport: Forkable) -> None:
    """Call `forked` of a transport in every child process that is forked while it exists."""
    _watched.add(transport)


def _in_child() -> None:
    _kept.extend([transport.forked() for transport in _watched])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
