"""Payloads through HTTP, compared with their stages in sequence.

The stages of an upload are receiving and hashing it (the same server and route, with a store that discards the bytes),
and RocksDB's synced writes of the same rows; those of a download are RocksDB's reads and sending a constant. If
each stage waited for the previous one, the rate would be 1 / the sum of 1 / rate. Each round measures all of them, and
the median of the rounds' ratios counts, because the speed of a shared machine varies over time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

import report
from bench_store import Bare
from coregw._core import PayloadChunk
from coregw.gateway import server
from coregw.gateway.access import AccessToken
from coregw.gateway.app import create_app_over
from coregw.gateway.context import Gateway as Context
from coregw.gateway.settings import MIB, Settings
from coregw.store import CHUNK_BYTES
from coregw.store.protocol import Put, WriteOutcomes
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.store import RocksThreadCalls

LARGE = 64 * MIB
SMALL = 4096
CONNECTIONS = 128
GROUP = 64
"""Small payloads per batch and sync of bare RocksDB: about as many as per group commit of the gateway, which receives
half of the uploads in flight while the other half waits for the disk."""


def discard(
    _calls: RocksThreadCalls,
    payloads: Sequence[tuple[bytes, bytes]],
    puts: Sequence[Put],
    renewals: Sequence[Sequence[bytes]],
    chunks: Sequence[PayloadChunk] = (),
    dropped: Sequence[int] = (),
) -> WriteOutcomes:
    """Write nothing, and say that payloads are stored."""
    assert not [*puts, *renewals, *dropped]
    return WriteOutcomes([None] * len(payloads), [], [], [None] * len(chunks))


def constant_app(gateway: Context, *tokens: AccessToken | None) -> Any:  # noqa: ANN401 - an ASGI app
    RocksThreadCalls.write = discard  # type: ignore[method-assign]
    app, chunk = create_app_over(gateway, *tokens), os.urandom(CHUNK_BYTES)

    async def answer(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        """Send the same chunk repeatedly for a path that no route has; the front answers those of payloads itself."""
        if scope["path"] != "/constant":
            await app(scope, receive, send)
            return
        length = (b"content-length", b"%d" % LARGE)
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        for sent in range(0, LARGE, CHUNK_BYTES):
            is_last = sent + CHUNK_BYTES == LARGE
            await send({"type": "http.response.body", "body": chunk, "more_body": not is_last})

    return answer


APPS = {"gateway": create_app_over, "constant": constant_app}


class Gateway(NamedTuple):
    """A running server."""

    pid: int
    address: str

    def post(self, data: bytes) -> str:
        """Upload a payload and return its CID."""
        connection = HTTPConnection(self.address)
        connection.request("POST", "/v1/cas", data)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 201, body
        connection.close()
        return body.decode().split('"')[3]

    def get(self, path: str) -> None:
        """Download a payload and discard it."""
        connection = HTTPConnection(self.address)
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        buffer, count = bytearray(MIB), 0
        while n := answer.readinto(buffer):
            count += n
        assert count == LARGE
        connection.close()

    def memory(self, field: str) -> float:
        """Return the process's memory in MiB: current (``VmRSS``), or peak since the last reset (``VmHWM``)."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))

    def growth(self, work: Callable[[], object]) -> float:
        """Return by how many MiB the peak memory during `work` exceeds the memory before it."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        before = self.memory("VmRSS")
        work()
        return self.memory("VmHWM") - before


@contextmanager
def serving(kind: str, data: Path) -> Iterator[Gateway]:
    """Start a server in a process of its own."""
    process = subprocess.Popen([sys.executable, __file__, kind, str(data)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Gateway(process.pid, process.stdout.readline().rpartition("/")[2].strip())
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


class Uploader(asyncio.Protocol):
    """A connection that uploads small payloads one at a time."""

    def __init__(self, bodies: Iterator[bytes], done: asyncio.Future[None]) -> None:
        self.bodies, self.done, self.answer = bodies, done, b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.next()

    def next(self) -> None:
        body = next(self.bodies, None)
        if body is None:
            self.transport.close()
            self.done.set_result(None)
        else:
            head = b"POST /v1/cas HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n" % len(body)
            self.transport.write(head + body)

    def data_received(self, data: bytes) -> None:
        self.answer += data
        if self.answer.startswith(b"HTTP/1.1 201 ") and self.answer.endswith(b"}"):
            self.answer = b""
            self.next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"connection closed after {self.answer!r}"))


def upload_small(gateway: Gateway, bodies: list[bytes], connections: int) -> None:
    uvloop.run(_upload_small(gateway, bodies, connections))


async def _upload_small(gateway: Gateway, bodies: list[bytes], connections: int) -> None:
    loop = asyncio.get_running_loop()
    host, _, port = gateway.address.rpartition(":")
    rest = iter(bodies)
    ends = [loop.create_future() for _ in range(connections)]
    for end in ends:
        await loop.create_connection(lambda end=end: Uploader(rest, end), host, int(port))
    await asyncio.gather(*ends)


def rate(amount: float, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return amount / (time.perf_counter() - start)


def write_large(bare: Bare, name: bytes, data: bytes) -> None:
    for number, at in enumerate(range(0, LARGE, CHUNK_BYTES)):
        bare.write(Family.CHUNKS, [(b"%s %3d" % (name, number), data[at : at + CHUNK_BYTES])])
    bare.write(Family.PAYLOADS, [(name, bytes(20))])
    bare.db.flush_wal(True)


def read_large(bare: Bare, name: bytes) -> None:
    for number in range(LARGE // CHUNK_BYTES):
        bare.get(Family.CHUNKS, [b"%s %3d" % (name, number)])


def write_small(bare: Bare, bodies: list[bytes]) -> None:
    """Write one batch and make one sync per group."""
    for at in range(0, len(bodies), GROUP):
        group = [(b"small " + body[:32], body) for body in bodies[at : at + GROUP]]
        bare.write(Family.CHUNKS, group)
        bare.write(Family.PAYLOADS, [(key, bytes(20)) for key, _ in group])
        bare.db.flush_wal(True)


class Rates:
    """The rates of an operation and of its stages, round by round."""

    def __init__(self, amount: float) -> None:
        self.amount = amount
        self.rounds: list[dict[str, float]] = []

    def measure(self, **works: Callable[[], object]) -> None:
        """Measure one round: the rate of each, by name."""
        self.rounds.append({name.replace("_", " "): rate(self.amount, work) for name, work in works.items()})

    def relative_to_sequence(self) -> float:
        """Return the gateway's rate divided by the rate of its stages in sequence."""
        return statistics.median(
            each["gateway"] * sum(1 / value for name, value in each.items() if name != "gateway")
            for each in self.rounds
        )

    def medians(self) -> dict[str, float]:
        """Return the median rate of each."""
        return {name: statistics.median(each[name] for each in self.rounds) for name in self.rounds[0]}


