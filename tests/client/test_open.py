"""Open files: like the same file on disk, of verified payloads alone, and no more of them than what is read."""

from __future__ import annotations

import asyncio
import io
import os
import pickle
import random
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coregw
from client.conftest import SETTINGS
from coregw.client import AsyncClient, Client, ClientSettings, File
from coregw.client.file_ranges import WeighedCache
from coregw.client.static.export import export_static
from coregw.errors import CoregwError, InvalidInput, PayloadNotFound, ProofError, UnprovenAbsence
from gateways import Counted, Liar, Reply, lying_gateway
from static_trees import python_server

DATA = random.Random(5).randbytes(3_000_000)
LINES = b"".join(b"line %d\r\n" % number for number in range(40_000)) + b"end"


@dataclass
class Roots:
    folder: str
    uneven: str
    plain: str


@pytest.fixture(scope="module")
def roots(gateway: str, tmp_path_factory: pytest.TempPathFactory) -> Roots:
    folder = tmp_path_factory.mktemp("folder")
    for name, data in (("big", DATA), ("lines", LINES), ("small", b"small"), ("empty", b"")):
        (folder / name).write_bytes(data)
    with Client(gateway, SETTINGS) as client:
        sizes = [1, 2, 1, 300, 70_000, 5, 1, 200_000]
        cuts = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
        parts = [DATA[start:end] for start, end in pairwise(cuts)]
        uneven = client.create_list(client.put_payloads(parts), sizes)
        return Roots(client.add(folder, use_cache=False).root, uneven, client.put_payload(b"plain payload"))


@pytest.fixture
def counted(gateway: str) -> Iterator[tuple[Client, Counted]]:
    count = Counted()
    with lying_gateway(count, gateway) as url, Client(url, SETTINGS) as client:
        yield client, count


def moves() -> st.SearchStrategy[list[tuple[str, int, int]]]:
    kinds = st.sampled_from(["read", "read1", "seek", "end", "forward", "readinto", "line", "peek", "at"])
    return st.lists(st.tuples(kinds, st.integers(0, 300_000), st.integers(-1, 100_000)), max_size=12)


def same(ours: File, model: io.BytesIO, move: tuple[str, int, int]) -> None:
    """Make a move in both files, and compare what they return and where they are."""
    kind, place, size = move
    match kind:
        case "read":
            assert ours.read(size) == model.read(size)
        case "read1":
            assert ours.read1(size) == model.read(size if size >= 0 else 65_536)
        case "seek":
            assert ours.seek(place) == model.seek(place)
        case "end":
            assert ours.seek(-(place % 5), os.SEEK_END) == model.seek(-(place % 5), os.SEEK_END)
        case "forward":
            assert ours.seek(size + 1, os.SEEK_CUR) == model.seek(size + 1, os.SEEK_CUR)
        case "readinto":
            buffers = bytearray(size + 1), bytearray(size + 1)
            assert ours.readinto(buffers[0]) == model.readinto(buffers[1])
            assert buffers[0] == buffers[1]
        case "line":
            assert ours.readline(size) == model.readline(size)
        case "peek":
            found = ours.peek(1)
            assert model.getbuffer()[model.tell() :][: len(found)] == found
            assert found or model.tell() >= len(model.getbuffer())
        case "at":
            assert ours.read_at(place, size) == bytes(model.getbuffer()[place : place + max(0, size)])
    assert ours.tell() == model.tell()


@settings(max_examples=40)
@given(st.lists(moves(), min_size=1, max_size=3))
def test_a_file_is_like_one_in_memory(gateway: str, roots: Roots, sessions: list[list[tuple[str, int, int]]]) -> None:
    with Client(gateway, ClientSettings(cache_bytes=200_000, read_ahead_bytes=500_000)) as client:
        for number, session in enumerate(sessions):
            path, data = (("lines", LINES), ("big", DATA), ("small", b"small"))[number % 3]
            model = io.BytesIO(data)
            with client.open(roots.folder, path) as ours:
                assert ours.size == len(data)
                for move in session:
                    same(ours, model, move)
        with client.open(roots.uneven) as ours:
            model = io.BytesIO(DATA[:270_310])
            for move in sessions[0]:
                same(ours, model, move)


def test_the_standard_library_reads_an_open_file(client: Client, roots: Roots) -> None:
    with client.open(roots.folder, "lines") as file:
        assert isinstance(file, io.BufferedIOBase)
        assert (file.readable(), file.seekable(), file.writable(), file.mode) == (True, True, False, "rb")
        assert list(io.TextIOWrapper(file, newline="\n")) == LINES.decode().splitlines(keepends=True)
    with client.open(roots.folder, "lines") as file:
        assert file.readlines() == LINES.splitlines(keepends=True)
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
        with pytest.raises(ValueError, match="negative"):
            file.seek(-1)
    assert file.closed
    for use in (
        file.read,
        file.tell,
        file.seekable,
        lambda: file.seek(0),
        lambda: file.size,
        lambda: pickle.dumps(file),
    ):
        with pytest.raises(ValueError, match="closed"):
            use()


