"""Record of the pages that were put lately: Bloom filters, one for each slice of time.

A page that was put lately may belong to a tree whose root record is about to be written, so it is not garbage even if
nothing refers to it. A filter may also claim that of a page that was not put, which then stays until a later
collection; it never denies it of one that was.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from random import Random
from struct import iter_unpack
from typing import Final

__all__ = ["RecentKeys"]

_SLICES: Final = 12
_FILTER_BYTES: Final = 512 << 10
"""About 400,000 keys of a slice with 2 % of false claims; with more keys, more garbage stays."""

_WORD_BITS: Final = 64
_WORDS: Final = 8 * _FILTER_BYTES // _WORD_BITS
_PATTERNS: Final = [
    1 << a % _WORD_BITS | 1 << b % _WORD_BITS | 1 << c % _WORD_BITS | 1 << d % _WORD_BITS
    for a, b, c, d in iter_unpack("4B", Random(0).randbytes(4 << 10))  # noqa: S311 - need not be secret
]
"""What a key may set in its word: at most four bits, in one step instead of four for each page that is put."""


class _Slice:
    """The keys that were put from one time to another."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.last = start
        self._words = array("Q", bytes(_FILTER_BYTES))

    def add(self, keys: Iterable[bytes]) -> None:
        words = self._words
        # Python's hash of bytes is keyed at random, so nobody can choose pages that the filter confuses.
        for value in map(hash, keys):
            words[value % _WORDS] |= _PATTERNS[value // _WORDS % len(_PATTERNS)]

    def may_hold(self, key: bytes) -> bool:
        value = hash(key)
        pattern = _PATTERNS[value // _WORDS % len(_PATTERNS)]
        return bool(self._words[value % _WORDS] & pattern == pattern)


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

    def add(self, keys: Iterable[bytes], now: int) -> None:
        """Note that keys are put at the time `now`."""
        if self._begins_slice or (not self._is_pinned and now - self._slices[-1].start >= self._slice_ms):
            self._begin(now)
        current = self._slices[-1]
        current.last = now
        current.add(keys)

    def pin(self) -> None:
        """Begin a slice, and forget nothing until `unpin`: the collection that begins now lasts as long as it lasts."""
        self._begins_slice = True
        self._is_pinned = True

    def unpin(self) -> None:
        """Allow forgetting again."""
        self._is_pinned = False

    def may_hold(self, key: bytes, since: int) -> bool:
        """Whether the key may have been put after `since`; false only if it was not, or not after `covered`."""
        return any(each.last > since and each.may_hold(key) for each in self._slices)

    def covered(self, since: int) -> int:
        """The time after which `may_hold` with `since` knows every key."""
        return max(since, self._covered_from)

    def _begin(self, now: int) -> None:
        self._begins_slice = False
        self._slices.append(_Slice(now))
        while len(self._slices) > _SLICES and not self._is_pinned:
            self._covered_from = self._slices[0].last
            del self._slices[0]
