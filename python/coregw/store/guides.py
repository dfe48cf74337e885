"""Stores that follow a key through pages by themselves, so that a lookup far from the store takes fewer round trips.

A store does not understand pages. So whoever puts a page above inner pages may say where the keys below each of these
begin: a guide. Guides are hints: what a store returns is checked like any page, and a wrong guide costs a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from coregw.store import Store, Table

__all__ = ["Guide", "GuidedStore"]


class Guide(NamedTuple):
    """Which inner pages below a page lead to which keys.

    Attributes:
        page: The digest of the page.
        firsts: For each inner page, what none of its keys is less than, ascending.
        below: The digests of these inner pages.
    """

    page: bytes
    firsts: Sequence[bytes]
    below: Sequence[bytes]

    @property
    def size(self) -> int:
        """What it takes in a store, in bytes; part of what a quota limits."""
        return len(self.page) + sum(map(len, self.firsts)) + sum(map(len, self.below))


@runtime_checkable
class GuidedStore(Store, Protocol):
    """A store that keeps guides."""

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
        guides: Sequence[Guide] = (),
    ) -> int:
        """As `Store.put`, with guides of pages that are put. A guide lasts as long as its page."""

    async def get_descents(self, keys: Mapping[bytes, Sequence[bytes]]) -> dict[bytes, bytes]:
        """Read pages, and the inner pages below each on the paths to keys, as far as guides lead, in one round trip.

        Args:
            keys: For the digest of each page at least one key, as bytes of a map's key (protocol section 2), or where a
                listing begins: with the empty key at the first one.

        Returns:
            The pages that the store has, by digest. O(pages) lookups.
        """

    async def list_guides(self, after: bytes | None, limit: int) -> list[Guide]:
        """Return guides in the order of their pages' digests, from the first one after `after` on. O(limit)."""

    async def set_guides(self, pages: Sequence[bytes], guides: Sequence[Guide]) -> None:
        """Replace the guides of pages by those that are given, durably, if it has the pages."""
