"""Check of a static tree in a folder, offline: every file against its name, and every root for what it leads to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from coregw._core import Cid, page_links
from coregw.client.static.folder import MARK, NO_PAYLOADS, TEMPORARY
from coregw.engine.objects.checks import ObjectChecks
from coregw.errors import InvalidInput
from coregw.messages.record import PublishedRecord
from coregw.store.origin import page_path, payload_path, root_path

__all__ = ["CheckedTree", "check_static"]

_PAGES_AT_ONCE: Final = 64
_READ_BYTES: Final = 1 << 20
_DIGEST: Final = re.compile("[0-9a-f]{64}")


@dataclass(slots=True)
class CheckedTree:
    """What a check has found.

    Attributes:
        roots: The number of roots.
        pages: The number of pages.
        payloads: The number of payloads.
        records: The number of published names.
        findings: What is wrong, as sentences that begin with the path of a file.
    """

    roots: int = 0
    pages: int = 0
    payloads: int = 0
    records: int = 0
    findings: list[str] = field(default_factory=list)


def check_static(folder: Path, progress: Callable[[int], None] = lambda count: None) -> CheckedTree:
    """Check a static tree: each file has the digest in its name, and each page has all that it leads to.

    If every page has what it leads to, every root is complete. O(bytes), memory for one payload.

    Args:
        folder: The folder of the tree.
        progress: Called with further numbers of bytes that were read.

    Raises:
        InvalidInput: `folder` is not a static tree.
        OSError: A file can't be read.
    """
    if not (folder / "v1" / "pages").is_dir():
        raise InvalidInput(f"{folder} is not a static tree: it has no folder v1/pages", code="invalid_path")
    check = _Check(folder, progress)
    if (folder / MARK).exists():
        check.done.findings.append(f"{MARK}: an export was interrupted, or is running; export the root again")
    check.pages()
    check.roots()
    check.payloads()
    check.records()
    return check.done


class _Check:
    def __init__(self, top: Path, progress: Callable[[int], None]) -> None:
        self._top = top
        self._progress = progress
        self._checks = ObjectChecks()
        self._has_payloads = not (top / NO_PAYLOADS).exists()
        self.done = CheckedTree()

    def pages(self) -> None:
        """Check all pages."""
        names = self._named("v1/pages")
        while some := list(islice(names, _PAGES_AT_ONCE)):
            known = [path for path in some if self._is(path, bool(_DIGEST.fullmatch(path.name)), "not a digest")]
            pairs = [(bytes.fromhex(path.name), path.read_bytes()) for path in known]
            for path, (_, page), links in zip(known, pairs, page_links(pairs), strict=True):
                self.done.pages += 1
                self._progress(len(page))
                if links is None:
                    self._found(path, "the bytes are not the page with this digest")
                    continue
                leads_to = [*map(page_path, links.pages), *map(root_path, links.roots)]
                if self._has_payloads:
                    leads_to += map(payload_path, links.payloads)
                for missing in leads_to:
                    self._is(path, (self._top / missing[1:]).exists(), f"leads to {missing[1:]}, which is missing")

    def roots(self) -> None:
        """Check all roots."""
        for path in self._named("v1/roots"):
            cid = self._cid(path)
            if cid is None or not self._is(path, cid.kind != "cas", "not the name of a root"):
                continue
            self.done.roots += 1
            page = path.read_bytes()
            self._progress(len(page))
            if self._is(path, self._checks.is_root_page(bytes(cid), page), "the bytes are not the page of this root"):
                there = (self._top / page_path(cid.digest)[1:]).exists()
                self._is(path, there, f"leads to {page_path(cid.digest)[1:]}, which is missing")

    def payloads(self) -> None:
        """Check all payloads."""
        for path in self._named("v1/cas"):
            cid = self._cid(path)
            if cid is None or not self._is(path, cid.kind == "cas" and cid.codec == 0x55, "not the name of a payload"):
                continue
            self.done.payloads += 1
            hasher, expected = self._checks.hasher(cid.multihash)
            with path.open("rb") as file:
                while chunk := file.read(_READ_BYTES):
                    hasher.update(chunk)
                    self._progress(len(chunk))
            self._is(path, hasher.digest() == expected, "the bytes do not have the hash of this CID")

    def records(self) -> None:
        """Check all published names."""
        for path in sorted((self._top / "admin" / "v1" / "scopes").glob("*/roots/*")):
            if path.name.startswith(TEMPORARY):
                continue
            self.done.records += 1
            try:
                record = msgspec.json.decode(path.read_bytes(), type=PublishedRecord)
                is_here = (record.scope, record.name) == (path.parent.parent.name, path.name)
                root = root_path(bytes(Cid(record.root)))[1:]
            except (msgspec.DecodeError, InvalidInput) as error:
                self._found(path, f"not a published record: {error}")
                continue
            self._is(path, is_here, f"the record is that of {record.scope}/{record.name}")
            self._is(path, (self._top / root).exists(), f"leads to {root}, which is missing")

    def _named(self, folder: str) -> Iterator[Path]:
        """Yield the files of a folder, without those that an export has left unfinished."""
        return (path for path in sorted((self._top / folder).iterdir()) if not path.name.startswith(TEMPORARY))

    def _cid(self, path: Path) -> Cid | None:
        """Return the CID that is the name of a file; None, with a finding, if it is not one in its normal form."""
        try:
            cid = Cid(path.name)
        except InvalidInput as error:
            self._found(path, f"the name is not a CID: {error.message}")
            return None
        return cid if self._is(path, cid.text == path.name, f"the name should be {cid.text}") else None

    def _is(self, path: Path, is_right: bool, otherwise: str) -> bool:
        if not is_right:
            self._found(path, otherwise)
        return is_right

    def _found(self, path: Path, why: str) -> None:
        self.done.findings.append(f"{path.relative_to(self._top)}: {why}")
