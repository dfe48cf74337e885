"""Durable writes of coregw and of other stores: changes of one key, by one writer and by 32, alone and 1,000 a request.

Each store has a driver in benches/peers/, built here with the peer from its own registry, and the same keys on one
disk. Every request is synced before it is acknowledged. Rounds of all stores alternate in one run. A store that cannot
be built on this machine is named and skipped. benches/README.md says what each one does, and what it proves.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import report
from bench_peers import HERE, BuildFailed, Driver, build, go, rust, versions
from figures import show

KEYS, QUICK_KEYS = 100_000, 40_000
"""At least the changes of one request for each writer, who has keys of its own."""
ROUNDS, SECONDS, QUICK_SECONDS, WARM_UP_SECONDS, TRACED_SECONDS = 3, 1.5, 0.2, 0.2, 0.3
IDLE_SECONDS, IDLE_SHARE, MAX_IDLE_WAITS = 0.1, 0.05, 50
"""A process that takes less than this share of a core for so long has nothing left to do in the background."""
FLOOR_SYNCS, FLOOR_BYTES = 200, 4096
TRACED = ("fsync", "fdatasync", "msync", "openat")
SYNC = re.compile(r"^\d+ +(\d+\.\d+) (?:(?:fsync|fdatasync|msync)\(|openat\(.*O_D?SYNC)", re.MULTILINE)
"""A sync in strace's output, with its time. Only Tessera opens files for synchronous writes, for one each."""


class Case(NamedTuple):
    """How many writers there are, and how many changes are in each request."""

    writers: int
    changes: int

    def __str__(self) -> str:
        return f"{self.writers} writer{'s' * (self.writers > 1)}, {self.changes:,} change{'s' * (self.changes > 1)}"


CASES = (Case(1, 1), Case(32, 1), Case(1, 1000), Case(32, 1000))


def ours(name: str, driver: str) -> Driver:
    """Return a driver in benches/peers/python, in this environment."""
    return Driver(name, None, (sys.executable, str(HERE / "python" / "writes.py"), driver))


ENGINE, ROCKSDB = ours("coregw, engine", "engine"), ours("RocksDB", "rocksdb")
STORES = (
    ENGINE,
    rust("coregw, HTTP", "coregw_http", sys.executable),
    go("immudb", "immudb"),
    rust("nomt", "nomt_writes", feature="nomt"),
    go("Tessera", "tessera"),
    rust("SQLite", "sqlite", feature="sqlite"),
    ROCKSDB,
)
PACKAGES = (
    *("github.com/codenotary/immudb", "github.com/transparency-dev/tessera"),
    *("nomt", "rusqlite", "libsqlite3-sys"),
)


@dataclass
class Measured:
    """What one store did in one case, in all rounds."""

    rates: list[float] = field(default_factory=list)
    changes: int = 0
    cpu_seconds: float = 0.0
    written_bytes: int = 0
    proven: bool = False
    syncs: float | None = None
    """Syncs for each change, in a run of their own; None without strace."""

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def cpu_micros(self) -> float:
        return 1e6 * self.cpu_seconds / self.changes

    def row(self) -> list[str]:
        """Return its cells on the page."""
        syncs = "not counted" if self.syncs is None else show(self.syncs * self.rate)
        written = show(self.written_bytes / self.changes)
        return [show(self.rate), show(self.cpu_micros), syncs, written, "yes" if self.proven else "no"]


