"""Gateways on one store in PostgreSQL: as on several machines, and what an operator sees."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

import serving
from coregw.errors import InvalidInput
from coregw.gateway.settings import Settings
from coregw.store.postgres import open_store
from damage_support import Truth, fill
from damaged_rows import Damage, damage_rows
from postgres_support import new_bucket, new_schema
from servers import Bucket, Postgres
from tables import rows

Cid = Callable[..., str]
AUTHORIZATION = {"authorization": f"Bearer {serving.ADMIN_TOKEN}"}


@pytest.fixture
def settings(primary: Postgres, s3: Bucket) -> dict[str, str]:
    """The settings of a store; its password is not checked, and must not be shown."""
    return {"store": new_schema(primary).replace("coregw@", "coregw:se-cret@"), "bucket": new_bucket(s3)}


@pytest.fixture
def pair(tmp_path: Path, settings: dict[str, str]) -> Iterator[list[serving.Process]]:
    """Two gateways on one store."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(serving.process(tmp_path / name, serving.ADMIN, **settings)) for name in ("one", "two")
        ]


def create(gateway: serving.Process, arcs: dict[str, str]) -> str:
    return str(httpx2.post(f"{gateway.url}/v1/roots", json={"arcs": arcs}).raise_for_status().json()["root"])


def resolved(gateway: serving.Process, root: str, segment: str) -> httpx2.Response:
    request = {"profile": "core.resolve/v0alpha1", "root": root, "segments": [segment]}
    return httpx2.post(f"{gateway.url}/v1/resolve", json=request, timeout=30)


def test_what_one_gateway_acknowledges_the_other_serves_at_once(pair: list[serving.Process], cid_of: Cid) -> None:
    one, two = pair
    for number in range(10):
        leaf = cid_of(b"%d" % number)
        writer, reader = (one, two) if number % 2 else (two, one)
        root = create(writer, {"n": leaf})
        assert resolved(reader, root, "n").json()["target"] == leaf
        data = os.urandom(3 << 20 if number < 2 else 1000)
        cid = httpx2.post(f"{writer.url}/v1/cas", content=data).raise_for_status().json()["cid"]
        assert httpx2.get(f"{reader.url}/v1/cas/{cid}").content == data

    def publish(gateway: serving.Process) -> int:
        body = {"name": "race", "root": root, "expected_revision": 0}
        url = f"{gateway.url}/admin/v1/scopes/race/roots"
        return httpx2.post(url, json=body, headers=AUTHORIZATION).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(publish, pair * 4))
    assert min(statuses) in (200, 201)
    assert statuses.count(409) == 7, statuses


def test_a_gateway_may_be_killed_at_any_time(pair: list[serving.Process], cid_of: Cid) -> None:
    one, two = pair
    root = create(one, {"n": cid_of(b"leaf")})
    one.popen.kill()
    one.popen.wait()
    assert resolved(two, root, "n").status_code == 200
    one.popen.communicate()
    one.popen.returncode = 0


def test_an_operator_sees_the_store_and_no_password(tmp_path: Path, settings: dict[str, str], cid_of: Cid) -> None:
    data = tmp_path / "data"
    log = tmp_path / "log"
    gateway = serving.start(data, serving.ADMIN, log=log, **settings)
    try:
        root = create(gateway, {"n": cid_of(b"leaf")})
        with serving.control(data) as control:
            text = control.get("/metrics").text
            assert control.get("/readyz").status_code == 200
        assert 'coregw_database_connections{state="idle"}' in text
        assert "coregw_database_data_bytes" in text
        for arguments in (["gc", "--grace", "0", "--json"], ["status"]):
            done = serving.run(*arguments, "--data", str(data))
            assert done.returncode == 0, done.stdout + done.stderr
            assert "se-cret" not in done.stdout + done.stderr
        assert resolved(gateway, root, "n").json()["error"] == "root_not_found"
        with serving.control(data) as control:
            answer = control.post("/admin/v1/maintenance/flush")
            assert answer.json()["error"] == "unavailable"
            assert "not in RocksDB" in answer.text
            checked = control.post("/admin/v1/maintenance/fsck", timeout=60).text.splitlines()[-1]
            assert json.loads(checked)["result"]["is_sound"]
    finally:
        gateway.end()
        gateway.popen.communicate()
    said = log.read_text("utf-8")
    assert "postgresql://coregw:***@" in said
    assert "se-cret" not in said


@rows(
    ("variables", "reason"),
    [
        ({"STORE": "mysql://user:se-cret@host/db"}, "setting store"),
        ({"BUCKET": "s3://bucket"}, "setting bucket needs a store in PostgreSQL"),
        ({"STORE": "postgresql://host/db", "BUCKET": "http://u:se-cret@b"}, "setting bucket"),
        (
            {"STORE": "postgresql://host/db", "GC_GRACE_SECONDS": "59.5"},
            "setting gc_grace_seconds is 59.5, expected at least 120",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused_without_showing_secrets(variables: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as caught:
        Settings.load({f"COREGW_{name}": value for name, value in variables.items()})
    assert "se-cret" not in str(caught.value)
    assert "se-cret" not in repr(Settings(store="postgresql://user:se-cret@host/db"))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"store": "postgresql://user:se-cret@127.0.0.1:1/db", "bucket": "none"}, "database"),
        (
            {"store": "postgresql://127.0.0.1:1/db?unsafe=speed", "bucket": "none"},
            "has unsafe=speed, expected",
        ),
        ({"bucket": "s3://absent?endpoint=http://127.0.0.1:1"}, "bucket"),
    ],
)
def test_a_gateway_that_cannot_open_its_store_says_why(
    tmp_path: Path, settings: dict[str, str], changed: dict[str, str], reason: str
) -> None:
    with pytest.raises(serving.DidNotStart, match=reason) as caught:
        serving.start(tmp_path / "data", **(settings | changed))
    assert caught.value.code == 1
    assert "se-cret" not in caught.value.said


