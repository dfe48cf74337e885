"""Column families in logs without a MANIFEST, told by their rows, where those of one look like those of another."""

from __future__ import annotations

import asyncio
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from coregw.engine import Engine
from coregw.plants.app import plant_key, put_plant
from coregw.store import Table
from coregw.store.rocksdb import open_store
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.salvage import RawDatabase
from coregw.upkeep.pins import Pins
from coregw.upkeep.repair import repair_store
from damage_support import Truth, put, served

# Keys of publications have the lengths of chunks (16), pages (32), ids of uploads (12) and roots (39) with these names.
LIKE_CHUNKS = [f"{number:04}" for number in range(12)]
LIKE_PAGES = [f"{number:020}" for number in range(12)]
LIKE_ROOTS = [f"{number:027}" for number in range(12)]
LIKE_TREES = [f"{number:03}" for number in range(6)] + [f"{number:019}" for number in range(6)]
PINS = [f"{number:031}" for number in range(12)] + [f"{number:015}" for number in range(12)]


async def _fill(path: Path, names: list[str], *, has_pins: bool = False, has_plants: bool = False) -> Truth:
    truth = Truth()
    engine = Engine(await open_store(path, reserve_bytes=0))
    await put(engine, truth, b"the only payload", "sha2-256")
    arcs = {"a": next(iter(truth.payloads))}
    root: str = json.loads(await engine.create_root(json.dumps({"arcs": arcs}).encode()))["root"]
    truth.roots[root] = arcs
    for name in names:
        for _ in range(2):
            await engine.publications.publish("s", name, root, None)
            truth.names.setdefault(name, []).append(root)
    if has_pins:
        for name in PINS:
            await Pins(engine.store).add(root, name, datetime.now(UTC) + timedelta(days=1))
    if has_plants:
        for number in range(12):
            assert await put_plant(engine.store, number, b'{"name":"lily %04d"}' % number)  # as long as a payload's row
    shutil.copytree(path, path.with_name("killed"))
    await engine.close()
    return truth


async def _revisions(path: Path, names: list[str]) -> dict[str, list[str]]:
    engine = Engine(await open_store(path, reserve_bytes=0))
    try:
        return {
            name: [each.root for each in (await engine.publications.history("s", name, 0, 100))[0]] for name in names
        }
    finally:
        await engine.close()


async def _others(path: Path) -> tuple[int, int]:
    """Count the pins, and the plants."""
    engine = Engine(await open_store(path, reserve_bytes=0))
    try:
        plants = await engine.store.get(Table.RECORDS, [plant_key(number) for number in range(12)])
        return len(await Pins(engine.store).all()), sum(each is not None for each in plants)
    finally:
        await engine.close()


@pytest.mark.parametrize(
    ("names", "options"),
    [
        ([], {}),
        (LIKE_CHUNKS, {}),
        (LIKE_PAGES, {}),
        (LIKE_ROOTS, {}),
        (LIKE_TREES, {}),
        (LIKE_CHUNKS + LIKE_PAGES + LIKE_TREES, {"has_pins": True}),
        ([], {"has_pins": True}),
        ([], {"has_plants": True}),
    ],
    ids=["few", "chunks", "pages", "roots", "trees", "all", "pins", "plants"],
)
def test_rows_that_look_like_those_of_another_family_are_told_apart(
    names: list[str], options: dict[str, bool], tmp_path: Path
) -> None:
    truth = asyncio.run(_fill(tmp_path / "data", names, **options))
    data = tmp_path / "killed"
    for each in (data / "rocksdb").glob("MANIFEST-*"):
        each.unlink()
    result = repair_store(data, lambda _: None)
    assert result.repaired.lost == []
    found = asyncio.run(served(data, truth))
    assert found.whole == {*truth.payloads, *truth.roots}
    assert asyncio.run(_revisions(data, names)) == truth.names
    assert asyncio.run(_others(data)) == (
        options.get("has_pins", False) * len(PINS),
        options.get("has_plants", False) * 12,
    )


@pytest.mark.parametrize("is_known", [True, False])
def test_logged_rows_of_a_family_that_cannot_be_told_are_named_as_damage(is_known: bool, tmp_path: Path) -> None:
    database = Rdict(str(tmp_path / "open"), Options(raw_mode=True))
    records, chunks, uploads = (
        database.create_column_family(str(family), Options(raw_mode=True))
        for family in (Family.RECORDS, Family.CHUNKS, Family.UPLOADS)
    )
    for number in range(3):
        records[b"n%d" % number] = b"row"
    chunks[b"n0"] = b"row"  # also of the form of records
    uploads.delete(b"n0")  # nothing is lost with a deletion
    shutil.copytree(tmp_path / "open", path := tmp_path / "killed")
    database.close()
    (log,) = path.glob("*.log")
    if not is_known:
        next(path.glob("MANIFEST-*")).unlink()
    with RawDatabase(path) as raw:
        found = [damage for damage in raw.damages() if damage.file == log.name]
        assert [row.key for row in raw.rows(Family.RECORDS)] == [b"n0", b"n1", b"n2"]
    assert [(each.start, each.end, each.family, each.has_rows) for each in found] == (
        [] if is_known else [(0, log.stat().st_size, None, True)]
    )
    assert all("no file names" in each.what for each in found)


def test_logged_rows_of_a_family_that_only_another_version_knows_are_no_damage(tmp_path: Path) -> None:
    database = Rdict(str(tmp_path / "open"), Options(raw_mode=True))
    unknown = database.create_column_family("of another version", Options(raw_mode=True))
    unknown[b"n0"] = b"row"
    shutil.copytree(tmp_path / "open", path := tmp_path / "killed")
    database.close()
    with RawDatabase(path) as raw:
        assert [each for each in raw.damages() if "column family" in each.what] == []