@pytest.mark.parametrize("path", ["empty", "small"])
def test_a_file_of_one_payload_is_read_whole_or_in_parts(client: Client, roots: Roots, path: str) -> None:
    data = b"small" if path == "small" else b""
    with client.open(roots.folder, path) as file:
        assert file.seek(0, os.SEEK_END) == len(data)
        assert file.read(5) == b""
        assert file.read_at(1, 2) == data[1:3]
        file.seek(0)
        assert file.read() == data
    with client.open(roots.plain) as file:
        assert (file.read(), file.size, file.name) == (b"plain payload", 13, roots.plain)


def test_a_list_of_many_small_payloads_is_looked_up_in_smaller_windows(gateway: str, client: Client) -> None:
    root = client.create_list([coregw.payload_cid(b"x")] * 20_500, [1] * 20_500)
    client.put_payload(b"x")
    with client.open(root) as file:
        assert file.seek(-3, os.SEEK_END) == 20_497
        assert file.read() == b"xxx"
        file.seek(9_000)
        assert file.read(4_000) == b"x" * 4_000


def test_a_random_read_fetches_its_payloads_alone(counted: tuple[Client, Counted], roots: Roots) -> None:
    client, count = counted
    with client.open(roots.folder, "big") as file:
        for start in (2_000_000, 100_000, 1_500_000, 50):
            count.replies.clear()
            file.seek(start)
            assert file.read(100) == DATA[start : start + 100]
            assert count.bytes < 300_000  # a payload of this file has 16 to 256 KiB; the window was proven once
            assert len(count.paths) <= 2  # once the window, and one payload
        count.replies.clear()
        file.seek(2_000_000)
        assert file.read(100) == DATA[2_000_000:2_000_100]
        assert count.replies == []  # cached


def test_sequential_reads_fetch_ahead_in_few_requests(counted: tuple[Client, Counted], roots: Roots) -> None:
    client, count = counted
    with client.open(roots.folder, "big") as file:
        found = []
        while part := file.read(10_000):
            found.append(part)
    assert b"".join(found) == DATA
    assert len(count.paths) <= 10  # resolve, one window, and a few answers that grow
    assert count.bytes < len(DATA) + 60_000  # nothing is fetched twice
    with client.open(roots.folder, "big") as file:
        assert file.read() == DATA
    assert len(count.paths) <= 11  # the second file reads what is cached; its path is resolved


def test_the_cache_is_bounded_and_shared_by_the_files_of_a_client(gateway: str, roots: Roots) -> None:
    with Client(gateway, ClientSettings(cache_bytes=400_000)) as client:
        files = [client.open(roots.folder, path) for path in ("big", "lines")]
        for file in files:
            assert len(file.read()) in (len(DATA), len(LINES))
        assert 0 < client.cache.weight <= 400_000
    cache = WeighedCache[bytes](10)
    for key in range(5):
        cache.put(key, b"%d" % key, 4)
    assert [cache.get(key) for key in range(5)] == [None, None, None, b"3", b"4"]
    assert cache.get(3) == b"3"
    cache.put(5, b"5", 4)  # the least recently used one goes
    cache.put(6, b"large", 11)
    assert [cache.get(key) for key in (3, 4, 5, 6)] == [b"3", None, b"5", None]


# ------------------------------------------------------------------------------------------------------- untruths


@pytest.mark.parametrize("path", ["big", "small"])
def test_a_payload_that_was_changed_is_never_returned(liar: Liar, roots: Roots, path: str) -> None:
    def changed(reply: Reply) -> Reply:
        if not reply.path.startswith("/v1/cas"):
            return reply
        return reply.with_body(reply.body[:-1] + bytes([reply.body[-1] ^ 1]))

    with liar(changed).open(roots.folder, path) as file:
        for use in (lambda: file.read(3), file.read, lambda: file.read_at(0, 1), lambda: file.peek(1)):
            with pytest.raises(ProofError):
                use()


def test_a_payload_that_the_gateway_does_not_hold_is_named(client: Client) -> None:
    missing = coregw.payload_cid(b"nobody has this")
    root = client.create_list([client.put_payload(b"held"), missing], [4, 15])
    with client.open(root) as file:
        assert file.read(4) == b"held"
        with pytest.raises(PayloadNotFound, match=missing):
            file.read(1)
        with pytest.raises(PayloadNotFound, match=missing):
            file.read_at(0, 10)


