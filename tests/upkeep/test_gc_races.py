"""Writes while garbage is collected: each test interleaves one write with the steps of a collection."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest

import coregw
from coregw._core import Cid
from coregw.engine import Engine
from coregw.errors import RootNotFound, Unavailable
from coregw.store import Stored, Table
from coregw.store.collection import Collection
from coregw.store.memory import MemoryStore
from coregw.upkeep.pins import Pins
from upkeep_site import Site, Time, site_on

pytestmark = pytest.mark.anyio

A, B = coregw.payload_cid(b"a"), coregw.payload_cid(b"b")


def many(count: int, target: str = A) -> dict[str, str]:
    return {f"folder/{number:05}": target for number in range(count)}


def binary(root: str) -> bytes:
    return bytes(Cid(root))


class Steps:
    """Lets a test act before a step of a collection."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self._site = site
        self._monkeypatch = monkeypatch

    def before(self, method: str, act: Callable[[], object], *, kind: Stored | None = None) -> None:
        """Act once, before the first call of a method of the collection, with a kind if that is given."""
        collect = self._site.store.collect
        has_acted = False

        def observed(grace_seconds: float) -> Collection:
            collection = collect(grace_seconds)
            original = getattr(collection, method)

            async def stepped(*arguments: object) -> object:
                nonlocal has_acted
                if not has_acted and (kind is None or arguments[0] is kind):
                    has_acted = True
                    await act()  # type: ignore[misc]
                return await original(*arguments)

            self._monkeypatch.setattr(collection, method, stepped)
            return collection

        self._monkeypatch.setattr(self._site.store, "collect", observed)


