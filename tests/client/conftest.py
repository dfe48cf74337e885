"""Fixtures: an honest gateway shared by all client tests, and clients of gateways that lie."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from coregw.client import Client, ClientSettings
from gateways import Liar, Lie, honest_gateway, lying_gateway
from static_trees import Trees

SETTINGS = ClientSettings(attempts=4, idle_seconds=20, backoff_seconds=0.001, backoff_max_seconds=0.002)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with honest_gateway(tmp_path_factory.mktemp("gateway") / "data") as url:
        yield url


@pytest.fixture
def client(gateway: str) -> Iterator[Client]:
    with Client(gateway, SETTINGS) as opened:
        yield opened


@pytest.fixture
def liar(gateway: str) -> Iterator[Liar]:
    """Returns clients of a gateway that passes the honest gateway's replies through a lie."""
    with ExitStack() as stack:

        def lying(lie: Lie, settings: ClientSettings = SETTINGS, honest: str | None = gateway) -> Client:
            url = stack.enter_context(lying_gateway(lie, honest))
            return stack.enter_context(Client(url, settings))

        yield lying


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1; its key is in the file with the suffix ``.key``."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{file}.key"]
    name = ["-subj", "/CN=gateway", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-days", "2", *key, *name, "-out", file]
    subprocess.run(command, check=True, capture_output=True)
    return file


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trees]:
    """A gateway of its own, and a static tree of its roots."""
    folder = tmp_path_factory.mktemp("static")
    with honest_gateway(folder / "data") as url:
        yield Trees(url, folder / "tree")
