"""A cache of values by what they weigh, the least recently used one of which goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from coregw.client.transport.forks import watch_forks

__all__ = ["WeighedCache"]

V = TypeVar("V")


class WeighedCache(Generic[V]):
    """Values with weights, whose sum is bounded. Safe to share between threads, and to use after a fork.

    Every operation takes O(1), amortised.

    Args:
        max_weight: The bound. A value that weighs more is not kept.
    """

    def __init__(self, max_weight: int) -> None:
        self.max_weight = max_weight
        self.weight = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        watch_forks(self)

    def forked(self) -> object:
        """Start empty in a child process: another thread of the parent may have been changing the cache."""
        kept = self._lock, self._values
        self._lock, self._values, self.weight = threading.Lock(), OrderedDict(), 0
        return kept

    def get(self, key: Hashable) -> V | None:
        """Return the value of a key, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: V, weight: int) -> None:
        """Keep a value, and drop others until all weigh no more than the bound."""
        if weight > self.max_weight:
            return
        with self._lock:
            replaced = self._values.pop(key, None)
            self.weight += weight - (0 if replaced is None else replaced[1])
            self._values[key] = value, weight
            while self.weight > self.max_weight:
                self.weight -= self._values.popitem(last=False)[1][1]
