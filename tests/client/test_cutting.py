"""Folders and large files through a network that cuts every connection: what has arrived is not sent again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coregw.client import AsyncClient, Client, ClientSettings
from coregw.errors import Unavailable
from cut_network import CUT, SETTINGS, cutting
from network import proxy_of
from serving import process

MIB = 1 << 20

pytestmark = pytest.mark.anyio


def small_files(folder: Path, rng: random.Random) -> None:
    for number in range(2000):
        path = folder / f"{number % 40}" / f"{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(rng.randbytes(rng.randrange(16_000)))


def large_file(folder: Path, rng: random.Random) -> None:
    (folder / "large").write_bytes(rng.randbytes(24 * MIB))


@pytest.fixture(scope="module", params=[small_files, large_file])
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    made: Callable[[Path, random.Random], None] = request.param
    folder = tmp_path_factory.mktemp("folder")
    made(folder, random.Random(made.__name__))
    return folder


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_a_folder_is_added_and_restored(gateway: str, folder: Path, tmp_path: Path) -> None:
    size = size_of(folder)
    async with cutting(gateway) as (proxy, client):
        added = await client.add(folder, use_cache=False)
        assert proxy.cuts >= 3
        assert proxy.sent < 1.25 * size + 3 * CUT
    async with cutting(gateway) as (proxy, client):
        await client.get(added.root, tmp_path / "again", use_cache=False)
        assert proxy.cuts >= 3
        assert proxy.received < 1.1 * size
    assert contents(tmp_path / "again") == contents(folder)


async def test_an_incomplete_payload_of_a_folder_is_requested_again(gateway: str, tmp_path: Path) -> None:
    rng = random.Random(1)
    datas = {f"{number}": rng.randbytes(size) for number, size in enumerate([2 * MIB, 5, 2 * MIB, 70_000, MIB] * 3)}
    with Client(gateway) as direct:
        root = direct.create_root({name: direct.put_payload(data) for name, data in datas.items()})
    async with cutting(gateway) as (proxy, client):
        await client.get(root, tmp_path / "all", use_cache=False)
        assert contents(tmp_path / "all") == datas
        assert proxy.received < 2 * sum(map(len, datas.values()))


async def test_a_payload_may_be_longer_than_a_connection_lasts(gateway: str, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(9 * MIB)
    with Client(gateway) as direct:
        cid = direct.put_payload(data)
    async with cutting(gateway) as (proxy, client):
        assert await client.save_payload(cid, tmp_path / "one") == len(data)
        assert (tmp_path / "one").read_bytes() == data
        assert proxy.received < 1.1 * len(data)


async def test_a_mirror_is_made(gateway: str, folder: Path, tmp_path: Path) -> None:
    with Client(gateway) as direct:
        root = direct.add(folder, use_cache=False).root
    size = size_of(folder)
    with process(tmp_path / "copy") as there:
        async with cutting(gateway) as (source, _), cutting(there.url) as (destination, client):
            urls = [f"http://127.0.0.1:{each.port}" for each in (source, destination)]
            command = [sys.executable, "-m", "coregw", "mirror", root, "--from", urls[0], "--to", urls[1]]
            environ = os.environ | {"COREGW_RETRY_SECONDS": "60"}
            ended = await asyncio.create_subprocess_exec(*command, env=environ)
            assert await ended.wait() == 0
            assert source.received < 1.1 * size
            assert destination.sent < 1.25 * size + 4 * CUT
            assert await client.is_complete(root)


@pytest.mark.slow
@pytest.mark.parametrize("is_added", [True, False], ids=["add", "get"])
async def test_a_gateway_is_killed_meanwhile(folder: Path, tmp_path: Path, is_added: bool) -> None:
    data = tmp_path / "data"
    size = size_of(folder)
    with process(data) as gateway:
        root = ""
        if not is_added:
            with Client(gateway.url) as direct:
                root = direct.add(folder, use_cache=False).root
        async with cutting(gateway.url, 0) as (proxy, client):
            call = (
                client.add(folder, use_cache=False) if is_added else client.get(root, tmp_path / "got", use_cache=False)
            )
            task = asyncio.ensure_future(call)
            while max(proxy.sent, proxy.received) < size // 3:
                assert not task.done()
                await asyncio.sleep(0)
            gateway.end(signal.SIGKILL)
            await asyncio.sleep(0.5)
            with process(data) as again:
                proxy.target = again.port
                done = await task
                assert max(proxy.sent, proxy.received) < 1.25 * size + 20 * MIB  # what was in flight was lost
                if is_added:
                    await client.get(done.root, tmp_path / "got", use_cache=False)
                assert contents(tmp_path / "got") == contents(folder)


@pytest.mark.parametrize("is_blocking", [False, True], ids=["AsyncClient", "Client"])
async def test_a_streamed_upload_is_attempted_again(gateway: str, tmp_path: Path, is_blocking: bool) -> None:
    car = tmp_path / "tree.car"
    with Client(gateway) as direct:
        root = direct.create_root({"file": direct.put_payload(random.Random(1).randbytes(20 * MIB))})
        direct.export_car(root, car, payloads=True)

    def imported(url: str) -> list[str]:
        with Client(url, SETTINGS) as client:
            return client.import_car(car).roots

    async with cutting(gateway, MIB) as (proxy, client):
        task = asyncio.ensure_future(
            asyncio.to_thread(imported, client.base_url) if is_blocking else client.import_car(car)
        )
        while proxy.cuts < 3:
            assert not task.done(), await task
            await asyncio.sleep(0.001)
        proxy.cut_after = 0
        done = await task
        assert (done if isinstance(done, list) else done.roots) == [root]


async def test_without_progress_a_call_fails(gateway: str, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(MIB)
    with Client(gateway) as direct:
        root = direct.create_root({"file": direct.put_payload(data)})
    async with proxy_of(int(gateway.rpartition(":")[2])) as proxy:
        settings = ClientSettings(retry_seconds=0.5, backoff_seconds=0.01)
        async with AsyncClient(f"http://127.0.0.1:{proxy.port}", settings) as client:
            proxy.cut_after = 20_000
            with pytest.raises(Unavailable) as raised:
                await client.get(root, tmp_path / "got", use_cache=False)
            assert raised.value.is_interrupted
    assert not (tmp_path / "got").exists()
