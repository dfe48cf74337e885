"""Thousands of requests that are almost right, by HTTP/1.1 and HTTP/2: each is answered, and none by a 500."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import httpx2
import pytest

import fuzzed_requests
import serving
from coregw.errors import ERROR_CODES
from fuzzed_requests import Sent


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, list[Sent]]]:
    """A new gateway, its log, and the requests that have filled it."""
    folder = tmp_path_factory.mktemp("fuzzed")
    log = folder / "log"
    with serving.process(folder / "data", serving.ADMIN, log=log) as running:
        yield running.url, log, fuzzed_requests.examples_of(running.url)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("seed", "count"), [(1, 300), pytest.param(2, 3000, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_no_request_is_answered_by_a_500(
    filled: tuple[str, Path, list[Sent]], version: int, seed: int, count: int
) -> None:
    url, log, examples = filled
    statuses = Counter[int]()
    with httpx2.Client(base_url=url, timeout=60, http1=version == 1, http2=version == 2) as client:
        for request in islice(fuzzed_requests.changed(examples, seed), count):
            answer = request.by(client)
            assert answer.http_version == ("HTTP/1.1" if version == 1 else "HTTP/2")
            assert answer.status_code < 500, (request, answer.content)
            check_problem(request, answer)
            statuses[answer.status_code] += 1
        assert client.get("/healthz").status_code == 200
    assert {200, 201, 400, 404, 405} <= set(statuses), statuses
    assert count < 1000 or {204, 206, 304, 401, 403, 409, 412, 415, 416, 421} <= set(statuses), statuses
    assert "Traceback" not in log.read_text()


def check_problem(request: Sent, answer: httpx2.Response) -> None:
    """Check that a refusal says why, as the table of errors has it."""
    if answer.status_code < 400 or request.method == "HEAD":
        return
    assert answer.headers["content-type"] == "application/json", (request, answer.content)
    problem = json.loads(answer.content)
    assert ERROR_CODES[problem["error"]].status == answer.status_code, (request, problem)
    assert problem["message"], (request, problem)
