"""The asyncio driver: one libcurl multi handle on the event loop, for all connections of a client."""

from __future__ import annotations

import asyncio
import time

import pycurl

from coregw.client.settings import ClientSettings
from coregw.client.transport.exchange import Answer, Attempt, Call
from coregw.client.transport.gateways import Exchange, Gateways, Target, milliseconds, watch_forks
from coregw.client.transport.handle import Handle
from coregw.concurrency import in_thread
from coregw.errors import CoregwError

__all__ = ["AsyncTransport"]


class AsyncTransport:
    """Exchanges over at most ``connections`` connections, by the tasks of one event loop. Of no use after a fork.

    Args:
        gateways: The gateways, and which one is in use; may be shared with another transport.
        settings: The client's settings.
    """

    def __init__(self, gateways: Gateways, settings: ClientSettings) -> None:
        self.gateways = gateways
        self._settings = settings
        self._multi = pycurl.AsyncCurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, settings.connections)
        self._idle: list[Handle] = []
        self._free = asyncio.BoundedSemaphore(settings.connections)
        self._is_forked = False
        watch_forks(self)

    def forked(self) -> object:
        """Refuse further calls, and return the connections of the parent process: its event loop is not this one's."""
        self._is_forked = True
        idle, self._idle = self._idle, []
        return idle, self._multi

    async def outcome(self, call: Call) -> Answer | CoregwError:
        """Return the answer to a call, or the error that it had, after all retries.

        Raises:
            RuntimeError: The process was forked after the client was made.
        """
        exchange = Exchange(call, self.gateways, self._settings)
        while True:
            try:
                return exchange.answered(await self._attempt(exchange.begin(), exchange.call))
            except CoregwError as error:
                wait = exchange.failed(error)
                if wait is None:
                    return exchange.end(error)
            await asyncio.sleep(wait)

    async def _attempt(self, target: Target, call: Call) -> Answer:
        if self._is_forked:
            raise RuntimeError("the process was forked after this client was made: make one in the child")
        attempt = Attempt(call, self._settings, target.address.shown)
        async with self._free:
            handle = self._idle.pop() if self._idle else Handle(is_live=True)
            handle.begin(target, call, attempt)
            is_bounded = handle.chunks is None and call.sink is None  # its deadline stays where it is
            left = attempt.deadline - time.monotonic()
            handle.curl.setopt(pycurl.TIMEOUT_MS, milliseconds(left) if is_bounded else 0)
            future = self._multi.add_handle(handle.curl)
            try:
                if not is_bounded:
                    await self._stream(handle, attempt, future)
                await future
                answer = handle.end()
            except pycurl.error as error:
                if is_bounded and time.monotonic() >= attempt.deadline:
                    raise attempt.overdue() from None
                raise handle.failure(error) from None
            finally:
                if not future.done():
                    self._multi.remove_handle(handle.curl)
                elif not future.cancelled():
                    future.exception()  # retrieved: asyncio would log it if something else ended the exchange first
                handle.release()
            self._idle.append(handle)
            return answer

    async def aclose(self) -> None:
        """Close the connections. What is in progress is cancelled."""
        if self._is_forked:
            return
        await self._multi.aclose()
        while self._idle:
            self._idle.pop().curl.close()

    async def _stream(self, handle: Handle, attempt: Attempt, transfer: asyncio.Future[pycurl.Curl]) -> None:
        """Supply the body, and watch a deadline that every chunk postpones.

        Raises:
            Unavailable: The deadline has passed.
        """
        wake = asyncio.Event()
        handle.on_starved = wake.set
        transfer.add_done_callback(lambda _: wake.set())
        while not transfer.done():
            wake.clear()
            if handle.is_starved and handle.chunks is not None:
                # in a worker thread, because reading a file blocks
                chunk = await in_thread(next, handle.chunks, None)
                if not transfer.done():
                    handle.supply(chunk)
            handle.process()  # what has arrived postpones the deadline
            left = attempt.deadline - time.monotonic()
            if left <= 0:
                raise attempt.overdue()
            timer = asyncio.get_running_loop().call_later(left, wake.set)
            try:
                await wake.wait()
            finally:
                timer.cancel()
