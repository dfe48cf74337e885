"""Plants as rows of a store: ``p`` and the id -> the plant's JSON, in `Table.RECORDS`.

An id is used once: a plant is put if its id is free, and never changes.
"""

from __future__ import annotations

from coregw.errors import InvalidInput
from coregw.store import Store, Table

__all__ = ["plant_key", "put_plant"]


def plant_key(plant_id: int) -> bytes:
    """The key of a plant. Keys are in the order of ids, negative ones included.

    Raises:
        InvalidInput: `plant_id` is not an int64.
    """
    if not -(1 << 63) <= plant_id < 1 << 63:
        raise InvalidInput(f"plant id {plant_id}: not a 64-bit integer")
    return b"p" + (plant_id + (1 << 63)).to_bytes(8, "big")


async def put_plant(store: Store, plant_id: int, plant: bytes) -> bool:
    """Store a plant under its id, durably, unless the id is taken.

    Returns:
        True if this plant was stored, False if the id was taken: nothing changed, and the plant that has it is durable.
        Of concurrent plants with one id exactly one is stored.

    Raises:
        InvalidInput: `plant_id` is not an int64.
        Unavailable: The store cannot write at the moment (`StorageFull`: it has no room).
    """
    return await store.compare_and_set(Table.RECORDS, plant_key(plant_id), None, plant)
