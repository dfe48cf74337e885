"""What is between a gateway and its database: proxies that delay, hold back and cut connections, or speak TLS."""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

_PIECE_BYTES = 1 << 16
_SEEN_BYTES = 1 << 17
_SSL_REQUEST = struct.pack(">II", 8, 80877103)  # of PostgreSQL's protocol, section 54.2.11


@dataclass
class Proxy:
    """A proxy in front of a port of loopback. Its attributes may be changed at any time.

    Attributes:
        port: Where it listens.
        target: The port that it connects to.
        cuts: How many connections it has cut.
        rounds: How often the server has answered, of all connections: what it sends without being asked is no answer.
        cut_every: Cut each connection after about so many seconds; 0 for never.
        cut_before_answer_to: Cut a connection when the server answers after the client has sent these bytes, and forget
            them.
        cut_after: Cut each connection after it has passed so many bytes on, both directions together; 0 for never.
        sent: Bytes passed on to the server.
        received: Bytes passed on from it.
        cut_answers: The probability with which a connection is cut instead of passing an answer on: what the server
            has committed is not acknowledged.
        delay: Hold each piece back for so many seconds, in either direction.
        is_silent: Pass nothing on, and keep connections open: the other machine has lost its power.
    """

    port: int
    target: int
    cuts: int = 0
    rounds: int = 0
    cut_every: float = 0.0
    cut_before_answer_to: bytes = b""
    cut_after: int = 0
    sent: int = 0
    received: int = 0
    cut_answers: float = 0.0
    delay: float = 0.0
    is_silent: bool = False
    rng: random.Random = field(default_factory=random.Random)
    serving: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)
        await self._pass_on()
        try:
            there_reader, there = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        is_due, is_asked = asyncio.Event(), asyncio.Event()
        for each in (writer, there):  # what is written before a cut arrives
            each.transport.set_write_buffer_limits(0)
        passed = [0]
        up = self._up(reader, there, is_due, is_asked, passed)
        down = self._down(there_reader, writer, is_due, is_asked, passed)
        calls = (up, down, self._limit())
        tasks = [asyncio.ensure_future(call) for call in calls]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # by `proxy_of`; asyncio of Python 3.11 logs that as an error
            pass
        finally:
            for task in tasks:
                task.cancel()
            for each in (writer, there):
                each.transport.abort()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass_on(self) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)
        while self.is_silent:
            await asyncio.sleep(0.05)

    async def _up(
        self,
        reader: asyncio.StreamReader,
        there: asyncio.StreamWriter,
        is_due: asyncio.Event,
        is_asked: asyncio.Event,
        passed: list[int],
    ) -> None:
        seen = b""
        while data := await reader.read(_PIECE_BYTES):
            is_asked.set()
            if self.cut_before_answer_to:
                seen = (seen + data)[-_SEEN_BYTES:]
                if self.cut_before_answer_to in seen:
                    is_due.set()
            await self._pass_on()
            data = self._allowed(data, passed)
            self.sent += len(data)
            there.write(data)
            await there.drain()
            if self._is_over(passed):
                return

    async def _down(
        self,
        there: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        is_due: asyncio.Event,
        is_asked: asyncio.Event,
        passed: list[int],
    ) -> None:
        while data := await there.read(_PIECE_BYTES):
            self.rounds += is_asked.is_set()
            is_asked.clear()
            if is_due.is_set() or (self.cut_answers and self.rng.random() < self.cut_answers):
                if is_due.is_set():
                    self.cut_before_answer_to = b""
                self.cuts += 1
                return
            await self._pass_on()
            data = self._allowed(data, passed)
            self.received += len(data)
            writer.write(data)
            await writer.drain()
            if self._is_over(passed):
                return

    def _allowed(self, data: bytes, passed: list[int]) -> bytes:
        """Return as much as a connection may still pass on, and count it."""
        if self.cut_after:
            data = data[: max(0, self.cut_after - passed[0])]
        passed[0] += len(data)
        return data

    def _is_over(self, passed: list[int]) -> bool:
        """Whether a connection is to be cut now."""
        is_over = 0 < self.cut_after <= passed[0]
        self.cuts += is_over
        return is_over

    async def _limit(self) -> None:
        while not self.cut_every:
            await asyncio.sleep(0.05)
        await asyncio.sleep(self.cut_every * self.rng.uniform(0.5, 1.5))
        self.cuts += 1


@asynccontextmanager
async def proxy_of(target: int) -> AsyncIterator[Proxy]:
    """Run a proxy in front of a port."""
    proxy = Proxy(0, target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for task in proxy.serving:
            task.cancel()
        await asyncio.gather(*proxy.serving, return_exceptions=True)


@dataclass
class TlsFront:
    """What a PostgreSQL server that takes nothing but TLS is to its clients, in front of one that has none.

    Attributes:
        port: Where it listens.
        sessions: How many TLS sessions began.
    """

    port: int
    target: int
    context: ssl.SSLContext
    sessions: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: its first message has to be an SSLRequest."""
        try:
            if await reader.readexactly(len(_SSL_REQUEST)) != _SSL_REQUEST:
                return
            writer.write(b"S")
            await writer.start_tls(self.context)
            self.sessions += 1
            there_reader, there = await asyncio.open_connection("127.0.0.1", self.target)
            try:
                pipes = [asyncio.ensure_future(_pipe(*pair)) for pair in ((reader, there), (there_reader, writer))]
                await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
                for pipe in pipes:
                    pipe.cancel()
                await asyncio.gather(*pipes, return_exceptions=True)
            finally:
                there.transport.abort()
        except (OSError, asyncio.IncompleteReadError):  # a client that does not trust the certificate, or has gone
            return
        finally:
            writer.transport.abort()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE_BYTES):
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def tls_front(target: int, certificate: Path) -> AsyncIterator[TlsFront]:
    """Run a `TlsFront`. The key of the certificate is in the file with the suffix ``.key``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, f"{certificate}.key")
    front = TlsFront(0, target, context)
    server = await asyncio.start_server(front.serve, "127.0.0.1", 0)
    front.port = server.sockets[0].getsockname()[1]
    try:
        yield front
    finally:
        server.close()
