"""Plant stores that run for the whole session, alone and beside a gateway, and ways to talk to them."""

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
    """Both ways to run the plant store."""
    return str(request.param)


@pytest.fixture(scope="session")
def client(command: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A client of a running plant store. It carries no token."""
    with (
        running(command, tmp_path_factory.mktemp("plants") / "data") as process,
        httpx2.Client(base_url=process.url, timeout=60) as session,
    ):
        yield session


@pytest.fixture(scope="session")
def create(client: httpx2.Client) -> Create:
    """Posts a plant (an object, or text as it is) with the token; further headers by keyword."""

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
    """Ids that no plant has."""
    numbers = itertools.count(1_000_000)
    return lambda: next(numbers)


def failed(answer: httpx2.Response, status: int, error: int | None = None) -> str:
    """Checks the one shape of failures, and gives the sentence."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    told = json.loads(answer.content)
    assert set(told) == {"error", "message"}
    assert told["error"] == (status if error is None else error)
    assert type(told["error"]) is int
    assert isinstance(told["message"], str)
    assert told["message"]
    return str(told["message"])


@pytest.fixture(scope="session")
def expect_error() -> Callable[..., str]:
    return failed
