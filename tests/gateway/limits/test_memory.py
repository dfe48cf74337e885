"""Memory of request bodies: what arrived counts, small bodies have a share, stalled ones give way."""

from __future__ import annotations

import pytest

from coregw.errors import Unavailable
from coregw.gateway.limits.memory import SMALL_BYTES, Account, BodyMemory

MIB = 1 << 20


class Upload:
    """A body that is stalled if its test says so."""

    def __init__(self, *, stalled: bool = False) -> None:
        self.stalled = stalled
        self.refused: Exception | None = None

    def is_stalled(self) -> bool:
        return self.stalled

    def refuse(self, error: Exception) -> None:
        self.refused = error


def memory(limit: int = 8 * MIB, largest: int = 0, per_address: int = 8 * MIB) -> BodyMemory:
    return BodyMemory(limit, largest=largest, per_address=per_address)


def holding(of: BodyMemory, size: int, address: str | None = None, upload: Upload | None = None) -> Account:
    account = of.account(address, upload)
    account.add(size)
    return account


def test_large_bodies_leave_a_share_to_small_ones() -> None:
    shared = memory()
    holding(shared, 7 * MIB)
    with pytest.raises(Unavailable):
        holding(shared, SMALL_BYTES + 1)
    for _ in range(16):
        holding(shared, SMALL_BYTES)
    with pytest.raises(Unavailable):
        shared.count(1)
    assert shared.held == 8 * MIB


def test_a_body_that_grows_counts_as_large_with_all_it_holds() -> None:
    shared = memory()
    growing = [holding(shared, SMALL_BYTES) for _ in range(8)]
    holding(shared, 7 * MIB - SMALL_BYTES - 1)
    growing[0].add(1)
    with pytest.raises(Unavailable):
        growing[1].add(1)
    growing[0].close()
    growing[1].add(1)


def test_there_is_room_for_the_largest_body_whatever_the_share() -> None:
    holding(memory(limit=MIB, largest=MIB, per_address=1), MIB, "a")


def test_closing_frees_everything_once() -> None:
    shared = memory()
    account = holding(shared, 5 * MIB, "a")
    account.close()
    account.close()
    assert shared.held == 0
    holding(shared, 7 * MIB, "a")


def test_a_refused_addition_counts_nothing() -> None:
    shared = memory()
    account = holding(shared, MIB, "a")
    with pytest.raises(Unavailable):
        account.add(7 * MIB)
    assert (shared.held, account.held) == (MIB, MIB)


def test_an_address_has_its_share_of_large_bodies() -> None:
    shared = memory(per_address=2 * MIB)
    first = holding(shared, MIB, "a")
    with pytest.raises(Unavailable, match="of your address"):
        holding(shared, MIB + 1, "a")
    holding(shared, SMALL_BYTES, "a")
    holding(shared, 2 * MIB, "b")
    holding(shared, 2 * MIB + 1, None)
    first.close()
    holding(shared, 2 * MIB, "a")


def test_stalled_bodies_give_way_the_largest_first() -> None:
    shared = memory()
    uploads = [Upload(stalled=True), Upload(stalled=True), Upload()]
    sizes = [MIB, 3 * MIB, 3 * MIB]
    accounts = [holding(shared, size, upload=each) for size, each in zip(sizes, uploads, strict=True)]
    holding(shared, 3 * MIB)
    assert [each.refused is None for each in uploads] == [True, False, True]
    assert [each.held for each in accounts] == [MIB, 0, 3 * MIB]
    assert shared.held == 7 * MIB


def test_a_small_body_makes_stalled_ones_give_way_too() -> None:
    shared = memory()
    stalled = Upload(stalled=True)
    holding(shared, 7 * MIB, upload=stalled)
    for _ in range(16):
        holding(shared, SMALL_BYTES)
    shared.count(1)
    assert stalled.refused is not None


def test_without_stalled_bodies_the_one_that_needs_more_is_refused() -> None:
    shared = memory()
    upload = Upload()
    account = holding(shared, 4 * MIB, upload=upload)
    with pytest.raises(Unavailable):
        holding(shared, 4 * MIB)
    assert (upload.refused, account.held) == (None, 4 * MIB)
