"""A short run of schemathesis on the plant store's document, the same each time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fuzzing
from plant_services import ALONE, TOKEN, running


@pytest.mark.parametrize("token", [TOKEN, None], ids=["with the token", "without a token"])
def test_every_response_to_generated_requests_is_documented(tmp_path: Path, token: str | None) -> None:
    with running(ALONE, tmp_path / "data") as plants:  # of its own, since it takes ids that other tests want
        run = fuzzing.schemathesis(f"{plants.url}/openapi.json", token, "--seed", "1", "--max-examples", "20")
    assert run.returncode == 0, run.stdout + run.stderr
    generated = re.search(r"(\d+) generated", run.stdout)
    assert generated is not None
    assert int(generated[1]) > 50
