"""Fixtures: an honest gateway shared by all command line tests, and ways to run a command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest
from click.testing import CliRunner, Result

from coregw import payload_cid
from coregw.cli.main import cli
from coregw.client import Client
from gateways import honest_gateway

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with honest_gateway(tmp_path_factory.mktemp("gateway") / "data") as url:
        yield url


@pytest.fixture
def run(gateway: str) -> Run:
    """Runs a command in this process; gives exit code, stdout and stderr."""

    def invoke(*arguments: object, gateway: str = gateway, **options: object) -> Result:
        environment = {"COREGW_GATEWAY": gateway, "COREGW_DEBUG": None}
        return CliRunner(env=environment).invoke(cli, [str(argument) for argument in arguments], **options)

    return invoke


@pytest.fixture
def coregw(gateway: str) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Runs a command as a process of its own, as a person does."""

    def start(*arguments: object, under: Sequence[str] = ()) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "COREGW_GATEWAY": gateway}
        environment.pop("COREGW_DEBUG", None)
        command = [*under, sys.executable, "-m", "coregw", *(os.fspath(argument) for argument in arguments)]
        return subprocess.run(command, capture_output=True, env=environment, timeout=120, check=False)

    return start


@pytest.fixture
def as_a_user() -> list[str]:
    """What to put before a command so that it may not read everything, even if the tests run as root."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv, which takes the rights of root away")
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]


@pytest.fixture
def root(gateway: str) -> str:
    """A map with ``docs/readme``, whose payload is held, and ``docs/guide``, whose payload is not."""
    with Client(gateway) as client:
        return client.create_root({"docs/readme": client.put_payload(b"content"), "docs/guide": payload_cid(b"guide")})
