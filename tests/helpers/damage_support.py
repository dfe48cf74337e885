"""A small store with some of everything, kinds of damage to its files, and what a gateway serves of it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

import coregw
from coregw._core import payload_matches
from coregw.engine import Engine
from coregw.errors import CoregwError, StoreDamaged
from coregw.store.rocksdb import open_store

HOWS = ["flip", "zero", "cut", "chop", "remove"]
KINDS = ["*.sst", "*.log", "MANIFEST-*", "CURRENT"]


@dataclass
class Truth:
    """What was stored and acknowledged: payloads and maps by CID, and the roots of names by revision."""

    payloads: dict[str, bytes] = field(default_factory=dict)
    roots: dict[str, dict[str, str]] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)


async def fill(path: Path, seed: int, *, is_killed: bool, openings: int = 2) -> Truth:
    """Make a store in some openings; its newest writes are in a log if it is `is_killed`."""
    rng = random.Random(seed)
    truth = Truth()
    for opening in range(openings):
        engine = Engine(await open_store(path, reserve_bytes=0))
        for size in (0, 1, 100, 3000, 60_000):
            await put(engine, truth, rng.randbytes(size), "sha2-256")
        await put(engine, truth, rng.randbytes(1_100_000) if opening else b"text, " * 30_000, "blake3")
        for count in (1, 40, 700):
            arcs = {f"d{number % 7}/f{number}-{opening}": rng.choice([*truth.payloads]) for number in range(count)}
            if opening and count == 40:
                arcs["nested"] = next(iter(truth.roots))
            created = await engine.create_root(json.dumps({"arcs": arcs}).encode())
            root: str = json.loads(created)["root"]
            truth.roots[root] = arcs
            for _ in range(2):
                await engine.publications.publish("s", f"n{count}", root, None)
                truth.names.setdefault(f"n{count}", []).append(root)
        if opening == openings - 1 and is_killed:
            shutil.copytree(path, path.with_name(path.name + "-copy"))
        await engine.close()
    if is_killed:
        shutil.rmtree(path)
        path.with_name(path.name + "-copy").rename(path)
    return truth


async def put(engine: Engine, truth: Truth, data: bytes, function: str) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield data

    truth.payloads[await engine.payloads.put(chunks(), "raw", function)] = data


def harm(file: Path, how: str, rng: random.Random) -> str:
    """Damage a file; what was done, empty if the file is empty."""
    data = bytearray(file.read_bytes())
    if how == "remove":
        file.unlink()
        return f"{file.name} removed"
    if not data:
        return ""
    at = rng.randrange(len(data))
    if how == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif how == "zero":
        at -= at % 4096
        data[at : at + 4096] = bytes(len(data[at : at + 4096]))
    elif how == "cut":
        del data[at:]
    else:
        at = len(data) - rng.randrange(1, min(len(data), 64) + 1)
        del data[at:]
    file.write_bytes(data)
    return f"{file.name}: {how} at byte {at}"


@dataclass
class Served:
    """What an engine serves of what was stored: wholly, with an error, or not at all."""

    whole: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)


async def served(path: Path, truth: Truth) -> Served:
    """Read everything that was stored, and fail on any wrong byte."""
    engine = Engine(await open_store(path, reserve_bytes=0))
    found = Served()
    try:
        for cid in truth.payloads:
            _note(found, cid, await _outcome(_check_payload(engine, cid)))
        for root, arcs in truth.roots.items():
            _note(found, root, await _outcome(_check_root(engine, root, arcs)))
    finally:
        await engine.close()
    return found


def _note(found: Served, cid: str, error: CoregwError | None) -> None:
    into = found.whole if error is None else found.refused if isinstance(error, StoreDamaged) else found.absent
    into.add(cid)


async def _outcome(check: Coroutine[object, object, None]) -> CoregwError | None:
    try:
        await check
    except CoregwError as error:
        return error
    return None


async def _check_payload(engine: Engine, cid: str) -> None:
    stored = await engine.payloads.find(cid)
    data = b"".join([chunk async for chunk in engine.payloads.read(stored, 0, stored.size)])
    assert payload_matches(cid, data)


async def _check_root(engine: Engine, root: str, arcs: dict[str, str]) -> None:
    found: dict[str, str] = {}
    after: list[str] | None = None
    while True:
        request = {"profile": "core.scan/v0alpha1", "root": root, "prefix": [], "limit": 1000}
        if after is not None:
            request["after"] = after
        body = json.dumps(request).encode()
        page = coregw.verify_scan_result(body, await engine.scan(body))
        found |= {"/".join(segments): target for segments, target in page.entries}
        if not page.more:
            break
        after = page.entries[-1][0]
    assert found == arcs
