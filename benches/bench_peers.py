"""coregw and other authenticated maps and lists: proving and verifying one key, each with its own best settings.

Each peer has a driver in benches/peers/, built here with the peer from its own registry. A peer that cannot be
built on this machine is named and skipped. Rounds of coregw and of the peer alternate in one run, on the same random
hex keys. A ratio is the peer's time divided by coregw's: above 1, coregw is faster. benches/README.md
lists what each one proves.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import report
from figures import show

HERE = Path(__file__).resolve().parent / "peers"
BUILT = report.REPOSITORY / "target" / "peers"
PROXY = BUILT / "goproxy"
"""Go modules for a machine that cannot fetch them, in the layout of a Go module proxy."""
VENV = BUILT / "python"
SIZES, QUICK_SIZES = (1_000, 100_000, 1_000_000), (10_000,)
SLOW_SIZES, QUICK_SLOW_SIZES = (1_000, 10_000), (1_000,)
LOOKUPS, PASSES = 2_000, 30
QUICK_ROUNDS, FEWER_PASSES = 3, 3
TIMES = ("spread", "prove", "verify")
MAX_GUARDED_RATIO = 10_000
"""Ratios above this are not guarded: they divide many milliseconds by less than a microsecond."""

Round = dict[str, float]


class Build(NamedTuple):
    """The command that builds a driver, and its working directory."""

    command: tuple[str, ...]
    folder: Path = HERE


@dataclass(frozen=True)
class Driver:
    """A program that measures one tree, given a file of keys and a number of lookups."""

    name: str
    build: Build | None
    command: tuple[str, ...]


@dataclass(frozen=True)
class Peer:
    """A peer, what it is compared with, and the ratios that coregw has to reach."""

    driver: Driver
    against: str
    prove: float = 1.0
    verify: float = 1.0
    sizes: tuple[int, ...] = SIZES
    lookups: int = LOOKUPS
    passes: int = PASSES
    rounds: int = 9


def rust(name: str, program: str, *args: str, feature: str | None = None) -> Driver:
    """Return a driver in benches/peers/rust, which is built with the feature of its peer."""
    features = () if feature is None else ("--features", feature)
    target = str(BUILT / "rust")
    command = ("cargo", "build", "--release", "--quiet", "--target-dir", target, "--bin", program, *features)
    return Driver(name, Build(command, HERE / "rust"), (str(BUILT / "rust" / "release" / program), *args))


def go(name: str, module: str, *args: str) -> Driver:
    """Return a driver in benches/peers/go."""
    build = Build(("go", "build", "-o", str(BUILT / "go" / module), "."), HERE / "go" / module)
    return Driver(name, build, (str(BUILT / "go" / module), *args))


def python(name: str) -> Driver:
    """Return a peer for the driver in benches/peers/python, in a virtual environment of its own."""
    requirements = str(HERE / "python" / "requirements.txt")
    build = Build((str(VENV / "bin" / "pip"), "install", "--quiet", "--requirement", requirements))
    return Driver(name, build, (str(VENV / "bin" / "python"), str(HERE / "python" / "driver.py"), name))


OURS = {
    "map": rust("", "coregw", "map"),
    "list": rust("", "coregw", "list"),
    "map from Python": Driver("", None, (sys.executable, str(HERE / "python" / "driver.py"), "coregw-map")),
    "list from Python": Driver("", None, (sys.executable, str(HERE / "python" / "driver.py"), "coregw-list")),
}
PEERS = (
    Peer(go("mpt", "mpt", "memory"), "map", prove=2.0, verify=1.3),
    Peer(go("mpt, keys hashed", "mpt", "hashed"), "map"),
    Peer(go("mpt, on disk", "mpt", "disk"), "map", sizes=SIZES[:2]),
    Peer(rust("jmt", "jmt", feature="jmt"), "map"),
    Peer(rust("nomt", "nomt", feature="nomt"), "map"),
    Peer(rust("rs_merkle", "rs_merkle", feature="rs_merkle"), "list"),
    Peer(python("prollytree"), "map from Python", sizes=SIZES[:2], lookups=200, passes=2, rounds=5),
    Peer(python("pymerkle"), "list from Python", sizes=SIZES[:2], lookups=200, passes=2, rounds=5),
    Peer(go("malt-core, KZG", "malt", "kzg"), "map", 1000.0, 1000.0, SLOW_SIZES, lookups=4, passes=1, rounds=3),
    Peer(go("malt-core, IPA", "malt", "ipa"), "map", 1000.0, 1000.0, SLOW_SIZES, lookups=4, passes=1, rounds=3),
)
PACKAGES = (
    *("rsc.io/tmp/mpt", "github.com/dewebprotocol/malt-core"),
    *("jmt", "nomt", "rs_merkle", "prollytree", "pymerkle"),
)


class BuildFailed(Exception):
    """A driver that cannot be built on this machine."""


def build(driver: Driver) -> None:
    """Build a driver with its peer. Raises `BuildFailed`."""
    if driver.build is None:
        return
    environment = dict(os.environ)
    if driver.build.command[0] == "go" and PROXY.is_dir():
        proxies = os.environ.get("GOPROXY") or "https://proxy.golang.org,direct"
        environment["GOPROXY"] = f"{PROXY.as_uri()},{proxies}"
    if driver.build.command[0].startswith(str(VENV)) and not VENV.is_dir():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    try:
        done = subprocess.run(
            driver.build.command, cwd=driver.build.folder, env=environment, capture_output=True, check=False
        )
    except FileNotFoundError as error:
        raise BuildFailed(f"{driver.build.command[0]} is not installed") from error
    if done.returncode:
        print(done.stderr.decode(errors="replace"), file=sys.stderr)
        raise BuildFailed("it cannot be built here")


class Running:
    """A running driver whose tree is built."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.tree = self._read()

    def _read(self) -> Round:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args!r} exited with {self.process.wait()}")
        answer: Round = json.loads(line)
        return answer

    def round(self) -> Round:
        """Run one round and return its times, in seconds per lookup."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._read()


@contextmanager
def running(driver: Driver, keys: Path, lookups: int, passes: int) -> Iterator[Running]:
    """Start a driver, and stop it afterwards."""
    command = [*driver.command, str(keys), str(lookups), str(passes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def key_file(count: int) -> Path:
    """Return the file of random keys, 32 hex digits each, the same in every run."""
    path = BUILT / "keys" / str(count)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(hashlib.sha256(str(i).encode()).hexdigest()[:32] for i in range(count)))
    return path


def medians(ours: Running, theirs: Running, rounds: int) -> tuple[Round, Round]:
    """Return the median times of alternating rounds, after one warm-up round of each."""
    both: list[tuple[Round, Round]] = [(ours.round(), theirs.round()) for _ in range(rounds + 1)][1:]
    first, second = ({name: statistics.median(pair[side][name] for pair in both) for name in TIMES} for side in (0, 1))
    return first, second


def compare(figures: report.Report, peer: Peer, count: int, ours: Running, theirs: Running) -> None:
    """Add the rows of one peer at one size."""
    mine, its = medians(ours, theirs, peer.rounds if figures.run == "full" else QUICK_ROUNDS)
    name, keys = peer.driver.name, f"{count:,} keys"
    for what, bar in (("prove", peer.prove), ("verify", peer.verify)):
        note = f"{1e6 * its[what]:,.2f} / {1e6 * mine[what]:.2f} µs"
        ratio = its[what] / mine[what]
        guarded = ratio < MAX_GUARDED_RATIO
        figures.add(f"{what}, {keys}", ratio, series=name, better="higher", bar=bar, guarded=guarded, note=note)
    for what, its_value, mine_value, unit in (
        ("prove, scattered keys", 1e6 * its["spread"], 1e6 * mine["spread"], "µs"),
        ("build", theirs.tree["build"], ours.tree["build"], "s"),
        ("proof bytes", theirs.tree["proof_bytes"], ours.tree["proof_bytes"], "bytes"),
    ):
        note = f"{show(its_value)} / {show(mine_value)} {unit}"
        figures.add(f"{what}, {keys}", its_value / mine_value, series=name, note=note)


def picture(figures: report.Report) -> None:
    """Draw a bar per peer: its time divided by coregw's, for the largest number of keys that it was measured with."""
    for what in ("verify", "prove"):
        found = {}
        for series in figures.series():
            for count in sorted({*SLOW_SIZES, *SIZES}, reverse=True):
                figure = figures.figures.get(f"{series}: {what}, {count:,} keys")
                if figure is not None:
                    found[f"{series} ({count:,} keys)"] = figure.value
                    break
        ordered = dict(sorted(found.items(), key=lambda each: each[1]))
        figures.chart(f"{what} one key: the peer's time / coregw's", "x", {"coregw": 1.0, **ordered}, better="lower")