def test_a_store_is_backed_up_and_restored_to_a_directory_and_to_a_database(
    tmp_path: Path, settings: dict[str, str], primary: Postgres, s3: Bucket, cid_of: Cid
) -> None:
    data, destination, copy = tmp_path / "data", tmp_path / "backup", tmp_path / "copy"
    variables = {f"COREGW_{name.upper()}": value for name, value in settings.items()}

    def coregw(*arguments: str, environ: dict[str, str] | None = None) -> dict[str, Any]:
        done = serving.run(*arguments, "--json", environ=environ or {})
        assert done.returncode == 0, done.stderr
        assert "se-cret" not in done.stdout + done.stderr
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
        return result

    long, arcs = random.Random(5).randbytes(3 << 20), {str(number): cid_of(b"%d" % number) for number in range(2000)}
    with serving.process(data, serving.ADMIN, **settings) as gateway:
        root = create(gateway, arcs)
        payload = httpx2.post(f"{gateway.url}/v1/cas", content=long).raise_for_status().json()["cid"]
        first = coregw("backup", str(destination), "--data", str(data))  # by the gateway, which knows the store
        assert first["copied_bytes"] == first["size_bytes"] > len(long)
        other = create(gateway, arcs | {"more": cid_of(b"more")})
        second = coregw("backup", str(destination), "--data", str(tmp_path / "none"), "--verify", environ=variables)
        assert second["copied_bytes"] < len(long) / 5
    coregw("restore", str(destination), "--data", str(copy))
    target = {"store": new_schema(primary), "bucket": new_bucket(s3)}
    done = coregw("restore", str(destination), "--to", target["store"], "--to-bucket", target["bucket"])
    assert (done["roots"], done["generation"]) == (2, 2)
    for restored in ({}, target):
        with serving.process(copy if not restored else tmp_path / "third", serving.ADMIN, **restored) as gateway:
            assert resolved(gateway, root, "7").json()["target"] == arcs["7"]
            assert resolved(gateway, other, "more").status_code == 200
            assert httpx2.get(f"{gateway.url}/v1/cas/{payload}").content == long
    taken = ("--to", new_schema(primary), "--to-bucket", settings["bucket"])
    assert "is that of another store" in serving.run("restore", str(destination), *taken).stderr
    refused = serving.run("restore", str(destination), "--generation", "1", "--to", target["store"])
    assert (refused.returncode, "the destination is not empty" in refused.stderr) == (1, True)
    for wrong in (
        (),
        ("--data", "x", "--to", "postgresql://x"),
        ("--data", "x", "--to-bucket", "s3://x"),
        ("--to", "x"),
    ):
        assert serving.run("restore", str(destination), *wrong).returncode == 2


def test_damage_is_found_removed_and_healed_without_looking_at_a_directory(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    truth = asyncio.run(fill(elsewhere, 8, is_killed=False))
    shutil.copytree(elsewhere, tmp_path / "copy")
    with serving.process(elsewhere, serving.ADMIN) as healthy:
        variables = {f"COREGW_{name.upper()}": value for name, value in settings.items()}

        def coregw(*arguments: str) -> dict[str, Any]:
            done = serving.run(*arguments, "--data", str(here), "--json", environ=variables)
            assert "se-cret" not in done.stdout + done.stderr
            return {"code": done.returncode, "said": done.stderr} | (json.loads(done.stdout) if done.stdout else {})

        store, bucket = settings["store"], settings["bucket"]
        done = serving.run("copy", "--from", f"rocksdb:{tmp_path / 'copy'}", "--to", store, "--to-bucket", bucket)
        assert done.returncode == 0, done.stderr
        with serving.process(here, serving.ADMIN, **settings):
            assert coregw("fsck")["is_sound"]
            damage = asyncio.run(damage_shared(settings, truth))
            found = coregw("fsck")
            assert found["code"] == 4
            assert {each["cid"] for each in found["damaged_payloads"]} == {damage.payload, damage.long_payload}
            assert {each["cid"] for each in found["missing_pages"]} == {damage.damaged_root, damage.missing_root}
            refused = coregw("heal", "--from", healthy.url)
            assert "fsck --repair" in refused["said"]
            assert coregw("fsck", "--repair")["code"] == 4
            healed = coregw("heal", "--from", healthy.url)
            assert healed["code"] == 0, healed
            assert {damage.payload, damage.long_payload} <= set(healed["restored"]["payloads"])
            assert {damage.damaged_root, damage.missing_root} <= set(healed["restored"]["roots"])
            assert coregw("fsck")["is_sound"]
        assert coregw("gc", "--dry-run")["payloads"] == len(truth.payloads)
    unnamed = serving.run("fsck", "--data", str(here))
    assert "COREGW_STORE" in unnamed.stderr


async def damage_shared(settings: dict[str, str], truth: Truth) -> Damage:
    async with await open_store(settings["store"], bucket=settings["bucket"]) as store:
        return await damage_rows(store, truth, random.Random(8))
