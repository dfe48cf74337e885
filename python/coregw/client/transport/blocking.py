"""The blocking transport: one libcurl multi handle for all threads of a client.

Waiting is a poll of our own: libcurl's blocking call would neither end at a deadline that moves nor return for a
signal; its `select` is limited to descriptors below 1024.
"""

from __future__ import annotations

import math
import queue
import select
import threading
import time
from typing import Final, Protocol

import pycurl

from coregw.client.settings import ClientSettings
from coregw.client.transport.exchange import Answer, Attempt, Call
from coregw.client.transport.gateways import Exchange, Gateways, Target, watch_forks
from coregw.client.transport.handle import Handle
from coregw.errors import CoregwError

__all__ = [
    "ERROR",
    "HANG_UP",
    "INVALID",
    "READABLE",
    "WRITABLE",
    "BlockingTransport",
    "Poller",
    "SelectPoller",
    "new_poller",
]

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


class BlockingTransport:
    """Exchanges over at most ``connections`` connections. Safe to share between threads, and to use after a fork.

    Args:
        gateways: The gateways, and which one is in use; may be shared with another transport.
        settings: The client's settings.
    """

    def __init__(self, gateways: Gateways, settings: ClientSettings) -> None:
        self.gateways = gateways
        self._settings = settings
        self._closed = False
        self._start()
        watch_forks(self)

    def _start(self) -> None:
        self._connections: set[_Connection] = set()  # all that are open
        self._idle: list[_Connection] = []
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()  # a semaphore whose fast path is in C
        for _ in range(self._settings.connections):
            self._free.put(None)

    def forked(self) -> object:
        """Forget the connections of the parent process, and return them."""
        connections = self._connections
        self._start()
        return connections

    def outcome(self, call: Call) -> Answer | CoregwError:
        """Return the answer to a call, or the error that it had, after all retries."""
        exchange = Exchange(call, self.gateways, self._settings)
        while True:
            try:
                return exchange.answered(self._attempt(exchange.begin(), exchange.call))
            except CoregwError as error:
                wait = exchange.failed(error)
                if wait is None:
                    return exchange.end(error)
            time.sleep(wait)

    def _attempt(self, target: Target, call: Call) -> Answer:
        attempt = Attempt(call, self._settings, target.address.shown)
        free = self._free
        try:
            free.get(timeout=max(0.0, min(attempt.deadline - time.monotonic(), threading.TIMEOUT_MAX)))
        except queue.Empty:
            raise attempt.overdue() from None
        try:
            connection = self._connection()
            try:
                answer = connection.exchange(target, call, attempt)
            except BaseException:
                self._connections.discard(connection)
                connection.close()
                raise
            self._idle.append(connection)
        finally:
            free.put(None)
        if self._closed:
            self.close()
        return answer

    def close(self) -> None:
        """Close the connections, those in use when their exchanges end."""
        self._closed = True
        while self._idle:
            connection = self._idle.pop()
            self._connections.discard(connection)
            connection.close()

    def _connection(self) -> _Connection:
        if self._closed:
            raise RuntimeError("the client is closed")
        try:
            return self._idle.pop()  # the one used last, whose connection is the least likely to have expired
        except IndexError:
            connection = _Connection()
            self._connections.add(connection)
            return connection


class _Connection:
    """A multi handle that carries one transfer at a time, so it keeps one connection."""

    def __init__(self) -> None:
        self._handle = Handle(is_live=False)
        self._poller = new_poller()
        self._timers: list[int] = []
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, 1)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._timers.append)

    def exchange(self, target: Target, call: Call, attempt: Attempt) -> Answer:
        """Attempt a call. After an exception, close the connection."""
        handle = self._handle
        handle.begin(target, call, attempt)
        try:
            self._multi.add_handle(handle.curl)
            try:
                self._drive(attempt)
                _, _, failed = self._multi.info_read()
                if failed:
                    _, code, message = failed[0]
                    raise pycurl.error(code, message)
                return handle.end()
            except pycurl.error as error:
                raise handle.failure(error) from None
            finally:
                self._multi.remove_handle(handle.curl)
        finally:
            handle.release()

    def close(self) -> None:
        """Close the connection."""
        self._multi.close()
        self._handle.curl.close()

    def _drive(self, attempt: Attempt) -> None:
        """Let libcurl send and receive until the transfer ends.

        Raises:
            pycurl.error: libcurl failed.
            Unavailable: The attempt's deadline has passed, or nothing was sent or received for too long.
        """
        handle, multi, timers, poll = self._handle, self._multi, self._timers, self._poller.poll
        expires = math.inf  # when libcurl wants to be called without an event
        now = active = time.monotonic()
        is_running = 1
        while is_running:
            if timers:
                delay = timers[-1] / 1000
                timers.clear()
                expires = math.inf if delay < 0 else now + delay
            events: list[tuple[int, int]] = []
            if expires > now:
                wait = min(expires, attempt.deadline, active + attempt.idle_seconds) - now
                events = poll(max(0, math.ceil(wait * 1000)))
            for descriptor, event in events:
                _, is_running = multi.socket_action(descriptor, _ready(event))
            if not events and expires <= now:
                expires = math.inf
                _, is_running = multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
            handle.process()
            if is_running and handle.is_starved and handle.chunks is not None:
                handle.supply(next(handle.chunks, None))
            now = time.monotonic()
            if events:
                active = now
            if not is_running:
                return
            if now >= attempt.deadline:
                raise attempt.overdue()
            if now >= active + attempt.idle_seconds and handle.has_connected():
                raise handle.idle()

    def _watch(self, what: int, descriptor: int, multi: object, data: object) -> None:
        """Take which events of a socket libcurl waits for; its `M_SOCKETFUNCTION`."""
        if what == pycurl.POLL_REMOVE:
            self._poller.unregister(descriptor)
        else:
            reads = READABLE if what & pycurl.POLL_IN else 0
            writes = WRITABLE if what & pycurl.POLL_OUT else 0
            self._poller.register(descriptor, reads | writes)


def _ready(event: int) -> int:
    """Return a poll event in libcurl's terms. A hang-up is read, so that libcurl finds what arrived before it."""
    readable = pycurl.CSELECT_IN if event & (READABLE | HANG_UP) else 0
    writable = pycurl.CSELECT_OUT if event & WRITABLE else 0
    failed = pycurl.CSELECT_ERR if event & (ERROR | INVALID) else 0
    return int(readable | writable | failed)