def versions(names: Collection[str]) -> dict[str, str]:
    """Return the versions of these packages from the lock files of the drivers; Go modules have their whole paths."""
    crates = tomllib.loads((HERE / "rust" / "Cargo.lock").read_text())["package"]
    found = [(crate["name"], crate["version"]) for crate in crates]
    for path in sorted((HERE / "go").glob("*/go.mod")):
        found += re.findall(r"^(?:require )?\s*(\S+) (v\S+)$", path.read_text(), re.MULTILINE)
    found += re.findall(r"^(\S+)==(\S+)$", (HERE / "python" / "requirements.txt").read_text(), re.MULTILINE)
    return {name: version for name, version in found if name in names}


def main() -> None:
    """Build the drivers, measure each peer, and report."""
    figures = report.Report(
        "peers",
        "coregw and its peers: the peer's time / coregw's (above 1, coregw is faster)",
        report.arguments(__doc__),
        ("Random hex keys; CPU time of one thread; medians of alternating rounds.",),
    )
    figures.versions = versions(PACKAGES)
    fewer = 1 if figures.run == "full" else FEWER_PASSES
    for driver in OURS.values():
        build(driver)
    for peer in PEERS:
        try:
            build(peer.driver)
        except BuildFailed as reason:
            figures.skip(peer.driver.name, str(reason))
            continue
        print(peer.driver.name, file=sys.stderr, flush=True)
        quick = QUICK_SLOW_SIZES if peer.sizes == SLOW_SIZES else QUICK_SIZES
        for count in peer.sizes if figures.run == "full" else quick:
            keys = key_file(count)
            with (
                running(OURS[peer.against], keys, min(count, LOOKUPS), PASSES // fewer) as ours,
                running(peer.driver, keys, min(count, peer.lookups), max(1, peer.passes // fewer)) as theirs,
            ):
                compare(figures, peer, count, ours, theirs)
    picture(figures)
    figures.finish()


if __name__ == "__main__":
    main()
