"""Healing: what a repair could not copy comes back from another gateway or a CAR, checked against its CIDs."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import serving
from coregw import payload_cid
from coregw._core import Cid
from coregw.engine import Engine
from coregw.engine.records import node_key, revision_key
from coregw.errors import RecordNotFound
from coregw.messages.management import PublishedRecord
from coregw.store.memory import MemoryStore
from coregw.store.rocksdb import CACHE_BYTES, open_store
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.layout import Family, payload_date
from coregw.tlog.tree import Node
from coregw.upkeep.heal import restore
from damage_support import Truth, fill, served
from gateways import guarded_gateway

Base = tuple[Path, Truth]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    path = tmp_path_factory.mktemp("base") / "data"
    return path, asyncio.run(fill(path, 3, is_killed=False))


@pytest.fixture(scope="module")
def source(base: Base, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway that has everything."""
    copy = tmp_path_factory.mktemp("source") / "data"
    shutil.copytree(base[0], copy)
    with serving.process(copy, serving.ADMIN) as process:
        yield process.url


def coregw(*arguments: str) -> subprocess.CompletedProcess[str]:
    return serving.run(*arguments, environ={"COREGW_SOURCE_TOKEN": serving.ADMIN_TOKEN})


def damaged(base: Base, data: Path) -> None:
    """Zero a part of each table of pages and of large payloads, and repair the store."""
    shutil.copytree(base[0], data)
    for table in (data / "rocksdb").glob("*.sst"):
        content = bytearray(table.read_bytes())
        if len(content) > 30_000:
            start = len(content) // 3
            content[start : start + 9000] = bytes(9000)
            table.write_bytes(content)
    repaired = coregw("fsck", "--repair", "--data", str(data))
    assert repaired.returncode == 4, repaired


