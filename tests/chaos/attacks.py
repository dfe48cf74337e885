"""What hostile clients do: each attack is one connection's behaviour, repeated until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

ADDRESS = "127.0.0.1"
"""From where attackers connect; honest clients use another address of this machine."""

_MIB = 1 << 20


@dataclass(frozen=True)
class Target:
    """What the attackers know of the gateway."""

    port: int
    large: str
    """The CID of a large payload."""
    root: str
    """A root with many paths."""
    sequence: str
    """A list of 10,000 elements."""
    long_keys: str
    """A map of 1,000 long paths."""


Attack = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Target, random.Random], Awaitable[None]]


async def keep_attacking(attack: Attack, target: Target, connections: int, seed: int, stop: asyncio.Event) -> None:
    """Run an attack on so many connections at once, each replaced when it ends, until `stop` is set."""
    tasks = [
        asyncio.create_task(_attack(attack, target, random.Random(f"{seed} {number}"), stop))
        for number in range(connections)
    ]
    await stop.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _attack(attack: Attack, target: Target, rng: random.Random, stop: asyncio.Event) -> None:
    while not stop.is_set():
        writer = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", target.port, local_addr=(ADDRESS, 0))
            await attack(reader, writer, target, rng)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            await asyncio.sleep(0.05)
        finally:
            if writer is not None:
                writer.transport.abort()


def _head(method: str, path: str, length: int | None = None, kind: str = "application/json") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    if length is not None:
        lines += [f"Content-Type: {kind}", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


async def _forever(writer: asyncio.StreamWriter, piece: Callable[[], bytes], seconds: float) -> None:
    while True:
        writer.write(piece())
        await writer.drain()
        await asyncio.sleep(seconds)


async def slow_heads(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: Target, rng: random.Random) -> None:
    """A head that arrives byte by byte."""
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-")
    await _forever(writer, lambda: rng.choice(b"abc").to_bytes(), 0.2)


async def slow_bodies(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: Target, rng: random.Random) -> None:
    """An upload that announces much and arrives byte by byte."""
    path = rng.choice(["/v1/cas", "/v1/roots", "/v1/cas/has", "/v1/resolve", "/v1/car"])
    kind = "application/vnd.ipld.car" if path == "/v1/car" else "application/json"
    writer.write(_head("POST", path, rng.choice([1000, _MIB, 16 * _MIB]), kind))
    await _forever(writer, lambda: b" ", 0.2)


async def stalled_bodies(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: Target, rng: random.Random) -> None:
    """A large body that stops half way."""
    writer.write(_head("POST", rng.choice(["/v1/roots", "/v1/roots/x/mutations"]), 16 * _MIB))
    writer.write(b" " * (4 * _MIB))
    await writer.drain()
    await asyncio.sleep(3600)


async def unread_responses(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target, rng: random.Random
) -> None:
    """Large responses that nobody reads."""
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    scan = json.dumps({"profile": "core.scan/v0alpha1", "root": target.root, "prefix": [], "limit": 1000}).encode()
    ask = rng.choice([_head("GET", f"/v1/cas/{target.large}"), _head("POST", "/v1/scan", len(scan)) + scan])
    writer.write(ask * 8)
    await asyncio.sleep(3600)


async def pipelines(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target, _: random.Random
) -> None:
    """Thousands of requests behind a response that nobody reads."""
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(_head("GET", f"/v1/cas/{target.large}") + _head("GET", "/healthz") * 5000)
    await asyncio.sleep(3600)


async def idle_connections(_: asyncio.StreamReader, __: asyncio.StreamWriter, ___: Target, rng: random.Random) -> None:
    """Nothing at all."""
    await asyncio.sleep(rng.uniform(30, 3600))


async def long_queries(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target, rng: random.Random
) -> None:
    """The longest listings and batches, one after the other, whose answers are read."""
    scan = {"profile": "core.scan/v0alpha1", "root": target.root, "prefix": []}
    batch = {"root": target.root, "paths": [[str(number % 10), str(number)] for number in range(1000)]}
    while True:
        path, request = rng.choice([("/v1/scan", scan), ("/v1/resolve/batch", batch)])
        body = json.dumps(request).encode()
        writer.write(_head("POST", path, len(body)) + body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r")[0]))


def _query(path: str, request: dict[str, object]) -> bytes:
    body = json.dumps(request).encode()
    return _head("POST", path, len(body)) + body


async def _trickled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """Ask for something once, and read it as slowly as the gateway permits."""
    writer.write(request)
    while await reader.read(64):
        await asyncio.sleep(0.5)


async def ranges(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target, _: random.Random) -> None:
    """The longest range of a list, asked for by all at once, when no page is cached."""
    query = {"kind": "list_range", "start": 0, "end": 10_000}
    request = {"profile": "core.read/v0alpha1", "root": target.sequence, "query": query}
    await _trickled(reader, writer, _query("/v1/read", request))


async def scans(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target, _: random.Random) -> None:
    """A listing of the longest paths, asked for by all at once, when no page is cached."""
    request = {"profile": "core.scan/v0alpha1", "root": target.long_keys, "prefix": [], "limit": 1000}
    await _trickled(reader, writer, _query("/v1/scan", request))


async def abandoned(_: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target, rng: random.Random) -> None:
    """Requests of all kinds whose clients do not wait for responses, one after the other."""
    arcs = json.dumps({"arcs": {f"{rng.randrange(1 << 40)}/{n}": target.large for n in range(1000)}}).encode()
    root = _head("POST", "/v1/roots", len(arcs)) + arcs
    upload = _head("POST", "/v1/cas", 300_000, "application/octet-stream") + bytes(300_000)
    export = _head("GET", f"/v1/roots/{target.root}/car")
    writer.write(rng.choice([root, root[: rng.randrange(50, len(root))], upload, export]))
    async with asyncio.timeout(2):
        await writer.drain()
    await asyncio.sleep(rng.choice([0, 0.01]))


async def many_objects(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target, rng: random.Random
) -> None:
    """A body of very many small objects."""
    body = b'{"deltas":[{"kind":"map","changes":[' + b"{}," * rng.randrange(10, 300_000) + b"{}]}]}"
    writer.write(_head("POST", f"/v1/roots/{target.root}/mutations", len(body)) + body)
    await reader.readuntil(b"\r\n\r\n")


async def malformed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: Target, rng: random.Random) -> None:
    """Something that is no HTTP, no JSON, or no request."""
    body = rng.choice([b"[" * 100_000, b'{"a":' * 1000, rng.randbytes(500), b'"\\ud800"', b"1e999", b"\xff\xfe"])
    resolve = _head("POST", "/v1/resolve", len(body)) + body
    chunked = b"POST /v1/cas HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(
        rng.choice(
            [
                resolve,
                rng.randbytes(300) + b"\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
                chunked + b"ffffffffffffffff\r\n",
                chunked + b"0\r\n" + b"X: y\r\n" * 20_000,
                b"POST /v1/cas HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                b"POST /v1/roots HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
                + b" " * 20_000
                + b"x\r\nContent-Length: 2\r\n\r\n{}",
            ]
        )
    )
    async with asyncio.timeout(5):
        await reader.read(1 << 16)


async def aborted(_: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target, rng: random.Random) -> None:
    """Uploads and downloads that are given up half way."""
    upload = _head("POST", "/v1/cas", 3 * _MIB, "application/octet-stream") + bytes(rng.randrange(2 * _MIB))
    writer.write(rng.choice([upload, _head("GET", f"/v1/cas/{target.large}")]))
    await writer.drain()
    await asyncio.sleep(rng.choice([0, 0.01, 0.1]))


ATTACKS: dict[str, Attack] = {
    "slow heads": slow_heads,
    "slow bodies": slow_bodies,
    "long queries": long_queries,
    "stalled bodies": stalled_bodies,
    "unread responses": unread_responses,
    "pipelines": pipelines,
    "idle connections": idle_connections,
    "many objects": many_objects,
    "malformed": malformed,
    "aborted": aborted,
    "ranges": ranges,
    "scans": scans,
    "abandoned": abandoned,
}
