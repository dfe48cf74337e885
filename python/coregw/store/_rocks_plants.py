"""Plants in RocksDB: put once, in the one writing thread. What a plant is, is `coregw.plants`'s."""

from __future__ import annotations

from coregw.store._records import check_plant_id
from coregw.store._rocks_committer import Committer, Transaction
from coregw.store._rocks_layout import Family, Row, plant_key
from coregw.store._rocks_reader import Reader


class Plants:
    """The part of the store that keeps plants.

    Args:
        reader: Reads of the database.
        committer: Writes to it.
    """

    def __init__(self, reader: Reader, committer: Committer) -> None:
        self._reader = reader
        self._committer = committer

    async def put(self, plant_id: int, plant: bytes) -> bool:
        check_plant_id(plant_id)
        row = Row(Family.RECORDS, plant_key(plant_id))

        def put(transaction: Transaction) -> bool:
            if transaction.get(row) is not None:
                return False
            transaction.put(row, plant)
            return True

        size = len(row.key) + len(plant)
        # Durable also where the id was taken: whoever took it may still wait for the same sync.
        return await self._committer.submit(put, reads=[row], size=size, durable=True)

    async def get(self, plant_id: int) -> bytes | None:
        check_plant_id(plant_id)
        (plant,) = await self._reader.get_durable(Family.RECORDS, [plant_key(plant_id)])
        return plant
