"""Maps, lists and CARs that are longer than a connection lasts: what was acknowledged is not sent again."""

from __future__ import annotations

import asyncio
import filecmp
import gc
import hashlib
import os
import random
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from car_files import block, cid, header, varint
from coregw import List, Map, payload_cid
from coregw.client import AsyncClient, Client, ClientSettings
from coregw.client.mirror import list_changes
from coregw.client.operations.car_import import CarFile, CarParts
from coregw.client.operations.roots import sort_arcs
from coregw.client.operations.steps import PartSize, attempt
from coregw.client.transport.exchange import Answer, Call, SentOnce
from coregw.errors import InvalidInput, TooLarge
from cut_network import cutting
from serving import process

KIB = 1 << 10
CUT = 400_000
ARCS = {f"folder {number % 300}/file {number}": payload_cid(b"not held %d" % number) for number in range(30_000)}
LINES = sum(len(path) + len(target) + 8 for path, target in ARCS.items())
ELEMENTS = [payload_cid(b"not held %d" % number) for number in range(12_000)]

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "make",
    [
        lambda client: client.create_root(ARCS),
        lambda client: client.build(ARCS),
        lambda client: client.build_sorted(sort_arcs(ARCS), "sha2-256"),
    ],
    ids=["create_root", "build", "build_sorted"],
)
async def test_a_map_is_made_of_parts(gateway: str, make: Callable[[AsyncClient], Awaitable[str]]) -> None:
    async with cutting(gateway, CUT) as (proxy, client):
        assert await make(client) == Map(ARCS).root
        assert proxy.cuts >= 5
        assert proxy.sent < 2.5 * LINES + 3 * CUT  # a change is half again as long as a line


async def test_a_list_is_made_of_parts(gateway: str) -> None:
    async with cutting(gateway, CUT) as (proxy, client):
        assert await client.create_list(ELEMENTS) == List(ELEMENTS, [1] * len(ELEMENTS)).root
        assert proxy.cuts >= 3
        assert proxy.sent < 1.5 * 110 * len(ELEMENTS) + 3 * CUT


def many_files(folder: Path, count: int, text: str) -> None:
    for number in range(count):
        path = folder / f"{number % 50}" / f"a file with a long name, {number}"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(f"{text} {number % 10}")


