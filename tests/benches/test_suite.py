"""``pytest benches/`` works as it is, with the table of pytest-benchmark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parent.parent.parent


def test_the_suite_of_pytest_benchmark_runs() -> None:
    command = [sys.executable, "-m", "pytest", "benches/", "--benchmark-disable", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
