"""The long form of the harnesses: ``make chaos ARGS='kill power-cut --seed 7 --count 100'``.

Each prints one final line with figures. Exits with 1 if one of them fails.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))

from chaos import backups, damage, hostile, kill, power_cut, recorder, shortage
from chaos.report import Report

Harness = Callable[[int, int, Path], Report]

HARNESSES: dict[str, tuple[Harness, int]] = {
    "kill": (kill.run, kill.COUNT),
    "power-cut": (power_cut.run, power_cut.COUNT),
    "power-cut-control": (partial(power_cut.run, is_control=True), 10),
    "damage": (damage.run, damage.COUNT),
    "shortage": (shortage.run, shortage.COUNT),
    "hostile": (hostile.run, hostile.COUNT),
    "backup": (backups.run, backups.COUNT),
    "backup-power-cut": (backups.run_power_cuts, backups.POWER_CUTS),
}
"""Each harness with the count of its rounds."""

_NEED_RECORDER = {"power-cut", "power-cut-control", "backup-power-cut", "shortage"}


def main() -> None:
    """Run the harnesses that the arguments name, or all."""
    parser = argparse.ArgumentParser(description="Kill, cut, fill and damage a gateway, and check what it promised.")
    parser.add_argument("harness", nargs="*", choices=[*HARNESSES, []], help="which; all if none is named")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="chooses loads, moments and damage")
    parser.add_argument("--count", type=int, help="rounds of each harness")
    parser.add_argument("--folder", type=Path, help="where stores are made; those of failures are kept")
    chosen = parser.parse_args()
    folder = chosen.folder or Path(tempfile.mkdtemp(prefix="coregw-chaos-"))
    has_failed = False
    for name in chosen.harness or HARNESSES:
        if name in _NEED_RECORDER and (reason := recorder.missing()):
            print(f"{name}: skipped: {reason}", flush=True)
            continue
        run, count = HARNESSES[name]
        own = folder / name
        own.mkdir(parents=True)
        report = run(chosen.seed, chosen.count or count, own)
        for example in report.examples:
            print(f"  {example}", flush=True)
        print(report.line(), flush=True)
        has_failed |= not report.is_ok
        if report.is_ok:
            shutil.rmtree(own)
    if has_failed:
        print(f"what is left of the failures is in {folder}")
    sys.exit(has_failed)


if __name__ == "__main__":
    main()
