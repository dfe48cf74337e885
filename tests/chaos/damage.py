"""Damage to the files of a stopped gateway: flipped bits, zeroed pages, missing ends, missing files; then a start.

The gateway may refuse to start, if it says why, and it may answer with errors. It must neither answer that something
acknowledged does not exist, nor with wrong bytes.

Then the store is repaired, which must succeed. What the repaired one does not serve must be named by the repair, and
must come back from a second gateway, which has an undamaged copy. In the end everything acknowledged is compared.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx2

import serving
from chaos.ledger import SCOPE, Ledger, Verdict, check
from chaos.load import Load
from chaos.report import Report

COUNT = 60

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
    source: str = ""
    """The address of a gateway on an undamaged copy."""


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
        copy = folder / f"undamaged-{store.data.name}"  # a start replays the logs, and leaves empty ones
        shutil.copytree(store.data, copy)
        verdict, outcome = _outcome(_Store(copy, store.ledger), copy, rng)
        shutil.rmtree(copy)
        if outcome != "right":
            bad.append(f"the undamaged store {store.data}: {outcome} {verdict.examples()}")
    checked, lost, repairs = 0, 0, Counter[str]()
    with ExitStack() as sources:
        stores = [_with_source(store, folder / f"source-{store.data.name}", sources) for store in stores]
        for number in range(count):
            store = rng.choice(stores)
            probe = folder / f"probe-{number}"
            shutil.copytree(store.data, probe)
            what = _damaged(probe, rng)
            damaged = _Store(probe, store.ledger, store.source)
            verdict, outcome = _outcome(damaged, probe, rng)
            outcomes[outcome] += 1
            missing, repair = _healed(damaged, rng)
            repairs[repair] += 1
            checked += verdict.checked
            lost += missing
            if outcome in _BAD:
                bad.append(f"{outcome}: {store.data.name} store, {what}: {verdict.examples()[:2]}")
            if repair not in _GOOD_REPAIRS:
                bad.append(f"{store.data.name} store, {what}: {repair}")
            if outcome not in _BAD and repair in _GOOD_REPAIRS:
                shutil.rmtree(probe)
    figures = {"seed": seed, "damaged": count, "checked": checked, "outcomes": dict(sorted(outcomes.items()))}
    figures |= {"lost in repairs": lost, "repairs": dict(sorted(repairs.items()))}
    return Report("damage", not bad, figures, bad[:12])


_BAD = frozenset({"silent loss", "wrong bytes", "crash", "unclear refusal"})
_GOOD_REPAIRS = frozenset({"nothing lost", "all named, healed", "names lost, healed"})


def _with_source(store: _Store, copy: Path, sources: ExitStack) -> _Store:
    """Start the second gateway of a store."""
    shutil.copytree(store.data, copy)
    gateway = serving.start(copy, serving.ADMIN, log=copy.with_suffix(".log"))
    sources.callback(gateway.popen.communicate)
    sources.callback(gateway.end)
    return _Store(store.data, store.ledger, gateway.url)


# --- repair and heal --------------------------------------------------------------------------------------------------


def _healed(store: _Store, rng: random.Random) -> tuple[int, str]:
    """Repair a damaged store and heal it. Returns how much the repair lost, and how it went."""
    repaired = _coregw("fsck", "--repair", "--json", "--data", str(store.data))
    if repaired.returncode not in (0, 4):
        return 0, f"not repaired: exit {repaired.returncode}: {repaired.stderr[-500:]}"
    gateway = serving.start(store.data, serving.ADMIN, log=store.data.with_suffix(".log"))
    try:
        before = check(gateway.url, store.ledger, rng, sample=1_000_000)
        if before.wrong:
            return 0, f"wrong after the repair: {before.wrong[:2]}"
        missing = [*before.lost, *before.unreadable]
        is_unnamed = bool(json.loads(repaired.stdout)["found"]["unnamed"])
        nameless = [each for each in missing if each.split()[1].rstrip(":") not in repaired.stdout]
        if nameless and not is_unnamed:
            return len(missing), f"lost without being named: {nameless[:2]}"
        if missing and repaired.returncode == 0:
            return len(missing), f"a repair that lost something exits with 0: {missing[:2]}"
        healed = _heal(store)
        after = check(gateway.url, store.ledger, rng, sample=1_000_000)
    finally:
        gateway.end()
        gateway.popen.communicate()
    if healed.returncode != 0 or not after.is_clean:
        said = f"exit {healed.returncode}: {healed.stdout[-300:]}{healed.stderr[-300:]}"
        return len(missing), f"not healed: {after.examples()[:2]} {said}"
    return len(missing), "names lost, healed" if nameless else "all named, healed" if missing else "nothing lost"


def _heal(store: _Store) -> subprocess.CompletedProcess[str]:
    """Heal a store from its source, with everything that its clients know by name."""
    ledger = store.ledger
    entries = {**ledger.payloads, **ledger.roots}
    named = store.data.with_suffix(".named")
    named.write_text("".join(f"{cid}\n" for cid, entry in entries.items() if entry.acknowledged is not None))
    options = ["--records", SCOPE.split("/")[-2], "--named", str(named), "--json", "--data", str(store.data)]
    return _coregw("heal", "--from", store.source, *options)


def _coregw(*arguments: str) -> subprocess.CompletedProcess[str]:
    return serving.run(*arguments, environ={"COREGW_SOURCE_TOKEN": serving.ADMIN_TOKEN})


# --- damage -----------------------------------------------------------------------------------------------------------


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
