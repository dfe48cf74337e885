"""``pytest benches/`` works as it is, with the table of pytest-benchmark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parent.parent.parent


def test_the_suite_of_pytest_benchmark_runs_without_the_libraries_of_pictures(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError(__name__)")
    command = [sys.executable, "-m", "pytest", "benches/", "--benchmark-disable", "-q", "-p", "no:cacheprovider"]
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
