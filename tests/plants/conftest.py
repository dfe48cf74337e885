"""Fixtures of the plant store's tests: services that run for the session, alone and beside a gateway, and clients."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator

import httpx2
import pytest

from plant_services import ALONE, BESIDE, TOKEN, running

Create = Callable[..., httpx2.Response]


@pytest.fixture(scope="session", params=[ALONE, BESIDE])
def command(request: pytest.FixtureRequest) -> str:
    """The command that serves the plant store."""
    return str(request.param)


@pytest.fixture(scope="session")
def client(command: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A client of a running plant store, without a token."""
    with (
        running(command, tmp_path_factory.mktemp("plants") / "data") as process,
        httpx2.Client(base_url=process.url, timeout=60) as session,
    ):
        yield session


@pytest.fixture(scope="session")
def create(client: httpx2.Client) -> Create:
    """Post a plant (an object, or bytes as they are) with the token; keywords are further headers."""

    def post(plant: object, **headers: str) -> httpx2.Response:
        content = plant if isinstance(plant, bytes) else json.dumps(plant).encode()
        given = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        return client.post(
            "/plants",
            content=content,
            headers=given | {name.replace("_", "-"): value for name, value in headers.items()},
        )

    return post


@pytest.fixture(scope="session")
def fresh() -> Callable[[], int]:
    """Return unused ids."""
    numbers = itertools.count(1_000_000)
    return lambda: next(numbers)


def failed(answer: httpx2.Response, status: int, error: int | None = None) -> str:
    """Check the shape of a failure, and return its message."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    error_body = json.loads(answer.content)
    assert set(error_body) == {"error", "message"}
    assert error_body["error"] == (status if error is None else error)
    assert type(error_body["error"]) is int
    assert isinstance(error_body["message"], str)
    assert error_body["message"]
    return str(error_body["message"])


@pytest.fixture(scope="session")
def expect_error() -> Callable[..., str]:
    return failed
