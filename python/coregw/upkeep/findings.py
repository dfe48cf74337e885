"""Findings of a check of a store: messages for people and programs, with CIDs in text form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Self

import msgspec

from coregw._core import Cid
from coregw.messages import Message
from coregw.store.protocol import raw_cid

__all__ = [
    "AffectedRecord",
    "AffectedRoot",
    "CheckResult",
    "DamagedFile",
    "DamagedObject",
    "RepairResult",
    "page_cid",
    "payload_cid",
]

_DIGEST_BYTES: Final = 32


class DamagedFile(Message, frozen=True, kw_only=True):
    """A damaged part of a file of the database.

    Attributes:
        file: The file's name.
        start: The first byte concerned.
        end: The byte after the last one concerned.
        family: The kind of rows that were there, if known.
        what: What is wrong.
    """

    file: str
    start: int
    end: int
    family: str | None
    what: str


class DamagedObject(Message, frozen=True, kw_only=True):
    """A page or payload that cannot be read as it was stored.

    Attributes:
        cid: Its CID; a page is named by the CID of its top node.
        what: What is wrong.
        is_recoverable: Whether a repair can copy it: its bytes match the CID, though the file around them is damaged.
    """

    cid: str
    what: str
    is_recoverable: bool = False


class AffectedRoot(Message, frozen=True, kw_only=True):
    """A held root below which something is damaged.

    Attributes:
        root: The root CID.
        is_complete: Whether all pages of its tree are there; then payloads, or roots nested in it, are damaged.
        is_recoverable: Whether a repair can copy everything that is damaged.
    """

    root: str
    is_complete: bool
    is_recoverable: bool


class AffectedRecord(Message, frozen=True, kw_only=True):
    """A published name that is affected.

    Attributes:
        scope: The scope.
        name: The name.
        root: The root of its newest known revision; None if no revision is readable.
        what: What is wrong.
    """

    scope: str
    name: str
    root: str | None
    what: str


class CheckResult(Message, frozen=True, kw_only=True):
    """The result of a check.

    Attributes:
        is_sound: Whether nothing is damaged.
        bytes: The size of the files that were read.
        roots: The number of held roots.
        pages: The number of pages that match their digests.
        payloads: The number of payloads that match their multihashes.
        records: The number of rows of published records and of other services.
        damaged_files: Damaged parts of files.
        damaged_pages: Pages that do not match their digest, or whose file is damaged around them.
        missing_pages: Pages that a held root needs and that are nowhere.
        damaged_guides: Pages whose guides are missing, or lead elsewhere than to their inner pages: lookups take
            longer.
        damaged_payloads: Payloads that do not match their multihash, or of which a part is missing.
        lost_payloads: Payloads whose rows are lost; a repair finds those whose bytes are there.
        lost_records: Rows of records of which only the key is readable.
        lost_pins: Names of pins whose roots are not readable, also since a repair. What they kept stays for the grace
            period of the collection after the repair.
        lost_state: Rows that are not readable of those that the store keeps about itself: `epoch` (the count of its
            openings), `expired` (before when roots have expired) and `undated` (when rows without a date count as
            dated). A start and a repair renew them with values that keep more, or for longer.
        affected_roots: Held roots below which something is damaged.
        affected_records: Published names whose root is affected, which have lost revisions, or whose revisions, log and
            signed checkpoint do not agree.
        unnamed: Where rows were lost whose names are not known.
        incomplete_roots: Roots of which a repair could not copy all pages, and which were not healed since.
        lost: Payloads that a repair could not copy, and which were not healed since.
    """

    is_sound: bool
    bytes: int
    roots: int
    pages: int
    payloads: int
    records: int
    damaged_files: list[DamagedFile]
    damaged_pages: list[DamagedObject]
    missing_pages: list[DamagedObject]
    damaged_payloads: list[DamagedObject]
    lost_payloads: list[DamagedObject]
    lost_records: list[str]
    lost_pins: list[str]
    lost_state: list[str]
    affected_roots: list[AffectedRoot]
    affected_records: list[AffectedRecord]
    unnamed: list[str]
    incomplete_roots: list[str]
    lost: list[str]
    damaged_guides: list[DamagedObject]

    def judged(self) -> Self:
        """Return this with `is_sound` as its lists say; `unnamed` repeats damaged files."""
        damaged = (self.damaged_files, self.damaged_pages, self.missing_pages, self.damaged_payloads)
        lost = (self.lost_payloads, self.lost_records, self.lost_pins, self.lost_state, self.lost)
        affected = (self.affected_roots, self.affected_records, self.damaged_guides)
        return msgspec.structs.replace(self, is_sound=not any((*damaged, *lost, *affected)))

    def lines(self) -> Iterator[str]:
        """Iterate over what was found, as lines for a person."""
        for file in self.damaged_files:
            kind = f" ({file.family})" if file.family is not None else ""
            yield f"damaged file {file.file}{kind}, bytes {file.start:,} to {file.end:,}: {file.what}"
        for kind, objects in (
            ("damaged page", self.damaged_pages),
            ("missing page", self.missing_pages),
            ("damaged guide", self.damaged_guides),
            ("damaged payload", self.damaged_payloads),
            ("lost payload", self.lost_payloads),
        ):
            for each in objects:
                yield f"{kind} {each.cid}: {each.what}{' (recoverable)' if each.is_recoverable else ''}"
        for root in self.affected_roots:
            state = "incomplete" if not root.is_complete else "complete, but something it names is damaged"
            yield f"affected root {root.root}: {'recoverable' if root.is_recoverable else state}"
        for record in self.affected_records:
            yield f"affected name {record.scope}/{record.name}: {record.what} (root {record.root})"
        yield from (f"lost row {key}" for key in self.lost_records)
        yield from (f"lost pin {name}: pin its root again" for name in self.lost_pins)
        yield from (f"lost row {name!r} of the store's state: a repair renews it" for name in self.lost_state)
        yield from (f"not named: {text}" for text in self.unnamed)
        yield from (f"incomplete since a repair: root {root}" for root in self.incomplete_roots)
        yield from (f"lost since a repair: payload {cid}" for cid in self.lost)

    def counts(self) -> dict[str, int]:
        """Return how much was found, by kind."""
        return {
            "damaged_files": len(self.damaged_files),
            "damaged_pages": len(self.damaged_pages),
            "missing_pages": len(self.missing_pages),
            "damaged_guides": len(self.damaged_guides),
            "damaged_payloads": len(self.damaged_payloads),
            "lost_payloads": len(self.lost_payloads) + len(self.lost),
            "affected_roots": len(self.affected_roots),
            "affected_records": len(self.affected_records),
        }

    def summary(self) -> str:
        """Return the numbers, as a line for a person."""
        counts = f"{self.roots:,} roots, {self.pages:,} pages, {self.payloads:,} payloads, {self.records:,} records"
        return f"{counts} in {self.bytes:,} bytes of files"


class RepairResult(Message, frozen=True, kw_only=True):
    """The result of a repair.

    Attributes:
        found: What the check of the damaged database found.
        repaired: What a check of the new database found: what was lost, and nothing else.
        kept: The directory that has the damaged database now; empty if a shared store was repaired in place.
        is_salvaged: Whether only what RocksDB reads was kept: of all that was damaged, rows may be lost.
        recovered_payloads: Payloads whose rows were lost, found by their chunks.
        recovered_roots: Roots whose rows were lost, found by their pages. Some may never have been acknowledged.
    """

    found: CheckResult
    repaired: CheckResult
    kept: str
    recovered_payloads: list[str]
    recovered_roots: list[str]
    is_salvaged: bool = False

    @property
    def is_sound(self) -> bool:
        """Whether nothing was lost, and no rows of unknown names may have been."""
        may_have_lost = not self.found.is_sound if self.is_salvaged else bool(self.found.unnamed)
        return self.repaired.is_sound and not may_have_lost


def payload_cid(multihash: bytes) -> str:
    """Return the CID, with the codec ``raw``, of the payload with a binary multihash; as hex if it is malformed."""
    try:
        return raw_cid(multihash).text
    except ValueError:
        return multihash.hex()


def page_cid(tree: bytes, digest: bytes) -> str:
    """Return the CID of the top node of a page of the tree with the binary root CID `tree`."""
    return Cid(tree[:-_DIGEST_BYTES] + digest).text
