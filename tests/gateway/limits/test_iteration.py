"""Chunks of long bodies share the event loop's iterations in order, and those of clients that leave are not taken."""

from __future__ import annotations

import asyncio
import socket
from itertools import pairwise

import pytest

import serving
from coregw.gateway.limits.iteration import SHORT_CHUNK_BYTES, IterationBudget

LONG = 256 << 10
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_an_iteration_takes_few_long_chunks_and_all_short_ones() -> None:
    share = IterationBudget()
    taken: list[int] = []

    async def take(number: int, size: int) -> None:
        await share.wait(size)
        taken.append(number)

    tasks = [asyncio.create_task(take(number, LONG)) for number in range(20)]
    tasks += [asyncio.create_task(take(number, SHORT_CHUNK_BYTES)) for number in range(100, 120)]
    await asyncio.sleep(0)
    assert taken == [0, 1, *range(100, 120)]
    assert share.is_behind
    tasks[5].cancel()
    rounds = [len(taken)]
    while share.is_behind:
        await asyncio.sleep(0)
        rounds.append(len(taken))
    assert all(later - earlier <= 2 for earlier, later in pairwise(rounds))
    await asyncio.gather(*tasks, return_exceptions=True)
    assert taken[22:] == [2, 3, 4, *range(6, 20)]
    await share.wait(LONG)
    assert not share.is_behind


async def test_a_chunk_longer_than_the_share_of_an_iteration_is_taken() -> None:
    share = IterationBudget()
    async with asyncio.timeout(60):
        for _ in range(5):
            await share.wait(100 * LONG)


def test_many_uploads_at_once_all_arrive(gateway: str) -> None:
    """More than an iteration takes, read in pieces whose sizes differ."""
    bodies = [bytes([number]) * (100_000 * number) for number in range(1, 13)]
    connections: list[socket.socket] = []
    for body in bodies:
        connections.append(serving.connect(gateway))
        connections[-1].sendall(b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body))
    for start in range(0, max(map(len, bodies)), 300_000):
        for body, connection in zip(bodies, connections, strict=True):
            connection.sendall(body[start : start + 300_000])
    for connection in connections:
        with connection:
            assert connection.recv(4096).startswith(b"HTTP/1.1 201 ")
