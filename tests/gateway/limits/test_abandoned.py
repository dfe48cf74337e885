"""Requests whose client leaves while they wait for a place: dropped, also if the client has only closed its side."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import httpx2
import pytest

import coregw
import serving
from coregw.engine.scheduling import HEAVY_BODY_BYTES, MAX_CHANGES, ChangeSlots
from coregw.store import Table
from coregw.store.memory import MemoryStore
from processes import until
from servers import free_port

SHORT_CHANGE_BYTES = 16 << 10
LEAVING = 24  # of each kind
LEAF = coregw.payload_cid(b"leaf")
NO_LINGER = struct.pack("ii", 1, 0)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class GatedStore(MemoryStore):
    """Stores no root before it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = threading.Semaphore(0)
        self.stored: list[bytes] = []
        self._gate = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
    ) -> int:
        self._loop = asyncio.get_running_loop()
        self.arrived.release()
        await self._gate.wait()
        self.stored += [root for root, _ in rows.get(Table.ROOTS, ())]
        return await super().put(rows, durable, requires, since)

    def let_through(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._gate.set)


def creation(number: int) -> tuple[bytes, str]:
    """A request that creates a map, too long for the front, and its root."""
    arcs = {f"{number}/{arc}/{'x' * 1000}": LEAF for arc in range(20)}
    body = json.dumps({"arcs": arcs}).encode()
    head = b"POST /v1/roots HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    return head + body, coregw.Map(arcs).root


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Counts the changes that ask for a place."""
    count, place_for = threading.Semaphore(0), ChangeSlots.place_for

    def counted(changes: ChangeSlots, request: bytes) -> object:
        count.release()
        return place_for(changes, request)

    monkeypatch.setattr(ChangeSlots, "place_for", counted)
    return count


def wait(count: threading.Semaphore, times: int) -> None:
    for _ in range(times):
        assert count.acquire(timeout=60)


def in_progress(management: str) -> int:
    """The requests that the gateway has not answered."""
    metrics = httpx2.get(f"http://{management}/metrics").text
    return int(float(re.findall(r"^coregw_requests_in_progress (\S+)$", metrics, re.MULTILINE)[0]))


def test_a_change_whose_client_leaves_while_it_waits_is_not_made(begun: threading.Semaphore) -> None:
    store = GatedStore()
    management = f"127.0.0.1:{free_port()}"
    with serving.thread(store, management_address=management) as url, ExitStack() as stack:
        roots = []

        def send(number: int) -> socket.socket:
            request, root = creation(number)
            assert SHORT_CHANGE_BYTES < len(request) < HEAVY_BODY_BYTES
            roots.append(root)
            connection = stack.enter_context(serving.connect(url))
            connection.sendall(request)
            return connection

        working = [send(number) for number in range(MAX_CHANGES)]
        wait(store.arrived, MAX_CHANGES)
        half_closed, patient = send(100), send(101)
        leaving = [send(200 + number) for number in range(2 * LEAVING)]
        wait(begun, MAX_CHANGES + 2 + 2 * LEAVING)
        half_closed.shutdown(socket.SHUT_WR)
        for number, connection in enumerate(leaving):
            if number % 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            connection.close()
        until(lambda: in_progress(management) == MAX_CHANGES + 2)
        with serving.connect(url) as probe:  # when it is answered, the application has seen the others leave
            probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            serving.everything(probe)
        store.let_through()
        for connection in (*working, patient):
            assert connection.recv(4096).startswith(b"HTTP/1.1 201 ")
        assert serving.everything(half_closed).removeprefix(CONTINUE).startswith(b"HTTP/1.1 201 ")
    # Changes have their places in order, and the gateway has ended all of them before it stops.
    assert {bytes(coregw.Cid(root)) for root in roots[: MAX_CHANGES + 2]} == set(store.stored)
