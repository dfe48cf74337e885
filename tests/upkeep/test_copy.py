"""Copying a store into another: everything arrives, nothing damaged is recorded, and an interrupted copy is resumed."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from coregw import payload_cid
from coregw._core import Cid
from coregw.engine import Engine
from coregw.engine.records import decode_record, encode_record, record_key
from coregw.errors import Conflict, Unavailable
from coregw.store import CHUNK_BYTES, Store, Stored, Table
from coregw.store.collection import CollectableStore
from coregw.store.memory import MemoryStore
from coregw.store.rocksdb import open_store
from coregw.upkeep.check import check_online
from coregw.upkeep.copy import Copied, copy_store
from postgres_support import new_bucket, opened
from servers import Bucket, Postgres
from store_payloads import multihash_of, random_bytes, read, upload

pytestmark = pytest.mark.anyio

SIZES = [0, 10, 70_000, CHUNK_BYTES, 2 * CHUNK_BYTES + 7]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def fill(store: CollectableStore) -> list[str]:
    """Store two maps that share most pages, a publication, and payloads of all sizes; return the roots."""
    engine = Engine(store)
    arcs = {f"d{i % 50}/f{i}": payload_cid(b"%d" % i) for i in range(20_000)}
    roots = []
    for extra in ("one", "two"):
        body = json.dumps({"arcs": arcs | {extra: payload_cid(b"leaf")}}).encode()
        roots.append(json.loads(await engine.create_root(body))["root"])
    await engine.publications.publish("scope", "name", roots[0], None)
    await engine.publications.publish("scope", "name", roots[1], 1)
    for size in SIZES:
        await upload(store, random_bytes(size))
    return roots


async def copied(source: CollectableStore, destination: Store, **options: bool) -> Copied:
    return await copy_store(source, destination, report=lambda _: None, **options)


async def items(store: CollectableStore, kind: Stored) -> list[bytes]:
    async with store.collect(60) as collection:
        return [item.key for item in await collection.list_items(kind, None, 1_000_000)]


async def rows(store: Store) -> list[tuple[bytes, bytes]]:
    return [row for first in range(256) for row in await store.list_rows(Table.RECORDS, bytes([first]), None, 1000)]


async def assert_same(one: CollectableStore, two: CollectableStore) -> None:
    for kind in Stored:
        assert await items(one, kind) == await items(two, kind)
    assert await rows(one) == await rows(two)
    for size in SIZES:
        assert await read(two, multihash_of(random_bytes(size))) == random_bytes(size)


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[CollectableStore]:
    async with await open_store(tmp_path / "source") as store:
        yield store


async def test_a_copy_is_complete_and_a_second_one_copies_nothing(source: CollectableStore) -> None:
    roots = await fill(source)
    destination = MemoryStore()
    first = await copied(source, destination)
    assert (first.roots, first.roots_copied, first.payloads_copied) == (2, 2, len(SIZES))
    assert first.damaged == []
    await assert_same(source, destination)
    assert source.identity is not None
    assert destination.identity.store == source.identity.store
    assert (copy := destination.identity) != source.identity
    second = await copied(source, destination)
    assert destination.identity == copy
    other = MemoryStore()
    await Engine(other).create_root(json.dumps({"arcs": {"b": payload_cid(b"b")}}).encode())
    own = other.identity
    await copied(source, other)
    assert other.identity == own
    assert (second.roots_copied, second.pages_copied, second.payloads_copied, second.records_copied) == (0, 0, 0, 0)
    request = {"profile": "core.resolve/v0alpha1", "root": roots[1], "segments": ["two"]}
    answer = json.loads(await Engine(destination).resolve(json.dumps(request).encode()))
    assert answer["target"] == payload_cid(b"leaf")


async def test_stores_are_copied_to_postgresql_with_a_bucket_and_back(
    source: CollectableStore, primary: Postgres, s3: Bucket, tmp_path: Path
) -> None:
    await fill(source)
    async with opened(primary, bucket=new_bucket(s3)) as shared, await open_store(tmp_path / "back") as back:
        await copied(source, shared)
        await assert_same(source, shared)
        await copied(shared, back)
        await assert_same(source, back)


class Failing(MemoryStore):
    """A store that fails after a number of writes."""

    writes = 1 << 60

    def count(self) -> None:
        self.writes -= 1
        if self.writes < 0:
            raise Unavailable("the network is down")

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
    ) -> int:
        self.count()
        return await super().put(rows, durable, requires, since)

    async def put_payloads(self, payloads: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        self.count()
        return await super().put_payloads(payloads)


async def test_an_interrupted_copy_is_resumed_wherever_it_stopped(source: CollectableStore) -> None:
    await fill(source)
    destination = Failing()
    failures = 0
    for writes in (0, 1, 3, 5, 6, 1 << 60):
        destination.writes = writes
        try:
            await copied(source, destination)
        except Unavailable:
            failures += 1
            held = await items(destination, Stored.ROOTS)
            for root in held:  # no root without its top page, and records only at the end
                assert await destination.get(Table.PAGES, [Cid(root).digest]) != [None]
            assert await rows(destination) == []
    assert failures >= 4
    await assert_same(source, destination)


async def test_what_is_damaged_is_named_and_left_out(tmp_path: Path) -> None:
    source = MemoryStore()
    roots = [Cid(root) for root in await fill(source)]
    pages = source._contents.tables[Table.PAGES]
    victim = next(key for key in pages if key not in {root.digest for root in roots})
    pages[victim] = pages[victim][:-1] + b"?"
    name = multihash_of(random_bytes(70_000))
    source._contents.payloads[name] = b"another payload"
    destination = MemoryStore()
    result = await copied(source, destination)
    assert result.damaged_count == len(result.damaged) >= 2
    assert any(name.hex() in each for each in result.damaged)
    assert any(victim.hex() in each for each in result.damaged)
    assert await destination.get(Table.PAGES, [victim]) == [None]
    assert await destination.stat_payloads([name]) == [None]
    engine = Engine(destination)
    for root in roots:  # whichever is recorded is complete
        if await destination.get(Table.ROOTS, [bytes(root)]) != [None]:
            request = {"profile": "core.scan/v0alpha1", "root": root.text, "path": "", "limit": 100_000}
            assert json.loads(await engine.scan(json.dumps(request).encode()))


async def test_records_of_the_destination_are_replaced_only_on_request(source: CollectableStore) -> None:
    await fill(source)
    destination = MemoryStore()
    await copied(source, destination)
    key = (await rows(destination))[0][0]
    await destination.put({Table.RECORDS: [(key, b"another"), (b"~ours", b"kept")]})
    with pytest.raises(Conflict, match="another record"):
        await copied(source, destination)
    assert (await copied(source, destination, replace_records=True)).records_copied == 1
    assert await destination.get(Table.RECORDS, [b"~ours"]) == [b"kept"]


async def sign(store: Store) -> None:
    publications = Engine(store).publications
    head = await publications.prove("scope", "name")
    note = f"o/scope/name\n{head.size}\n{head.root_hash}\n\n— o/scope/name AAAAAAAA\n"
    await publications.sign("scope", "name", note)


async def test_a_copy_continues_names_with_their_logs_and_checkpoints(source: CollectableStore) -> None:
    roots = await fill(source)
    destination = MemoryStore()
    await copied(source, destination)
    await sign(destination)
    publications = Engine(source).publications
    await publications.publish("scope", "name", roots[0], 2)
    with pytest.raises(Conflict, match="another record"):
        await copied(source, destination)
    await copied(source, destination, replace_records=True)
    assert (await Engine(destination).publications.get("scope", "name")).revision == 3
    assert (await Engine(destination).publications.public("scope", "name")).size == 2
    await publications.freeze("scope", "name")
    await sign(source)
    await copied(source, destination, replace_records=True)
    await assert_same(source, destination)
    found = await check_online(destination, lambda _: None)
    assert found.is_sound, list(found.lines())


async def test_no_copy_takes_back_changes_or_unfreezes_what_is_published(source: CollectableStore) -> None:
    roots = await fill(source)
    theirs = Engine(source).publications

    async def refused(destination: Store, match: str) -> None:
        before = await rows(destination)
        for replace in (False, True):
            with pytest.raises(Conflict, match=match if replace else "another record"):
                await copied(source, destination, replace_records=replace)
            assert await rows(destination) == before

    newer, frozen, other = MemoryStore(), MemoryStore(), MemoryStore()
    for destination in (newer, frozen, other):
        await copied(source, destination)
    await Engine(newer).publications.publish("scope", "name", roots[0], 2)
    await refused(newer, "has revision 3, the source 2; nothing is taken back")
    await newer.delete(Table.RECORDS, [record_key("scope", "name")])  # lost, but not what it was
    with pytest.raises(Conflict, match="a revision that the source lacks"):
        await copied(source, newer, replace_records=True)
    await Engine(frozen).publications.freeze("scope", "name")
    await refused(frozen, "is frozen at revision 2, and not so at the source")
    await theirs.publish("scope", "name", roots[0], 2)
    await refused(frozen, "is frozen at revision 2, and not so at the source")
    await Engine(other).publications.publish("scope", "name", roots[1], 2)
    await refused(other, "has another revision 3 than the source")
    await theirs.publish("scope", "name", roots[1], 3)
    await refused(other, "another (revision 3 than the source|history)|has the log of another history")
    await theirs.freeze("scope", "name")
    await copied(source, third := MemoryStore())
    key = record_key("scope", "name")
    (row,) = await third.get(Table.RECORDS, [key])
    later = msgspec.structs.replace(decode_record(row or b""), frozen_at=datetime.now(UTC))
    await third.put({Table.RECORDS: [(key, encode_record(later))]})
    await refused(third, "is frozen at revision 4, and not so at the source")


async def test_the_command_copies_to_postgresql(tmp_path: Path, primary: Postgres) -> None:
    import subprocess
    import sys

    from postgres_support import new_schema

    async with await open_store(tmp_path / "source") as store:
        await fill(store)
    url = new_schema(primary).replace("coregw@", "coregw:se-cret@")
    command = [sys.executable, "-m", "coregw", "copy", "--from", f"rocksdb:{tmp_path / 'source'}", "--to", url]
    done = await asyncio.to_thread(subprocess.run, [*command, "--json"], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["roots_copied"] == 2
    done = await asyncio.to_thread(
        subprocess.run, [*command[:5], f"rocksdb:{tmp_path / 'no'}", *command[6:]], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "is not a coregw store" in done.stderr
    assert "se-cret" not in done.stderr
