"""Backups under load that are killed, alone or with the gateway that makes them, and restores that are killed.

After each round the repository must verify: what it had before is still there. Each complete backup must have
everything that was acknowledged before it began; a killed restore must leave nothing that starts as a store.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import serving
from chaos.disk import KINDS, Disk
from chaos.ledger import Ledger, Verdict, check
from chaos.load import Load
from chaos.recorder import Recorder
from chaos.report import Report
from coregw.errors import CoregwError, InvalidInput, Unavailable
from coregw.store.rocksdb import MARKER
from coregw.upkeep.backup import Repository, Track, verify
from gateways import names

COUNT = 20
POWER_CUTS = 40

_MAX_BACKUP_SECONDS = 1.2
_MAX_LOCKED_SECONDS = 30.0
_CUTS_PER_RUN = 20


def run(seed: int, count: int, folder: Path) -> Report:
    """Make `count` backups under load, of which half are killed, and restore the last one, after a killed attempt.

    Args:
        seed: Chooses the load, and what is killed when.
        count: The number of backups.
        folder: An empty folder.
    """
    rng = random.Random(seed)
    data, destination = folder / "data", folder / "backup"
    ledger = Ledger(time.monotonic_ns)
    load, gateway = Load(ledger, seed), serving.start(data, serving.ADMIN, log=folder / "log")
    kinds, found, began = Counter[str](), list[str](), 0
    for number in range(count):
        kind = "complete" if number % 2 == 0 else rng.choice(("killed", "gateway killed"))
        moment = time.monotonic_ns()
        with load.on(gateway.url):
            time.sleep(0.2)
            moment = time.monotonic_ns()
            backing_up = _start("backup", destination, "--data", data, "--json")
            if kind != "complete":
                time.sleep(rng.uniform(0.1, _MAX_BACKUP_SECONDS))
                victim = backing_up if kind == "killed" else gateway.popen
                victim.kill()
            said, _ = backing_up.communicate()
        kinds[kind] += 1
        if backing_up.returncode == 0:
            began = moment
            kinds["done"] += 1
        elif kind == "complete":
            found.append(f"a backup that nothing disturbed failed: {said[-300:]!r}")
        if kind == "gateway killed":
            gateway.popen.communicate()
            gateway = serving.start(data, serving.ADMIN, log=folder / "log")
        found += _unsound(destination, kinds["done"])
    gateway.end()
    gateway.popen.communicate()
    found += _killed_restore(destination, folder / "killed", rng)
    verdict = _restored(destination, folder / "restored", ledger, rng, began)
    figures = {"seed": seed, "backups": dict(kinds), "acknowledged": ledger.acknowledged(), **verdict.figures()}
    figures |= {"failures": len(found), "false answers": len(ledger.false)}
    is_ok = verdict.is_clean and not found and not ledger.false
    return Report("backup", is_ok, figures, [*found[:5], *ledger.false[:3], *verdict.examples()])


def run_power_cuts(seed: int, count: int, folder: Path) -> Report:
    """Cut the power of a backup's destination `count` times, while a first and a second backup are written to it.

    The control is a disk that ignores the syncs of the pool of files: what it keeps must not verify.
    """
    rng = random.Random(seed)
    kinds, found, controls = Counter[str](), list[str](), 0
    for number, done in enumerate(range(0, count, _CUTS_PER_RUN)):
        scratch = folder / f"run-{number}"
        root, data = scratch / "disk", scratch / "data"
        root.mkdir(parents=True)
        recorders = []
        for turn in range(2):
            load = Load(Ledger(), seed * 100 + 2 * number + turn)
            with serving.process(data, serving.ADMIN) as gateway, load.on(gateway.url):
                time.sleep(0.3)
            recorder = Recorder.over(root, scratch / f"trace-{turn}")
            disk, control = Disk(root), Disk(root, lambda path: "/files" not in path)
            backing_up = _start("backup", root / "backup", "--data", data, environ=recorder.environ())
            said, _ = backing_up.communicate()
            assert backing_up.returncode == 0, said
            recorders.append((recorder, disk))
            for record in recorder.records():
                control.replay(record)
            control.cut("synced", rng, scratch / f"control-{turn}")
            controls += bool(_unsound(scratch / f"control-{turn}" / "backup", 1))
        for turn, (recorder, disk) in enumerate(recorders):
            cuts = min(_CUTS_PER_RUN, count - done)
            planned = cuts // 4 if turn == 0 else cuts - cuts // 4
            for image, is_complete in _images(recorder, disk, rng, planned, kinds):
                found += _unsound(image / "backup", turn + is_complete)
                shutil.rmtree(image)
    figures = {"seed": seed, "cuts": dict(kinds), "failures": len(found), "failed controls (expected)": controls}
    return Report("backup-power-cut", not found and controls > 0, figures, found[:5])


def _images(
    recorder: Recorder, disk: Disk, rng: random.Random, count: int, kinds: Counter[str]
) -> Iterator[tuple[Path, bool]]:
    """Yield what cuts may leave, and whether the backup had returned; the last cut is after it has."""
    moments = sorted(rng.sample(range(1, recorder.position()), count - 1)) if count > 1 else []
    for record in recorder.records():
        while moments and record.position > moments[0]:
            yield _image(recorder, disk, rng, moments.pop(0), kinds), False
        disk.replay(record)
    yield _image(recorder, disk, rng, recorder.position(), kinds), True


def _image(recorder: Recorder, disk: Disk, rng: random.Random, moment: int, kinds: Counter[str]) -> Path:
    kind = rng.choice(KINDS)
    kinds[kind] += 1
    image = recorder.root.with_name(f"cut-{kind}-{moment}")
    disk.cut(kind, rng, image)
    return image


def _unsound(destination: Path, complete: int) -> list[str]:
    """What is wrong with a repository that has had so many complete backups."""
    if not complete:
        return []
    deadline = time.monotonic() + _MAX_LOCKED_SECONDS
    while True:
        try:
            numbers = Repository.open(destination).numbers()
            verify(destination, Track(lambda _: None))
            break
        except CoregwError as error:
            is_cancelling = isinstance(error, Unavailable) and "in use" in error.message
            if not is_cancelling or time.monotonic() > deadline:
                return [f"{destination}: {error}"]
            time.sleep(0.05)  # the gateway has not noticed yet that its client was killed
    return [] if len(numbers) >= min(complete, 7) else [f"{destination} has generations {numbers}, not {complete}"]


def _killed_restore(destination: Path, data: Path, rng: random.Random) -> list[str]:
    restoring = _start("restore", destination, "--data", data)
    time.sleep(rng.uniform(0.2, _MAX_BACKUP_SECONDS))
    restoring.kill()
    restoring.communicate()
    left = names(data) if data.exists() else []
    if not left or MARKER in left:  # killed before it had begun, or when the store was complete
        return []
    try:
        with serving.thread(None, data=data):
            return [f"a gateway started on what a killed restore left: {left}"]
    except InvalidInput:
        pass
    again = _start("restore", destination, "--data", data)
    said, _ = again.communicate()
    return [] if again.returncode == 0 else [f"a restore after a killed one failed: {said!r}"]


def _restored(destination: Path, data: Path, ledger: Ledger, rng: random.Random, moment: int) -> Verdict:
    restoring = _start("restore", destination, "--data", data, "--json")
    said, _ = restoring.communicate()
    if restoring.returncode:
        return Verdict(unreadable=[f"the restore failed: {said!r}"])
    assert json.loads(said.splitlines()[-1])["roots"] > 0
    with serving.thread(None, is_administered=True, data=data) as url:
        return check(url, ledger, rng, moment=moment)


def _start(*arguments: object, environ: dict[str, str] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "coregw", *(str(argument) for argument in arguments)]
    variables = {**os.environ, **(environ or {})}
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