@pytest.fixture
def steps(site: Site, monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(site, monkeypatch)


async def is_held(site: Site, root: str) -> bool:
    return (await site.store.get(Table.ROOTS, [binary(root)])) != [None]


# --- maps of streamed arcs --------------------------------------------------------------------------------------------


async def _lines(arcs: dict[str, str]) -> AsyncIterator[bytes]:
    yield "".join(f'["{path}","{target}"]\n' for path, target in arcs.items()).encode()


async def test_a_map_whose_first_pages_are_collected_before_its_last_ones_is_stored_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, collections, removed = site.store.put, 0, 0

    async def put_before_a_collection(*arguments: object) -> int:
        nonlocal collections, removed
        now = await put(*arguments)  # type: ignore[arg-type]
        if collections < collect_times:
            collections += 1
            site.time.seconds += 1
            removed += (await site.collect(grace=0)).pages_removed
        return now

    arcs = many(30_000)
    monkeypatch.setattr(site.store, "put", put_before_a_collection)
    collect_times = 2
    answer = await site.engine.builds.build_root(_lines(arcs), "sha2-256")
    root = coregw.Map(arcs).root
    assert (answer.decode(), collections, removed > 0) == (f'{{"root":"{root}"}}', 2, True)
    assert await site.resolve(root, "folder", "00000") == A
    assert await site.export(root) > 1_000_000
    collect_times = 1000
    with pytest.raises(Unavailable, match="garbage was collected"):
        await site.engine.builds.build_root(_lines(many(30_000, B)), "sha2-256")
    monkeypatch.setattr(site.store, "put", put)
    assert not await is_held(site, coregw.Map(many(30_000, B)).root)


# --- changes of old roots ---------------------------------------------------------------------------------------------


async def test_a_change_of_an_old_root_before_it_expires_keeps_all_that_it_shares(site: Site, steps: Steps) -> None:
    payload = await site.put(b"payload")
    inner = await site.create({"file": payload} | many(300, B))
    base = await site.create({"inner": inner} | many(1000))
    site.time.seconds += 100
    made: list[str] = []

    async def change() -> None:
        made.append(await site.change(base, "folder/00500", B, A))

    steps.before("expire", change)
    await site.collect(grace=60)
    assert await site.resolve(made[0], "inner", "file") == payload
    assert await site.is_stored(payload)
    assert await is_held(site, inner)
    await site.export(made[0])


async def test_a_change_that_is_stored_after_the_pages_were_read_keeps_all_that_it_shares(
    site: Site, steps: Steps
) -> None:
    payload = await site.put(b"payload")
    inner = await site.create({"file": payload} | many(300, B))
    base = await site.create({"inner": inner} | many(1000))
    later = await site.put(b"later")
    site.time.seconds += 100
    made: list[str] = []

    async def change() -> None:
        await site.has(later)
        nested = await site.create({"later": later, "inner": inner})
        made.append(await site.change(base, "folder/00500", nested, A))

    steps.before("list_items", change, kind=Stored.ROOTS)
    result = await site.collect(grace=60)
    assert result.roots_removed == 0
    for _ in range(2):
        assert await site.resolve(made[0], "inner", "file") == payload
        assert await site.resolve(made[0], "folder", "00500", "later") == later
        assert await site.is_stored(payload)
        assert await site.is_stored(later)
        await site.export(made[0])
        site.time.seconds += 50
        await site.collect(grace=60)


async def test_a_change_whose_base_expires_meanwhile_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    base = await site.create(many(1000))
    site.time.seconds += 100
    put = site.store.put

    async def put_after_a_collection(*arguments: object) -> int:
        monkeypatch.setattr(site.store, "put", put)
        await site.collect(grace=60)
        return await put(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(site.store, "put", put_after_a_collection)
    with pytest.raises(RootNotFound, match="based on"):
        await site.change(base, "folder/00500", B, A)
    assert (await site.collect(grace=0)).roots == 0


async def test_a_change_based_on_an_expired_root_is_refused_before_its_row_is_removed(site: Site, steps: Steps) -> None:
    base = await site.create(many(1000))
    site.time.seconds += 100
    refused: list[bool] = []

    async def change() -> None:
        with pytest.raises(RootNotFound):
            await site.change(base, "folder/00500", B, A)
        refused.append(True)

    steps.before("remove", change, kind=Stored.ROOTS)
    assert (await site.collect(grace=60)).roots_removed == 1
    assert refused == [True]


async def test_publishing_or_pinning_an_old_root_before_it_expires_keeps_it(site: Site, steps: Steps) -> None:
    inner = await site.create({"x": A})
    published, pinned = await site.create({"inner": inner}), await site.create({"b": B})
    site.time.seconds += 100

    async def act() -> None:
        await site.publish(published)
        await Pins(site.store).add(pinned, "pin", None)

    steps.before("expire", act)
    assert (await site.collect(grace=60)).roots_removed == 0
    assert await site.resolve(published, "inner", "x") == A
    assert await site.resolve(pinned, "b") == B


async def test_publishing_or_pinning_an_expired_root_is_refused(site: Site, steps: Steps) -> None:
    root = await site.create({"a": A})
    site.time.seconds += 100

    async def act() -> None:
        with pytest.raises(RootNotFound):
            await site.publish(root)
        with pytest.raises(RootNotFound):
            await Pins(site.store).add(root, None, None)

    steps.before("remove", act, kind=Stored.ROOTS)
    assert (await site.collect(grace=60)).roots_removed == 1
    assert await Pins(site.store).all() == []


# --- content that is garbage and stored again -------------------------------------------------------------------------


async def test_pages_that_are_stored_again_during_the_sweep_stay(site: Site, steps: Steps) -> None:
    root = await site.create(many(3000))
    site.time.seconds += 100

    async def create() -> None:
        assert await site.create(many(3000)) == root

    steps.before("remove", create, kind=Stored.PAGES)
    result = await site.collect(grace=60)
    assert result.roots_removed == 1
    assert await site.resolve(root, "folder", "00042") == A
    await site.export(root)


async def test_a_payload_that_is_stored_again_during_the_sweep_stays(site: Site, steps: Steps) -> None:
    data = b"payload"
    payload = await site.put(data)
    site.time.seconds += 100

    async def put() -> None:
        await site.put(data)

    steps.before("remove", put, kind=Stored.PAYLOADS)
    assert (await site.collect(grace=60)).payloads_removed == 0
    assert await site.is_stored(payload)


# --- answers that rely on what is there -------------------------------------------------------------------------------


async def test_an_upload_that_was_present_already_renews_the_payload(site: Site) -> None:
    payload, large = await site.put(b"payload"), bytes(3 << 20)
    multihash = b"\x12\x20" + hashlib.sha256(large).digest()
    for _ in range(2):
        async with site.store.begin_payload() as writer:
            await writer.write(large)
            await writer.commit(multihash)
        await site.put(b"payload")
        site.time.seconds += 50
    assert (await site.collect(grace=60)).payloads_removed == 0
    assert await site.is_stored(payload)
    site.time.seconds += 20
    assert (await site.collect(grace=60)).payloads_removed == 2


async def test_asking_which_payloads_are_held_renews_them(site: Site) -> None:
    payload, other = await site.put(b"payload"), await site.put(b"other")
    site.time.seconds += 50
    assert await site.has(payload)
    site.time.seconds += 50
    assert (await site.collect(grace=60)).payloads_removed == 1
    assert await site.is_stored(payload)
    assert not await site.has(other)


async def test_creating_a_root_that_is_held_renews_it(site: Site) -> None:
    root = await site.create({"a": A})
    site.time.seconds += 50
    assert await site.create({"a": A}) == root
    site.time.seconds += 50
    assert (await site.collect(grace=60)).roots_removed == 0


async def test_a_change_whose_result_is_held_renews_the_result(site: Site) -> None:
    base = await site.create({"a": A})
    result = await site.change(base, "a", B, A)
    site.time.seconds += 50
    assert await site.change(base, "a", B, A) == result
    site.time.seconds += 50
    assert (await site.collect(grace=60)).roots_removed == 1
    assert await site.resolve(result, "a") == B


async def test_a_root_that_is_created_again_while_it_expires_is_stored_in_full(site: Site, steps: Steps) -> None:
    root = await site.create(many(1000))
    assert await site.resolve(root, "folder", "00007") == A  # the engine remembers that it is held
    site.time.seconds += 100

    async def create() -> None:
        await site.create(many(1000))

    steps.before("remove", create, kind=Stored.ROOTS)
    await site.collect(grace=60)
    await site.export(root)


async def test_importing_a_car_renews_the_payloads_that_it_does_not_store(site: Site) -> None:
    payload = await site.put(b"payload")
    root = await site.create({"file": payload})
    car = b"".join([part async for part in await site.engine.cars.export_car(root, payloads=True)])
    site.time.seconds += 100
    await site.engine.cars.import_car(_chunks([car]))
    assert (await site.collect(grace=60)).roots_removed == 0
    assert await site.is_stored(payload)


async def _chunks(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


# --- writes of several steps ------------------------------------------------------------------------------------------


async def test_pages_that_were_put_before_a_collection_stay_for_a_root_that_is_recorded_during_it(
    site: Site, steps: Steps
) -> None:
    """The pages are older than the grace period when the collection begins."""
    pages, root = await _tree()
    since = await site.store.put({Table.PAGES: pages}, durable=False)
    site.time.seconds += 100

    async def record() -> None:
        await site.store.put({Table.ROOTS: [(root, b"")]}, since=since)

    steps.before("expire", record)
    await site.collect(grace=60)
    assert None not in await site.store.get(Table.PAGES, [digest for digest, _ in pages])


async def test_a_root_is_refused_if_its_pages_may_have_been_removed(site: Site) -> None:
    pages, root = await _tree()
    since = await site.store.put({Table.PAGES: pages}, durable=False)
    site.time.seconds += 100
    await site.collect(grace=60)
    with pytest.raises(Unavailable, match="garbage was collected"):
        await site.store.put({Table.ROOTS: [(root, b"")]}, since=since)
    again = await site.store.put({Table.PAGES: pages}, durable=False)
    await site.collect(grace=60)
    await site.store.put({Table.ROOTS: [(root, b"")]}, since=again)
    await site.export(Cid(root).text)


async def test_the_engine_says_when_a_change_of_many_pages_began(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    put = site.store.put
    has_collected = False

    async def put_with_a_collection(*arguments: object) -> int:
        nonlocal has_collected
        now = await put(*arguments)  # type: ignore[arg-type]
        if not has_collected:  # after the first pages
            has_collected = True
            site.time.seconds += 100
            await site.collect(grace=60)
        return now

    monkeypatch.setattr(site.store, "put", put_with_a_collection)
    with pytest.raises(Unavailable, match="garbage was collected"):
        await site.create(many(30_000))
    await site.export(await site.create(many(30_000)))


async def _tree() -> tuple[list[tuple[bytes, bytes]], bytes]:
    """The pages of a map, and its binary root CID."""
    store = MemoryStore()
    site = Site(Engine(store), store, Time())
    root = binary(await site.create(many(2000)))
    async with store.collect(0) as collection:
        digests = [item.key for item in await collection.list_items(Stored.PAGES, None, 1000)]
    pages = await store.get(Table.PAGES, digests)
    await site.engine.close()
    return [(digest, page) for digest, page in zip(digests, pages, strict=True) if page is not None], root


# --- caches -----------------------------------------------------------------------------------------------------------


async def test_a_read_of_an_expired_root_is_a_root_not_found_although_the_engine_remembered_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = await site.create(many(3000))
    assert await site.resolve(root, "folder", "00007") == A
    site.time.seconds += 100
    await site.collect(grace=60)
    with pytest.raises(RootNotFound):
        await site.resolve(root, "folder", "00007")


async def test_an_export_of_a_root_that_is_removed_meanwhile_ends_with_root_not_found(tmp_path: Path) -> None:
    async with site_on(tmp_path, Time()) as site:
        root = await site.create(many(30_000))
        parts = await site.engine.cars.export_car(root, payloads=True)
        await anext(parts)
        site.time.seconds += 100
        await site.collect(grace=60)
        with pytest.raises(RootNotFound, match="no longer"):
            async for _ in parts:
                pass
