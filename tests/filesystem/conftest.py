"""A gateway with a folder of tables, links and nested maps, and a proxy that counts what is requested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coregw.client import Client
from gateways import Counted, honest_gateway, lying_gateway


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with honest_gateway(tmp_path_factory.mktemp("gateway") / "data") as url:
        yield url


@pytest.fixture(scope="module")
def counted(honest: str) -> Iterator[Counted]:
    count = Counted()
    with lying_gateway(count, honest) as url:
        count.url = url
        yield count


@pytest.fixture(scope="session")
def client(honest: str) -> Iterator[Client]:
    with Client(honest) as opened:
        yield opened


def added(client: Client, folder: Path) -> str:
    return client.add(folder, use_cache=False).root
