"""The cases of IPFS gateway-conformance for raw blocks and for CORS.

`make test-clients ARGS=conformance` runs them where its source is in target/; without it, they are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest

import serving
from car_files import TYPE

SOURCE = os.environ.get("COREGW_TEST_CONFORMANCE", "")
"""A clone of github.com/ipfs/gateway-conformance."""

CASES = {"TestTrustlessRaw": 5, "TestTrustlessRawRanges": 2, "TestCors": 2}
"""The number of cases of each group."""

pytestmark = pytest.mark.skipif(not SOURCE, reason="run by `make test-clients ARGS=conformance`")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed")
    target = tmp_path_factory.mktemp("go") / "gateway-conformance"
    command = [go, "build", "-mod=readonly", "-o", target, "./cmd/gateway-conformance"]
    built = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return target


def test_raw_blocks_and_cors_conform(program: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    groups = f"^({'|'.join(CASES)})$"
    with serving.process(tmp_path / "data", allow_origin="*") as running:
        fixture = (Path(SOURCE) / "fixtures" / "gateway-raw-block.car").read_bytes()
        assert httpx2.post(f"{running.url}/v1/car", content=fixture, headers=TYPE).is_success
        command = [program, "test", "--gateway-url", running.url, "--json", report, "--specs", "-subdomain-gateway"]
        done = subprocess.run(
            [*command, "--", "-run", groups], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600
        )
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in report.read_text("utf-8").splitlines()]
    tests = [each for each in events if each.get("Test") and each["Action"] in {"pass", "fail", "skip"}]
    assert {each["Action"] for each in tests} == {"pass"}
    cases = [group for group, *case in (each["Test"].split("/") for each in tests) if len(case) == 1]
    assert {group: cases.count(group) for group in cases} == CASES
