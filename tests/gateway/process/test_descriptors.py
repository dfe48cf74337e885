"""Limits on file descriptors: raised, compared with what is needed, and exhausted and free again."""

from __future__ import annotations

import resource
import signal
import socket
from pathlib import Path

import httpx2
import pytest

import serving
from coregw.errors import Unavailable
from coregw.gateway.limits import descriptors
from coregw.gateway.limits.descriptors import MIN_DESCRIPTORS, fit_descriptors
from coregw.gateway.limits.machine import Limits
from coregw.gateway.settings import Settings


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The limits of the process, which a test may set; they start at 256 and 100,000."""
    found = {"soft": 256, "hard": 100_000}
    monkeypatch.setattr(resource, "getrlimit", lambda _: (found["soft"], found["hard"]))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: found.update(soft=pair[0], hard=pair[1]))
    return found


def test_the_limit_on_open_files_is_raised_to_its_maximum(limits: dict[str, int]) -> None:
    given = Limits.of(Settings(memory=1 << 30))
    assert fit_descriptors(given) == given
    assert limits == {"soft": 100_000, "hard": 100_000}


@pytest.mark.parametrize("limit", [MIN_DESCRIPTORS, 220, 1024, 4096])
def test_connections_leave_descriptors_to_the_store(
    limits: dict[str, int], limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    limits.update(soft=limit, hard=limit)
    fitted = fit_descriptors(Limits.of(Settings(memory=1 << 30)))
    connections = fitted.connections
    needed = connections + descriptors.max_spools(connections) + fitted.backlog
    assert connections >= 1
    assert fitted.backlog >= 1
    assert needed <= limit - descriptors.max_open_files() - 64
    assert f"may open {limit} files" in caplog.text
    assert str(connections) in caplog.text


def test_too_few_descriptors_are_refused(limits: dict[str, int]) -> None:
    limits.update(soft=10, hard=MIN_DESCRIPTORS - 1)
    with pytest.raises(Unavailable, match=f"at least {MIN_DESCRIPTORS}"):
        fit_descriptors(Limits.of(Settings(memory=1 << 30)))


def test_writes_succeed_while_and_after_descriptors_run_out(tmp_path: Path) -> None:
    with serving.process(tmp_path) as running:
        # The process has the limit of this one; as if it had been started with `ulimit -n 220`.
        resource.prlimit(running.popen.pid, resource.RLIMIT_NOFILE, (220, 220))
        idle = []
        for _ in range(300):
            connection = socket.socket()
            connection.settimeout(0.2)
            try:
                connection.connect(("127.0.0.1", running.port))
            except OSError:
                connection.close()
                break
            idle.append(connection)
        for connection in idle:
            connection.close()
        with httpx2.Client(base_url=running.url, timeout=60) as client:
            for i in range(8):
                answer = client.post("/v1/cas", content=bytes([i]) * (3 << 20))
                while answer.status_code == 503:
                    answer = client.post("/v1/cas", content=bytes([i]) * (3 << 20))
                assert answer.status_code == 201
            assert client.get("/healthz").status_code == 200
        assert running.end(signal.SIGTERM) == 0
