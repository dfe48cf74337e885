"""Kills (SIGKILL) at random moments under a mixed load; after each, a start, and a check of all that was acknowledged.

One start in four is killed as well.
"""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections import Counter
from pathlib import Path

import serving
from chaos.ledger import Ledger, Verdict, check
from chaos.load import Load
from chaos.report import Report

COUNT = 30

_ROUNDS_PER_STORE = 10
_MAX_LOAD_SECONDS = 2.0
_MAX_START_SECONDS = 1.0


def run(seed: int, count: int, folder: Path, *, seconds: float = _MAX_LOAD_SECONDS) -> Report:
    """Kill a gateway `count` times.

    Args:
        seed: Chooses the load and the moments.
        count: The number of kills.
        folder: An empty folder.
        seconds: The longest load before a kill.
    """
    kills = _Kills(random.Random(seed), seconds)
    acknowledged = 0
    for number, done in enumerate(range(0, count, _ROUNDS_PER_STORE)):
        ledger = Ledger()
        kills.on_a_store(folder / f"data-{number}", ledger, seed * 1000 + number, min(_ROUNDS_PER_STORE, count - done))
        acknowledged += ledger.acknowledged()
    figures = {"seed": seed, "kills": dict(kills.kinds), "acknowledged": acknowledged}
    figures |= kills.verdict.figures() | {"false answers": len(kills.false), "refused starts": len(kills.refused)}
    figures |= {"median start s": statistics.median(kills.starts or [0.0])}
    is_ok = kills.verdict.is_clean and not kills.false and not kills.refused and acknowledged > 0
    examples = [*kills.refused, *kills.false[:3], *kills.verdict.examples()]
    return Report("kill", is_ok, figures, examples)


class _Kills:
    """Kills gateways and checks what is left."""

    def __init__(self, rng: random.Random, seconds: float) -> None:
        self.verdict = Verdict()
        self.kinds: Counter[str] = Counter()
        self.starts: list[float] = []
        self.false: list[str] = []
        self.refused: list[str] = []
        self._rng = rng
        self._seconds = seconds

    def on_a_store(self, data: Path, ledger: Ledger, seed: int, count: int) -> None:
        """Kill gateways on one store; a start that is refused is the last."""
        load = Load(ledger, seed)
        gateway = _start(data)
        for _ in range(count):
            with load.on(gateway.url):
                time.sleep(self._rng.uniform(0.2, 1) * self._seconds)
                gateway.popen.kill()
                gateway.popen.communicate()
            self.kinds["load"] += 1
            try:
                gateway = self._restarted(data)
            except serving.DidNotStart as error:
                self.refused.append(str(error))
                return
            self.verdict.add(check(gateway.url, ledger, self._rng))
        gateway.end()
        gateway.popen.communicate()
        self.false += ledger.false
        if self.verdict.is_clean:
            shutil.rmtree(data)

    def _restarted(self, data: Path) -> serving.Process:
        if self._rng.random() < 0.25:
            _killed_start(data, self._rng)
            self.kinds["start"] += 1
        began = time.monotonic()
        gateway = _start(data)
        self.starts.append(time.monotonic() - began)
        return gateway


def _start(data: Path) -> serving.Process:
    return serving.start(data, serving.ADMIN, log=data.with_suffix(".log"))


def _killed_start(data: Path, rng: random.Random) -> None:
    gateway = serving.begin(data, serving.ADMIN, log=data.with_suffix(".log"))
    time.sleep(rng.uniform(0.1, _MAX_START_SECONDS))
    gateway.kill()
    gateway.communicate()
