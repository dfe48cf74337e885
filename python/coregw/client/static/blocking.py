"""The transport of static trees for the blocking client: an event loop in a thread of its own."""

from __future__ import annotations

import os
from contextlib import ExitStack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from coregw.client.exchange import Answer, Call
from coregw.client.settings import ClientSettings
from coregw.client.static.transport import StaticTransport
from coregw.client.transport.address import Address
from coregw.client.transport.retries import Retries

__all__ = ["BlockingStaticTransport"]


class BlockingStaticTransport:
    """Answers the calls of a blocking client. Safe to share between threads, and to use after a fork.

    Args:
        address: The static tree.
        settings: The client's settings.
    """

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self._address = address
        self._settings = settings
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._opened = ExitStack()
        try:
            self._portal: BlockingPortal = self._opened.enter_context(start_blocking_portal())
            self._transport = self._portal.call(StaticTransport, self._address, self._settings)
            self._opened.callback(self._portal.call, self._transport.aclose)
        except BaseException:
            self._opened.close()
            raise

    def retries(self) -> Retries:
        """Return the retries of one call; see `StaticTransport.retries`."""
        return self._transport.retries()

    def exchange(self, call: Call) -> Answer:
        """Answer a call; see `StaticTransport.exchange`. Sinks are called in the other thread."""
        if self._process != os.getpid():
            self._opened.pop_all()  # the thread of the parent process does not exist here
            self._start()
        future = self._portal.start_task_soon(self._transport.exchange, call)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Close the connections and end the thread. Idempotent."""
        if self._process == os.getpid():
            self._opened.close()
