"""Published names that an edge remembers when it restarts: rows of its own store, a bounded number of them.

```
u slot (2 bytes)  ->  {"upstream": ..., "asked_at": ..., "record": ...}      slot: the first bytes of a hash of the name
```

They are hints: a row that is lost, damaged, or of another name in the same slot is a name that is not known.
"""

from __future__ import annotations

import hashlib
import logging
import time
from typing import Final

import msgspec

from coregw.errors import CoregwError
from coregw.failures import RepeatedFailure
from coregw.messages import encode
from coregw.messages.record import PublishedRecord
from coregw.store import Store, Table
from coregw.store.tiered import NAME
from coregw.undecodable import UNDECODABLE

__all__ = ["LastingNames"]

_log: Final = logging.getLogger("coregw.gateway.edge")

_SLOT_BYTES: Final = 2
_SAVE_SECONDS: Final = 60.0
"""An unchanged record is written again after this time: an age may be greater by that after a restart, but not less."""


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a name.

    Attributes:
        upstream: The address of the gateway that was asked.
        asked_at: When it was asked, in seconds since 1970.
        record: What it said.
    """

    upstream: str
    asked_at: float
    record: PublishedRecord


class LastingNames:
    """What upstreams have said of names, beyond the end of a process.

    Args:
        store: The edge's store.
        upstream: The address of its upstream; what others have said is not known.
    """

    def __init__(self, store: Store, upstream: str) -> None:
        self._store = store
        self._upstream = upstream
        self._unkept = RepeatedFailure(
            _log, "what is known of names is not kept for the next start", "what is known of names is kept again"
        )

    async def find(self, scope: str, name: str) -> tuple[float, PublishedRecord] | None:
        """Return how many seconds ago the upstream was asked for a name, and what it said; None if that is unknown."""
        try:
            (row,) = await self._store.get(Table.RECORDS, [_key(scope, name)])
            known = msgspec.json.decode(row or b"null", type=_Known | None)
        except (CoregwError, *UNDECODABLE) as error:
            _log.warning("what was known of %s/%s cannot be read: %s", scope, name, error)
            return None
        if known is None or known.upstream != self._upstream:
            return None
        if (known.record.scope, known.record.name) != (scope, name):
            return None
        return max(0.0, time.time() - known.asked_at), known.record

    async def note(self, record: PublishedRecord, before: tuple[float, PublishedRecord] | None) -> bool:
        """Remember a record, unless it was written lately as it is. Returns whether it was written now.

        A failure is logged: the record is known in memory.

        Args:
            record: What the upstream says now.
            before: How many seconds ago a record of this name was written, and that record.
        """
        if before is not None and before[1] == record and before[0] < _SAVE_SECONDS:
            return False
        return await self._put(
            record.scope,
            record.name,
            encode(_Known(upstream=self._upstream, asked_at=time.time(), record=record)),
        )

    async def forget(self, scope: str, name: str) -> None:
        """Remember nothing of a name, which the upstream does not have any more."""
        if await self.find(scope, name) is not None:
            await self._put(scope, name, b"")

    async def _put(self, scope: str, name: str, value: bytes) -> bool:
        try:
            await self._store.put({Table.RECORDS: [(_key(scope, name), value)]}, durable=False)
        except CoregwError as error:
            self._unkept.occurs(f"{scope}/{name}: {error}")
            return False
        self._unkept.ends()
        return True


def _key(scope: str, name: str) -> bytes:
    return NAME + hashlib.sha256(f"{scope}/{name}".encode()).digest()[:_SLOT_BYTES]
