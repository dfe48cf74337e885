"""The plant store as a process: rows, restarts, races, tokens, signals, and failures of its store."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest
from litestar.testing import TestClient

import fuzzing
from coregw.engine.publications import RecordTable
from coregw.errors import InvalidInput, StorageFull, StoreDamaged, Unavailable
from coregw.gateway.access import AccessToken
from coregw.plants.app import TOKEN_VARIABLE, create_app, plant_key, put_plant
from coregw.store import Store, Table
from coregw.store.memory import MemoryStore
from coregw.store.rocksdb import open_store
from plant_services import TOKEN, running

if TYPE_CHECKING:
    from litestar import Litestar

CARRIED = {"authorization": f"Bearer {TOKEN}"}
MIN, MAX = -(2**63), 2**63 - 1
IDS = [MIN, MIN + 1, -(2**53) - 1, -1, 0, 1, 7, 255, 256, 2**53 + 1, MAX - 1, MAX]


def create(url: str, plant: dict[str, object]) -> httpx2.Response:
    return httpx2.post(f"{url}/plants", json=plant, headers=CARRIED, timeout=60)


# --- rows -------------------------------------------------------------------------------------------------------------


async def plants_in(store: Store, ids: Sequence[int]) -> list[bytes | None]:
    return await store.get(Table.RECORDS, [plant_key(plant_id) for plant_id in ids])


def test_every_int64_is_an_id_that_is_taken_once_and_for_good(tmp_path: Path) -> None:
    async def run() -> None:
        plants = [b"plant %d" % plant_id for plant_id in IDS]
        async with await open_store(tmp_path, reserve_bytes=0) as store:
            record = await RecordTable(store).publish("p", "p", b"\x01root", None, datetime(2024, 2, 29, tzinfo=UTC))
            assert all([await put_plant(store, plant_id, b"plant %d" % plant_id) for plant_id in IDS])
            assert await plants_in(store, [*IDS, 8]) == [*plants, None]
        async with await open_store(tmp_path, reserve_bytes=0) as store:
            for plant in (b"plant 7", b"moss"):
                assert not any([await put_plant(store, plant_id, plant) for plant_id in IDS])
            assert await plants_in(store, IDS) == plants
            assert await RecordTable(store).in_scope("p", None, 10) == [record]  # the table is a gateway's, too
            assert await RecordTable(store).history("p", "p", 0, 10) == [record]

    asyncio.run(run())


def test_an_id_outside_int64_is_refused(subtests: pytest.Subtests) -> None:
    for plant_id in (MIN - 1, MAX + 1):
        with subtests.test(str(plant_id)), pytest.raises(InvalidInput, match=str(plant_id)):
            plant_key(plant_id)


def test_exactly_one_of_concurrent_plants_with_one_id_is_stored(tmp_path: Path) -> None:
    async def run() -> None:
        async with await open_store(tmp_path, reserve_bytes=0) as store:
            for plant_id in range(5):
                plants = [b"plant %d" % number for number in range(20)]
                stored = await asyncio.gather(*(put_plant(store, plant_id, plant) for plant in plants))
                assert stored.count(True) == 1
                assert await plants_in(store, [plant_id]) == [plants[stored.index(True)]]

    asyncio.run(run())


def test_a_full_store_refuses_a_plant(tmp_path: Path) -> None:
    async def run() -> None:
        async with await open_store(tmp_path, reserve_bytes=1 << 62) as store:
            with pytest.raises(StorageFull):
                await put_plant(store, 7, b"fern")
            assert await plants_in(store, [7]) == [None]

    asyncio.run(run())


# --- the application --------------------------------------------------------------------------------------------------


class FailingStore(MemoryStore):
    """A store that is not healthy, and whose conditional writes fail."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error
        self.is_closed = False

    async def healthy(self) -> bool:
        return False

    async def compare_and_set(
        self,
        table: Table,
        key: bytes,
        expected: bytes | None,
        value: bytes,
        further: Sequence[tuple[bytes, bytes]] = (),
    ) -> bool:
        raise self._error

    async def close(self) -> None:
        self.is_closed = True


def app_on(store: Store) -> Litestar:
    async def opened() -> Store:
        return store

    return create_app(opened, AccessToken(TOKEN_VARIABLE, TOKEN))