def test_what_is_not_a_file_is_refused(client: Client, roots: Roots) -> None:
    held = client.put_payload(b"held")
    with pytest.raises(InvalidInput, match="a map, not a file"):
        client.open(roots.folder)
    with pytest.raises(UnprovenAbsence):
        client.open(roots.folder, "absent")
    with client.open(client.create_list([held, held], [4, 3])) as file:
        assert file.read(4) == b"held"
        with pytest.raises(InvalidInput, match="measure 3, its payload 4"):
            file.read()
    with (
        client.open(client.create_list([roots.uneven], [4])) as file,
        pytest.raises(InvalidInput, match="not a payload"),
    ):
        file.read()
    with File(client, held, recorded=5) as file, pytest.raises(InvalidInput, match="recorded with 5 bytes"):
        file.read()
    with File(client, roots.uneven, recorded=5) as file, pytest.raises(InvalidInput, match="recorded with 5 bytes"):
        file.read(1)


def test_the_finalizer_closes_what_the_constructor_refused() -> None:
    refused = File.__new__(File)
    refused.close()
    assert refused.closed


# ------------------------------------------------------------------------------------- threads, forks, other places


def test_threads_share_a_file(client: Client, roots: Roots) -> None:
    with client.open(roots.folder, "big") as file, ThreadPoolExecutor(4) as pool:
        places = [random.Random(place).randrange(len(DATA)) for place in range(60)]
        found = list(pool.map(lambda place: file.read_at(place, 5_000), places))
        assert found == [DATA[place : place + 5_000] for place in places]
        parts = list(pool.map(lambda _: file.read(50_000), range(20)))
        assert sorted(parts) == sorted(DATA[start : start + 50_000] for start in range(0, 1_000_000, 50_000))


def test_a_pickled_file_has_a_client_of_its_own(client: Client, roots: Roots) -> None:
    with client.open(roots.folder, "big") as file:
        file.seek(1_000)
        copy = pickle.loads(pickle.dumps(file))
        assert (copy.tell(), copy.read(10)) == (1_000, DATA[1_000:1_010])
        assert file.tell() == 1_000
        copy.close()
    again = pickle.loads(pickle.dumps(client))
    with again:
        assert again.get_payload(roots.plain) == b"plain payload"
        assert again.settings == client.settings


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_file_is_read_after_a_fork(client: Client, roots: Roots) -> None:
    with client.open(roots.folder, "big") as file:
        assert file.read(10) == DATA[:10]
        held, released = threading.Event(), threading.Event()

        def hold() -> None:  # what another thread may hold while the process is forked
            with file._lock, client.cache._lock:
                held.set()
                released.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        child = os.fork()
        if child == 0:
            os._exit(0 if file.read(500_000) == DATA[10:500_010] else 1)
        released.set()
        thread.join()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert file.read(10) == DATA[10:20]


def test_a_file_of_a_static_tree_is_read(gateway: str, roots: Roots, tmp_path: Path) -> None:
    asyncio.run(export_static(gateway, roots.folder, tmp_path / "tree"))
    with (
        python_server(tmp_path / "tree") as address,
        Client(address) as client,
        client.open(roots.folder, "big") as file,
    ):
        file.seek(2_000_000)
        assert file.read(500_000) == DATA[2_000_000:2_500_000]
        assert pickle.loads(pickle.dumps(file)).read(4) == DATA[2_500_000:2_500_004]


def test_another_gateway_is_asked_if_one_fails(gateway: str, roots: Roots) -> None:
    with Client(["http://127.0.0.1:9", gateway], SETTINGS) as client, client.open(roots.folder, "big") as file:
        assert file.read() == DATA
        assert client.switches == 1


def test_an_asynchronous_file_is_like_one_in_memory(gateway: str, roots: Roots) -> None:
    async def use() -> None:
        async with AsyncClient(gateway, SETTINGS) as client:
            async with await client.open(roots.folder, "lines") as file:
                assert await file.size() == len(LINES)
                assert [line async for line in file] == LINES.splitlines(keepends=True)
                assert await file.seek(-3, os.SEEK_END) == len(LINES) - 3
                assert (await file.readline(2), await file.read(), await file.tell()) == (b"en", b"d", len(LINES))
                buffer = bytearray(7)
                await file.seek(10)
                assert await file.readinto(buffer) == 7
                assert buffer == LINES[10:17]
                both = [None, None]

                async def part(number: int) -> None:
                    both[number] = await file.read_at(number * 1_000, 100)

                async with anyio.create_task_group() as tasks:
                    for number in range(2):
                        tasks.start_soon(part, number)
                assert both == [LINES[:100], LINES[1_000:1_100]]
            with pytest.raises(ValueError, match="closed"):
                await file.read()
            with pytest.raises(CoregwError):
                await client.open(roots.folder, "absent")

    asyncio.run(use())
