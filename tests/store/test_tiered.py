"""The tiered store: what it reads is checked, kept within bounds, requested once, and served with the upstream away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from coregw import Cid, payload_cid
from coregw.engine.objects.checks import ObjectChecks
from coregw.errors import InvalidInput, PayloadNotFound, Unavailable, UpstreamDamaged
from coregw.store import CHUNK_BYTES, PayloadWriter, Store, Stored, Table
from coregw.store.collection import CollectableStore
from coregw.store.memory import MemoryStore
from coregw.store.origin import OriginStore, Sink, page_path, payload_path, root_path
from coregw.store.rocksdb import open_store
from coregw.store.tiered import TieredStore, open_tiered
from coregw.store.tiered.kept import Kept
from page_model import Tree, varint
from store.contract import PayloadContract
from store.payloads import multihash_of, random_bytes, read

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Upstream:
    """An upstream over a store in memory: it can be away, slow, or lie."""

    url = "http://upstream"
    has_batches = False

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.asked: list[str] = []
        self.requests = self.received = 0
        self.is_away = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.lie: Callable[[bytes], bytes] = lambda content: content
        self.said_size: int | None = None

    async def get(self, path: str, max_bytes: int) -> bytes | None:
        self.requests += 1
        self.asked.append(path)
        await self.gate.wait()
        if self.is_away:
            raise Unavailable("the upstream is away")
        kind, name = path.split("/")[2:]
        if kind == "pages":
            [content] = await self.store.get(Table.PAGES, [bytes.fromhex(name)])
        elif kind == "roots":
            root = bytes(Cid(name))
            [held], [content] = (
                await self.store.get(Table.ROOTS, [root]),
                await self.store.get(Table.PAGES, [root[-32:]]),
            )
            content = content if held is not None else None
        else:
            multihash = Cid(name).multihash
            try:
                content = b"".join([chunk async for chunk in self.store.read_payload(multihash)])
            except PayloadNotFound:
                content = None
        return None if content is None else self.lie(content)

    async def download(self, path: str, sink: Callable[[], Sink]) -> bool:
        content = await self.get(path, 0)
        if content is not None:
            sink().write(content)
        return content is not None

    async def size(self, path: str) -> int | None:
        content = await self.get(path, 0)
        return None if content is None else len(content) if self.said_size is None else self.said_size

    async def pages(self, digests: Sequence[bytes], max_bytes: int) -> bytes:
        raise NotImplementedError

    async def aclose(self) -> None:
        pass


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


@pytest.fixture(params=["memory", "rocksdb"])
async def local(request: pytest.FixtureRequest, tmp_path: Path) -> CollectableStore:
    return MemoryStore() if request.param == "memory" else await open_store(tmp_path / "cache")


@pytest.fixture
async def tiered(local: CollectableStore, upstream: Upstream) -> AsyncIterator[TieredStore]:
    store = await open_tiered(local, OriginStore(upstream, ObjectChecks()), 100 << 20)
    yield store
    await store.close()


async def put_map(store: Store, count: int, prefix: str = "") -> tuple[bytes, dict[bytes, bytes]]:
    """Store a map with all its pages, and return its root and the pages."""
    tree = Tree("map", "sha2-256")
    arcs = {f"{prefix}folder {i % 7}/{i}": bytes(Cid(payload_cid(b"%d" % i))) for i in range(count)}
    top = tree.map(arcs)
    pages = tree.pages(top)
    root = b"\x01" + varint(0x303110) + b"\x12\x20" + top.digest
    await store.put({Table.PAGES: [*pages.items()], Table.ROOTS: [(root, b"")]})
    return root, pages


class Split:
    """Writes go to the upstream, reads through the tiered store: for the part of the contract that it keeps."""

    def __init__(self, tiered: TieredStore, upstream: Upstream) -> None:
        self._upstream = upstream.store
        self.stat_payloads = tiered.stat_payloads
        self.get_payloads = tiered.get_payloads
        self.read_payload = tiered.read_payload
        self.put_payloads = self._upstream.put_payloads
        self.healthy = tiered.healthy

    def begin_payload(self) -> PayloadWriter:
        return self._upstream.begin_payload()


class TestPayloadsReadThrough(PayloadContract):
    @pytest.fixture
    def store(self, tiered: TieredStore, upstream: Upstream) -> Split:
        return Split(tiered, upstream)


async def test_objects_are_requested_once_and_served_while_the_upstream_is_away(
    tiered: TieredStore, upstream: Upstream
) -> None:
    root, pages = await put_map(upstream.store, 800)
    assert len(pages) > 4
    small, large = b"small", random_bytes(3 * CHUNK_BYTES + 5)
    for data in (small, large):
        async with upstream.store.begin_payload() as writer:
            await writer.write(data)
            await writer.commit(multihash_of(data))
    absent = bytes(32)
    for _ in range(2):
        assert await tiered.get(Table.ROOTS, [root]) == [b""]
        assert await tiered.get(Table.PAGES, [*pages, next(iter(pages))]) == [
            *pages.values(),
            next(iter(pages.values())),
        ]
        assert await tiered.get_payloads([multihash_of(small)]) == [small]
        assert await read(tiered, multihash_of(large), 5, CHUNK_BYTES + 7) == large[5 : CHUNK_BYTES + 7]
        assert await tiered.stat_payloads([multihash_of(small), multihash_of(large)]) == [len(small), len(large)]
        upstream.is_away = True
    paths = [root_path(root), *map(page_path, pages), *(payload_path(multihash_of(each)) for each in (small, large))]
    assert sorted(upstream.asked) == sorted({*paths} - {page_path(root[-32:])})  # the root's page came with it
    for call in (
        tiered.get(Table.PAGES, [absent]),
        tiered.get(Table.ROOTS, [root[:-32] + absent]),
        tiered.get_payloads([multihash_of(b"absent")]),
        anext(tiered.read_payload(multihash_of(b"absent"))),
    ):
        with pytest.raises(Unavailable, match="away"):
            await call
    upstream.is_away = False
    assert await tiered.get(Table.PAGES, [absent]) == await tiered.get_payloads([multihash_of(b"absent")]) == [None]
    assert await tiered.get(Table.ROOTS, [root[:-32] + absent]) == [None]
    figures = tiered.figures()
    assert figures.hits == len(pages) + 3
    assert figures.bytes == sum(map(len, pages.values())) + len(small) + len(large) + 64


async def test_concurrent_misses_share_a_request(tiered: TieredStore, upstream: Upstream) -> None:
    root, pages = await put_map(upstream.store, 800)
    digests = [*pages][1:]
    data = random_bytes(2 * CHUNK_BYTES)
    async with upstream.store.begin_payload() as writer:
        await writer.write(data)
        await writer.commit(multihash_of(data))
    upstream.gate.clear()
    calls = [asyncio.ensure_future(tiered.get(Table.PAGES, digests)) for _ in range(5)]
    calls += [asyncio.ensure_future(tiered.get(Table.ROOTS, [root])) for _ in range(5)]
    reads = [asyncio.ensure_future(read(tiered, multihash_of(data))) for _ in range(5)]
    for _ in range(20):
        await asyncio.sleep(0)
    calls[0].cancel()  # whoever asked first goes away
    reads[0].cancel()
    upstream.gate.set()
    rest = await asyncio.gather(*calls[1:], *reads[1:])
    assert rest == [[pages[each] for each in digests]] * 4 + [[b""]] * 5 + [data] * 4
    assert max(map(upstream.asked.count, upstream.asked)) <= 5


async def test_what_a_lying_upstream_sends_is_named_and_not_kept(tiered: TieredStore, upstream: Upstream) -> None:
    root, pages = await put_map(upstream.store, 800)
    await upstream.store.put_payloads([(multihash_of(b"payload"), b"payload")])
    digest = [*pages][1]
    upstream.lie = lambda content: content[:6] + bytes([content[6] ^ 1]) + content[7:]
    for path, call in (
        (page_path(digest), lambda: tiered.get(Table.PAGES, [digest])),
        (root_path(root), lambda: tiered.get(Table.ROOTS, [root])),
        (payload_path(multihash_of(b"payload")), lambda: tiered.get_payloads([multihash_of(b"payload")])),
        (payload_path(multihash_of(b"payload")), lambda: read(tiered, multihash_of(b"payload"))),
    ):
        with pytest.raises(UpstreamDamaged, match=f"http://upstream{path}: .* nothing of it is used"):
            await call()
    assert tiered.figures().bytes == 0
    upstream.lie = lambda content: content
    assert await tiered.get(Table.PAGES, [digest]) == [pages[digest]]
    assert await read(tiered, multihash_of(b"payload")) == b"payload"


async def test_the_size_of_a_single_payload_is_true_whatever_the_upstream_says(
    tiered: TieredStore, upstream: Upstream
) -> None:
    payloads = [b"payload", random_bytes(3 * CHUNK_BYTES), b"another"]
    for payload in payloads:
        async with upstream.store.begin_payload() as writer:
            await writer.write(payload)
            await writer.commit(multihash_of(payload))
    upstream.said_size = 5
    for payload in payloads[:2]:
        assert await tiered.stat_payloads([multihash_of(payload)]) == [len(payload)]
        asked = len(upstream.asked)
        assert await read(tiered, multihash_of(payload)) == payload  # is kept
        assert len(upstream.asked) == asked
    assert await tiered.stat_payloads([multihash_of(payload) for payload in payloads]) == [7, 3 * CHUNK_BYTES, 5]
    assert await tiered.renew(Stored.PAYLOADS, [multihash_of(b"another")]) == [5]  # whether it is held is enough
    assert await tiered.stat_payloads([multihash_of(b"absent")]) == [None]
    upstream.gate.clear()
    looking_up = [asyncio.ensure_future(tiered.stat_payloads([multihash_of(b"another")])) for _ in range(3)]
    await asyncio.sleep(0.01)
    upstream.gate.set()
    assert await asyncio.gather(*looking_up) == [[7]] * 3
    assert upstream.asked.count(payload_path(multihash_of(b"another"))) == 3  # two for their sizes, one to read it


async def test_what_was_used_least_recently_is_removed(local: CollectableStore, upstream: Upstream) -> None:
    _, pages = await put_map(upstream.store, 3000)
    datas = [random_bytes(50_000, seed) for seed in range(6)]
    await upstream.store.put_payloads([(multihash_of(data), data) for data in datas])
    store = await open_tiered(local, OriginStore(upstream, ObjectChecks()), 200_000)
    digests = [*pages]
    for data in datas[:2]:
        await store.get_payloads([multihash_of(data)])
    await asyncio.sleep(0.01)
    for digest in digests:
        await store.get(Table.PAGES, [digest])
        await store.get_payloads([multihash_of(datas[0])])  # in use
    async with asyncio.timeout(60):
        while (figures := store.figures()).bytes > figures.max_bytes:
            await asyncio.sleep(0.01)
    assert figures.evicted
    upstream.is_away = True
    assert await store.get_payloads([multihash_of(datas[0])]) == [datas[0]]
    with pytest.raises(Unavailable):
        await store.get_payloads([multihash_of(datas[1])])
    await store.close()


async def test_what_could_not_be_removed_is_still_counted(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    datas = [random_bytes(30_000, seed) for seed in range(6)]
    names = [multihash_of(data) for data in datas]
    await upstream.store.put_payloads(list(zip(names, datas, strict=True)))
    refused = asyncio.Event()

    async def refuse(*_: object) -> NoReturn:
        refused.set()
        raise Unavailable("the disk is away")

    store = await open_tiered(MemoryStore(), _origin(upstream), 130_000)
    monkeypatch.setattr(Kept, "_remove", refuse)
    for _ in range(20):
        refused.clear()
        await store.get_payloads(names)
        store._kept.note(b"another", 0)
        await refused.wait()
        await asyncio.sleep(0)
    assert store.figures().bytes == 180_000
    assert [message.partition(":")[0] for message in caplog.messages] == ["what is not used any more cannot be removed"]
    await store.close()


async def test_a_cache_is_found_again(upstream: Upstream, tmp_path: Path) -> None:
    root, pages = await put_map(upstream.store, 800)
    await upstream.store.put_payloads([(multihash_of(b"payload"), b"payload")])
    for is_away in (False, True):
        upstream.is_away = is_away
        local = await open_store(tmp_path / "cache")
        store = await open_tiered(local, OriginStore(upstream, ObjectChecks()), 10 << 20)
        if is_away:
            assert store.figures().bytes >= sum(map(len, pages.values())) + len(b"payload")
        assert await store.get(Table.ROOTS, [root]) == [b""]
        assert await store.get(Table.PAGES, [*pages]) == [*pages.values()]
        assert await store.get_payloads([multihash_of(b"payload")]) == [b"payload"]
        await store.close()


async def test_the_order_of_use_outlives_the_process(upstream: Upstream, tmp_path: Path) -> None:
    datas = [random_bytes(50_000, seed) for seed in range(6)]
    names = [multihash_of(data) for data in datas]
    await upstream.store.put_payloads(list(zip(names, datas, strict=True)))
    for number, damage in enumerate(("", "", "damaged", "missing")):
        order = tmp_path / "order"
        upstream.is_away = False
        store = await open_tiered(await open_store(tmp_path / "cache"), _origin(upstream), 1 << 20, order)
        await store.get_payloads(names)
        for index in (4, 2) if number else ():  # used last
            await store.get_payloads([names[index]])
        await store.close()
        if damage == "damaged":
            order.write_bytes(b"something else")
        elif damage:
            order.unlink()
        store = await open_tiered(await open_store(tmp_path / "cache"), _origin(upstream), 130_000, order)
        async with asyncio.timeout(60):
            while store.figures().evicted < 4:
                await asyncio.sleep(0.01)
        assert store.figures().evicted == 4
        upstream.is_away = True
        kept = [await _is_there(store, name) for name in names]
        assert sum(kept) == 2
        if not damage:
            assert kept == [index in ((2, 4) if number else (4, 5)) for index in range(6)]
        await store.close()


def _origin(upstream: Upstream) -> OriginStore:
    return OriginStore(upstream, ObjectChecks())


async def _is_there(store: Store, name: bytes) -> bool:
    try:
        return await store.get_payloads([name]) != [None]
    except Unavailable:
        return False


async def test_an_edge_without_room_still_answers(upstream: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    root, pages = await put_map(upstream.store, 800)
    data = random_bytes(CHUNK_BYTES + 1)
    async with upstream.store.begin_payload() as writer:
        await writer.write(data)
        await writer.commit(multihash_of(data))
    store = await open_tiered(MemoryStore(max_bytes=0), OriginStore(upstream, ObjectChecks()), 100 << 20)
    for _ in range(2):
        assert await store.get(Table.ROOTS, [root]) == [b""]
        assert await store.get(Table.PAGES, [*pages]) == [*pages.values()]
        assert await read(store, multihash_of(data)) == data
    assert await store.obstacles() == []
    assert await store.healthy()
    assert [message.partition(":")[0] for message in caplog.messages] == ["nothing can be kept"]
    await store.close()
    assert not await store.healthy()
    assert len(await store.obstacles()) == 1


async def test_an_upstream_that_is_away_is_logged_once_and_so_is_its_return(
    tiered: TieredStore, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    data = random_bytes(100)
    await upstream.store.put_payloads([(multihash_of(data), data)])
    upstream.is_away = True
    for number in range(20):
        with pytest.raises(Unavailable):
            await tiered.get(Table.PAGES, [number.to_bytes(32)])
        with pytest.raises(Unavailable):
            await tiered.get(Table.ROOTS, [bytes(Cid(payload_cid(b"%d" % number)))])
        with pytest.raises(Unavailable):
            await tiered.get_payloads([multihash_of(data)])
    upstream.is_away = False
    for _ in range(2):
        assert await tiered.get_payloads([multihash_of(data)]) == [data]
        assert await tiered.get_payloads([multihash_of(b"absent")]) == [None]
    begun, ended = caplog.messages
    assert begun == "the upstream http://upstream does not answer: the upstream is away"
    assert ended.startswith("the upstream http://upstream answers again after ")


async def test_an_upstream_that_is_not_asked_has_not_returned(
    tiered: TieredStore, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    root, _ = await put_map(upstream.store, 8)
    await tiered.get(Table.ROOTS, [root])  # the answer has its page as well
    upstream.is_away = True
    with pytest.raises(Unavailable):
        await tiered.get(Table.PAGES, [bytes(32)])
    assert await tiered.get(Table.PAGES, [root[-32:]]) != [None]
    assert len(caplog.messages) == 1
    upstream.is_away = False
    await tiered.get(Table.PAGES, [bytes(32)])
    assert len(caplog.messages) == 2


async def test_an_edge_takes_no_writes(tiered: TieredStore) -> None:
    for write in (
        lambda: tiered.put({Table.PAGES: [(b"k", b"v")]}),
        lambda: tiered.compare_and_set(Table.RECORDS, b"k", None, b"v"),
        lambda: tiered.delete(Table.RECORDS, [b"k"]),
        lambda: tiered.put_payloads([(b"k", b"v")]),
        lambda: tiered.renew(Stored.ROOTS, [b"k"]),
    ):
        with pytest.raises(InvalidInput, match="accepts no writes: send them to http://upstream") as caught:
            await write()
        assert caught.value.code == "read_only"
    with pytest.raises(InvalidInput, match="accepts no writes"):
        tiered.begin_payload()
    assert await tiered.list_rows(Table.RECORDS, b"n", None, 1) == []
    assert await tiered.renew(Stored.PAYLOADS, [multihash_of(b"absent")]) == [None]
