"""A plant store that runs for the session, and its client."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from plant_services import running


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A client of a running plant store, without a token."""
    with (
        running(tmp_path_factory.mktemp("plants") / "data") as process,
        httpx2.Client(base_url=process.url, timeout=60) as session,
    ):
        yield session
