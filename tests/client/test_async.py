"""The asyncio client: the same methods as the blocking one, over the same operations."""

from __future__ import annotations

import asyncio
import errno
import gc
import inspect
import io
import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

import coregw
from coregw.client import AsyncClient, Client, ClientSettings, query
from coregw.client.files import CHUNK_BYTES
from coregw.concurrency import for_each, in_thread
from coregw.errors import ProofError, UnprovenAbsence
from gateways import Reply, lying_gateway, names

pytestmark = pytest.mark.anyio

DATA = bytes(range(256)) * (CHUNK_BYTES // 128)


def surface(kind: type) -> dict[str, list[tuple[str, object]]]:
    """Every public method with its parameters' names and defaults."""
    return {
        name.removeprefix("a") if name == "aclose" else name: [
            (parameter.name, "a function" if inspect.isfunction(parameter.default) else parameter.default)
            for parameter in inspect.signature(method).parameters.values()
        ]
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    assert surface(AsyncClient) == surface(Client)


async def test_every_operation_works(gateway: str, tmp_path: Path) -> None:
    async with AsyncClient(gateway) as client:
        (tmp_path / "source").write_bytes(DATA)
        whole = await client.put_payload(tmp_path / "source")
        small = await client.put_payload(b"small")
        assert await client.get_payload(small) == b"small"
        assert await client.save_payload(whole, tmp_path / "target") == len(DATA)
        assert (tmp_path / "target").read_bytes() == DATA
        listed = await client.create_list([small, small], [5, 5])
        root = await client.create_root({"docs/a": small, "docs/b": listed})
        assert await client.resolve(root, "docs/b") == listed
        assert await client.read_key(root, "docs/a") == small
        assert await client.read_index(listed, 1) == small
        assert (await client.read_range(listed, 3)).segments == [small, small]
        assert await client.prove_key(root, "docs") is None
        assert len((await client.scan(root)).entries) == 2
        assert await client.locate(root, "docs") == (root, ["docs"])
        assert await client.list_size(listed) == 10
        assert [chunk async for chunk in client.contents(listed)] == [b"small", b"small"]
        assert [entry.name async for entry in client.children(root, "docs")] == ["a", "b"]
        assert [leaf.target async for leaf in client.walk(root)] == [small, listed]
        assert [leaf.segments async for leaf in client.entries(root, "docs")] == [["docs", "a"], ["docs", "b"]]
        proven = await client.query(query.resolve(root, "docs/a"))
        assert coregw.verify_resolve(proven.request, proven.result) == small
        with pytest.raises(UnprovenAbsence):
            await client.resolve(root, "nothing")


async def test_tampered_answers_are_refused(gateway: str, tmp_path: Path) -> None:
    with lying_gateway(lambda reply: reply.with_body(reply.body + b"!"), gateway) as url:
        async with AsyncClient(gateway) as honest, AsyncClient(url) as client:
            cid = await honest.put_payload(b"data")
            root = await honest.create_root({"a": cid})
            with pytest.raises(ProofError):
                await client.get_payload(cid)
            with pytest.raises(ProofError):
                await client.save_payload(cid, tmp_path / "target")
            with pytest.raises(ProofError):
                await client.resolve(root, "a")
    assert names(tmp_path) == []


async def test_a_request_is_retried_until_the_gateway_recovers() -> None:
    received: list[str] = []
    root = coregw.Map({}).root

    def lie(reply: Reply) -> Reply:
        received.append(reply.path)
        return reply.with_body(b'{"root": "%s"}' % root.encode(), 201 if len(received) > 1 else 503)

    with lying_gateway(lie) as url:
        async with AsyncClient(url, ClientSettings(backoff_seconds=0.001)) as client:
            assert await client.create_root({}) == root
    assert len(received) == 2


async def test_concurrent_requests_are_retried_independently(gateway: str) -> None:
    refused: set[str] = set()

    def lie(reply: Reply) -> Reply:
        if reply.path in refused:
            return reply
        refused.add(reply.path)
        return reply.with_body(b"", 503)

    with lying_gateway(lie, gateway) as url:
        async with AsyncClient(gateway) as honest, AsyncClient(url, ClientSettings(backoff_seconds=0.001)) as client:
            stored = {await honest.put_payload(b"%d" % number): b"%d" % number for number in range(20)}
            got: dict[str, bytes] = {}

            async def get(cid: str) -> None:
                got[cid] = await client.get_payload(cid)

            await for_each(stored, get, 10)
    assert got == stored
    assert len(refused) == 20


async def test_a_cancelled_download_leaves_no_file(gateway: str, tmp_path: Path) -> None:
    started = anyio.Event()

    async def download(client: AsyncClient, cid: str) -> None:
        started.set()
        await client.save_payload(cid, tmp_path / "target")

    async with AsyncClient(gateway) as client:
        cid = await client.put_payload(DATA)
        async with anyio.create_task_group() as group:
            group.start_soon(download, client, cid)
            await started.wait()
            await anyio.lowlevel.checkpoint()
            assert [name.endswith(".partial") for name in names(tmp_path)] == [True]
            group.cancel_scope.cancel()
    assert names(tmp_path) == []


async def test_nothing_is_logged_when_a_call_fails_and_is_cancelled_at_the_same_time(gateway: str) -> None:
    """As when the disk is full: each download fails, and the first failure cancels the others."""

    class FullDisk(io.BytesIO):
        def write(self, _: object) -> int:
            asyncio.get_running_loop().call_soon(download.cancel)
            raise OSError(errno.ENOSPC, "No space left on device")

    logged: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    async with AsyncClient(gateway) as client:
        cid = await client.put_payload(DATA)
        download = asyncio.ensure_future(client.download(cid, FullDisk()))
        with pytest.raises(asyncio.CancelledError):
            await download
        assert await client.get_payload(cid) == DATA
    gc.collect()
    assert logged == []


async def test_for_each_bounds_its_concurrency_and_stops_at_the_first_failure() -> None:
    running, most, done = 0, 0, []

    async def work(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1
        if number == 50:
            raise ProofError("fifty")
        done.append(number)

    with pytest.raises(ProofError, match="fifty"):
        await for_each(range(1000), work, 4)
    assert most == 4
    assert len(done) < 100
    done.clear()
    await for_each(range(40), work, 4)
    assert sorted(done) == list(range(40))


async def test_a_call_in_a_thread_is_waited_for_however_often_it_is_cancelled() -> None:
    begun, goes_on = threading.Event(), threading.Event()
    ended: list[int] = []

    def work(number: int) -> None:
        begun.set()
        goes_on.wait(30)
        ended.append(number)
        raise ValueError("as it should")

    call = asyncio.ensure_future(in_thread(work, 7))
    await asyncio.to_thread(begun.wait, 30)
    for _ in range(3):
        call.cancel()
        await asyncio.sleep(0.01)
        assert not call.done()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert ended == [7]
    with pytest.raises(ValueError, match="as it should"):
        await in_thread(work, 8)


async def test_a_call_in_a_thread_is_stopped_when_it_is_cancelled() -> None:
    begun, stopped = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return stopped.wait(30)

    call = asyncio.ensure_future(in_thread(work, stop=stopped.set))
    await asyncio.to_thread(begun.wait, 30)
    assert not stopped.is_set()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert stopped.is_set()
