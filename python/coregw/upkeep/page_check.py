"""Checking pages: each against its digest, what leads to missing ones, and what is above damage.

The pages of a store are read in the order of their digests, not by following trees: a page that a million roots share
is read as often as any other. A second pass looks each page's links up. If something is damaged, further passes carry
that up from page to page to the roots, one pass for each level of pages.

Memory: 8 bytes for each page, in an array (rounds of `KNOWN_AT_ONCE` pages), and what is damaged with all that is above
it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from enum import IntFlag
from itertools import islice
from typing import Final, NamedTuple

from coregw._core import Cid, PageLinks, page_links
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.salvage import RawRow, RowSource
from coregw.store.rocksdb.wal import RowVersion

__all__ = ["KNOWN_AT_ONCE", "Harm", "PageCheck", "StoredPage", "best_pages", "is_root"]

KNOWN_AT_ONCE: Final = 16 << 20
"""Pages that are known at once: 128 MiB."""

_BATCH: Final = 64
_PREFIX: Final = 8
_DIGEST_BYTES: Final = 32


class Harm(IntFlag):
    """What is wrong below a page or root."""

    LOST_PAGE = 1
    """A page of its tree is lost."""
    LOST_CONTENT = 2
    """A payload that it names, or a page of a root nested in it, is lost."""
    UNREADABLE = 4
    """Some of it can only be read by a repair."""


class StoredPage(NamedTuple):
    """A version of a page that matches its digest, and what it leads to."""

    entry: RowVersion
    links: PageLinks


class PageCheck:
    """The check of all pages of a database.

    Args:
        database: The database.
        on_page: Called for each page that is read, in every pass.

    Attributes:
        count: The number of pages that match their digest.
        damaged: What is wrong with pages by digest, also with those that a repair can copy.
        missing: Pages that others lead to and that are nowhere: digest -> the root CID of a tree it belongs to.
        harms: What is wrong below pages and roots, by digest.
    """

    def __init__(self, database: RowSource, on_page: Callable[[], None] = lambda: None) -> None:
        self._database = database
        self._on_page = on_page
        self.count = 0
        self.damaged: dict[bytes, str] = {}
        self.missing: dict[bytes, bytes] = {}
        self.harms: dict[bytes, Harm] = {}

    def check_digests(self, on_sound: Callable[[bytes, StoredPage], None]) -> None:
        """Check every page against its digest, and note the damaged ones. The others are told to `on_sound`."""
        for row, page in self._pages():
            newest = row.newest
            if page is None:
                if newest is not None:  # otherwise the key may be damaged as well; what leads to the page names it
                    self.damaged[row.key] = "it does not match its digest"
                    self.harms[row.key] = Harm.LOST_PAGE
                continue
            self.count += 1
            on_sound(row.key, page)
            if page.entry is not newest or newest.is_corrected:
                self.damaged[row.key] = "it can only be read by a repair"
                self.harms[row.key] = Harm.UNREADABLE

    def find_missing(self, roots: Callable[[], Iterator[bytes]]) -> None:
        """Note the pages that pages or held roots (binary CIDs) lead to and that are nowhere."""
        for known, first, end in self._known():
            for root in roots():
                self._require(root[-_DIGEST_BYTES:], root, known, first, end)
            for _, links in self.links():
                for digest in links.pages:
                    self._require(digest, links.root, known, first, end)

    def spread(self, payloads: dict[bytes, Harm], is_held: Callable[[bytes], bool]) -> None:
        """Carry harm up to all pages above it: from pages, and from payloads by their multihashes.

        Args:
            payloads: What is wrong with payloads.
            is_held: Whether the store holds a root (binary CID); what is wrong with others does not matter.
        """
        changed = bool(self.harms or payloads)
        while changed:
            changed = False
            for digest, links in self.links():
                harm = self._harm_below(links, payloads, is_held)
                before = self.harms.get(digest, Harm(0))
                if harm & ~before:
                    self.harms[digest] = before | harm
                    changed = True

    def links(self) -> Iterator[tuple[bytes, PageLinks]]:
        """Iterate over the digests of all pages that match theirs, and what they lead to."""
        for row, page in self._pages():
            if page is not None:
                yield row.key, page.links

    def pages(self) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the pages that match their digests: (digest, page)."""
        for row, page in self._pages():
            if page is not None and page.entry.value is not None:
                yield row.key, bytes(page.entry.value)

    def _harm_below(self, links: PageLinks, payloads: dict[bytes, Harm], is_held: Callable[[bytes], bool]) -> Harm:
        harm = Harm(0)
        for digest in links.pages:
            harm |= self.harms.get(digest, Harm(0))
        for root in links.roots:
            nested = self.harms.get(root[-_DIGEST_BYTES:], Harm(0))
            if nested and is_held(root):
                harm |= nested & Harm.UNREADABLE
                harm |= Harm.LOST_CONTENT if nested & ~Harm.UNREADABLE else Harm(0)
        if payloads:
            for multihash in links.payloads:
                harm |= payloads.get(multihash, Harm(0))
        return harm

    def _require(self, digest: bytes, tree: bytes, known: array[int], first: int, end: int | None) -> None:
        prefix = int.from_bytes(digest[:_PREFIX], "big")
        if prefix < first or (end is not None and prefix >= end):
            return
        at = bisect_left(known, prefix)
        if (at == len(known) or known[at] != prefix) and digest not in self.missing:
            self.missing[digest] = tree
            self.harms[digest] = Harm.LOST_PAGE
            self.damaged.pop(digest, None)

    def _known(self) -> Iterator[tuple[array[int], int, int | None]]:
        """Iterate over sorted arrays of the first 8 bytes of digests, each with the range for which it is complete."""
        known = array("Q")
        first = 0
        for digest, _ in self.links():
            prefix = int.from_bytes(digest[:_PREFIX], "big")
            if known and prefix < known[-1]:  # out of order: a row of a damaged block
                known.insert(bisect_right(known, prefix), prefix)
            else:
                known.append(prefix)
            if len(known) >= KNOWN_AT_ONCE and prefix > known[0]:
                yield known, first, prefix
                known, first = array("Q", [prefix]), prefix
        yield known, first, None

    def _pages(self) -> Iterator[tuple[RawRow, StoredPage | None]]:
        """Iterate over the rows of pages, with the version that matches the digest; None if there is none."""
        rows = (row for row in self._database.rows(Family.PAGES) if not row.is_deleted)
        while batch := list(islice(rows, _BATCH)):
            for row, page in zip(batch, best_pages(batch), strict=True):
                self._on_page()
                yield row, page


def best_pages(rows: Sequence[RawRow]) -> list[StoredPage | None]:
    """Return the newest version of each page that matches its digest; None if there is none. O(bytes) hashing."""
    newest = [next((entry for entry in row.versions if entry.value is not None), None) for row in rows]
    pages = [b"" if entry is None or entry.value is None else bytes(entry.value) for entry in newest]
    found = page_links([(row.key, page) for row, page in zip(rows, pages, strict=True)])
    return [
        StoredPage(entry, links) if links is not None and entry is not None else _older_page(row)
        for row, entry, links in zip(rows, newest, found, strict=True)
    ]


def _older_page(row: RawRow) -> StoredPage | None:
    for entry in row.versions:
        if entry.value is not None:
            (links,) = page_links([(row.key, bytes(entry.value))])
            if links is not None:
                return StoredPage(entry, links)
    return None


def is_root(key: bytes) -> bool:
    """Return whether a key is the binary CID of a root."""
    try:
        return Cid(key).kind != "cas"
    except ValueError:
        return False