@pytest.mark.parametrize("is_running", [False, True])
def test_everything_that_was_named_comes_back_from_another_gateway(
    is_running: bool, base: Base, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    damaged(base, data)
    before = asyncio.run(served(data, base[1]))
    assert before.refused
    if is_running:
        with serving.process(data):
            healed = coregw("heal", "--from", source, "--data", str(data), "--json")
    else:
        monkeypatch.setenv("COREGW_FROM_HEADERS", "x-key: source")
        with guarded_gateway(source, "source") as url:
            healed = coregw("heal", "--from", url, "--data", str(data), "--json")
    assert healed.returncode == 0, healed
    result = json.loads(healed.stdout)
    assert result["missing"] == {"roots": [], "payloads": []}
    assert result["refused"] == []
    found = asyncio.run(served(data, base[1]))
    assert found.refused == set()
    assert found.whole >= before.whole | set(result["restored"]["roots"]) | set(result["restored"]["payloads"])
    assert coregw("fsck", "--data", str(data)).returncode == 0


def test_a_root_comes_back_from_a_car(base: Base, source: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    damaged(base, data)
    missing = json.loads(coregw("fsck", "--data", str(data), "--json").stdout)["incomplete_roots"]
    for root in missing:
        car = tmp_path / f"{root}.car"
        assert coregw("export", "--gateway", source, "--payloads", root, str(car)).returncode == 0
        healed = coregw("heal", "--from", str(car), "--data", str(data))
        assert f"restored: {car.stem}\n" in healed.stdout, healed
        assert f"missing: {root}" not in healed.stdout, healed
    found = asyncio.run(served(data, base[1]))
    assert set(missing) <= found.whole


def test_a_gateway_that_does_not_have_it_restores_nothing_and_the_rest_is_named(base: Base, tmp_path: Path) -> None:
    data = tmp_path / "data"
    damaged(base, data)
    with serving.process(tmp_path / "empty") as other:
        healed = coregw("heal", "--from", other.url, "--data", str(data))
    assert healed.returncode == 4
    assert "missing: " in healed.stdout
    assert "refused: " in healed.stdout


def test_a_file_with_other_bytes_is_refused(base: Base, tmp_path: Path) -> None:
    data = tmp_path / "data"
    damaged(base, data)
    (tmp_path / "no.car").write_bytes(b"no car")
    healed = coregw("heal", "--from", str(tmp_path / "no.car"), "--data", str(data))
    assert healed.returncode == 4
    assert f"refused: {tmp_path}/no.car: the header: " in healed.stdout


def test_storing_an_incomplete_root_again_completes_it(base: Base, tmp_path: Path) -> None:
    data = tmp_path / "data"
    damaged(base, data)
    missing = json.loads(coregw("fsck", "--data", str(data), "--json").stdout)["incomplete_roots"]
    with serving.process(data) as process:
        for root in missing:
            body = json.dumps({"arcs": base[1].roots[root]}).encode()
            connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=60)
            connection.request("POST", "/v1/roots", body, {"Content-Type": "application/json"})
            assert json.loads(connection.getresponse().read())["root"] == root
            connection.close()
    assert set(missing) <= asyncio.run(served(data, base[1])).whole
    assert json.loads(coregw("fsck", "--data", str(data), "--json").stdout)["incomplete_roots"] == []


# --- what was lost without a trace, and records -----------------------------------------------------------------------


def without(data: Path, rows: Iterable[tuple[Family, bytes]]) -> None:
    """Delete rows of a store, as if they had been in a file that was lost."""
    database = Database(data, CACHE_BYTES, salvage=False)
    database.write([(family, key, None) for family, key in rows])
    database.close()


def heal(source: str, data: Path, *options: str) -> tuple[int, dict[str, Any]]:
    healed = coregw("heal", "--from", source, "--data", str(data), "--json", *options)
    assert healed.returncode in (0, 4), healed
    return healed.returncode, json.loads(healed.stdout)


def keys_of(data: Path, family: Family, prefix: bytes = b"") -> list[bytes]:
    database = Database(data, CACHE_BYTES, salvage=False)
    found = [key for key in database.keys(family) if key.startswith(prefix)]
    database.close()
    return found


def test_payloads_and_roots_come_back_that_a_tree_or_a_record_names(base: Base, source: str, tmp_path: Path) -> None:
    data, truth = tmp_path / "data", base[1]
    shutil.copytree(base[0], data)
    payloads = [Cid(cid).multihash for cid in truth.payloads]
    rows = [(Family.PAYLOADS, key) for key in payloads] + [(Family.META, payload_date(key)) for key in payloads]
    published = {root for roots in truth.names.values() for root in roots}
    assert published == set(truth.roots)
    without(data, [*rows, *((Family.ROOTS, bytes(Cid(root))) for root in published)])
    without(data, [(Family.PAGES, key) for key in keys_of(data, Family.PAGES)])
    code, result = heal(source, data)
    assert (code, result["missing"], result["refused"]) == (0, {"roots": [], "payloads": []}, [])
    named = {cid for arcs in truth.roots.values() for cid in arcs.values()}
    found = asyncio.run(served(data, truth))
    assert set(truth.roots) <= found.whole
    assert {cid for cid in truth.payloads if cid in named} <= found.whole
    code, result = heal(source, data, "--named", str(listed(tmp_path, truth.payloads)))
    assert code == 0
    assert asyncio.run(served(data, truth)).whole == {*truth.roots, *truth.payloads}


def listed(folder: Path, cids: Iterable[str]) -> Path:
    (folder / "named").write_text("\n".join(cids))
    return folder / "named"


def test_what_nobody_has_is_counted_and_named_if_the_operator_named_it(base: Base, source: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(base[0], data)
    other = payload_cid(b"stored nowhere")
    code, result = heal(source, data, "--named", str(listed(tmp_path, [other])))
    assert (code, result["absent"], result["refused"]) == (4, 0, [f"{other}: the other gateway does not hold it"])


def test_records_come_back_only_if_the_operator_says_so(base: Base, source: str, tmp_path: Path) -> None:
    data, truth = tmp_path / "data", base[1]
    shutil.copytree(base[0], data)
    everything = asyncio.run(histories(data, truth))
    lost = [*keys_of(data, Family.RECORDS, b"n"), *keys_of(data, Family.RECORDS, b"r")]
    without(data, [(Family.RECORDS, key) for key in lost])
    assert heal(source, data)[1]["restored"]["records"] == []
    assert asyncio.run(histories(data, truth)) == {name: [] for name in truth.names}
    code, result = heal(source, data, "--records", "s")
    assert (code, sorted(result["restored"]["records"])) == (0, sorted(f"s/{name}" for name in truth.names))
    assert asyncio.run(histories(data, truth)) == everything


def test_all_hashes_of_a_log_come_back_with_a_lost_revision(base: Base, source: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(base[0], data)
    second = revision_key("s", "n1", 2)
    below = [node_key("s", "n1", Node(0, 1)), node_key("s", "n1", Node(1, 0))]  # the root hash is computed without them
    without(data, [(Family.RECORDS, key) for key in (second, *below)])
    code, result = heal(source, data, "--records", "s")
    assert (code, result["restored"]["records"]) == (0, ["s/n1"])
    assert {second, *below} <= set(keys_of(data, Family.RECORDS))


def test_records_that_were_published_anew_are_left_and_named(base: Base, source: str, tmp_path: Path) -> None:
    data, truth = tmp_path / "data", base[1]
    shutil.copytree(base[0], data)
    lost = [*keys_of(data, Family.RECORDS, b"n"), *keys_of(data, Family.RECORDS, b"r")]
    without(data, [(Family.RECORDS, key) for key in lost])
    asyncio.run(publish(data, next(iter(truth.roots))))
    code, result = heal(source, data, "--records", "s")
    assert code == 4
    assert ["s/n1: another revision 1 was published here" in text for text in result["conflicts"]] == [True]
    assert len(result["restored"]["records"]) == len(truth.names) - 1


async def publish(data: Path, root: str) -> None:
    engine = Engine(await open_store(data, reserve_bytes=0))
    await engine.publications.publish("s", "n1", root, None)
    await engine.close()


async def histories(data: Path, truth: Truth) -> dict[str, list[PublishedRecord]]:
    engine = Engine(await open_store(data, reserve_bytes=0))
    found: dict[str, list[PublishedRecord]] = {}
    for name in truth.names:
        try:
            found[name] = (await engine.publications.history("s", name, 0, 100))[0]
        except RecordNotFound:
            found[name] = []
    await engine.close()
    return found


def test_records_need_a_token(base: Base, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    shutil.copytree(base[0], data)
    for token, said in (("", "needs the admin token"), ("another-token~of+the/tests==", "bearer token is wrong")):
        monkeypatch.setattr(serving, "ADMIN_TOKEN", token)
        healed = coregw("heal", "--from", source, "--data", str(data), "--records", "s")
        assert healed.returncode == 1
        assert said in healed.stderr
        assert token not in healed.stderr or not token


def test_it_waits_for_a_gateway_as_long_as_other_commands(base: Base, tmp_path: Path) -> None:
    shutil.copytree(base[0], data := tmp_path / "data")
    command = ("heal", "--data", str(data), "--from", "http://127.0.0.1:9")
    refused = serving.run(*command, environ={"COREGW_RETRY_SECONDS": "soon"})
    assert refused.returncode == 1
    assert refused.stderr.endswith("coregw: COREGW_RETRY_SECONDS: 'soon' is not a number of seconds above 0\n")


def test_a_gateway_answers_while_files_are_read(tmp_path: Path) -> None:
    """A FIFO stands for a slow disk: what opens and reads it waits for the writer."""
    content = b"slow" * 1000
    files = tmp_path / "files"
    files.mkdir()
    os.mkfifo(files / payload_cid(content))

    def write_slowly() -> None:
        time.sleep(0.3)
        with (files / payload_cid(content)).open("wb", buffering=0) as fifo:
            fifo.write(content[:2000])
            time.sleep(0.3)
            fifo.write(content[2000:])

    async def answered_meanwhile() -> int:
        engine = Engine(MemoryStore())
        writer = asyncio.create_task(asyncio.to_thread(write_slowly))
        restoring = asyncio.create_task(restore(engine, files, lambda _: None))
        passes = 0
        while not restoring.done():
            await asyncio.sleep(0.01)
            passes += 1
        assert (await restoring).payloads == [payload_cid(content)]
        await writer
        await engine.close()
        return passes

    assert asyncio.run(answered_meanwhile()) > 10
