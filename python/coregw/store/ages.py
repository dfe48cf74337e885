"""Ages of rows: the clock of a store, when a root expires, and filters of what was stored lately.

Nothing here is thread-safe: a store uses it from the one place where its writes are ordered.

A page that was put lately may belong to a tree whose root record is about to be written, so it is not garbage even if
nothing refers to it. The filter of recent pages may also claim that of a page that was not put, which then stays until
a later collection; it never denies it of one that was.

The clock counts the time in which a process had the store open, and continues where the last opening recorded it. The
system's time only begins it, in a new store: nothing is old because a machine's clock was wrong, or was put right.
``docs/decisions/0378`` gives the reasons.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from coregw._core import KeyFilter
from coregw.errors import RootNotFound, Unavailable

__all__ = ["SLICE_SECONDS", "Ages", "Clock", "Expiries", "RecentKeys"]

_SLICES: Final = 12

_FILTER_BYTES: Final = 512 << 10
"""About 400,000 keys of a slice with 1 % of false claims; with more keys, more garbage stays."""


class _Slice:
    """The keys that were put from one time to another."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.last = start
        self.keys = KeyFilter(_FILTER_BYTES)


class RecentKeys:
    """The keys put during the last `_SLICES` slices, at most 6 MiB of filters. For one thread.

    Args:
        slice_ms: The duration of a slice in milliseconds.
    """

    def __init__(self, slice_ms: int) -> None:
        self._slice_ms = slice_ms
        self._slices: list[_Slice] = []
        self._covered_from = 0
        self._is_pinned = False
        self._begins_slice = True

    def add(self, keys: Sequence[bytes], now: int) -> None:
        """Note that keys are put at the time `now`."""
        if self._begins_slice or (not self._is_pinned and now - self._slices[-1].start >= self._slice_ms):
            self._begin(now)
        current = self._slices[-1]
        current.last = now
        current.keys.add(keys)

    def pin(self) -> None:
        """Begin a slice, and forget nothing until `unpin`: the collection that begins now lasts as long as it lasts."""
        self._begins_slice = True
        self._is_pinned = True

    def unpin(self) -> None:
        """Allow forgetting again."""
        self._is_pinned = False

    def may_hold(self, key: bytes, since: int) -> bool:
        """Whether the key may have been put after `since`; false only if it was not, or not after `covered`."""
        return any(each.last > since and each.keys.may_hold([key])[0] for each in self._slices)

    def covered(self, since: int) -> int:
        """The time after which `may_hold` with `since` knows every key."""
        return max(since, self._covered_from)

    def _begin(self, now: int) -> None:
        self._begins_slice = False
        self._slices.append(_Slice(now))
        while len(self._slices) > _SLICES and not self._is_pinned:
            self._covered_from = self._slices[0].last
            del self._slices[0]


_MS: Final = 1000


class Clock:
    """Milliseconds of a store's time, which never decrease while it is open.

    Args:
        monotonic: Seconds of a clock that never goes back, nor forward while the machine is suspended.
        wall: Seconds since 1970, read once.

    Attributes:
        system_ms: The system's time at the beginning, in milliseconds since 1970. It may be wrong.
    """

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._began = monotonic()
        self.system_ms: Final = int(wall() * _MS)
        self._base = self.system_ms
        self._is_resumed = False

    def now(self) -> int:
        """The time in milliseconds."""
        return self._base + int((self._monotonic() - self._began) * _MS)

    def resume(self, time_ms: int) -> None:
        """Continue from a recorded time, instead of from the system's. A further call only advances."""
        if self._is_resumed:
            self.advance_to(time_ms)
        else:
            self._is_resumed = True
            self._base += time_ms - self.now()

    def advance_to(self, time_ms: int) -> None:
        """Advance to a time in milliseconds, unless it is past."""
        self._base += max(0, time_ms - self.now())


SLICE_SECONDS: Final = 300.0
"""The default duration of a slice of `RecentKeys`: pages are remembered for about an hour."""

_MAX_LATE: Final = 65_536


class Expiries:
    """How often roots have expired, and who is told of it.

    Attributes:
        count: What `coregw.store.Store.expiries` returns.
    """

    def __init__(self) -> None:
        self.count = 0
        self._watchers: list[Callable[[], None]] = []

    def watch(self, on_expiry: Callable[[], None]) -> None:
        """See `coregw.store.Store.watch_expiries`."""
        self._watchers.append(on_expiry)

    def note(self, count: int) -> None:
        """Note that roots have expired this many times in all, and tell who watches if that is news."""
        if count > self.count:
            self.count = count
            self.tell()

    def tell(self) -> None:
        """Tell who watches."""
        for on_expiry in self._watchers:
            on_expiry()


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
        self.expiries: Final = Expiries()
        self.recent: Final = RecentKeys(max(1, int(slice_seconds * 1000)))
        self._limit: int | None = None
        self._collection: object = None
        self._late: set[bytes] = set()
        self._has_expired = False
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

    @property
    def is_collecting(self) -> bool:
        """Whether a collection is in progress."""
        return self._limit is not None

    def take_late(self) -> list[bytes]:
        """The roots noted since the last call."""
        late = sorted(self._late)
        self._late.clear()
        return late

    def expire(self, before: int) -> None:
        """Let all roots dated before a time expire; pages that `RecentKeys` does not know may be removed now."""
        self.expired_before = before
        self.expiries.note(self.expiries.count + 1)
        self._has_expired = True
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
        if self._has_expired:  # after that, it may have removed payloads
            self._has_expired = False
            self.expiries.tell()
