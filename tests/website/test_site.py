"""The site of the documentation in headless Chromium, opened from the disk. `make test-clients ARGS=site` runs it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
CHROMIUM = os.environ.get("COREGW_TEST_BROWSER", "")
SITE = HOME / "target" / "site"

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="run by `make test-clients ARGS=site`")


def test_the_search_works_without_a_server_and_pages_load_nothing_from_elsewhere() -> None:
    given = {"site": str(SITE), "chromium": CHROMIUM, "shot": str(HOME / "target" / "search.png")}
    command = ["node", HOME / "js/build/site.js", json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
