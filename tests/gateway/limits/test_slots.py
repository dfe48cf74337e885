"""Places of long transfers: so many of all, so many of an address, and none for a stalled one."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import suppress
from typing import Any

import pytest

from coregw.errors import Unavailable
from coregw.gateway.limits.arrival import Arrival
from coregw.gateway.limits.peers import Peer
from coregw.gateway.limits.slots import Slots


def slots(now: list[float], limit: int = 2, per_address: int = 2) -> Slots:
    return Slots("exports", limit, per_address, lambda: now[0])


def test_no_more_transfers_than_places() -> None:
    exports = slots([0.0])
    first = exports.take(Peer())
    exports.take(Peer())
    with pytest.raises(Unavailable, match="too many exports are in progress"):
        exports.take(Peer())
    exports.leave(first)
    exports.leave(first)
    exports.take(Peer())


class Download(Peer):
    """A client that notes whether its request is ended."""

    def reset(self) -> None:
        self.is_reset = True


def test_the_longest_stalled_transfer_is_ended_for_another() -> None:
    now, slow_peer, slower_peer = [0.0], Download(), Download()
    exports = slots(now)
    slow, slower = exports.take(slow_peer), exports.take(slower_peer)
    slow.waits_since, slower.waits_since = 3.0, 2.0
    now[0] = 2.5
    with pytest.raises(Unavailable):
        exports.take(Peer())
    now[0] = 3.5
    exports.take(Peer())
    assert (slow_peer.is_reset, slower_peer.is_reset) == (False, True)
    with pytest.raises(Unavailable):
        exports.take(Peer())


def test_a_transfer_that_the_gateway_works_on_is_not_stalled() -> None:
    now = [0.0]
    exports = slots(now, limit=1)
    exports.take(Peer())
    now[0] = 1000.0
    with pytest.raises(Unavailable):
        exports.take(Peer())


@pytest.mark.anyio
async def test_an_upload_that_trickles_gives_way() -> None:
    now, sent = [0.0], asyncio.Queue[int]()

    async def receive() -> Any:  # noqa: ANN401 - Litestar's types
        return {"type": "http.request", "body": bytes(await sent.get()), "more_body": True}

    imports = slots(now, limit=1)
    upload = Arrival(receive, lambda: now[0])
    imports.take(Peer(), upload)
    now[0] = 2.0  # the gateway is not reading
    with pytest.raises(Unavailable):
        imports.take(Peer())
    for size, seconds, is_stalled in ((5000, 2.0, False), (100, 0.5, False), (100, 0.5, True)):
        reading = asyncio.create_task(upload.receive())
        await asyncio.sleep(0)
        now[0] += seconds
        assert upload.is_stalled() is (is_stalled or seconds == 2.0)
        sent.put_nowait(size)
        await reading
        assert not upload.is_stalled()
    reading = asyncio.create_task(upload.receive())
    await asyncio.sleep(0)
    imports.take(Peer())
    with pytest.raises(Unavailable, match="this was stalled"):
        await reading
    with pytest.raises(Unavailable, match="this was stalled"):
        await upload.receive()


@pytest.mark.anyio
async def test_a_refused_upload_keeps_nothing_of_its_reader() -> None:
    """Its file of arcs, for instance: a cycle with the reader's frame would end at the next garbage collection."""

    class File:
        pass

    async def read(upload: Arrival) -> weakref.ref[File]:
        file = File()
        with suppress(Unavailable):
            await upload.receive()
        return weakref.ref(file)

    sent: asyncio.Queue[Any] = asyncio.Queue()
    upload = Arrival(sent.get)
    gc.disable()
    try:
        reading = asyncio.create_task(read(upload))
        await asyncio.sleep(0)
        upload.refuse(Unavailable("this was stalled"))
        assert (await reading)() is None
        assert (await read(upload))() is None
    finally:
        gc.enable()


@pytest.mark.anyio
async def test_a_complete_upload_is_not_refused() -> None:
    async def receive() -> Any:  # noqa: ANN401 - Litestar's types
        return {"type": "http.request", "body": b"all", "more_body": False}

    upload = Arrival(receive)
    await upload.receive()
    upload.refuse(Unavailable("too late"))
    assert await upload.receive()


def test_an_address_has_its_share_of_places() -> None:
    exports = slots([0.0], limit=3, per_address=1)
    slot = exports.take(Peer("a"))
    with pytest.raises(Unavailable, match="of your address"):
        exports.take(Peer("a"))
    exports.take(Peer("b"))
    exports.leave(slot)
    exports.take(Peer("a"))
    exports.take(Peer(None))
