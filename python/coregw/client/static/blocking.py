"""The transport of static trees for the blocking client: an event loop in a thread of its own."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from coregw.client.connection import ConnectionOptions
from coregw.client.exchange.call import Answer, Call
from coregw.client.settings import ClientSettings
from coregw.client.static.transport import StaticTransport
from coregw.client.transport.address import Address
from coregw.client.transport.forks import watch_forks
from coregw.client.transport.gateways import Gateways
from coregw.client.transport.retries import Retries

__all__ = ["BlockingStaticTransport"]


class BlockingStaticTransport:
    """Answers the calls of a blocking client. Safe to share between threads, and to use after a fork.

    Args:
        address: The static tree.
        settings: The client's settings.
        connection: How the tree's server is reached.
    """

    def __init__(self, address: Address, settings: ClientSettings, connection: ConnectionOptions) -> None:
        self._address = address
        self._settings = settings
        self._connection = connection
        self._lock = threading.Lock()
        self._opened = ExitStack()
        self._running: tuple[BlockingPortal, StaticTransport] | None = self._start()
        watch_forks(self)

    def _start(self) -> tuple[BlockingPortal, StaticTransport]:
        try:
            portal: BlockingPortal = self._opened.enter_context(start_blocking_portal())
            transport = portal.call(StaticTransport, self._address, self._settings, self._connection)
            self._opened.callback(portal.call, transport.aclose)
        except BaseException:
            self._opened.close()
            raise
        return portal, transport

    def _started(self) -> tuple[BlockingPortal, StaticTransport]:
        running = self._running
        if running is None:
            with self._lock:
                running = self._running = self._running or self._start()
        return running

    def forked(self) -> object:
        """Forget the thread of the parent process, and return what is its own."""
        kept = self._opened, self._running
        self._lock, self._opened, self._running = threading.Lock(), ExitStack(), None
        return kept

    @property
    def gateways(self) -> Gateways:
        """The tree as the one gateway of a list."""
        return self._started()[1].gateways

    def retries(self) -> Retries:
        """Return the retries of one call; see `StaticTransport.retries`."""
        return self._started()[1].retries()

    def exchange(self, call: Call) -> Answer:
        """Answer a call; see `StaticTransport.exchange`. Sinks are called in the other thread."""
        portal, transport = self._started()
        future = portal.start_task_soon(transport.exchange, call)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Close the connections and end the thread. Idempotent."""
        self._opened.close()
