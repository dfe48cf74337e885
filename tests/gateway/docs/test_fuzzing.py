"""A short, reproducible run of schemathesis on the gateway's document; `make fuzz ARGS=http` runs longer."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import fuzzing
import serving


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A new gateway, which the examples of its document require."""
    with serving.process(tmp_path_factory.mktemp("fuzzed") / "data", serving.ADMIN) as running:
        fuzzing.fill(running.url)
        yield running.url


@pytest.mark.slow
@pytest.mark.parametrize(
    ("token", "paths"),
    [(serving.ADMIN_TOKEN, "^/"), (None, "^/admin/")],
    ids=["everywhere", "protected by an unknown token"],
)
def test_every_response_is_documented_and_none_is_a_500(filled: str, token: str | None, paths: str) -> None:
    limits = ("--seed", "1", "--max-examples", "5", "--include-path-regex", paths)
    run = fuzzing.schemathesis(f"{filled}/openapi.json", token, *limits)
    assert run.returncode == 0, run.stdout + run.stderr
    generated = re.search(r"(\d+) generated", run.stdout)
    assert generated is not None
    assert int(generated[1]) > 100
