"""One large file in and out: how close `coregw get` comes to what its stages allow, each measured alone.

The stages of a download are reading payloads from the store, sending them through a socket, and hashing and writing
them. They work at the same time, so they allow a download to be as fast as the slowest of them, or as all cores are
with the CPU time of all of them, whichever takes longer.

Before each round, all files that it reads are loaded into the page cache, as far as they fit. Otherwise some rounds
would wait for the disk to read what others find in memory.
"""

from __future__ import annotations

import asyncio
import base64
import mmap
import os
import random
import shutil
import socket
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import coregw
import report
from coregw import _core
from coregw.client import Client
from coregw.client.folders.restore import REQUEST_BYTES, REQUESTS
from coregw.engine import Engine
from coregw.messages import encode
from coregw.messages.payloads import GetBatchRequest
from coregw.store.rocksdb import open_store
from user_peers import Coregw

LARGE_BYTES = 2 << 30
QUICK_BYTES = 256 << 20
MIN_SHARE = 0.7
"""The bar: the rate of `coregw get`, divided by what its stages allow."""

_PIECE_BYTES = 1 << 20
_NAME = "large.bin"
_VERSION = 1
"""Counted up when the generated file changes."""

Parts = Sequence[tuple[str, int]]
"""The payloads of the file in order: CIDs and sizes."""


def large_folder(size: int) -> Path:
    """Return a folder with one file of random bytes, made on the first call."""
    folder = report.REPOSITORY / "target" / "bench-data" / f"large-{_VERSION}-{size}"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        rng = random.Random(_VERSION)
        with (partial / _NAME).open("wb") as file:
            for _ in range(size // _PIECE_BYTES):
                file.write(rng.randbytes(_PIECE_BYTES))
        partial.rename(folder)
    return folder


def measure_large(figures: report.Report, size: int, rounds: int, folder: Path) -> None:
    """Report the rates of all stages and of the download, medians of some rounds, and the download's share."""
    tree = large_folder(size)
    tool = Coregw(folder / "large", tree)
    try:
        tool.add()
        with Client(tool.url) as client:
            target = next(leaf.target for leaf in client.entries(tool.root) if leaf.segments == [_NAME])
            parts = client.list_elements(target)
        inputs = (tool.folder / "data", tree)
        whole, _ = _seconds(lambda number: tool.get(folder / f"got-{number}"), rounds, inputs)
    finally:
        tool.close()
    stages: dict[str, Callable[[int], None]] = {
        "read from the store": lambda _: asyncio.run(_read(tool.folder / "data", parts)),
        "send through a socket": lambda _: _send(size),
        "hash and write": lambda number: _write(tree / _NAME, folder / f"written-{number}", parts),
    }
    series = f"get a file of {size / (1 << 30):g} GiB"
    slowest = total = 0.0
    for name, stage in stages.items():
        taken, busy = _seconds(stage, rounds, inputs)
        slowest, total = max(slowest, taken), total + busy
        figures.add(f"{name}, MB/s", size / taken / 1e6, "", series=series, recorded=False)
    figures.add("coregw get, MB/s", size / whole / 1e6, "", series=series, recorded=False)
    allowed = max(slowest, total / (os.cpu_count() or 1))
    figures.add(
        "rate / what the stages allow", allowed / whole, series=series, better="higher", bar=MIN_SHARE, guarded=True
    )


def _seconds(work: Callable[[int], object], rounds: int, inputs: Sequence[Path]) -> tuple[float, float]:
    """Return the medians of the seconds and of the CPU seconds that some rounds take; `work` gets their numbers.

    The files in the folders `inputs` are in the page cache when a round begins, if there is memory for them.
    """
    taken: list[float] = []
    busy: list[float] = []
    for number in range(rounds):
        os.sync()
        _load(inputs)
        before, start = os.times(), time.perf_counter()
        work(number)
        taken.append(time.perf_counter() - start)
        busy.append(sum(os.times()[:4]) - sum(before[:4]))
    return statistics.median(taken), statistics.median(busy)


def _load(folders: Sequence[Path]) -> None:
    """Read all files in some folders."""
    for path in [path for folder in folders for path in folder.rglob("*") if path.is_file()]:
        # A gateway that runs may delete files of its store.
        with suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
            while file.read(_PIECE_BYTES):
                pass


def _requests(parts: Parts) -> Iterator[list[str]]:
    """Yield what `coregw get` asks for at once."""
    cids: list[str] = []
    total = 0
    for cid, size in parts:
        if cids and total + size > REQUEST_BYTES:
            yield cids
            cids, total = [], 0
        cids.append(cid)
        total += size
    yield cids


async def _read(data: Path, parts: Parts) -> None:
    """Let an engine write the answers to all requests, and drop them."""
    store = await open_store(data)
    engine = Engine(store)
    requests = _requests(parts)

    async def read(requests: Iterator[list[str]]) -> AsyncIterator[int]:
        for cids in requests:
            async for chunk in await engine.cars.export_payloads(encode(GetBatchRequest(cids=cids))):
                yield len(chunk)

    async def total() -> int:
        return sum([size async for size in read(requests)])

    try:
        assert sum(await asyncio.gather(*(total() for _ in range(REQUESTS)))) > sum(size for _, size in parts)
    finally:
        await store.close()


def _send(size: int) -> None:
    """Send so many bytes to another process, over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = os.fork()
        if child == 0:
            with socket.create_connection(server.getsockname()) as connection:
                piece = bytes(_PIECE_BYTES)
                for _ in range(size // _PIECE_BYTES):
                    connection.sendall(piece)
            os._exit(0)
        connection, _ = server.accept()
        buffer = bytearray(_PIECE_BYTES // 2)
        with connection:
            received = 0
            while count := connection.recv_into(buffer):
                received += count
        _, status = os.waitpid(child, 0)
        assert (received, status) == (size, 0)


def _write(source: Path, folder: Path, parts: Parts) -> None:
    """Give the answers to all requests to a writer, from memory."""
    folder.mkdir()
    sizes = dict(parts)
    writer = _core.FolderWriter(folder)
    _, [(number, *_)] = writer.add_listed(_listing(coregw.List(*map(list, zip(*parts, strict=True))).root), 0)
    writer.supply_list(number, list(parts))
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        writer.start()
        at = 0
        while sinks := [sink for _ in range(REQUESTS) if (sink := writer.request(REQUEST_BYTES, LARGE_BYTES))]:
            for sink in sinks:
                sink.write(_core.payload_car_header())
                for cid in sink.cids:
                    sink.write(_core.block_head(cid, sizes[cid]))
                    sink.write(content[at : at + sizes[cid]])
                    at += sizes[cid]
            assert not any(sink.finish() for sink in sinks)
        writer.finish()
    writer.close()


def _listing(target: str) -> _core.FolderListing:
    """Return the proven listing of a folder that has one file."""
    folder = coregw.Map({_NAME: target})
    root, found = {"/": folder.root}, folder.scan("", limit=1)
    asked = {"prefix": [], "limit": 1}
    step = {"kind": "map_scan", "from": root, "target": root, **asked, "more": False}
    proof = {"evidence_kind": "tree", "evidence_backend": "sha2-256", "proof": base64.b64encode(found.proof).decode()}
    prooflist = {"root": root, "query": "scan:", "steps": [step | proof]}
    profile, entries = "core.scan/v0alpha1", [{"segments": [_NAME], "target": target}]
    result = {"profile": profile, "entries": entries, "more": False, "prooflist": prooflist}
    listing = _core.FolderListing(folder.root)
    listing.add_files(encode({"profile": profile, "root": folder.root, **asked}), encode(result))
    return listing
