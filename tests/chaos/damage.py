"""Damage to the files of a stopped gateway: flipped bits, zeroed pages, missing ends, missing files; then a start.

The gateway may refuse to start, if it says why, and it may answer with errors. It must neither answer that something
acknowledged does not exist, nor with wrong bytes.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import httpx2

import serving
from chaos.ledger import Ledger, Verdict, check
from chaos.load import Load
from chaos.report import Report

COUNT = 120

_LOAD_SECONDS = 1.2
_PAGE_BYTES = 4096
_FILES = {
    "rocksdb/*.sst": 8,
    "rocksdb/*.log": 6,
    "rocksdb/MANIFEST-*": 5,
    "rocksdb/CURRENT": 1,
    "rocksdb/OPTIONS-*": 1,
    "rocksdb/IDENTITY": 1,
    "rocksdb/rocksdict-config.json": 1,
    "coregw-store.json": 1,
}
"""What is damaged, with its weight."""


@dataclass(frozen=True)
class _Store:
    data: Path
    ledger: Ledger


def run(seed: int, count: int, folder: Path, *, seconds: float = _LOAD_SECONDS, openings: int = 2) -> Report:
    """Damage copies of two stores `count` times: one that was stopped, and one that was killed.

    Args:
        seed: Chooses the load and the damage.
        count: The number of damaged files.
        folder: An empty folder.
        seconds: The load that makes each store, in each of its openings.
        openings: How often each store is opened: more than once gives table files of several ages.
    """
    rng = random.Random(seed)
    stores = [
        _made(folder / name, seed, seconds, openings, is_killed=name == "killed") for name in ("stopped", "killed")
    ]
    outcomes, bad = Counter[str](), list[str]()
    for store in stores:  # the control: without damage, everything is there
        verdict, outcome = _outcome(store, folder / "undamaged", rng)
        if outcome != "right":
            bad.append(f"the undamaged store {store.data}: {outcome} {verdict.examples()}")
    checked = 0
    for number in range(count):
        store = rng.choice(stores)
        probe = folder / f"probe-{number}"
        shutil.copytree(store.data, probe)
        what = _damaged(probe, rng)
        verdict, outcome = _outcome(_Store(probe, store.ledger), probe, rng)
        checked += verdict.checked
        outcomes[outcome] += 1
        if outcome in _BAD:
            bad.append(f"{outcome}: {store.data.name} store, {what}: {verdict.examples()[:2]}")
        else:
            shutil.rmtree(probe)
    figures = {"seed": seed, "damaged": count, "checked": checked, "outcomes": dict(sorted(outcomes.items()))}
    return Report("damage", not bad, figures, bad[:12])


_BAD = frozenset({"silent loss", "wrong bytes", "crash", "unclear refusal"})


def _made(data: Path, seed: int, seconds: float, openings: int, *, is_killed: bool) -> _Store:
    """Make a store under load."""
    ledger = Ledger()
    load = Load(ledger, seed)
    for _ in range(openings):
        gateway = serving.start(data, serving.ADMIN, log=data.with_suffix(".log"))
        with load.on(gateway.url):
            time.sleep(seconds)
        if is_killed:
            gateway.popen.kill()
        else:
            gateway.end()
        gateway.popen.communicate()
    (data / "control.sock").unlink(missing_ok=True)
    return _Store(data, ledger)


def _damaged(data: Path, rng: random.Random) -> str:
    """Damage one file. Returns what was done."""
    while True:
        (pattern,) = rng.choices(list(_FILES), list(_FILES.values()))
        files = sorted(data.glob(pattern))
        if not files:
            continue
        (file,) = rng.choices(files, [1 + file.stat().st_size ** 0.5 for file in files])
        how = rng.choice([_flip, _zero, _cut, _trim, _remove])
        before = file.read_bytes()
        place = how(file, before, rng)
        if not file.exists() or file.read_bytes() != before:
            return f"{file.name} ({len(before):,} bytes) {place}"


def _flip(file: Path, before: bytes, rng: random.Random) -> str:
    position = rng.randrange(len(before) or 1)
    data = bytearray(before)
    if data:
        data[position] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return f"with a bit flipped at {position:,}"


def _zero(file: Path, before: bytes, rng: random.Random) -> str:
    start = rng.randrange(len(before) or 1) // _PAGE_BYTES * _PAGE_BYTES
    end = min(start + _PAGE_BYTES, len(before))
    file.write_bytes(before[:start] + bytes(end - start) + before[end:])
    return f"with a page zeroed at {start:,}"


def _cut(file: Path, before: bytes, rng: random.Random) -> str:
    size = rng.randrange(len(before) or 1)
    file.write_bytes(before[:size])
    return f"cut to {size:,} bytes"


def _trim(file: Path, before: bytes, rng: random.Random) -> str:
    size = max(0, len(before) - rng.randint(1, 64))
    file.write_bytes(before[:size])
    return f"trimmed to {size:,} bytes"


def _remove(file: Path, _: bytes, rng: random.Random) -> str:
    file.unlink()
    return "removed"


def _outcome(store: _Store, probe: Path, rng: random.Random) -> tuple[Verdict, str]:
    """Start a gateway on a store and check everything that was acknowledged."""
    log = probe.with_suffix(".log")
    log.unlink(missing_ok=True)
    try:
        gateway = serving.start(store.data, serving.ADMIN, log=log)
    except serving.DidNotStart as error:
        says_why = error.code == 1 and "Traceback" not in error.said and str(store.data) in error.said
        return Verdict(wrong=[] if says_why else [error.said]), "refused" if says_why else "unclear refusal"
    try:
        verdict = check(gateway.url, store.ledger, rng, sample=200)
    except httpx2.TransportError as error:  # it has crashed, which its exit code shows
        verdict = Verdict(wrong=[repr(error)])
    code = gateway.popen.poll()
    if code is None:
        gateway.end()
    gateway.popen.communicate()
    if code is not None:
        return verdict, "crash"
    if verdict.wrong:
        return verdict, "wrong bytes"
    if verdict.lost:
        return verdict, "silent loss"
    return verdict, "errors" if verdict.unreadable else "right"
