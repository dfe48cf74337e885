"""Check of a static tree: every object against its name, and every root for what it leads to."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from coregw._core import Cid, PayloadCheck, page_links
from coregw.client.static.folder import MARK, open_tree
from coregw.client.static.tree import SCOPES, StaticTree, record_path
from coregw.concurrency import for_each
from coregw.errors import InvalidInput
from coregw.messages.management import PublishedRecord
from coregw.store.origin import is_root_page, page_path, payload_path, root_path
from coregw.undecodable import UNDECODABLE

__all__ = ["CheckedTree", "check_static"]

_PAGES_AT_ONCE: Final = 64
_DIGEST: Final = re.compile("[0-9a-f]{64}")


@dataclass(slots=True)
class CheckedTree:
    """What a check has found.

    Attributes:
        roots: The number of roots.
        pages: The number of pages.
        payloads: The number of payloads.
        records: The number of published names.
        findings: What is wrong, as sentences that begin with the path of an object.
    """

    roots: int = 0
    pages: int = 0
    payloads: int = 0
    records: int = 0
    findings: list[str] = field(default_factory=list)


async def check_static(place: Path | str, progress: Callable[[int], None] | None = None) -> CheckedTree:
    """Check a static tree: each object has the digest in its name, and each page has all that it leads to.

    If every page has what it leads to, every root is complete. O(bytes), memory for all names (about 150 bytes each).

    Args:
        place: The folder of the tree, or a bucket, as for `coregw.client.static.folder.open_tree`.
        progress: Called with further numbers of bytes that were read.

    Raises:
        InvalidInput: There is no static tree.
        Unavailable: The bucket refuses an operation.
        OSError: A file can't be read.
    """
    tree = open_tree(place)
    state = await tree.state()
    if not state.exists:
        raise InvalidInput(f"{tree.place} is not a static tree: it has no v1/pages", code="invalid_path")
    check = _Check(tree, progress, state.has_payloads)
    if state.is_unfinished:
        check.done.findings.append(f"{MARK}: an export was interrupted, or is running; export the root again")
    await check.names()
    await check.pages()
    await check.roots()
    await check.payloads()
    await check.records()
    return check.done


class _Check:
    def __init__(self, tree: StaticTree, progress: Callable[[int], None] | None, has_payloads: bool) -> None:
        self._tree = tree
        self._progress = progress or (lambda count: None)
        self._has_payloads = has_payloads
        self._there: set[str] = set()
        """The paths of all pages, roots and payloads."""
        self.done = CheckedTree()

    async def names(self) -> None:
        """List all that is there."""
        for folder in ("v1/pages", "v1/roots", "v1/cas"):
            self._there.update(f"/{folder}/{name}" for name in await self._tree.listed(folder))

    async def pages(self) -> None:
        """Check all pages."""
        paths = [path for path in self._named("/v1/pages/") if self._is_page(path)]
        for start in range(0, len(paths), _PAGES_AT_ONCE):
            some = paths[start : start + _PAGES_AT_ONCE]
            read = [page or b"" for page in await self._tree.read(some)]
            pairs = [(bytes.fromhex(_name(path)), page) for path, page in zip(some, read, strict=True)]
            for path, page, links in zip(some, read, page_links(pairs), strict=True):
                self.done.pages += 1
                self._progress(len(page))
                if links is None:
                    self._found(path, "the bytes are not the page with this digest")
                    continue
                leads_to = [*map(page_path, links.pages), *map(root_path, links.roots)]
                if self._has_payloads:
                    leads_to += map(payload_path, links.payloads)
                for each in leads_to:
                    self._leads_to(path, each)

    async def roots(self) -> None:
        """Check all roots."""
        for path in self._named("/v1/roots/"):
            cid = self._cid(path)
            if cid is None or not self._is(path, cid.kind != "cas", "not the name of a root"):
                continue
            self.done.roots += 1
            [read] = await self._tree.read([path])
            page = read or b""
            self._progress(len(page))
            if self._is(path, is_root_page(bytes(cid), page), "the bytes are not the page of this root"):
                self._leads_to(path, page_path(cid.digest))

    async def payloads(self) -> None:
        """Check all payloads."""
        before = len(self.done.findings)
        await for_each(self._named("/v1/cas/"), self._payload, self._tree.at_once)
        self.done.findings[before:] = sorted(self.done.findings[before:])

    async def _payload(self, path: str) -> None:
        cid = self._cid(path)
        if cid is None or not self._is(path, cid.kind == "cas" and cid.codec == 0x55, "not the name of a payload"):
            return
        self.done.payloads += 1
        check = PayloadCheck(cid)
        async for chunk in self._tree.chunks(path):
            check.update(chunk)
            self._progress(len(chunk))
        self._is(path, check.matches(), "the bytes do not have the hash of this CID")

    async def records(self) -> None:
        """Check all published names."""
        for path in [f"/{SCOPES}/{name}" for name in await self._tree.listed(SCOPES)]:
            self.done.records += 1
            [content] = await self._tree.read([path])
            try:
                record = msgspec.json.decode(content or b"", type=PublishedRecord)
                root = root_path(bytes(Cid(record.root)))
            except (*UNDECODABLE, InvalidInput) as error:
                self._found(path, f"not a published record: {error}")
                continue
            own = record_path(record.scope, record.name)
            self._is(path, own == path, f"the record is that of {record.scope}/{record.name}")
            self._leads_to(path, root)

    def _named(self, start: str) -> list[str]:
        return sorted(path for path in self._there if path.startswith(start))

    def _is_page(self, path: str) -> bool:
        return self._is(path, bool(_DIGEST.fullmatch(_name(path))), "not a digest")

    def _leads_to(self, path: str, other: str) -> None:
        self._is(path, other in self._there, f"leads to {other[1:]}, which is missing")

    def _cid(self, path: str) -> Cid | None:
        """Return the CID that is the name of an object; None, with a finding, if it is not one in its normal form."""
        try:
            cid = Cid(_name(path))
        except InvalidInput as error:
            self._found(path, f"the name is not a CID: {error.message}")
            return None
        return cid if self._is(path, cid.text == _name(path), f"the name should be {cid.text}") else None

    def _is(self, path: str, is_right: bool, otherwise: str) -> bool:
        if not is_right:
            self._found(path, otherwise)
        return is_right

    def _found(self, path: str, why: str) -> None:
        self.done.findings.append(f"{path[1:]}: {why}")


def _name(path: str) -> str:
    return path.rpartition("/")[2]
