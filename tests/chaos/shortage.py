"""Too little of something for a while, under load: space on the disk, syncs that succeed, file descriptors.

While it lasts, reads continue. When it is over, writes succeed again within ten seconds, without help, and nothing
acknowledged is missing; also if the gateway is killed meanwhile.
"""

from __future__ import annotations

import random
import resource
import time
from collections import Counter
from pathlib import Path

import httpx2

import serving
from chaos.ledger import Ledger, Verdict, check, cid_of
from chaos.load import Load
from chaos.recorder import Recorder
from chaos.report import Report
from processes import open_files

COUNT = 24
KINDS = ("full", "failed syncs", "descriptors")

_MAX_RECOVERY_SECONDS = 10.0
_GIVE_UP_SECONDS = 30.0
_ROUNDS_PER_STORE = 6
_MAX_LOG_LINES = 30
"""Per shortage: what begins and ends is logged, not every request that fails."""


def run(seed: int, count: int, folder: Path, *, kinds: tuple[str, ...] = KINDS) -> Report:
    """Let a gateway run short of something `count` times.

    Args:
        seed: Chooses the load, the moments, and how little is left.
        count: The number of shortages.
        folder: An empty folder.
        kinds: What there is too little of, in turn.
    """
    shortages = _Shortages(random.Random(seed))
    acknowledged, false = 0, list[str]()
    for number, done in enumerate(range(0, count, _ROUNDS_PER_STORE)):
        ledger = Ledger()
        planned = [kinds[each % len(kinds)] for each in range(done, min(count, done + _ROUNDS_PER_STORE))]
        # In every second store, RocksDB itself meets the full disk; otherwise the gateway stops writing before.
        shortages.on_a_store(folder / f"store-{number}", ledger, seed * 1000 + number, planned, reserve=number % 2 == 1)
        acknowledged += ledger.acknowledged()
        false += ledger.false
    slowest = max(shortages.recoveries, default=0.0)
    figures = {"seed": seed, "shortages": dict(shortages.kinds), "acknowledged": acknowledged}
    figures |= shortages.verdict.figures() | {"false answers": len(false), "statuses": dict(shortages.statuses)}
    figures |= {"slowest recovery s": slowest, "failures": len(shortages.failures), "log lines": shortages.log_lines}
    is_ok = shortages.verdict.is_clean and not false and not shortages.failures
    return Report("shortage", is_ok, figures, [*shortages.failures[:6], *false[:3], *shortages.verdict.examples()])


class _Shortages:
    """Makes shortages and checks what follows."""

    def __init__(self, rng: random.Random) -> None:
        self.verdict = Verdict()
        self.kinds: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.recoveries: list[float] = []
        self.failures: list[str] = []
        self.log_lines = 0
        self._rng = rng

    def on_a_store(self, folder: Path, ledger: Ledger, seed: int, kinds: list[str], *, reserve: bool) -> None:
        """Make shortages on one store."""
        (folder / "disk").mkdir(parents=True)
        self._recorder = Recorder.over(folder / "disk", folder, is_recording=False)
        self._settings = {"log": folder / "log", "reserve_bytes": (128 << 20) if reserve else 0}
        gateway = self._start()
        load = Load(ledger, seed)
        kept = self._rng.randbytes(50_000)
        assert _put(gateway.url, kept) == 201
        for kind in kinds:
            self.kinds[kind] += 1
            with load.on(gateway.url):
                time.sleep(self._rng.uniform(0.2, 0.6))
                self._begin(kind, gateway)
                time.sleep(self._rng.uniform(0.3, 1.2))
                if kind != "descriptors":  # a new connection needs one
                    self._require_read(gateway, kept, kind)
                if self._rng.random() < 0.25:
                    gateway.popen.kill()
                    gateway.popen.wait()
                    self.kinds["killed meanwhile"] += 1
                self._end(gateway)
                if gateway.popen.poll() is None:
                    self._require_recovery(gateway, kind)
            if gateway.popen.poll() is not None:
                gateway.popen.communicate()
                gateway = self._start()
            self.verdict.add(check(gateway.url, ledger, self._rng))
        gateway.end()
        gateway.popen.communicate()
        self.statuses += load.failures
        if load.failures["500"]:
            self.failures.append(f"{load.failures['500']} requests got 500; see {folder / 'log'}")
        lines = (folder / "log").read_text("utf-8").count("\n")
        self.log_lines += lines
        if lines > _MAX_LOG_LINES * len(kinds):
            self.failures.append(f"{lines:,} lines in {folder / 'log'}")

    def _start(self) -> serving.Process:
        return serving.start(self._recorder.root / "data", serving.ADMIN | self._recorder.environ(), **self._settings)

    def _begin(self, kind: str, gateway: serving.Process) -> None:
        if kind == "full":
            self._recorder.set_room(self._rng.choice([0, 1000, 100_000, 3_000_000]))
        elif kind == "failed syncs":
            self._recorder.fail_syncs(self._rng.choice([1, 2, 5]))
        else:
            _, hard = resource.prlimit(gateway.popen.pid, resource.RLIMIT_NOFILE)
            left = len(open_files(gateway.popen.pid)) + self._rng.randrange(3)
            resource.prlimit(gateway.popen.pid, resource.RLIMIT_NOFILE, (left, hard))

    def _end(self, gateway: serving.Process) -> None:
        self._recorder.set_room(None)
        self._recorder.fail_syncs(0)
        if gateway.popen.poll() is None:
            _, hard = resource.prlimit(gateway.popen.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(gateway.popen.pid, resource.RLIMIT_NOFILE, (hard, hard))

    def _require_read(self, gateway: serving.Process, data: bytes, kind: str) -> None:
        deadline = time.monotonic() + _MAX_RECOVERY_SECONDS
        while True:
            try:
                answer = httpx2.get(f"{gateway.url}/v1/cas/{cid_of(data)}", timeout=60)
            except httpx2.TransportError as error:
                self.failures.append(f"{kind}: a read failed meanwhile: {error!r}")
                return
            if answer.status_code != 503 or time.monotonic() > deadline:
                break
            time.sleep(0.05)  # the store is being reopened
        if answer.content != data:
            self.failures.append(f"{kind}: a read meanwhile got {answer.status_code} {answer.content[:100]!r}")

    def _require_recovery(self, gateway: serving.Process, kind: str) -> None:
        began = time.monotonic()
        while (status := _put(gateway.url, self._rng.randbytes(100))) != 201:
            waited = time.monotonic() - began
            if waited > _GIVE_UP_SECONDS or gateway.popen.poll() is not None:
                self.failures.append(f"{kind}: writes still fail after {waited:.0f} s with {status}")
                gateway.popen.kill()
                gateway.popen.wait()
                return
            time.sleep(0.05)
        self.recoveries.append(time.monotonic() - began)
        if self.recoveries[-1] > _MAX_RECOVERY_SECONDS:
            self.failures.append(f"{kind}: writes failed for {self.recoveries[-1]:.0f} s more")


def _put(url: str, data: bytes) -> int | str:
    """Store a payload. Returns the status, or why there is none."""
    try:
        return httpx2.post(f"{url}/v1/cas", content=data, timeout=60).status_code
    except httpx2.TransportError as error:
        return repr(error)
