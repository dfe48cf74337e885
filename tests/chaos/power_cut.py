"""Power cuts: everything that a gateway does to its disk is recorded under a mixed load; then disks are made as a power
cut at some moment may have left them, a gateway is started on each, and what was acknowledged by then is checked.

The control does the same on a disk that ignores the syncs of the write-ahead log. It must lose acknowledged writes:
that shows that the harness sees a loss.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from pathlib import Path

import serving
from chaos.disk import KINDS, Disk
from chaos.ledger import Ledger, Verdict, check
from chaos.load import Load
from chaos.recorder import Recorder
from chaos.report import Report
from coregw.errors import CoregwError

COUNT = 60

_CUTS_PER_RUN = 15
_SECONDS = 1.5


def run(seed: int, count: int, folder: Path, *, seconds: float = _SECONDS, is_control: bool = False) -> Report:
    """Cut the power of a gateway `count` times.

    Args:
        seed: Chooses the load, the moments, and what survives.
        count: The number of cuts.
        folder: An empty folder.
        seconds: The load that is recorded before up to `_CUTS_PER_RUN` cuts.
        is_control: Whether the disk ignores the syncs of the write-ahead log.
    """
    cuts = _Cuts(random.Random(seed), is_control=is_control)
    acknowledged = 0
    ledger = Ledger()
    for number, done in enumerate(range(0, count, _CUTS_PER_RUN)):
        scratch = folder / f"runs-{number // 2}"
        root = scratch / "disk"
        if number % 2 == 0:
            ledger = Ledger()
            root.mkdir(parents=True)
        else:  # on the store of the run before, whose gateway was killed: now recovery is cut as well
            ledger.settle()
        recorder = Recorder.over(root, scratch)
        ledger.clock = recorder.position
        disk = Disk(root, (lambda path: not path.endswith(".log")) if is_control else (lambda _: True))
        ready = _recorded_load(recorder, ledger, seed * 1000 + number, seconds)
        cuts.make(disk, recorder, ledger, ready, min(_CUTS_PER_RUN, count - done))
        acknowledged += ledger.acknowledged()
    figures = {"seed": seed, "cuts": dict(cuts.kinds), "acknowledged": acknowledged, **cuts.verdict.figures()}
    figures |= {"false answers": len(ledger.false), "cuts with a loss": cuts.losses, "refused at first": cuts.refused}
    is_expected = cuts.losses > 0 if is_control else cuts.verdict.is_clean
    name = "power-cut-control (syncs of the log ignored, so that a loss is expected)" if is_control else "power-cut"
    examples = [] if is_control else cuts.verdict.examples()
    return Report(name, is_expected and not ledger.false and acknowledged > 0, figures, [*ledger.false[:3], *examples])


class _Cuts:
    """Makes cuts and checks what is left."""

    def __init__(self, rng: random.Random, *, is_control: bool) -> None:
        self.verdict = Verdict()
        self.kinds: Counter[str] = Counter()
        self.refused = self.losses = 0
        self._rng = rng
        self._is_control = is_control

    def make(self, disk: Disk, recorder: Recorder, ledger: Ledger, ready: int, count: int) -> None:
        """Cut at random moments: one in five before the gateway was ready, the others under load."""
        early = 0 if self._is_control else count // 5
        moments = self._rng.sample(range(1, ready), early) + self._rng.sample(
            range(ready, recorder.position()), count - early
        )
        moments.sort()
        for record in recorder.records():
            while moments and record.position > moments[0]:
                moment = moments.pop(0)
                # The control shows a loss of what is in the log alone only if nothing unsynced survives.
                kind = "synced" if self._is_control else self._rng.choice(KINDS)
                image = recorder.root.with_name(f"cut-{sum(self.kinds.values())}-{kind}-{moment}")
                disk.cut(kind, self._rng, image)
                self._check(image, ledger, moment)
                self.kinds[kind] += 1
            if not moments:
                return
            disk.replay(record)

    def _check(self, image: Path, ledger: Ledger, moment: int) -> None:
        found, is_refused = _checked(image / "data", ledger, self._rng, moment)
        self.verdict.add(found)
        self.refused += is_refused
        self.losses += not found.is_clean
        if found.is_clean or self._is_control:
            shutil.rmtree(image)


def _recorded_load(recorder: Recorder, ledger: Ledger, seed: int, seconds: float) -> int:
    """Load a gateway that is recorded, and kill it. Returns the first moment at which it accepted connections."""
    data, log = recorder.root / "data", recorder.root.with_suffix(".log")
    gateway = serving.start(data, serving.ADMIN | recorder.environ(), log=log)
    ready = recorder.position()
    load = Load(ledger, seed)
    with load.on(gateway.url):
        time.sleep(seconds)
        gateway.popen.kill()
        gateway.popen.communicate()
    return ready


def _checked(data: Path, ledger: Ledger, rng: random.Random, moment: int) -> tuple[Verdict, bool]:
    """Start a gateway on what is left and check it. Also returns whether the store needed to be salvaged.

    A power cut can leave a hole in the unsynced end of the log that looks like damage. Then the gateway refuses to
    start, or answers some requests with errors, and an operator decides to salvage the store; nothing acknowledged may
    be missing after that.
    """
    verdict = Verdict()
    for is_salvaged in (False, True):
        if is_salvaged:
            salvaged = serving.run("fsck", "--repair", "--salvage", "--data", data)
            if salvaged.returncode not in (0, 4):
                return Verdict(unreadable=[f"{data}: {salvaged.stderr}"]), True
        try:
            with serving.thread(None, is_administered=True, data=data) as url:
                verdict = check(url, ledger, rng, moment=moment, sample=30)
        except CoregwError as error:
            verdict = Verdict(unreadable=[f"{data}: {error}"])
        if not verdict.unreadable:
            break
    return verdict, is_salvaged
