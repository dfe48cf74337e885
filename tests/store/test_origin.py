"""The origin store: checked objects of an upstream that may say anything, in as few requests as there can be."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence

import pytest

from car_files import block, cid, header
from coregw import Cid, Map, payload_cid
from coregw._core import page_links
from coregw.engine import Engine
from coregw.errors import InvalidInput, PayloadNotFound, Unavailable, UpstreamDamaged
from coregw.store import CHUNK_BYTES, Stored, Table
from coregw.store.memory import MemoryStore
from coregw.store.origin import OriginStore, UpstreamSink, page_path, payload_path, root_path

pytestmark = pytest.mark.anyio

RAW = 0x55
EMPTY = bytes.fromhex("01550000")


class Objects:
    """An upstream in memory, which counts what it is asked."""

    url = "http://upstream"

    def __init__(self, objects: dict[str, bytes], *, has_batches: bool) -> None:
        self.objects = objects
        self.has_batches = has_batches
        self.asked: list[str] = []
        self.requests = self.received = 0
        self.lie: Callable[[bytes], bytes] = lambda answer: answer
        self.at_once = self.max_at_once = 0

    async def get(self, path: str, max_bytes: int) -> bytes | None:
        self.asked.append(path)
        self.at_once += 1
        self.max_at_once = max(self.max_at_once, self.at_once)
        for _ in range(3):
            await asyncio.sleep(0)
        self.at_once -= 1
        return self.objects.get(path)

    async def download(self, path: str, sink: Callable[[], UpstreamSink]) -> bool:
        content = await self.get(path, 0)
        if content is not None:
            sink().write(b"of an attempt that failed")
            into = sink()
            for start in range(0, len(content), 100_000):
                into.write(content[start : start + 100_000])
        return content is not None

    async def size(self, path: str) -> int | None:
        content = await self.get(path, 0)
        return None if content is None else len(content)

    async def pages(self, digests: Sequence[bytes], max_bytes: int) -> bytes:
        found = [await self.get(page_path(each), 0) for each in digests]
        del self.asked[-len(found) :]
        self.asked.append(f"{len(found)} pages")
        pages = [page for page in found if page is not None]
        answer = header(EMPTY) + b"".join(block(cid(RAW, page), page) for page in pages)
        assert len(answer) <= max_bytes
        return self.lie(answer)

    async def aclose(self) -> None:
        self.objects = {}


class Tree:
    """A map of some pages, and its objects by path."""

    def __init__(self, pages: dict[bytes, bytes], root: str) -> None:
        self.root = bytes(Cid(root))
        self.pages = pages
        self.digests = [*pages]
        self.top = pages[self.root[-32:]]
        self.objects = {page_path(digest): page for digest, page in pages.items()}
        self.objects[root_path(self.root)] = self.top


@pytest.fixture
async def tree() -> Tree:
    store = MemoryStore()
    engine = Engine(store)
    arcs = ",".join(f'"folder {i % 9}/{i}":"{payload_cid(b"%d" % i)}"' for i in range(8000))
    answer = await engine.create_root(f'{{"arcs":{{{arcs}}}}}'.encode())
    pages = dict(store._tables[Table.PAGES])
    await engine.close()
    return Tree(pages, answer.decode().split('"')[3])


def origin(objects: dict[str, bytes], *, has_batches: bool = False, **options: int) -> tuple[OriginStore, Objects]:
    upstream = Objects(dict(objects), has_batches=has_batches)
    return OriginStore(upstream, **options), upstream


async def test_a_root_and_its_page_are_one_request(tree: Tree) -> None:
    store, upstream = origin(tree.objects)
    assert await store.get(Table.ROOTS, [tree.root]) == [b""]
    assert await store.get(Table.PAGES, [tree.root[-32:]]) == [tree.top]
    assert upstream.asked == [root_path(tree.root)]
    both = asyncio.gather(store.get(Table.PAGES, [tree.root[-32:]]), store.get(Table.ROOTS, [tree.root]))
    assert await both == [[tree.top], [b""]]
    assert upstream.asked == [root_path(tree.root)] * 2


async def test_concurrent_calls_for_a_root_share_a_request(tree: Tree) -> None:
    upstream = Objects(tree.objects, has_batches=False)
    store = OriginStore(upstream)
    first, *others = [asyncio.create_task(store.get(Table.ROOTS, [tree.root])) for _ in range(8)]
    while not upstream.asked:
        await asyncio.sleep(0)
    first.cancel()  # one of the others asks then
    assert await asyncio.gather(*others) == [[b""]] * 7
    assert first.cancelled()
    assert upstream.asked == [root_path(tree.root)] * 2
    upstream.objects = {root_path(tree.root): tree.top[:-1]}
    failed = await asyncio.gather(*(store.get(Table.ROOTS, [tree.root]) for _ in range(8)), return_exceptions=True)
    assert {type(each) for each in failed} == {UpstreamDamaged}
    assert len(upstream.asked) == 3


async def test_roots_are_of_their_kind_and_suite(tree: Tree) -> None:
    lists = bytearray(tree.root)
    lists[2] ^= 0x06  # the root of a list with the same digest
    store, upstream = origin(tree.objects | {root_path(bytes(lists)): tree.top})
    with pytest.raises(
        UpstreamDamaged, match=f"http://upstream{root_path(bytes(lists))}: .* not the page of this root"
    ):
        await store.get(Table.ROOTS, [bytes(lists)])
    assert await store.get(Table.ROOTS, [tree.root[:-1] + b"\0"]) == [None]
    assert upstream.asked[-1] == root_path(tree.root[:-1] + b"\0")


@pytest.mark.parametrize("has_batches", [True, False])
async def test_many_pages_take_few_requests_of_a_gateway(tree: Tree, has_batches: bool) -> None:
    store, upstream = origin(tree.objects, has_batches=has_batches, requests_at_once=5)
    absent = hashlib.sha256(b"absent").digest()
    asked = [*tree.digests, absent, tree.digests[0]]
    assert await store.get(Table.PAGES, asked) == [*tree.pages.values(), None, tree.pages[tree.digests[0]]]
    one_by_one = [page_path(each) for each in asked[:-1]]
    if has_batches:
        assert upstream.asked == [f"{len(asked) - 1} pages", page_path(absent)]  # left out, so asked for again
    else:
        assert sorted(upstream.asked) == sorted(one_by_one)
        assert upstream.max_at_once == 5


async def test_pages_that_an_answer_has_wrong_are_not_used(tree: Tree) -> None:
    digests = tree.digests[:5]
    right = [tree.pages[each] for each in digests]
    wrong = right[2][:10] + bytes([right[2][10] ^ 1]) + right[2][11:]
    others = [tree.pages[each] for each in tree.digests[5:7]]
    for pages in (
        [right[0], right[1], wrong, *right[3:]],
        [right[1], right[0], *right[2:]],
        right[:2],
        right + others,
        others,
        [wrong],
    ):
        store, upstream = origin(tree.objects, has_batches=True)
        upstream.lie = lambda _, pages=pages: (
            header(EMPTY)
            + b"".join(  # type: ignore[misc]
                block(cid(RAW, page), page) for page in pages
            )
        )
        assert await store.get(Table.PAGES, digests) == right  # each was asked for on its own
        upstream.objects[page_path(digests[2])] = wrong
        if pages[-1] is wrong:
            with pytest.raises(
                UpstreamDamaged, match=f"http://upstream{page_path(digests[2])}: .* nothing of it is used"
            ):
                await store.get(Table.PAGES, digests)
    for answer in (b"", b"\x05", header(EMPTY)[:-1], header(EMPTY) + b"\xff\xff\xff\xff\xff", header(EMPTY) + b"\x01x"):
        store, upstream = origin(tree.objects, has_batches=True)
        upstream.lie = lambda _, answer=answer: answer  # type: ignore[misc]
        with pytest.raises(UpstreamDamaged, match="http://upstream/v1/pages/car: the answer is malformed"):
            await store.get(Table.PAGES, digests)


async def test_payloads_of_every_hash_and_size_are_checked_whole() -> None:
    datas = [b"", b"x" * CHUNK_BYTES, bytes(range(256)) * 9000]
    names = {Cid(payload_cid(data, hash=name)).multihash: data for data in datas for name in ("sha2-256", "blake3")}
    names[b"\x13\x40" + hashlib.sha512(b"a").digest()] = b"a"
    names[b"\x16\x20" + hashlib.sha3_256(b"a").digest()] = b"a"
    names[b"\xa0\xe4\x02\x20" + hashlib.blake2b(b"a", digest_size=32).digest()] = b"a"
    store, upstream = origin({payload_path(name): data for name, data in names.items()})
    for name, data in names.items():
        assert await store.stat_payloads([name]) == await store.renew(Stored.PAYLOADS, [name]) == [len(data)]
        for start, end in ((0, None), (1, 5), (0, 0), (5, 10**9), (CHUNK_BYTES + 1, None), (10**9, None)):
            chunks = [chunk async for chunk in store.read_payload(name, start, end)]
            assert b"".join(chunks) == data[start:end]
            assert all(0 < len(chunk) <= CHUNK_BYTES for chunk in chunks)
        if len(data) <= CHUNK_BYTES:
            assert await store.get_payloads([name]) == [data]
        upstream.objects[payload_path(name)] = data + b"!"
        for read in (store.get_payloads([name]), anext(store.read_payload(name, 0, 1))):
            with pytest.raises(UpstreamDamaged, match=f"{payload_path(name)}: the bytes do not have the multihash"):
                await read
    absent = b"\x12\x20" + bytes(32)
    assert await store.get_payloads([absent]) == await store.stat_payloads([absent]) == [None]
    with pytest.raises(PayloadNotFound):
        await anext(store.read_payload(absent))
    long = Cid(payload_cid(datas[2])).multihash
    upstream.objects[payload_path(long)] = datas[2]
    with pytest.raises(InvalidInput, match="at most 1,048,576"):
        await store.get_payloads([long])


async def test_an_origin_takes_no_writes_and_lists_nothing(tree: Tree) -> None:
    store, _ = origin(tree.objects)
    for write in (
        lambda: store.put({Table.PAGES: [(b"k", b"v")]}),
        lambda: store.compare_and_set(Table.RECORDS, b"k", None, b"v"),
        lambda: store.delete(Table.RECORDS, [b"k"]),
        lambda: store.put_payloads([(b"k", b"v")]),
        lambda: store.renew(Stored.ROOTS, [tree.root]),
    ):
        with pytest.raises(InvalidInput, match="http://upstream is only read"):
            await write()
    with pytest.raises(InvalidInput, match="only read"):
        store.begin_payload()
    assert await store.get(Table.RECORDS, [b"k"]) == [None]
    assert await store.list_rows(Table.RECORDS, b"k", None, 1) == []
    assert await store.healthy()
    assert await store.obstacles() == ["http://upstream is only read"]
    await store.close()
    await store.close()
    with pytest.raises(Unavailable, match="closed"):
        await store.get(Table.PAGES, [b"k"])
    assert not await store.healthy()


async def test_the_same_map_is_read_through_an_engine(tree: Tree) -> None:
    store, upstream = origin(tree.objects)
    engine = Engine(store)
    root = Cid(tree.root).text
    request = f'{{"profile":"core.resolve/v0alpha1","root":"{root}","segments":["folder 1","1"]}}'
    assert payload_cid(b"1").encode() in await engine.resolve(request.encode())
    assert len(upstream.asked) <= 3  # the root, an inner page, a leaf
    upstream.asked.clear()
    await engine.resolve(request.encode())
    assert upstream.asked == []  # from the cache of parsed pages
    await engine.close()
    arcs = {f"folder {i % 9}/{i}": payload_cid(b"%d" % i) for i in range(8000)}
    assert Map(arcs).root == root
    assert all(page_links([*tree.pages.items()]))