async def test_a_folder_of_many_files_is_added_and_added_again(gateway: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    many_files(folder, 10_000, "first")
    async with cutting(gateway, CUT) as (proxy, client):
        first = await client.add(folder, use_cache=True)
        assert proxy.cuts >= 4
        assert proxy.sent < 8_000_000
        assert await client.is_complete(first.root)
    many_files(folder, 2_400, "second")
    async with cutting(gateway, CUT) as (proxy, client):
        second = await client.add(folder, use_cache=True)
        assert second.root != first.root
        assert proxy.cuts >= 2
        assert proxy.sent < 4_500_000
        assert await client.is_complete(second.root)


@pytest.fixture
def car(gateway: str, tmp_path: Path) -> tuple[str, Path]:
    """A CAR of a map with lists and other maps, and with payloads, and its root."""
    rng = random.Random(1)
    target = tmp_path / "tree.car"
    with process(tmp_path / "source") as source, Client(source.url) as direct:
        payloads = [direct.put_payload(rng.randbytes(100 * KIB)) for _ in range(40)]
        elements = direct.create_list(ELEMENTS[:9_000], range(1, 9_001))
        nested = direct.create_root({"list": elements, "a\x00b/\x01": payloads[0]}, "blake3")
        arcs = {
            **dict(list(ARCS.items())[:5_000]),
            "nested": nested,
            "empty": direct.create_root({}),
            "none": direct.create_list([]),
        }
        root = direct.create_root({**arcs, **{f"payload {number}": each for number, each in enumerate(payloads)}})
        direct.export_car(root, target, payloads=True)
    return root, target


@pytest.mark.parametrize("is_file", [True, False], ids=["import_car", "put_car"])
async def test_a_car_is_sent_in_parts(gateway: str, car: tuple[str, Path], is_file: bool) -> None:
    root, path = car
    size = path.stat().st_size
    shown: list[int] = []
    async with cutting(gateway, CUT) as (proxy, client):
        if is_file:
            imported = await client.import_car(path, progress=shown.append)
            assert (imported.roots, imported.bytes) == ([root], size)
            assert sum(shown) == size
        else:
            await client.put_car(path.read_bytes())
        assert proxy.cuts >= 5
        assert proxy.sent < 1.5 * size + 3 * CUT
    again = path.with_name("again")
    with Client(gateway) as direct:
        direct.export_car(root, again, payloads=True)
    assert filecmp.cmp(again, path, shallow=False)


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Notes for each step of dividing a CAR whether it was done in the thread of the event loop."""
    divided: list[bool] = []

    def noting(method: Callable[..., object]) -> Callable[..., object]:
        def noted(*arguments: object) -> object:
            divided.append(threading.current_thread() is threading.main_thread())
            return method(*arguments)

        return noted

    for name in ("_frame", "_feed", "_read"):
        monkeypatch.setattr(CarParts, name, noting(getattr(CarParts, name)))
    return divided


async def test_a_car_is_divided_in_worker_threads(gateway: str, car: tuple[str, Path], divided: list[bool]) -> None:
    """Reading and hashing its blocks would hold up the other tasks of the event loop."""
    async with cutting(gateway, CUT) as (proxy, client):
        await client.import_car(car[1])
        assert proxy.cuts
    assert divided
    assert not any(divided)


async def test_mirrored_payloads_are_divided_in_worker_threads(
    gateway: str, tmp_path: Path, divided: list[bool]
) -> None:
    rng = random.Random(2)
    with process(tmp_path / "source") as source:
        async with AsyncClient(source.url) as origin, cutting(gateway, CUT) as (proxy, client):
            payloads = [await origin.put_payload(rng.randbytes(100 * KIB)) for _ in range(20)]
            root = await origin.create_root({f"file {number}": each for number, each in enumerate(payloads)})
            done = await origin.mirror(root, client)
            assert proxy.cuts
            assert await client.is_complete(root)
    assert done.payloads == 20
    assert done.sent > 20 * 100 * KIB
    assert divided
    assert not any(divided)


async def test_a_damaged_car_is_named_and_its_root_is_not_held(gateway: str, car: tuple[str, Path]) -> None:
    root, path = car
    data = bytearray(path.read_bytes())
    for damaged in (data[:-1], data[:-50_000], data[:-5] + b"x" + data[-4:]):
        path.write_bytes(damaged)
        async with cutting(gateway, CUT) as (_, client):
            with pytest.raises(InvalidInput, match=str(path)):
                await client.import_car(path)
            assert not await client.is_complete(root)


async def test_another_gateway_gets_all_of_a_map(gateway: str, tmp_path: Path) -> None:
    with process(tmp_path / "other") as other:
        async with cutting(gateway, CUT) as (proxy, client):
            task = asyncio.ensure_future(client.create_root(ARCS))
            while proxy.cuts < 5:
                await asyncio.sleep(0.001)
            proxy.target = other.port
            root = await task
            assert await client.is_complete(root) is False  # its payloads are nowhere
        with Client(other.url) as direct:
            assert direct.resolve(root, "folder 0/file 0") == ARCS["folder 0/file 0"]


@pytest.mark.slow
async def test_maps_and_lists_are_mirrored_in_parts(gateway: str, tmp_path: Path) -> None:
    with Client(gateway) as direct:
        lists = [direct.create_list(ELEMENTS), direct.create_list([*ELEMENTS[6_000:], *ELEMENTS[:5_000]])]
        roots = [direct.create_root({**ARCS, "list": each}) for each in lists]
        changed = {**ARCS, **dict.fromkeys(list(ARCS)[:9000], ARCS["folder 0/file 0"])}
        roots.append(direct.create_root({**changed, "list": lists[1]}))
    with process(tmp_path / "copy") as there:
        for root in roots:
            async with cutting(there.url, CUT) as (proxy, _):
                url = f"http://127.0.0.1:{proxy.port}"
                command = [
                    sys.executable,
                    "-m",
                    "coregw",
                    "mirror",
                    root,
                    "--no-payloads",
                    "--from",
                    gateway,
                    "--to",
                    url,
                ]
                ended = await asyncio.create_subprocess_exec(*command, env=os.environ | {"COREGW_RETRY_SECONDS": "20"})
                assert await ended.wait() == 0
                assert proxy.cuts >= 1


def test_the_last_elements_are_removed_first() -> None:
    before, after = [(each, 1) for each in ELEMENTS[:9]], [(each, 1) for each in ELEMENTS[:2]]
    parts = list_changes(before, after, 3)
    assert [[change.index for change in part] for part in parts] == [[8, 7, 6], [5, 4, 3], [2]]


def test_a_list_whose_nodes_repeat_is_not_read_without_an_end(tmp_path: Path) -> None:
    """A CAR of some kilobytes can have a list of 2^45 elements, whose halves are the same node."""
    target = cid(0x55, b"x")
    node, count, blocks = b"\x11\x01" + varint(len(target)) + target, 1, [block(target, b"x")]
    for _ in range(45):
        blocks.append(block(cid(0x303210, node), node))
        child = varint(count) + varint(count) + hashlib.sha256(node).digest()
        node, count = b"\x12" + child + child, 2 * count
    top = cid(0x303210, node)
    (tmp_path / "list.car").write_bytes(header(top) + block(top, node) + b"".join(reversed(blocks)))
    with CarFile(tmp_path / "list.car", "list.car") as car:
        parts = CarParts(ClientSettings(max_entries=1000), car)
        parts.payloads(parts.first, None)
        with pytest.raises(TooLarge, match="more than 1,000 elements"):
            list(parts.trees())


def test_a_body_is_freed_when_its_call_ends_without_a_garbage_collection() -> None:
    """Programs that make few objects collect rarely, and a folder has many bodies."""
    body = SentOnce(b"sent")
    freed = weakref.ref(body)
    steps = attempt(Call("POST", "/v1/car", 100, "send", content=body), PartSize(), 4)
    del body
    gc.disable()
    try:
        call: Call | None = next(steps)
        assert call is not None
        assert call.content is freed()
        call = None
        with pytest.raises(StopIteration):
            steps.send(Answer(201, b""))
        assert freed() is None
    finally:
        gc.enable()