def measure(figures: report.Report, directory: Path, *, quick: bool) -> None:
    rounds, small_count = (3, 2000) if quick else (5, 10_000)
    up, down, small, alone = Rates(64), Rates(64), Rates(small_count), Rates(300)
    bare = Bare(directory / "bare")
    with (
        serving("gateway", directory / "gateway") as gateway,
        serving("constant", directory / "constant") as constant,
    ):
        first = gateway.growth(lambda: gateway.post(os.urandom(LARGE)))
        for i in range(rounds):
            data, name = os.urandom(LARGE), b"large %d" % i
            up.measure(
                gateway=partial(gateway.post, data),
                hashed_and_discarded=partial(constant.post, data),
                RocksDB=partial(write_large, bare, name, data),
            )
            cid = gateway.post(data)
            for _ in range(5):  # short, so easily disturbed
                down.measure(
                    gateway=partial(gateway.get, f"/v1/cas/{cid}"),
                    constant_sent=partial(constant.get, "/constant"),
                    RocksDB=partial(read_large, bare, name),
                )
        for _ in range(3 * rounds):  # three threads on few cores: the least steady rows
            bodies = [os.urandom(SMALL) for _ in range(small_count)]
            small.measure(
                gateway=partial(upload_small, gateway, bodies, CONNECTIONS),
                hashed_and_discarded=partial(upload_small, constant, bodies, CONNECTIONS),
                RocksDB=partial(write_small, bare, bodies),
            )
            few = [os.urandom(SMALL) for _ in range(300)]
            alone.measure(gateway=partial(upload_small, gateway, few, 1))
        growths = memory(gateway, 1 if quick else 3)
    for name, rates in (("64 MiB upload", up), ("64 MiB download", down), (f"{small_count:,} uploads of 4 KiB", small)):
        sequence = rates.relative_to_sequence()
        figures.add("gateway / its stages in sequence", sequence, series=name, better="higher", bar=0.7, guarded=True)
        for stage, value in rates.medians().items():
            figures.add(stage, value, "1/s" if rates is small else "MiB/s", series=name, recorded=False)
    shared = small.medians()["gateway"] / alone.medians()["gateway"]
    figures.add(
        f"{CONNECTIONS} connections / one", shared, series=f"{small_count:,} uploads of 4 KiB", better="higher", bar=2
    )
    series = "growth of peak memory"
    for name, value in growths.items():
        figures.add(name, value, "MiB each", series=series, better="lower", bar=16)
    figures.add("the first upload, with write buffers", first, "MiB", series=series, note="allocated once per process")


def memory(gateway: Gateway, rounds: int) -> dict[str, float]:
    """Return the growth of peak memory per upload or download in MiB, in the worst round."""
    worst: dict[str, float] = {}
    gateway.post(os.urandom(LARGE))  # fills RocksDB's write buffers again, which exist once
    with ThreadPoolExecutor(8) as pool:
        for _ in range(rounds):
            payloads = [os.urandom(LARGE) for _ in range(8)]
            cids: list[str] = []
            for name, value in {
                "one upload": gateway.growth(lambda: gateway.post(os.urandom(LARGE))),
                "8 concurrent uploads": gateway.growth(lambda p=payloads, c=cids: c.extend(pool.map(gateway.post, p)))
                / 8,
                "8 concurrent downloads": gateway.growth(
                    lambda c=cids: list(pool.map(gateway.get, [f"/v1/cas/{each}" for each in c]))
                )
                / 8,
            }.items():
                worst[name] = max(value, worst.get(name, 0))
    return worst


def main() -> None:
    args = report.arguments(__doc__)
    notes = (
        "Stages in sequence: 1 / the sum of 1 / rate; medians of all rounds. Uploads are acknowledged when durable.",
        f"Small payloads: {CONNECTIONS} connections; bare RocksDB writes and syncs batches of {GROUP}.",
        "Memory: growth of the process's peak, in the worst round.",
    )
    figures = report.Report("payloads", "Payloads through HTTP", args, notes)
    with tempfile.TemporaryDirectory(dir=report.REPOSITORY / "target") as directory:
        measure(figures, Path(directory), quick=args.quick)
    figures.finish()


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in APPS:
        settings = Settings(data=Path(sys.argv[2]), port=0, log_level="error")
        server.create_app_over = APPS[sys.argv[1]]
        server.run(settings)
    else:
        main()
