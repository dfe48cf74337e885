"""Connections: the longest idle one makes room for a new one, of its address or of all."""

from __future__ import annotations

import random

from coregw.gateway.limits.crowd import Crowd
from tables import rows


class Connection:
    """A connection whose idleness is what its test says."""

    def __init__(self, crowd: Crowd, address: str | None = None, since: float | None = 0.0) -> None:
        self.address = address
        self.since = since
        self.is_open = True
        self._crowd = crowd

    def idle_since(self) -> float | None:
        return self.since

    def make_room(self) -> None:
        assert self.is_open
        self.is_open = False

    def enter(self, now: float = 100.0) -> bool:
        return self._crowd.enter(self, now)


def test_the_longest_idle_connection_makes_room() -> None:
    crowd = Crowd(3, 3)
    a, b, c = (Connection(crowd, since=since) for since in (2.0, 1.0, 3.0))
    assert all(each.enter() for each in (a, b, c))
    assert Connection(crowd, since=100).enter()
    assert [each.is_open for each in (a, b, c)] == [True, False, True]
    assert (len(crowd), crowd.closed) == (3, 1)


def test_a_connection_that_the_gateway_works_for_is_never_closed() -> None:
    crowd = Crowd(2, 2)
    busy = [Connection(crowd, since=None) for _ in range(2)]
    assert all(each.enter() for each in busy)
    assert not Connection(crowd).enter()
    assert all(each.is_open for each in busy)
    busy[1].since = 1.0
    assert Connection(crowd).enter(now=101)
    assert [each.is_open for each in busy] == [True, False]


def test_an_address_at_its_limit_loses_its_own_longest_idle_connection() -> None:
    crowd = Crowd(10, 2)
    other = Connection(crowd, "b", since=0.0)
    first, second = Connection(crowd, "a", since=5.0), Connection(crowd, "a", since=4.0)
    assert all(each.enter() for each in (other, first, second))
    assert Connection(crowd, "a", since=100).enter()
    assert [each.is_open for each in (other, first, second)] == [True, True, False]


def test_an_address_whose_connections_are_all_busy_gets_no_more() -> None:
    crowd = Crowd(10, 1)
    assert Connection(crowd, "a", since=None).enter()
    assert not Connection(crowd, "a").enter()
    assert Connection(crowd, "b").enter()


def test_connections_without_an_address_share_only_the_limit_of_all() -> None:
    crowd = Crowd(5, 1)
    assert all(Connection(crowd).enter() for _ in range(5))
    assert crowd.closed == 0


def test_a_connection_that_left_counts_no_more() -> None:
    crowd = Crowd(1, 1)
    for _ in range(3):
        connection = Connection(crowd, "a", since=None)
        assert connection.enter()
        crowd.leave(connection)
        crowd.leave(connection)
    assert (len(crowd), crowd.closed) == (0, 0)


@rows("seed", range(5))
def test_whatever_happens_before_the_longest_idle_is_closed(seed: int) -> None:
    rng = random.Random(seed)
    crowd = Crowd(20, 20)
    connections: list[Connection] = []
    for step in range(2000):
        now = float(step)
        connections = [each for each in connections if each.is_open]
        for each in rng.sample(connections, min(3, len(connections))):
            each.since = None if rng.random() < 0.2 else now  # a request begins, or its response is complete
        if connections and rng.random() < 0.2:
            gone = connections.pop(rng.randrange(len(connections)))
            crowd.leave(gone)
        idle = [each for each in connections if each.since is not None]
        oldest = min((each.since for each in idle if each.since is not None), default=None)
        new = Connection(crowd, since=now)
        is_full = len(connections) == 20
        if new.enter(now):
            connections.append(new)
            closed = [each for each in idle if not each.is_open]
            assert [each.since for each in closed] == ([oldest] if is_full else [])
        else:
            assert not idle
