"""Unsent bytes: beyond the budget, clients are disconnected that read nothing, the longest stalled first."""

from __future__ import annotations

from coregw.gateway.limits.unsent import Unsent


class Client:
    """A client that last read when its test says."""

    def __init__(self, read_at: float = 0.0) -> None:
        self.read_at = read_at
        self.size = 0
        self.is_connected = True

    def update(self, _: float) -> tuple[int, float]:
        return self.size, self.read_at

    def reset(self) -> None:
        assert self.is_connected
        self.is_connected = False


def hold(unsent: Unsent, client: Client, size: int, now: float) -> None:
    client.size = size
    unsent.hold(client, size, now)


def test_within_the_budget_nobody_is_disconnected() -> None:
    unsent = Unsent(100)
    clients = [Client() for _ in range(10)]
    for client in clients:
        hold(unsent, client, 10, now=1000)
    assert all(client.is_connected for client in clients)
    assert unsent.total == 100


def test_the_longest_stalled_client_is_disconnected() -> None:
    unsent = Unsent(100)
    a, b, c = Client(read_at=2), Client(read_at=1), Client(read_at=9)
    for client in (a, b, c):
        hold(unsent, client, 50, now=10)
    assert [client.is_connected for client in (a, b, c)] == [True, False, True]
    assert (unsent.total, unsent.reset) == (100, 1)


def test_a_client_that_reads_is_kept_until_half_more_than_the_budget() -> None:
    unsent = Unsent(100)
    reading = [Client(read_at=10.0) for _ in range(3)]
    for client in reading:
        hold(unsent, client, 50, now=10.1)
    assert all(client.is_connected for client in reading)
    newest = Client(read_at=10.1)
    hold(unsent, newest, 50, now=10.1)
    assert sum(client.is_connected for client in reading) == 2
    assert newest.is_connected


def test_one_response_may_be_larger_than_the_budget() -> None:
    unsent = Unsent(100)
    client = Client()
    hold(unsent, client, 1000, now=10)
    assert client.is_connected


def test_what_has_been_read_since_counts_no_more() -> None:
    unsent = Unsent(100)
    a, b = Client(read_at=0), Client(read_at=0)
    hold(unsent, a, 90, now=0)
    a.size = 5
    hold(unsent, b, 90, now=10)
    assert a.is_connected
    assert unsent.total == 95


def test_released_bytes_count_no_more() -> None:
    unsent = Unsent(100)
    client = Client()
    hold(unsent, client, 90, now=0)
    unsent.release(client)
    unsent.release(client)
    assert unsent.total == 0
