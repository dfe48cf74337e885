"""Stores that follow a key through pages by themselves, so that a look-up far from the store takes fewer round trips.

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

    async def get_way(self, page: bytes, key: bytes) -> dict[bytes, bytes]:
        """Read a page, and the inner pages below it on the way to a key, as far as guides lead, in one round trip.

        Args:
            page: The digest of the page.
            key: The key, as bytes of a map's key (protocol section 2).

        Returns:
            The pages that the store has, by digest. O(pages) look-ups.
        """
