"""Copies of payloads from one side to the other: requested in batches, hashed, and sent on unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from coregw._core import Cid
from coregw.client.cars.received import ReceivedPayloads
from coregw.client.mirror.side import Side
from coregw.client.operations.batch import held_payloads
from coregw.client.operations.car import put_car
from coregw.client.operations.payload import get_payloads
from coregw.client.operations.steps import Steps
from coregw.client.settings import MIB
from coregw.messages.batch import MAX_BATCH_BLOCKS, MAX_HAS_CIDS

__all__ = ["copy_payloads"]

_ANSWER_BYTES: Final = 16 * MIB
"""What one answer should have, about."""

_FIRST_COUNT: Final = 64


async def copy_payloads(source: Side, destination: Side, payloads: Iterable[Cid]) -> int:
    """Copy payloads that the destination does not hold. Memory for some 24 MiB; longer answers go to a temporary file.

    Args:
        source: Where they are.
        destination: Where they should be.
        payloads: Their CIDs.

    Returns:
        The number of payloads that were copied.

    Raises:
        PayloadNotFound: The source does not hold one.
        ProofError: The source sent something else; nothing of that answer is sent on.
    """
    distinct = [*{cid.multihash: cid for cid in payloads}.values()]
    missing: list[Cid] = []
    for start in range(0, len(distinct), MAX_HAS_CIDS):
        part = distinct[start : start + MAX_HAS_CIDS]
        held = await destination.run(held_payloads(destination.settings, b"".join(map(bytes, part)), len(part)))
        missing += [cid for index, cid in enumerate(part) if not held[index >> 3] >> (index & 7) & 1]
    at, count = 0, _FIRST_COUNT
    while at < len(missing):
        part = missing[at : at + count]
        size = await _copy(source, destination, part)
        at += len(part)
        count = max(1, min(MAX_BATCH_BLOCKS, _ANSWER_BYTES * len(part) // size))
    return len(missing)


async def _copy(source: Side, destination: Side, cids: Sequence[Cid]) -> int:
    """Copy payloads in one answer and one request, and return the size of the CAR."""
    what = f"get {len(cids):,} payloads"
    with ReceivedPayloads(what, cids, source.settings) as car:
        await source.run(_checked(source, car))
        body = car.whole() if car.length <= _ANSWER_BYTES else car
        what = f"send {len(cids):,} payloads"
        await destination.run_in_workers(put_car(destination.settings, body, what, destination.parts))
        return car.length


def _checked(source: Side, car: ReceivedPayloads) -> Steps[None]:
    yield from get_payloads(source.settings, car)
    car.check(f"{source.address.shown} does not hold the payload")
