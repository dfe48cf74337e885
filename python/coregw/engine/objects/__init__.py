"""Immutable objects by name: stored pages, and held roots, each as the page that begins with its top node.

Caches may keep what is returned here forever, so every object is compared with its name before it is sent.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from typing import Final, NamedTuple

import msgspec

from coregw import _core
from coregw._core import Cid, check_json
from coregw.engine.blocks import top_block
from coregw.engine.driver import Driver
from coregw.errors import InvalidInput, NotFound, RootNotFound, StoreDamaged, TooLarge
from coregw.messages.batch import MAX_BATCH_PAGES, GetPagesRequest
from coregw.messages.common import decode_checked
from coregw.store import Store, Table

__all__ = ["HeldRoot", "Objects", "page_digest"]

_DIGEST: Final = re.compile("[0-9a-f]{64}")

PROFILE: Final = "pages.get-batch/v0alpha1"

_PAGES_AT_ONCE: Final = 64
"""Pages of an answer that are read, checked and sent together: at most 1 MiB."""


class _Profile(msgspec.Struct):
    """The member of a request that says what it is."""

    profile: str


class HeldRoot(NamedTuple):
    """A held root: its CID in normalised form, and the page that begins with its top node."""

    cid: str
    page: bytes


class Objects:
    """The pages and roots of one store by name, ``engine.objects``."""

    def __init__(self, store: Store, driver: Driver) -> None:
        """Made by `Engine`."""
        self._store = store
        self._driver = driver

    async def page(self, name: str) -> bytes:
        """Return a stored page, which has its digest. O(bytes) hashing.

        Args:
            name: The digest of the page's top node as 64 characters of ``0-9a-f``.

        Raises:
            InvalidInput: If `name` is not such a digest.
            NotFound: If the store does not hold the page (code ``page_not_found``).
            StoreDamaged: If the stored page does not have its digest.
        """
        digest = page_digest(name)
        [page] = await self._store.get(Table.PAGES, [digest])
        if page is None:
            raise NotFound(f"the page {name} is not held", code="page_not_found")
        [links] = _core.page_links([(digest, page)])
        if links is None:
            raise StoreDamaged(f"the page {name} does not have its digest")
        return page

    async def root(self, root: str) -> HeldRoot:
        """Return a held root with its page. O(bytes) hashing.

        Raises:
            InvalidInput: If `root` is not a CID, or is one of a payload (code ``kind_mismatch``).
            RootNotFound: If the store does not hold the root.
            StoreDamaged: If its page is missing or does not have its digest.
        """
        cid = Cid(root)
        if cid.kind == "cas":
            raise InvalidInput(f"{cid.text} is a payload, not a root", code="kind_mismatch")
        [is_held] = await self._driver.are_held([bytes(cid)])
        if not is_held:
            raise RootNotFound(f"the store has no root {cid.text}")
        [page] = await self._store.get(Table.PAGES, [cid.digest])
        if page is None:
            raise StoreDamaged(f"the page of the held root {cid.text} is missing")
        top_block(cid, page)  # raises if the page is damaged
        return HeldRoot(cid.text, page)

    async def pages(self, request: bytes) -> AsyncGenerator[bytes, None]:
        """Begin to write the pages that a request names as a CAR, and return an iterator over its bytes.

        Pages that are not held, or do not have their digests, are left out. Memory is bounded whatever the size.

        Args:
            request: The JSON body of ``POST /v1/pages/car``.

        Raises:
            InvalidInput: If the request is malformed; the message names the digest.
            TooLarge: If it names more than 1,024 pages.
        """
        check_json(request)
        profile = decode_checked(request, _Profile).profile
        if profile != PROFILE:
            raise InvalidInput(f"profile: {profile!r:.100} is not {PROFILE!r}", code="unknown_profile")
        return self._blocks(_digests(decode_checked(request, GetPagesRequest).pages))

    async def _blocks(self, digests: Sequence[bytes]) -> AsyncGenerator[bytes, None]:
        yield _core.payload_car_header()
        for start in range(0, len(digests), _PAGES_AT_ONCE):
            part = digests[start : start + _PAGES_AT_ONCE]
            pages = await self._store.get(Table.PAGES, part)
            held = [(digest, page) for digest, page in zip(part, pages, strict=True) if page is not None]
            if held:
                yield await self._driver.in_worker(_framed, held)


def page_digest(name: str) -> bytes:
    """Return the digest that names a page in a URL. Raises `InvalidInput` if `name` is not one."""
    if not _DIGEST.fullmatch(name):
        raise InvalidInput(f"page {name!r:.100}: expected a digest as 64 characters of 0-9a-f")
    return bytes.fromhex(name)


def _digests(names: Sequence[str]) -> list[bytes]:
    if len(names) > MAX_BATCH_PAGES:
        raise TooLarge(f"pages: {len(names):,} digests; the limit is {MAX_BATCH_PAGES:,}")
    digests: list[bytes] = []
    for index, name in enumerate(names):
        try:
            digests.append(page_digest(name))
        except InvalidInput as error:
            raise InvalidInput(f"pages[{index}]: {error.message}", details=b'{"index":%d}' % index) from None
    return digests


def _framed(pages: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the blocks of pages, each under the CID of its bytes; without pages that do not have their digests."""
    parts: list[bytes] = []
    for (_, page), links in zip(pages, _core.page_links(pages), strict=True):
        if links is not None:
            parts += _core.block_head(_core.payload_cid(page), len(page)), page
    return b"".join(parts)
