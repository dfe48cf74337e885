"""Ages in a store, apart from the dates in its rows: its clock, the limit of expired roots, and what must stay.

Not thread-safe: a store uses it from the one place where its writes are ordered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from coregw.errors import RootNotFound, Unavailable
from coregw.store.clock import Clock
from coregw.store.recent import RecentKeys

__all__ = ["SLICE_SECONDS", "Ages"]

SLICE_SECONDS: Final = 300.0
"""The default duration of a slice of `RecentKeys`: pages are remembered for about an hour."""

_MAX_LATE: Final = 65_536


class Ages:
    """The ages of one open store.

    Args:
        clock: The store's clock.
        undated: When rows without a date count as dated, in milliseconds: they are of an older version.
        expired_before: The limit of the last collection: roots dated earlier are expired.
        slice_seconds: The duration of a slice of `RecentKeys`.
    """

    def __init__(self, clock: Clock, *, undated: int, expired_before: int, slice_seconds: float) -> None:
        self.clock: Final = clock
        self.undated: Final = undated
        self.expired_before = expired_before
        self.expiries = 0
        self.recent: Final = RecentKeys(max(1, int(slice_seconds * 1000)))
        self._limit: int | None = None
        self._collection: object = None
        self._late: set[bytes] = set()
        self._swept_from = 0

    # --- writes -------------------------------------------------------------------------------------------------------

    def is_held(self, dated: int | None) -> bool:
        """Whether a root whose row has this date is held; None: it has no row."""
        return dated is not None and dated >= self.expired_before

    def require(self, roots: Iterable[tuple[bytes, int | None]]) -> None:
        """Check that roots, given with their dates, are held, and note those that a collection takes for garbage.

        Raises:
            RootNotFound: One of them is not held.
        """
        for root, dated in roots:
            if not self.is_held(dated):
                raise RootNotFound(f"the store does not hold the root {root.hex()} (binary CID)")
            self.note(root, dated)

    def note(self, root: bytes, dated: int | None) -> None:
        """Note that a write relies on a held root with this date."""
        if self._limit is not None and dated is not None and dated < self._limit:
            self._note_late([root])

    def admit(self, roots: Sequence[bytes], since: int | None) -> None:
        """Check that roots may be recorded whose pages were put from `since` on; None: together with them.

        Raises:
            Unavailable: The pages may have been removed.
        """
        if since is None:
            return
        if since <= self._swept_from:
            raise Unavailable("garbage was collected between the first and the last write of this change; try again")
        if self._limit is not None and since <= self.recent.covered(self._limit):
            self._note_late(roots)

    def _note_late(self, roots: Sequence[bytes]) -> None:
        if len(self._late) + len(roots) > _MAX_LATE:
            raise Unavailable("too many writes rely on old roots or pages while garbage is collected; try again")
        self._late.update(roots)

    # --- a collection -------------------------------------------------------------------------------------------------

    def begin(self, collection: object, grace_seconds: float) -> int:
        """Begin a collection, and return its limit. Raises `Unavailable` if another one is in progress."""
        if self._limit is not None:
            raise Unavailable(
                "garbage is being collected already, or a copy of the store is made; try again when it has ended"
            )
        now = self.clock.now()
        # Below `now`, so that whatever is written from now on is younger than the limit.
        self._limit = max(now - max(1, int(grace_seconds * 1000)), self.expired_before)
        self._collection = collection
        self._late.clear()
        self.recent.pin()
        return self._limit

    def take_late(self) -> list[bytes]:
        """The roots noted since the last call."""
        late = sorted(self._late)
        self._late.clear()
        return late

    def expire(self, before: int) -> None:
        """Let all roots dated before a time expire; pages that `RecentKeys` does not know may be removed now."""
        self.expired_before = before
        self.expiries += 1
        self._swept_from = max(self._swept_from, self.recent.covered(before))

    def is_kept(self, dated: int | None) -> bool:
        """Whether a root with this date is held and does not expire in this collection."""
        return dated is not None and dated >= (self._limit or 0)

    def end(self, collection: object) -> None:
        """End a collection, if it has begun."""
        if self._collection is not collection:
            return
        self._limit = self._collection = None
        self._late.clear()
        self.recent.unpin()
