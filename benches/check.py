"""Comparison of the benches' ratios with the recorded ones: ``make bench ARGS=check``.

Each bench makes a quick run, and each of its guarded figures is compared with the quick run recorded in
docs/benchmarks/. Other load on the machine makes single runs worse, never better; so a bench with a regression runs
again, at most twice, and the best value of each figure counts. A figure that is recorded but no longer measured is a
regression too, unless the bench reports that this machine cannot measure it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from report import RECORDED, SCRATCH

ALLOWED = 1.15
"""The largest tolerated factor by which a figure may be worse than recorded."""
TRIES = 3

Figures = Mapping[str, Mapping[str, Any]]
"""The figures of one run, by key, each with `value`, `better` and `guarded`."""


class Run(NamedTuple):
    """One run of a bench."""

    figures: Figures
    skipped: Mapping[str, str]
    """The series that could not be measured, with the reasons."""


@dataclass(frozen=True)
class Regression:
    """A guarded figure that is worse than tolerated, or missing."""

    key: str
    recorded: float
    measured: float | None

    def __str__(self) -> str:
        if self.measured is None:
            return f"{self.key}: recorded as {self.recorded:g}, no longer measured"
        return f"{self.key}: {self.measured:g}, recorded as {self.recorded:g}"


def regressions(recorded: Figures, measured: Figures, skipped: Collection[str] = ()) -> list[Regression]:
    """Return the regressions of the guarded figures of a record, except in skipped series."""
    found = []
    for key, figure in recorded.items():
        if not figure["guarded"] or key.partition(": ")[0] in skipped:
            continue
        before, now = figure["value"], measured.get(key, {}).get("value")
        least, most = sorted((before, now or 0.0))
        is_worse = now is None or (now > before) == (figure["better"] == "lower")
        if is_worse and most > ALLOWED * least:
            found.append(Regression(key, before, now))
    return found


def best(runs: list[Figures]) -> dict[str, Mapping[str, Any]]:
    """Return the best value of each figure."""
    result: dict[str, Mapping[str, Any]] = {}
    for key, figure in ((key, figure) for run in runs for key, figure in run.items()):
        held = result.setdefault(key, figure)
        choose = max if figure.get("better") == "higher" else min
        result[key] = choose(held, figure, key=lambda f: f["value"])
    return result


def check(recorded: Figures, measure: Callable[[], Run]) -> list[Regression]:
    """Return the regressions that remain after up to `TRIES` measurements."""
    runs: list[Figures] = []
    found: list[Regression] = []
    for _ in range(TRIES):
        run = measure()
        runs.append(run.figures)
        found = regressions(recorded, best(runs), run.skipped)
        if not found:
            break
    return found


def quick_run(script: Path) -> Run:
    """Run a bench. Raises `subprocess.CalledProcessError` if it fails."""
    subprocess.run([sys.executable, str(script), "--quick", "--no-write"], check=True)
    return read(SCRATCH, script)


def read(folder: Path, script: Path) -> Run:
    """Return the last quick run of a bench in this folder, empty if none is recorded."""
    path = folder / f"{script.stem.removeprefix('bench_')}.json"
    if not path.exists():
        return Run({}, {})
    run: dict[str, Any] = json.loads(path.read_text())["runs"].get("quick", {})
    return Run(run.get("figures", {}), run.get("skipped", {}))


def main(names: list[str]) -> int:
    """Check the benches of these names, or all, and return the exit status."""
    here = Path(__file__).parent
    scripts = [here / f"bench_{name}.py" for name in names] or sorted(here.glob("bench_*.py"))
    failed = False
    for script in scripts:
        recorded = read(RECORDED, script).figures
        if not any(figure["guarded"] for figure in recorded.values()):
            print(f"== {script.stem}: nothing recorded")
            continue
        print(f"== {script.stem}", flush=True)
        found = check(recorded, lambda script=script: quick_run(script))  # type: ignore[misc]
        failed |= bool(found)
        print(*(f"REGRESSION {each}" for each in found), sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
