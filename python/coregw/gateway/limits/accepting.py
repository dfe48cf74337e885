"""Accepting connections: short requests of clients that still wait first, and no more than the event loop can serve.

A client that gives up leaves its connection in the kernel's queue, with the request that it has sent. When connections
come faster than they are served, most of that queue is such connections, and it is first in, first out. So it is
emptied here, and in each event loop iteration a few of these connections are admitted:

```
kernel's queue ──┬── short: at most 4 KiB have arrived; up to 16
                 ├── long: the first bytes of an upload; then these
                 ├── the client has closed its side: one, after the others, since it may read a response
                 └── reset: closed
```

If several have closed their side, they are sent an interim response, which those that have gone answer with a reset.

Iterations get longer with the work that clients bring. From 10 ms of CPU time on, fewer of the others than short ones
are admitted, and while the bodies of those that are open wait for the loop (`coregw.gateway.limits.iteration`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from coregw.gateway.limits.iteration import IterationBudget
from coregw.gateway.limits.tcp import CONTINUE, arrived_bytes, is_half_closed, is_reset
from coregw.telemetry import RepeatedFailure

__all__ = ["MAX_ACCEPTS", "MAX_ADMISSIONS", "Acceptor"]

logger = logging.getLogger("coregw.gateway")

MAX_ACCEPTS: Final = 256
"""Connections that are taken out of the kernel's queue in one event loop iteration."""

MAX_ADMISSIONS: Final = 16
"""Connections that are admitted in one event loop iteration."""

_SHORT_BYTES: Final = 4096

_LONG_SECONDS: Final = 0.01
"""Iterations that take more CPU time admit fewer connections."""

_MIN_CREDIT: Final = 0.1
"""The part of a connection that the longest iteration admits of those that are not short."""

_RETRY_SECONDS: Final = 0.2
"""Time until the next attempt if the process or the system has no descriptor or memory left for a connection."""

_HTTP_1_1: Final = b" HTTP/1.1\r\n"

_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Acceptor:
    """Accepts the connections of one listening socket, on the running event loop."""

    def __init__(
        self, listener: socket.socket, create: Callable[[], asyncio.Protocol], limit: int, share: IterationBudget
    ) -> None:
        """Begin to accept.

        Args:
            listener: The listening socket, which stays open.
            create: Makes the protocol of a connection.
            limit: The most connections that wait here. More replace the oldest whose client has closed its side, or
                wait in the kernel.
            share: The event loop's time for request bodies.
        """
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._create = create
        self._limit = limit
        self._share = share
        self._short: deque[socket.socket] = deque()
        self._long: deque[socket.socket] = deque()
        self._half_closed: deque[socket.socket] = deque()
        self._credit = 1.0  # how many others than short ones may be admitted
        self._next: asyncio.Handle | None = None  # which admits in the next iteration
        self._admitted_at = 0.0  # by the thread's CPU time: other processes make no iteration longer
        self._connecting: set[asyncio.Task[object]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._exhausted = RepeatedFailure(logger, "no connection can be accepted", "connections are accepted again")
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept)

    async def close(self) -> None:
        """Stop accepting; what was accepted is connected or closed on return. Idempotent."""
        self._loop.remove_reader(self._listener)
        for handle in (self._next, self._retry):
            if handle is not None:
                handle.cancel()
        for queue in (self._short, self._long, self._half_closed):
            while queue:
                queue.pop().close()
        if self._connecting:
            await asyncio.wait(self._connecting)

    def _accept(self) -> None:
        """Empty the kernel's queue, up to a limit."""
        for _ in range(MAX_ACCEPTS):
            if len(self._short) + len(self._long) + len(self._half_closed) >= self._limit:
                if not self._half_closed:
                    break
                self._half_closed.popleft().close()
            try:
                accepted = self._listener.accept()[0]
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(error)
                    break
                # otherwise it is an error of that connection
            else:
                self._exhausted.ends()
                self._sort(accepted)
        if self._next is None:
            self._admit(1.0)

    def _admit_next(self) -> None:
        """Admit connections in an iteration that follows another one that did."""
        seconds = time.thread_time() - self._admitted_at
        self._admit(1.0 if seconds <= _LONG_SECONDS else (_LONG_SECONDS / seconds) ** 2)

    def _admit(self, share: float) -> None:
        """Admit connections; of those that are not short, this part of what a short iteration admits."""
        left = MAX_ADMISSIONS - self._admit_from(self._short, MAX_ADMISSIONS)
        share = 0.0 if self._share.is_behind else share
        self._credit = min(self._credit, 1.0) + max(share * left, _MIN_CREDIT)
        self._credit -= self._admit_from(self._long, int(self._credit))
        if self._half_closed and self._credit >= 1.0:
            self._credit -= 1.0
            self._connect(self._half_closed.popleft())
        self._next = None
        if self._short or self._long or self._half_closed:
            self._next = self._loop.call_soon(self._admit_next)
            self._admitted_at = time.thread_time()

    def _admit_from(self, queue: deque[socket.socket], limit: int) -> int:
        """Admit up to `limit` connections that still belong into a queue; return how many.

        If more wait, the newest and the oldest in turn: of those between, most have clients that will give up.
        """
        admitted = 0
        is_crowded, is_newest = len(queue) > limit, False
        while queue and admitted < limit:
            is_newest = is_crowded and not is_newest
            accepted = queue.pop() if is_newest else queue.popleft()
            if self._queue_of(accepted) is queue:
                self._connect(accepted)
                admitted += 1
            else:
                self._sort(accepted)
        return admitted

    def _sort(self, accepted: socket.socket) -> None:
        """Let a connection wait, or close it."""
        queue = self._queue_of(accepted)
        if queue is self._half_closed and queue and _is_gone(accepted):
            queue = None
        if queue is None:
            accepted.close()
        else:
            queue.append(accepted)

    def _queue_of(self, accepted: socket.socket) -> deque[socket.socket] | None:
        """Return the queue of a connection; None if it was reset."""
        if is_reset(accepted):
            return None
        if is_half_closed(accepted):
            return self._half_closed
        return self._short if arrived_bytes(accepted) <= _SHORT_BYTES else self._long

    def _connect(self, accepted: socket.socket) -> None:
        task = self._loop.create_task(self._connected(accepted))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connected(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._create, accepted)
        except OSError as error:  # the client was faster
            accepted.close()
            logger.debug("a connection ended before it was served: %s", error)

    def _pause(self, error: OSError) -> None:
        """Stop accepting for a while."""
        self._exhausted.occurs(error.strerror)
        self._loop.remove_reader(self._listener)
        self._retry = self._loop.call_later(_RETRY_SECONDS, self._loop.add_reader, self._listener, self._accept)


def _is_gone(accepted: socket.socket) -> bool:
    """Whether a client that has closed its side is known to read nothing; if it is not yet, it will be a reset."""
    try:
        if _HTTP_1_1 not in accepted.recv(_SHORT_BYTES, socket.MSG_PEEK):
            return False  # HTTP/1.0 has no interim responses
        accepted.send(CONTINUE)
    except OSError:
        return True
    return is_reset(accepted)
