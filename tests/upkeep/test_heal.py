"""Healing: what a repair could not copy comes back from another gateway or a CAR, checked against its CIDs."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import serving
from upkeep.damage_support import Truth, fill, served

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
    with serving.process(copy) as process:
        yield process.url


def coregw(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "coregw", *arguments], capture_output=True, text=True, check=False
    )


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
    is_running: bool, base: Base, source: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    damaged(base, data)
    before = asyncio.run(served(data, base[1]))
    assert before.refused
    if is_running:
        with serving.process(data):
            healed = coregw("heal", "--from", source, "--data", str(data), "--json")
    else:
        healed = coregw("heal", "--from", source, "--data", str(data), "--json")
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
    assert "refused: no.car: " in healed.stdout


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