def test_an_error_of_the_store_becomes_a_status_and_leaks_no_details(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    rows: list[tuple[Exception, int]] = [
        (StoreDamaged("the row at /secret is broken"), 500),
        (ZeroDivisionError("at /secret"), 500),
        (Unavailable("the store is busy"), 503),
        (StorageFull("the disk is full"), 507),
    ]
    for error, status in rows:
        caplog.clear()
        store = FailingStore(error)
        with subtests.test(repr(error)):
            with caplog.at_level(logging.ERROR), TestClient(app_on(store)) as client:
                answer = client.post("/plants", json={"name": "fern", "id": 1}, headers=CARRIED)
            told = json.loads(answer.content)
            assert (answer.status_code, told["error"], set(told)) == (status, status, {"error", "message"})
            assert "secret" not in told["message"]
            assert ("retry-after" in answer.headers) == (status == 503)
            logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
            if isinstance(error, StoreDamaged):  # in a line, as each read of what is damaged fails again
                assert [each.getMessage() for each in logged] == ["POST '/plants' failed: the row at /secret is broken"]
            else:
                assert [each.exc_info and each.exc_info[1] for each in logged] == ([error] if status == 500 else [])
            assert store.is_closed


def test_an_unhealthy_store_is_an_error_of_the_service() -> None:
    with TestClient(app_on(FailingStore(ZeroDivisionError()))) as client:
        answer = client.get("/healthz")
    assert (answer.status_code, json.loads(answer.content)["error"]) == (503, 503)
    assert "retry-after" in answer.headers


# --- the process ------------------------------------------------------------------------------------------------------


def test_plants_survive_a_restart(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for end in (signal.SIGTERM, signal.SIGKILL):
        data = tmp_path / end.name
        with subtests.test(end.name):
            with running(data) as process:
                assert [create(process.url, {"name": "fern", "id": each}).status_code for each in (1, -1)] == [200] * 2
                process.end(end)
            with running(data) as again:
                assert [create(again.url, {"name": "moss", "id": each}).status_code for each in (1, -1)] == [400] * 2
                assert create(again.url, {"name": "moss", "id": 2}).status_code == 200


def test_exactly_one_of_many_plants_with_one_id_is_created(tmp_path: Path) -> None:
    def post(number: int) -> httpx2.Response:
        return create(process.url, {"name": f"plant {number}", "id": number // 16})

    with running(tmp_path) as process, ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(post, range(5 * 16)))
    for plant_id in range(5):
        race = answers[16 * plant_id : 16 * (plant_id + 1)]
        assert sorted(answer.status_code for answer in race) == [200] + [400] * 15
        assert {answer.json()["error"] for answer in race if answer.status_code == 400} == {409}
        won = next(number for number, answer in enumerate(race) if answer.status_code == 200)
        assert race[won].json() == {"name": f"plant {16 * plant_id + won}"}


def test_without_a_token_the_route_does_not_exist_and_a_warning_is_logged(tmp_path: Path) -> None:
    with running(tmp_path, token="") as process:
        answers = [create(process.url, {"name": "fern", "id": 1}), httpx2.get(f"{process.url}/plants")]
        bearer = {"authorization": "Bearer"}
        answers.append(httpx2.post(f"{process.url}/plants", json={"name": "fern", "id": 1}, headers=bearer))
        assert [(answer.status_code, answer.json()["error"]) for answer in answers] == [(404, 404)] * 3
        assert httpx2.get(f"{process.url}/openapi.json").status_code == 200
        process.end()
        assert process.popen.stderr is not None
        assert "WARNING coregw.plants: PLANTS_ACCESS_TOKEN is not set" in process.popen.stderr.read()


def served(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command, which is expected to end by itself."""
    start = [sys.executable, "-m", "coregw", "serve-plants", *map(str, arguments)]
    return subprocess.run(start, capture_output=True, text=True, check=False, env=os.environ | environ)


def test_a_token_that_no_header_can_carry_is_refused_at_the_start(tmp_path: Path, subtests: pytest.Subtests) -> None:
    data = tmp_path / "data"
    for token in ("two words", "a line\n", "t\u00f6ken"):
        with subtests.test(token):
            ended = served("--data", data, "--port", 0, PLANTS_ACCESS_TOKEN=token)
            reason = [line for line in ended.stderr.splitlines() if " INFO " not in line]  # the version
            assert (ended.returncode, ended.stdout, len(reason)) == (1, "", 1)
            assert "PLANTS_ACCESS_TOKEN" in reason[0]
            assert token not in ended.stderr
            assert not data.exists()


def test_a_store_or_an_address_in_use_is_one_line(tmp_path: Path) -> None:
    with running(tmp_path / "data") as process:
        same_store = served("--data", tmp_path / "data", "--port", 0, PLANTS_ACCESS_TOKEN=TOKEN)
        same_port = served("--data", tmp_path / "other", "--port", process.port, PLANTS_ACCESS_TOKEN=TOKEN)
    for ended, words in ((same_store, "is in use"), (same_port, f"cannot listen on 127.0.0.1:{process.port}")):
        reason = [line for line in ended.stderr.splitlines() if " INFO " not in line]  # the version
        assert (ended.returncode, ended.stdout, len(reason)) == (1, "", 1), ended.stderr
        assert words in reason[0]


def test_neither_the_token_nor_a_plant_is_logged(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "coregw", "serve-plants", "-v", "--data", tmp_path, "--port", "0"]
    environ = os.environ | {"PLANTS_ACCESS_TOKEN": TOKEN}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environ, text=True, **pipes) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        create(url, {"name": "a-secret-fern", "id": 1})
        httpx2.post(f"{url}/plants", headers={"authorization": f"Basic {TOKEN}"})
        process.terminate()
        _, log = process.communicate(timeout=60)
    assert log.count("coregw.access") == 2
    assert TOKEN not in log
    assert "a-secret-fern" not in log


def test_a_signal_ends_the_service_with_exit_code_0(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        with subtests.test(number.name), running(tmp_path / number.name) as process:
            assert create(process.url, {"name": "fern", "id": 1}).status_code == 200
            assert process.end(number) == 0


@pytest.mark.slow
def test_every_response_to_generated_requests_is_documented(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for about, token in (("with the token", TOKEN), ("without a token", None)):
        with subtests.test(about), running(tmp_path / about) as plants:
            run = fuzzing.schemathesis(f"{plants.url}/openapi.json", token, "--seed", "1", "--max-examples", "20")
            assert run.returncode == 0, run.stdout + run.stderr
            generated = re.search(r"(\d+) generated", run.stdout)
            assert generated is not None
            assert int(generated[1]) > 50
