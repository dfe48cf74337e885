"""The long form of the faults of a cluster: ``make test-servers ARGS='cluster --seed 7 --count 20'``.

Exits with 1 if something acknowledged was lost, something wrong was served, or answers took longer than the bars after
a primary was killed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))

from cluster import faults


def main() -> None:
    """Run the faults, and print one line with figures."""
    parser = argparse.ArgumentParser(description="Kill parts of a cluster under load, and check what it promised.")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="chooses the load and the moments")
    parser.add_argument("--count", type=int, default=faults.COUNT, help="the number of faults")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long the load lasts before and after each")
    parser.add_argument("--faults", nargs="+", choices=faults.FAULTS, default=list(faults.FAULTS), help="the kinds")
    chosen = parser.parse_args()
    os.environ["COREGW_TEST_SERVERS"] = "required"
    report = faults.run(chosen.seed, chosen.count, seconds=chosen.seconds, faults=tuple(chosen.faults))
    for example in report.examples:
        print(f"  {example}")
    print(report.line())
    is_late = False
    for kind, bar in (("read", faults.READ_SECONDS), ("write", faults.WRITE_SECONDS)):
        seconds = report.figures.get(f"primary {kind} resumed s")
        if isinstance(seconds, float):
            is_late |= seconds > bar
            print(f"{kind}s resumed {max(seconds, 0):.2f} s after the promotion (bar: {bar:g} s)")
    control = faults.run_control(chosen.seed)
    print(control.line())
    sys.exit(not report.is_ok or is_late or not control.is_ok)


if __name__ == "__main__":
    main()
