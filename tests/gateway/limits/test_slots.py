"""Places of long transfers: so many of all, so many of an address, and none for a stalled one."""

from __future__ import annotations

import pytest

from coregw.errors import Unavailable
from coregw.gateway.limits.arrival import Arrival
from coregw.gateway.limits.pace import Rate
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


def test_the_longest_stalled_transfer_is_ended_for_another() -> None:
    now, ended = [0.0], list[str]()
    exports = slots(now)
    slow, slower = (exports.take(Peer(None, lambda name=name: ended.append(name))) for name in ("slow", "slower"))
    slow.waits_since, slower.waits_since = 3.0, 2.0
    now[0] = 2.5
    with pytest.raises(Unavailable):
        exports.take(Peer())
    now[0] = 3.5
    exports.take(Peer())
    assert ended == ["slower"]
    with pytest.raises(Unavailable):
        exports.take(Peer())


def test_a_transfer_that_the_gateway_works_on_is_not_stalled() -> None:
    now = [0.0]
    exports = slots(now, limit=1)
    exports.take(Peer())
    now[0] = 1000.0
    with pytest.raises(Unavailable):
        exports.take(Peer())


def test_an_upload_that_trickles_gives_way() -> None:
    now, ended, is_waiting = [0.0], list[str](), [False]
    imports = slots(now, limit=1)
    upload = Arrival(Rate(1000, 10, 20), 600, 5000, lambda: now[0], lambda: is_waiting[0], lambda: None)
    imports.take(Peer(None, lambda: ended.append("upload")), upload)
    now[0] = 2.0
    is_waiting[0] = True  # the gateway is not reading
    with pytest.raises(Unavailable):
        imports.take(Peer())
    is_waiting[0] = False
    imports.take(Peer())
    assert ended == ["upload"]


def test_an_address_has_its_share_of_places() -> None:
    exports = slots([0.0], limit=3, per_address=1)
    slot = exports.take(Peer("a"))
    with pytest.raises(Unavailable, match="of your address"):
        exports.take(Peer("a"))
    exports.take(Peer("b"))
    exports.leave(slot)
    exports.take(Peer("a"))
    exports.take(Peer(None))
