"""Repair after damage of every kind to every kind of file: everything readable is served, everything lost is named.

``COREGW_DAMAGE_SEEDS=200`` runs as many seeds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

import coregw
import serving
from coregw._core import Cid
from coregw.upkeep.repair import repair_store
from damage_support import HOWS, KINDS, Served, Truth, fill, harm, served
from rocksdb_support import killed_with_several_logs

SEEDS = int(os.environ.get("COREGW_DAMAGE_SEEDS", "1"))
CASES = [(kind, how, seed) for kind in KINDS for how in HOWS for seed in range(SEEDS)]

Base = tuple[Path, Truth]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Base]:
    """A store that was stopped, and one that was killed, so that its log has the newest writes."""
    folder = tmp_path_factory.mktemp("bases")
    return {
        name: (folder / name, asyncio.run(fill(folder / name, 1, is_killed=name == "killed")))
        for name in ("stopped", "killed")
    }


def fsck(data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return serving.run("fsck", "--data", data, *options)


def all_of(truth: Truth) -> set[str]:
    return {*truth.payloads, *truth.roots}


def unreadable(found: Served) -> set[str]:
    return found.refused | found.absent


@pytest.mark.parametrize(("kind", "how", "seed"), CASES)
def test_after_a_repair_everything_readable_is_served_and_everything_lost_is_named(
    kind: str, how: str, seed: int, bases: dict[str, Base], tmp_path: Path
) -> None:
    rng = random.Random(f"{kind} {how} {seed}")
    base, truth = bases["killed" if kind == "*.log" else rng.choice(["stopped", "killed"])]
    data = tmp_path / "data"
    shutil.copytree(base, data)
    files = [file for file in sorted((data / "rocksdb").glob(kind)) if file.stat().st_size]
    done = harm(rng.choice(files), how, rng)
    result = repair_store(data, lambda _: None)
    found = asyncio.run(served(data, truth))  # fails on any wrong byte
    assert found.whole | unreadable(found) == all_of(truth)
    named = msgspec.json.encode(result).decode()
    lost_without_a_name = {cid for cid in unreadable(found) if cid not in named}
    if kind == "*.log" and how in ("cut", "remove", "zero"):
        return  # the names went with the bytes; the file is named
    assert lost_without_a_name == set(), done


def test_a_sound_store_is_sound_and_named_so(bases: dict[str, Base]) -> None:
    for base, truth in bases.values():
        checked = fsck(base, "--json")
        result = json.loads(checked.stdout)
        assert (checked.returncode, result["is_sound"]) == (0, True), checked
        assert (result["roots"], result["payloads"]) == (len(truth.roots), len(truth.payloads))
        assert not any(value for value in result.values() if isinstance(value, list))


def test_damage_is_named_on_lines_and_by_the_exit_code(bases: dict[str, Base], tmp_path: Path) -> None:
    base, truth = bases["stopped"]
    shutil.copytree(base, tmp_path / "data")
    root, arcs = max(truth.roots.items(), key=lambda item: len(item[1]))
    target = Cid(next(iter(arcs.values()))).multihash  # many leaves have it
    for table in (tmp_path / "data" / "rocksdb").glob("*.sst"):
        table.write_bytes(table.read_bytes().replace(target, bytes(len(target)), 4))
    checked = fsck(tmp_path / "data")
    assert checked.returncode == 4
    assert "damaged file" in checked.stdout
    assert "missing page" in checked.stdout
    assert f"affected root {root}: incomplete" in checked.stdout
    assert "affected name s/n700: its root is damaged" in checked.stdout
    repaired = fsck(tmp_path / "data", "--repair", "--json")
    assert repaired.returncode == 4
    kept = Path(json.loads(repaired.stdout)["kept"])
    assert (kept / "rocksdb").is_dir()
    assert kept.parent == tmp_path / "data"


def test_a_directory_without_a_store_cannot_be_checked(tmp_path: Path) -> None:
    for options in ((), ("--repair",)):
        checked = fsck(tmp_path, *options)
        assert (checked.returncode, checked.stdout) == (5, "")
        assert checked.stderr.startswith(f"coregw: {tmp_path} has no database to check")


def test_a_repair_of_a_sound_store_loses_nothing(bases: dict[str, Base], tmp_path: Path) -> None:
    base, truth = bases["killed"]
    shutil.copytree(base, tmp_path / "data")
    assert fsck(tmp_path / "data", "--repair").returncode == 0
    assert asyncio.run(served(tmp_path / "data", truth)).whole == all_of(truth)
    assert fsck(tmp_path / "data").returncode == 0


@pytest.mark.slow
def test_each_of_several_logs_is_missed_and_what_it_had_may_be_lost(tmp_path: Path) -> None:
    logs = killed_with_several_logs(tmp_path / "whole")
    assert fsck(tmp_path / "whole").returncode == 0
    for name in logs:
        copy = tmp_path / f"without-{name}"
        shutil.copytree(tmp_path / "whole", copy)
        (copy / "rocksdb" / name).unlink()
        repaired = fsck(copy, "--repair", "--json")
        assert repaired.returncode == 4, name
        assert name in "".join(json.loads(repaired.stdout)["found"]["unnamed"])


@pytest.mark.parametrize("size", [0, 3000])
def test_an_sst_that_a_kill_left_unfinished_is_no_damage(size: int, bases: dict[str, Base], tmp_path: Path) -> None:
    base, truth = bases["killed"]
    data = tmp_path / "data"
    shutil.copytree(base, data)
    whole = max((data / "rocksdb").glob("*.sst"), key=lambda file: file.stat().st_size)
    (data / "rocksdb" / "000999.sst").write_bytes(whole.read_bytes()[:size])
    checked = fsck(data, "--json")
    assert (checked.returncode, json.loads(checked.stdout)["is_sound"]) == (0, True), checked
    assert asyncio.run(served(data, truth)).whole == all_of(truth)


def test_an_sst_without_an_end_is_damage_if_a_manifest_names_it_or_is_damaged_itself(
    bases: dict[str, Base], tmp_path: Path
) -> None:
    base, _ = bases["killed"]
    for harmed in ("*.sst", "MANIFEST-*"):
        data = tmp_path / harmed[:3]
        shutil.copytree(base, data)
        whole = max((data / "rocksdb").glob("*.sst"), key=lambda file: file.stat().st_size)
        (data / "rocksdb" / "000999.sst").write_bytes(whole.read_bytes()[:3000])
        (file,) = [whole] if harmed == "*.sst" else (data / "rocksdb").glob(harmed)
        file.write_bytes(file.read_bytes()[: -whole.stat().st_size // 2 if harmed == "*.sst" else -3])
        checked = fsck(data, "--json")
        assert checked.returncode == 4, checked
        files = [each["file"] for each in json.loads(checked.stdout)["damaged_files"]]
        assert whole.name in files if harmed == "*.sst" else "000999.sst" in files


def test_of_a_table_without_an_end_what_has_a_cid_is_copied_and_lost_names_are_said_to_be_possible(
    bases: dict[str, Base], tmp_path: Path
) -> None:
    base, truth = bases["stopped"]
    data = tmp_path / "data"
    shutil.copytree(base, data)
    for table in (data / "rocksdb").glob("*.sst"):
        table.write_bytes(table.read_bytes()[:-9])
    result = repair_store(data, lambda _: None)
    assert asyncio.run(served(data, truth)).whole == all_of(truth)
    assert not result.is_sound
    assert any("records rows (published names, pins) may be lost" in each for each in result.found.unnamed)


@pytest.mark.parametrize("size", [0, 128])
def test_families_are_told_by_their_rows_if_the_manifest_has_lost_them(size: int, tmp_path: Path) -> None:
    """RocksDB numbers column families in an order that differs from store to store, and logs have the numbers alone."""
    data = tmp_path / "data"
    truth = asyncio.run(fill(data, 3, is_killed=True, openings=1))
    (manifest,) = (data / "rocksdb").glob("MANIFEST-*")
    manifest.write_bytes(manifest.read_bytes()[:size])
    repaired = fsck(data, "--repair", "--json")
    assert repaired.returncode in (0, 4), repaired
    assert asyncio.run(served(data, truth)).whole == all_of(truth)


def test_a_missing_log_is_damage(bases: dict[str, Base], tmp_path: Path) -> None:
    base, _ = bases["killed"]
    shutil.copytree(base, tmp_path / "data")
    max((tmp_path / "data" / "rocksdb").glob("*.log")).unlink()
    checked = fsck(tmp_path / "data")
    assert checked.returncode == 4
    assert ".log" in checked.stdout


def test_a_lost_pin_is_named_until_its_root_is_pinned_again(bases: dict[str, Base], tmp_path: Path) -> None:
    base, truth = bases["stopped"]
    data = tmp_path / "data"
    shutil.copytree(base, data)
    root = next(iter(truth.roots))
    for name in ("kept-1", "lost-1"):
        assert serving.run("pin", root, "--name", name, "--data", data).returncode == 0
    (table,) = (file for file in (data / "rocksdb").glob("*.sst") if b"lost-1" in file.read_bytes())
    content = bytearray(table.read_bytes())
    start = content.index(b"lost-1") + len(b"lost-1") + 20  # in the value
    content[start : start + 8] = bytes(8)
    table.write_bytes(content)
    repaired = fsck(data, "--repair", "--json")
    assert repaired.returncode == 4
    assert "lost-1" in json.loads(repaired.stdout)["found"]["lost_pins"]
    lost = json.loads(fsck(data, "--json").stdout)["lost_pins"]
    assert {"lost-1"} <= set(lost) <= {"kept-1", "lost-1"}  # both may be in one block
    assert "lost pin lost-1: pin its root again" in fsck(data).stdout
    assert serving.run("pin", root, "--name", "lost-1", "--data", data).returncode == 0
    assert "lost-1" not in json.loads(fsck(data, "--json").stdout)["lost_pins"]
    if "kept-1" in lost:
        removed = serving.run("pin", "--remove", "kept-1", "--data", data)
        assert "no longer noted" in removed.stderr
    assert json.loads(fsck(data, "--json").stdout)["lost_pins"] == []


# --- salvage ----------------------------------------------------------------------------------------------------------


def newest_log(data: Path) -> Path:
    return max((data / "rocksdb").glob("*.log"), key=lambda each: each.stat().st_size)


def flip(log: Path, at: int) -> None:
    content = bytearray(log.read_bytes())
    content[at] ^= 1
    log.write_bytes(content)


def test_salvage_loses_what_the_log_had_of_a_damaged_batch_and_keeps_the_damaged_database(
    bases: dict[str, Base], tmp_path: Path
) -> None:
    base, truth = bases["killed"]
    data = tmp_path / "data"
    shutil.copytree(base, data)
    log = newest_log(data)
    content = log.read_bytes()
    lost, at = next(
        (cid, content.find(each)) for cid, each in truth.payloads.items() if len(each) == 100 and each in content
    )
    flip(log, at)
    with serving.process(data), serving.control(data) as control:
        (reason,) = control.get("/readyz").json()["details"]["reasons"]
        assert "`coregw fsck --repair --salvage`" in reason
    before = json.loads(fsck(data, "--json").stdout)
    salvaged = fsck(data, "--repair", "--salvage", "--json")
    assert salvaged.returncode == 4, salvaged
    result = json.loads(salvaged.stdout)
    assert (result["is_salvaged"], result["repaired"]["damaged_files"]) == (True, [])
    assert result["found"]["damaged_files"] == before["damaged_files"]
    assert [each["file"] for each in before["damaged_files"]] == [log.name]
    found = asyncio.run(served(data, truth))
    missing = {*truth.payloads} - found.whole  # RocksDB skips the rest of the log's block, of 32 KiB
    assert lost in missing <= found.absent
    assert len(missing) < 5
    assert {*truth.roots} <= found.whole
    with serving.process(data, serving.ADMIN) as gateway, coregw.Client(gateway.url) as client:
        for cid in missing:
            client.put_payload(truth.payloads[cid])
    assert fsck(data).returncode == 0
    # A repair of what was kept recovers what salvage has lost, but the payload with the flipped bit.
    (damaged,) = data.glob("damaged-*")
    assert str(damaged) == result["kept"]
    assert json.loads(fsck(damaged, "--json").stdout)["damaged_files"] == before["damaged_files"]
    assert fsck(damaged, "--repair").returncode == 4
    assert asyncio.run(served(damaged, truth)).whole == all_of(truth) - {lost}


def test_salvage_of_a_lost_log_opens_the_store_with_the_tables(bases: dict[str, Base], tmp_path: Path) -> None:
    base, truth = bases["killed"]
    data = tmp_path / "data"
    shutil.copytree(base, data)
    newest_log(data).unlink()
    salvaged = fsck(data, "--repair", "--salvage")
    assert salvaged.returncode == 4, salvaged
    assert "found: damaged file " in salvaged.stdout
    assert "salvaged: " in salvaged.stdout
    found = asyncio.run(served(data, truth))
    assert found.whole
    assert unreadable(found)
    assert fsck(data).returncode == 0


def test_a_log_that_rocksdb_cannot_read_is_left_to_a_repair(bases: dict[str, Base], tmp_path: Path) -> None:
    base, truth = bases["killed"]
    data = tmp_path / "data"
    shutil.copytree(base, data)
    log = newest_log(data)
    flip(log, log.stat().st_size // 2)  # in a batch of many blocks
    salvaged = fsck(data, "--repair", "--salvage")
    assert (salvaged.returncode, salvaged.stdout) == (5, "")
    assert "`coregw fsck --repair`" in salvaged.stderr
    repaired = fsck(data, "--repair", "--json")
    found = asyncio.run(served(data, truth))
    assert repaired.returncode == 4
    assert len(unreadable(found)) <= 1  # what has the flipped bit, which is named
    assert all(cid in repaired.stdout for cid in unreadable(found))


def test_salvage_of_a_sound_store_loses_nothing(bases: dict[str, Base], tmp_path: Path) -> None:
    base, truth = bases["killed"]
    data = tmp_path / "data"
    shutil.copytree(base, data)
    assert fsck(data, "--repair", "--salvage").returncode == 0
    assert asyncio.run(served(data, truth)).whole == all_of(truth)


def test_salvage_needs_repair_and_a_stopped_store_in_rocksdb(tmp_path: Path) -> None:
    alone = fsck(tmp_path, "--salvage")
    assert (alone.returncode, "--salvage needs --repair" in alone.stderr) == (2, True)
    with serving.process(tmp_path):
        running = fsck(tmp_path, "--repair", "--salvage")
    assert (running.returncode, "in use" in running.stderr) == (5, True)
    assert list(tmp_path.glob("damaged-*")) == []
    postgres = {"COREGW_STORE": "postgresql://localhost/db"}
    shared = serving.run("fsck", "--repair", "--salvage", "--data", tmp_path, environ=postgres)
    assert (shared.returncode, "--salvage is for a RocksDB store" in shared.stderr) == (5, True)
