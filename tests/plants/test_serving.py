"""The plant store as a process: tokens, restarts, races, workers, and a gateway beside it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

import serving
from coregw.plants.service import alone
from coregw.store.memory import MemoryStore
from plant_services import ALONE, BESIDE, TOKEN, running

_CARRIED = {"authorization": f"Bearer {TOKEN}"}
_OTHER = {ALONE: BESIDE, BESIDE: ALONE}


def create(url: str, plant: dict[str, object]) -> httpx2.Response:
    return httpx2.post(f"{url}/plants", json=plant, headers=_CARRIED, timeout=60)


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("command", [ALONE, BESIDE])
def test_plants_survive_a_restart_of_either_service(tmp_path: Path, command: str, end: str) -> None:
    with running(command, tmp_path) as process:
        assert [create(process.url, {"name": "fern", "id": each}).status_code for each in (1, -1)] == [200, 200]
        process.end(signal.Signals[end])
    with running(_OTHER[command], tmp_path) as again:
        assert [create(again.url, {"name": "moss", "id": each}).status_code for each in (1, -1)] == [400, 400]
        assert create(again.url, {"name": "moss", "id": 2}).status_code == 200


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("command", [ALONE, BESIDE])
def test_exactly_one_of_many_plants_with_one_id_is_created(tmp_path: Path, command: str, workers: int) -> None:
    def post(number: int) -> httpx2.Response:
        return create(process.url, {"name": f"plant {number}", "id": number // 16})

    with running(command, tmp_path, workers=workers) as process, ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(post, range(5 * 16)))
    for plant_id in range(5):
        race = answers[16 * plant_id : 16 * (plant_id + 1)]
        assert sorted(answer.status_code for answer in race) == [200] + [400] * 15
        assert {answer.json()["error"] for answer in race if answer.status_code == 400} == {409}
        won = next(number for number, answer in enumerate(race) if answer.status_code == 200)
        assert race[won].json() == {"name": f"plant {16 * plant_id + won}"}


@pytest.mark.parametrize("command", [ALONE, BESIDE])
def test_without_a_token_the_route_does_not_exist(tmp_path: Path, command: str) -> None:
    with running(command, tmp_path, token="") as process:
        answers = [create(process.url, {"name": "fern", "id": 1}), httpx2.get(f"{process.url}/plants")]
        empty = httpx2.post(
            f"{process.url}/plants", json={"name": "fern", "id": 1}, headers={"authorization": "Bearer"}
        )
    wanted = 404 if command == ALONE else "route_not_found"
    assert [(answer.status_code, answer.json()["error"]) for answer in [*answers, empty]] == [(404, wanted)] * 3


def test_alone_without_a_token_a_warning_is_logged(tmp_path: Path) -> None:
    with running(ALONE, tmp_path, token="") as process:
        assert httpx2.get(f"{process.url}/openapi.json").status_code == 200
        process.end()
        assert process.popen.stderr is not None
        assert "WARNING coregw.plants: PLANTS_ACCESS_TOKEN is not set" in process.popen.stderr.read()


@pytest.mark.parametrize("command", [ALONE, BESIDE])
@pytest.mark.parametrize("token", ["two words", "a line\n", "t\u00f6ken"])
def test_a_token_that_no_header_can_carry_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, token: str
) -> None:
    monkeypatch.setenv("PLANTS_ACCESS_TOKEN", token)
    start = [sys.executable, "-m", "coregw", command, "--data", tmp_path / "data", "--port", "0"]
    ended = subprocess.run(start, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (1, "", 1)
    assert "PLANTS_ACCESS_TOKEN" in ended.stderr
    assert token not in ended.stderr
    assert not (tmp_path / "data").exists()


def test_gateway_served_with_plants_needs_no_token(tmp_path: Path) -> None:
    with running(BESIDE, tmp_path) as process, httpx2.Client(base_url=process.url) as client:
        assert create(process.url, {"name": "fern", "id": 1}).status_code == 200
        cid = client.post("/v1/cas", content=b"leaf").json()["cid"]
        root = client.post("/v1/roots", json={"arcs": {"plants": cid}}).json()["root"]
        resolve = {"profile": "core.resolve/v0alpha1", "root": root, "segments": ["plants"]}
        assert client.post("/v1/resolve", json=resolve).json()["target"] == cid
        assert client.get("/healthz").status_code == 200
        assert client.get(f"/v1/cas/{cid}").content == b"leaf"


def test_healthz_needs_no_token(client: httpx2.Client) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()["status"], answer.headers["cache-control"]) == (200, "ok", "no-store")
    head = client.head("/healthz")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(answer.content)))
    assert client.get("/plants/healthz").status_code == 404


def test_alone_an_unhealthy_store_is_an_error_of_the_service(expect_error: Callable[..., str]) -> None:
    class Unreadable(MemoryStore):
        async def healthy(self) -> bool:
            return False

    with serving.thread(Unreadable(), service=alone(None)) as url:
        answer = httpx2.get(f"{url}/healthz")
        assert "retry-after" in answer.headers
        expect_error(answer, 503)
        expect_error(httpx2.get(f"{url}/healthz?a=b"), 400)
        expect_error(httpx2.post(f"{url}/healthz"), 405)


def test_the_token_is_not_logged(tmp_path: Path) -> None:
    with running(ALONE, tmp_path, log_level="debug") as process:
        create(process.url, {"name": "fern", "id": 1})
        httpx2.post(f"{process.url}/plants", headers={"authorization": f"Basic {TOKEN}"})
        process.end()
        assert process.popen.stderr is not None
        assert TOKEN not in process.popen.stderr.read()


def test_the_body_limit_is_a_setting(tmp_path: Path) -> None:
    with running(ALONE, tmp_path, plant_body_bytes=32) as process:
        assert create(process.url, {"name": "fern", "id": 1}).status_code == 200
        assert create(process.url, {"name": "a long name of a small fern", "id": 2}).status_code == 413


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_service_with_exit_code_0(tmp_path: Path, number: signal.Signals) -> None:
    with running(ALONE, tmp_path) as process:
        assert create(process.url, {"name": "fern", "id": 1}).status_code == 200
        assert process.end(number) == 0
