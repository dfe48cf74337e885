"""MALT's own client uses a gateway: the transport of malt-client, unchanged, but for its batches of payloads.

`make test-clients ARGS=malt` runs it where the sources are in target/; without them, it is skipped. The shapes of its
requests are tested in `tests/gateway/routes/test_queries_by_get.py` everywhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import serving

FOLDER = Path(__file__).parent
GO = shutil.which("go")

pytestmark = pytest.mark.skipif(not os.environ.get("COREGW_TEST_MALT"), reason="run by `make test-clients ARGS=malt`")


def test_the_transport_of_malt_client_works_unchanged(tmp_path: Path) -> None:
    if GO is None:
        pytest.skip("go is not installed")
    program = tmp_path / "malt"
    built = subprocess.run(
        [GO, "build", "-mod=readonly", "-o", program, "."], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    with serving.process(tmp_path / "data") as running:
        done = subprocess.run([program, running.url], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
