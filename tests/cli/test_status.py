"""``coregw status``: what a running gateway tells an operator by its control socket."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import serving


def status(data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return serving.run("status", "--data", data, *options)


def test_status_shows_the_gateway_that_runs_on_a_directory(tmp_path: Path) -> None:
    with serving.process(tmp_path) as process:
        shown = status(tmp_path)
        printed = json.loads(status(tmp_path, "--json").stdout)
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = dict(line.split("  ", 1) for line in shown.stdout.splitlines())
    assert lines["pid"].strip() == str(process.popen.pid)
    assert lines["healthy"].strip() == "yes"
    assert (printed["pid"], printed["jobs"]) == (process.popen.pid, [])
    assert (lines["clients at"].strip(), printed["urls"]) == (process.url, [process.url])
    assert lines["running for"].strip().endswith(" s")
    assert [address[:8] for address in printed["addresses"]] == ["@coregw-"]


def test_status_without_a_gateway_is_a_failure_that_says_so(tmp_path: Path) -> None:
    shown = status(tmp_path)
    said = f"coregw: no gateway is running on {tmp_path}; coregw serve --data {tmp_path} starts one\n"
    assert (shown.returncode, shown.stderr) == (1, said)