class Running:
    """A running driver with all keys in its store."""

    def __init__(self, driver: Driver, process: subprocess.Popen[str]) -> None:
        self.driver, self.process = driver, process
        self.writer: int = self._read()["process"]
        """The process that writes."""

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.driver.name} exited with {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._read()

    def measure(self, case: Case, seconds: float, measured: Measured) -> tuple[float, float, int]:
        """Run a case once, and return when it began and ended, and how many changes it made.

        Work in the background that it causes counts as its own, and is done before another store is measured.
        """
        self._ask(f"{case.writers} {case.changes} {seconds}")
        began, cpu, written = time.time(), self._cpu_seconds(), self._written_bytes()
        done = self._ask("")
        ended, count = time.time(), done["changes"]
        measured.rates.append(count / done["seconds"])
        measured.changes += count
        self._settle()
        measured.cpu_seconds += self._cpu_seconds() - cpu
        measured.written_bytes += self._written_bytes() - written
        measured.proven = self._ask("")["proof"]
        return began, ended, count

    def _settle(self) -> None:
        for _ in range(MAX_IDLE_WAITS):
            before = self._cpu_seconds()
            time.sleep(IDLE_SECONDS)
            if self._cpu_seconds() - before < IDLE_SHARE * IDLE_SECONDS:
                return

    def _cpu_seconds(self) -> float:
        """User and system time of all threads of the process, by the clock that Linux has for each process."""
        return time.clock_gettime((~self.writer << 3) | 2)

    def _written_bytes(self) -> int:
        """Bytes that the process caused to be written to the disk: whole pages of files."""
        counts = Path(f"/proc/{self.writer}/io").read_text()
        return int(counts.partition("\nwrite_bytes: ")[2].partition("\n")[0])


@contextmanager
def running(driver: Driver, folder: Path, keys: Path, *wrapper: str) -> Iterator[Running]:
    """Start a driver in a folder of its own, and stop it afterwards."""
    folder.mkdir()
    command = [*wrapper, *driver.command, str(folder), str(keys)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Running(driver, process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
    shutil.rmtree(folder)


def write_keys(path: Path, count: int) -> None:
    """Write paths of 30 bytes in random order, the same in every run."""
    numbers = random.Random(count).sample(range(count), count)
    path.write_text("\n".join(f"users/{number:010}/settings.json" for number in numbers))


def count_syncs(driver: Driver, folder: Path, keys: Path, measured: dict[Case, Measured]) -> None:
    """Count the syncs of each case in a short run under strace, which stops the process at these calls alone."""
    log = folder.with_suffix(".strace")
    strace = ("strace", "-f", "-qq", "--seccomp-bpf", "-ttt", "-e", f"trace={','.join(TRACED)}", "-o", str(log))
    with running(driver, folder, keys, *strace) as traced:
        spans = {case: traced.measure(case, TRACED_SECONDS, Measured()) for case in CASES}
    times = [float(each) for each in SYNC.findall(log.read_text())]
    for case, (began, ended, changes) in spans.items():
        measured[case].syncs = sum(began <= at <= ended for at in times) / changes


def floor(folder: Path) -> float:
    """Return how often a second this disk syncs a page that is appended to a file."""
    times = []
    with (folder / "floor").open("wb", buffering=0) as file:
        for _ in range(FLOOR_SYNCS):
            start = time.perf_counter()
            file.write(bytes(FLOOR_BYTES))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - start)
    return 1 / statistics.median(times)


def measure(figures: report.Report, stores: list[Driver], folder: Path) -> dict[str, dict[Case, Measured]]:
    """Measure all cases of all stores, in alternating rounds, and then their syncs."""
    full = figures.run == "full"
    keys = folder / "keys"
    write_keys(keys, KEYS if full else QUICK_KEYS)
    results = {driver.name: {case: Measured() for case in CASES} for driver in stores}
    with ExitStack() as stack:
        drivers = []
        for number, driver in enumerate(stores):
            print(driver.name, file=sys.stderr, flush=True)
            drivers.append(stack.enter_context(running(driver, folder / str(number), keys)))
        # Long requests come last: what they leave for RocksDB to compact would otherwise count as that of short ones.
        for cases in (CASES[:2], CASES[2:]):
            for case, each in itertools.product(cases, drivers):
                each.measure(case, WARM_UP_SECONDS, Measured())
            for _, case, each in itertools.product(range(ROUNDS if full else 1), cases, drivers):
                each.measure(case, SECONDS if full else QUICK_SECONDS, results[each.driver.name][case])
    if shutil.which("strace") is None:
        figures.skip("syncs", "strace is not installed")
        return results
    for driver in stores:
        count_syncs(driver, folder / "traced", keys, results[driver.name])
    return results


def add(figures: report.Report, results: dict[str, dict[Case, Measured]], floor_rate: float) -> None:
    """Add the figures of all stores: ratios to the engine, a row for each, and a chart for each case."""
    engine = results.pop(ENGINE.name)
    for name, cases in results.items():
        for case, theirs in cases.items():
            mine = engine[case]
            note = f"{show(1e6 / theirs.rate)} / {show(1e6 / mine.rate)} µs"
            figures.add(f"time a change, {case}", mine.rate / theirs.rate, series=name, note=note)
            note = f"{show(theirs.cpu_micros)} / {show(mine.cpu_micros)} µs"
            figures.add(f"CPU a change, {case}", theirs.cpu_micros / mine.cpu_micros, series=name, note=note)
    results = {ENGINE.name: engine, **results}
    columns = ("store", "writers", "changes a request", "changes/s", "CPU µs a change", "syncs/s", "bytes a change")
    rows = [
        [name, str(case.writers), f"{case.changes:,}", *cases[case].row()]
        for case in CASES
        for name, cases in results.items()
    ]
    figures.rows([*columns, "proof"], rows)
    for case in CASES:
        rates = {name: cases[case].rate for name, cases in results.items()}
        floors = {"append and sync a page": floor_rate} if case == Case(1, 1) else {}
        title = f"changes a second: {case} a request"
        figures.chart(title, "1/s", rates | floors, better="higher", floors=floors)


def main() -> None:
    """Measure and report."""
    parser = report.parser(__doc__)
    parser.add_argument("--folder", help="where to create the stores; by default the system's temporary folder")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="coregw-writes-", dir=args.folder))
    try:
        run(args, folder)
    finally:
        shutil.rmtree(folder)


def run(args: argparse.Namespace, folder: Path) -> None:
    """Measure in this folder, and report."""
    figures = report.Report("writes", "Durable writes: the store's cost of a change / that of coregw's engine", args)
    figures.versions = versions(PACKAGES) | {"rocksdict": version("rocksdict")}
    stores = []
    for driver in STORES:
        try:
            build(driver)
        except BuildFailed as reason:
            figures.skip(driver.name, str(reason))
        else:
            stores.append(driver)
    load, rate = os.getloadavg()[0], floor(folder)
    results = measure(figures, stores, folder)
    count = KEYS if figures.run == "full" else QUICK_KEYS
    rounds = ROUNDS if figures.run == "full" else 1
    figures.notes = (
        f"{count:,} paths of 30 bytes with values of 32 bytes; the median rate of {rounds} alternating rounds.",
        "CPU time of the process that writes; over HTTP that of the gateway, beside its clients.",
        "Bytes of the file pages that it dirtied; syncs a change in a short run under strace, times the rate.",
        f"The disk synced an appended page in {show(1e6 / rate)} µs; the load was {load:.1f} at the start.",
    )
    add(figures, results, rate)
    figures.finish()


if __name__ == "__main__":
    main()
