"""Check of a store of any kind, by the calls of `coregw.store.Store`, while it may be in use.

Nothing is locked, and rows that come or go meanwhile are no damage: what is missing is asked for again, and belongs to
a root that is still held. The files of a RocksDB store are checked in the same way, with what files have beside rows
(`coregw.upkeep.file_check`); those of another database are checked by its own tools.

A repair notes what is lost in the store, so that `coregw heal` knows what to fetch: a payload as a row ``l multihash``
of `Table.RECORDS`. A root whose tree is not complete keeps its row in `Table.ROOTS`, with
`coregw.engine.pages.INCOMPLETE` as its value. After damage nothing tells the two apart. Another gateway may: what it
holds can be fetched.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from array import array
from asyncio.subprocess import DEVNULL, PIPE
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntFlag
from itertools import chain, islice
from pathlib import Path
from typing import Final

import msgspec

from coregw._core import Cid, PageLinks, page_guides, page_links
from coregw.engine.pages import INCOMPLETE
from coregw.engine.records import NEWEST, REVISIONS
from coregw.errors import InvalidInput, Unavailable
from coregw.messages.management import Progress, ProgressCallback
from coregw.store import Table
from coregw.store.collection import CollectableStore
from coregw.store.protocol import Guide
from coregw.upkeep.findings import AffectedRoot, CheckResult, DamagedObject, page_cid, payload_cid
from coregw.upkeep.inventory import Inventory, StoredPage, StoreInventory
from coregw.upkeep.pins import LOST_PINS, PINS, pin_name, pinned_root
from coregw.upkeep.published import CheckedRow, PublishedName, published, rows_of_name

__all__ = [
    "KNOWN_AT_ONCE",
    "LOST",
    "Harm",
    "Known",
    "PageCheck",
    "StoreCheck",
    "absent_targets",
    "check_in_process",
    "check_online",
    "lost_key",
]

LOST: Final = b"l"
"""The first byte of the keys that note lost payloads."""


def lost_key(multihash: bytes) -> bytes:
    """Return the key that notes a lost payload, by its binary multihash."""
    return LOST + multihash


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


class PageCheck:
    """The check of all pages of a store: against their digests, what leads to missing ones, and what is above damage.

    Pages are read in the order of their digests, not by following trees: a page that a million roots share is read as
    often as any other. A second pass looks each page's links up. If something is damaged, further passes carry that up
    from page to page to the roots, one pass for each level of pages.

    Memory: 8 bytes for each page, in an array (rounds of `KNOWN_AT_ONCE` pages), and what is damaged with all that is
    above it.

    Args:
        stored: Returns all pages in the order of their digests (of damaged parts, nearly); called in each pass.
        on_page: Called for each page that is read, in every pass.

    Attributes:
        count: The number of pages that match their digest.
        damaged: What is wrong with pages by digest, also with those that a repair can copy.
        missing: Pages that others lead to and that are nowhere: digest -> the root CID of a tree it belongs to.
        harms: What is wrong below pages and roots, by digest.
    """

    def __init__(self, stored: Callable[[], Iterator[StoredPage]], on_page: Callable[[], None] = lambda: None) -> None:
        self._stored = stored
        self._on_page = on_page
        self.count = 0
        self.damaged: dict[bytes, str] = {}
        self.missing: dict[bytes, bytes] = {}
        self.harms: dict[bytes, Harm] = {}

    def check_digests(self, on_match: Callable[[StoredPage, PageLinks], None]) -> None:
        """Check every page against its digest, and note the damaged ones. The others are told to `on_match`."""
        for stored, links in self._pages():
            if links is None:
                if stored.is_intact:  # otherwise the digest may be damaged as well; what leads to the page names it
                    self.damaged[stored.digest] = "it does not match its digest"
                    self.harms[stored.digest] = Harm.LOST_PAGE
                continue
            self.count += 1
            on_match(stored, links)
            if not stored.is_intact:
                self.damaged[stored.digest] = "it can only be read by a repair"
                self.harms[stored.digest] = Harm.UNREADABLE

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
        for stored, links in self._pages():
            if links is not None:
                yield stored.digest, links

    def pages(self) -> Iterator[StoredPage]:
        """Iterate over the pages that match their digests."""
        return (stored for stored, links in self._pages() if links is not None)

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

    def _pages(self) -> Iterator[tuple[StoredPage, PageLinks | None]]:
        """Iterate over the pages, with what each leads to; None if it does not match its digest."""
        pages = self._stored()
        while batch := list(islice(pages, _BATCH)):
            found = page_links([(stored.digest, stored.page) for stored in batch])
            for stored, links in zip(batch, found, strict=True):
                self._on_page()
                yield stored, links


class Known:
    """A set of keys, as 8 bytes of each: digests do not agree in them by chance."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._known = array("Q", sorted(_tail(key) for key in keys))

    def __contains__(self, key: object) -> bool:
        tail = _tail(key) if isinstance(key, bytes) else 0
        at = bisect_left(self._known, tail)
        return at < len(self._known) and self._known[at] == tail


def _tail(key: bytes) -> int:
    return int.from_bytes(key[-8:], "big")


_REPORT_SECONDS: Final = 0.1
_ATTEMPTS: Final = 10


class StoreCheck:
    """One check of one store, in a thread.

    Reads pages twice and payloads once; if something is damaged, pages once more for each level of pages. O(bytes)
    hashing. Memory: 8 bytes for each page (`PageCheck`), for each payload what `inventory` needs, and what is
    damaged.

    Args:
        inventory: What the store holds.
        report: Called often, with how far the check is.

    Attributes:
        pages: The check of its pages.
        payload_harms: What is wrong with payloads, by multihash.
        misguiding: Pages whose guides are wrong.
    """

    def __init__(self, inventory: Inventory, report: ProgressCallback) -> None:
        self._inventory = inventory
        self._report = report
        self._progress = Progress(step="reading pages", unit="pages")
        self._reported = 0.0
        self.pages = PageCheck(inventory.pages, self._advance)
        self.payload_harms: dict[bytes, Harm] = {}
        self.misguiding: list[bytes] = []
        self._unguided: dict[bytes, bytes] = {}
        """Pages of which no guide was found so far: digest -> the root CID of a tree it belongs to."""

    def run(self) -> CheckResult:
        """Check everything.

        Raises:
            Unavailable: The store does not answer.
            StoreDamaged: The store cannot read its own files.
        """
        payloads, damaged_payloads = self._check_payloads()
        self._begin("checking pages", "pages")
        self.pages.check_digests(self._note_page)
        self._begin("looking for missing pages", "pages")
        self.pages.find_missing(lambda: (key for key, _ in self.roots()))
        self._confirm_missing()
        self._begin("checking records", "records")
        records = sum(1 for _, value in self._inventory.rows(Table.RECORDS) if value is not None)
        lost = self._find_lost_payloads()
        held = Known(key for key, _ in self.roots())
        if self.pages.harms or self.payload_harms:
            self._begin("looking for what is affected", "pages")
            self.pages.spread(self.payload_harms, held.__contains__)
        affected = {each.root: each for each in self._affected_roots()}
        names = (each.finding(lambda root: root not in held or Cid(root).text in affected) for each in self.names())
        unreadable = [key for key in self.unreadable_records() if key[:1] not in (NEWEST, REVISIONS)]
        return CheckResult(
            is_sound=False,
            bytes=self._inventory.size_bytes,
            roots=sum(1 for _ in self.roots()),
            pages=self.pages.count,
            payloads=payloads,
            records=records,
            damaged_files=[],
            damaged_pages=self._damaged_pages(),
            missing_pages=self._missing_pages(),
            damaged_payloads=damaged_payloads,
            lost_payloads=lost,
            lost_records=[_shown(key) for key in unreadable if pin_name(key) is None],
            lost_pins=[*(name for name in map(pin_name, unreadable) if name is not None), *self._noted_pins()],
            lost_state=[],
            affected_roots=list(affected.values()),
            affected_records=[name for name in names if name is not None],
            unnamed=[],
            incomplete_roots=[Cid(key).text for key, value in self.roots() if value == INCOMPLETE],
            lost=list(self._noted_as_lost()),
            damaged_guides=self._damaged_guides(),
        ).judged()

    # --- payloads -----------------------------------------------------------------------------------------------------

    def _check_payloads(self) -> tuple[int, list[DamagedObject]]:
        """Check all payloads; how many are intact, and what is wrong with the others."""
        self._begin("checking payloads", "payloads")
        count, found = 0, list[DamagedObject]()
        for multihash, what, is_intact in self._inventory.payloads():
            self._advance()
            count += what is None
            if what is None and is_intact:
                continue
            self.payload_harms[multihash] = Harm.UNREADABLE if what is None else Harm.LOST_CONTENT
            text = what or "it can only be read by a repair"
            found.append(DamagedObject(cid=payload_cid(multihash), what=text, is_recoverable=what is None))
        return count, found

    def _find_lost_payloads(self) -> list[DamagedObject]:
        """Find payloads without a row, and note them in `payload_harms`: none, unless files tell of them."""
        return []

    def held_payloads(self) -> Known:
        """The multihashes of payloads that have a row. 8 bytes of memory for each."""
        return Known(self._inventory.payload_names())

    def _noted_as_lost(self) -> Iterator[str]:
        """Payloads that a repair could not copy, and which are not stored since."""
        noted = [key[1:] for key, value in self._inventory.rows(Table.RECORDS, LOST) if value is not None]
        if noted:
            held = self.held_payloads()
            yield from (payload_cid(key) for key in noted if key not in held)

    # --- pages and roots ----------------------------------------------------------------------------------------------

    def roots(self) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the held roots (binary CIDs) and the values of their rows."""
        for key, value in self._inventory.rows(Table.ROOTS):
            if value is not None:
                yield key, value

    def unreadable_roots(self) -> Iterator[bytes]:
        """Iterate over the roots whose rows only a repair can read, as far as these may be right."""
        for key, value in self._inventory.rows(Table.ROOTS):
            if value is None and _is_root(key):
                yield key

    def _note_page(self, stored: StoredPage, links: PageLinks) -> None:
        """Note a page that matches its digest, if it is above inner pages: few are."""
        if self._inventory.is_guided and links.pages and page_guides([(stored.digest, stored.page)]):
            self._unguided[stored.digest] = links.root

    def _confirm_missing(self) -> None:
        """Forget missing pages that were stored after their place in the order was read."""
        missing = list(self.pages.missing) if self._inventory.is_live else []
        found = zip(missing, self._inventory.get_pages(missing), strict=True)
        pages = [(digest, page) for digest, page in found if page is not None]
        for (digest, _), links in zip(pages, page_links(pages), strict=True):
            if links is not None:
                del self.pages.missing[digest], self.pages.harms[digest]

    def _affected_roots(self) -> Iterator[AffectedRoot]:
        for key, _ in self.roots():
            if harm := self.pages.harms.get(key[-32:]):
                is_complete, is_recoverable = not harm & Harm.LOST_PAGE, harm == Harm.UNREADABLE
                yield AffectedRoot(root=Cid(key).text, is_complete=is_complete, is_recoverable=is_recoverable)
        for key in self.unreadable_roots():
            yield AffectedRoot(root=Cid(key).text, is_complete=True, is_recoverable=True)

    def _damaged_pages(self) -> list[DamagedObject]:
        harms = self.pages.harms
        trees = {key[-32:]: key for key, _ in self.roots() if key[-32:] in self.pages.damaged}
        if self.pages.damaged:
            for above, links in self.pages.links():
                if above in harms:
                    trees |= {digest: links.root for digest in links.pages if digest in self.pages.damaged}
        return [
            DamagedObject(
                cid=page_cid(trees[digest], digest) if digest in trees else digest.hex(),
                what=what,
                is_recoverable=harms.get(digest) == Harm.UNREADABLE,
            )
            for digest, what in self.pages.damaged.items()
        ]

    def _missing_pages(self) -> list[DamagedObject]:
        """The missing pages that a held root needs: an upload that was not finished may lack others."""
        if not self.pages.missing:
            return []
        harms = self.pages.harms
        reached = {key[-32:] for key, _ in self.roots() if key[-32:] in harms}
        size = -1
        while len(reached) != size:
            size = len(reached)
            for digest, links in self.pages.links():
                if digest in reached:
                    reached.update(below for below in links.pages if below in harms)
        missing = self.pages.missing.items()
        return [
            DamagedObject(cid=page_cid(tree, digest), what="it is missing")
            for digest, tree in missing
            if digest in reached
        ]

    # --- guides -------------------------------------------------------------------------------------------------------

    def _damaged_guides(self) -> list[DamagedObject]:
        found: list[DamagedObject] = []
        if not self._inventory.is_guided:
            return found
        self._begin("checking guides", "guides")
        for guides in self._inventory.guides():
            stored = self._inventory.get_pages([guide.page for guide in guides])
            pages = [(guide.page, page or b"") for guide, page in zip(guides, stored, strict=True)]
            derived = {guide[0]: Guide(*guide) for guide in page_guides(pages)}
            for guide, links in zip(guides, page_links(pages), strict=True):
                self._advance()
                self._unguided.pop(guide.page, None)
                if links is not None and derived.get(guide.page) != guide:  # a damaged page is named already
                    self.misguiding.append(guide.page)
                    what = "its guide leads to others than its inner pages"
                    found.append(_damaged_guide(links.root, guide.page, what))
        for digest, page in zip(self._unguided, self._inventory.get_pages(list(self._unguided)), strict=True):
            if page is not None:  # else removed meanwhile
                found.append(_damaged_guide(self._unguided[digest], digest, "it has no guide to its inner pages"))
        return found

    # --- records ------------------------------------------------------------------------------------------------------

    def names(self) -> Iterator[PublishedName]:
        """Iterate over the published names."""
        for each in published(self._records):
            yield self._again(each) if self._inventory.is_live and each.what is not None else each

    def _again(self, name: PublishedName) -> PublishedName:
        """Read the rows of a name that change together: until nothing was published meanwhile."""
        newest = NEWEST + name.key
        for _ in range(_ATTEMPTS):
            before = list(self._records(newest))
            rows = rows_of_name(name.key, self._records)
            if before == list(self._records(newest)):
                return PublishedName(name.key, rows)
        raise Unavailable(f"{name.scope}/{name.name} is published too often to be checked; try again")

    def _records(self, prefix: bytes) -> Iterator[CheckedRow]:
        return self._inventory.rows(Table.RECORDS, prefix)

    def unreadable_records(self) -> Iterator[bytes]:
        """Iterate over the keys of records whose values cannot be read."""
        return (key for key, value in self._inventory.rows(Table.RECORDS) if value is None)

    def pinned(self) -> Iterator[bytes]:
        """Iterate over the roots of pins."""
        return (pinned_root(value) for _, value in self._records(PINS) if value is not None)

    def _noted_pins(self) -> Iterator[str]:
        """The names of lost pins that a repair has noted."""
        return (pin_name(key) or key.hex() for key, value in self._records(LOST_PINS) if value is not None)

    # --- progress -----------------------------------------------------------------------------------------------------

    def _begin(self, step: str, unit: str) -> None:
        self._progress = Progress(step=step, unit=unit)
        self._report(self._progress)

    def _advance(self) -> None:
        progress = self._progress
        self._progress = Progress(step=progress.step, done=progress.done + 1, unit=progress.unit)
        now = time.monotonic()
        if now - self._reported >= _REPORT_SECONDS:
            self._reported = now
            self._report(self._progress)


def _damaged_guide(tree: bytes, digest: bytes, what: str) -> DamagedObject:
    return DamagedObject(cid=page_cid(tree, digest), what=what, is_recoverable=True)


def _is_root(key: bytes) -> bool:
    """Return whether a key is the binary CID of a root."""
    try:
        return Cid(key).kind != "cas"
    except InvalidInput:
        return False


def _shown(key: bytes) -> str:
    """A key of `Table.RECORDS` for a person: its owner and the rest as hex."""
    return f"{key[:1].decode('latin-1')} {key[1:].hex()}"


async def check_online(
    store: CollectableStore, report: ProgressCallback, on_read: Callable[[int], None] = lambda size: None
) -> CheckResult:
    """Check every page, payload, root and record of a store that may be in use, as `StoreCheck` does.

    Args:
        store: The store.
        report: Called often, in a thread, with how far the check is.
        on_read: Called in the thread with the number of bytes of each read; may wait, to limit the rate.

    Raises:
        Unavailable: The store does not answer.
        StoreDamaged: The store cannot read its own files.
    """
    inventory = StoreInventory(store, on_read)
    return await inventory.in_thread(lambda: StoreCheck(inventory, report).run())


_Name = tuple[bool, bytes]
"""Whether it is a root, and its binary CID, or its multihash."""

_REMEMBERED: Final = 1 << 20
"""CIDs of which is remembered that they were returned; more than that may come twice."""


def absent_targets(check: StoreCheck, named: Iterable[str]) -> Iterator[str]:
    """Iterate over the CIDs of payloads and roots that a store does not hold, though something names them.

    These are the leaves of its trees, the revisions of published records, its pins, and `named`. Reads all pages, and
    the rows of payloads, roots and records. Memory: 8 bytes for each payload and root that is held, and 1 Mi CIDs.

    Args:
        check: A check of the store, which need not have run.
        named: Further CIDs that may be absent.

    Raises:
        InvalidInput: `named` has something that is not a CID.
    """
    payloads, roots = check.held_payloads(), Known(key for key, _ in check.roots())
    returned: set[bytes] = set()
    for of_root, key in chain(_given(named), _recorded(check), _linked(check)):
        if key in returned or key in (roots if of_root else payloads):
            continue
        if len(returned) >= _REMEMBERED:
            returned.clear()
        returned.add(key)
        yield Cid(key).text if of_root else payload_cid(key)


def _given(named: Iterable[str]) -> Iterator[_Name]:
    for cid in map(Cid, named):
        if cid.kind != "cas":
            yield True, bytes(cid)
        elif cid.hash_name != "identity":
            yield False, cid.multihash


def _recorded(check: StoreCheck) -> Iterator[_Name]:
    """The roots of all revisions of published records, and of pins."""
    for name in check.names():
        for record in name.revisions.values():
            yield True, record.root
    for root in check.pinned():
        yield True, root


def _linked(check: StoreCheck) -> Iterator[_Name]:
    """What the leaves of all trees name."""
    for _, links in check.pages.links():
        for root in links.roots:
            yield True, root
        for multihash in links.payloads:
            yield False, multihash


_LINE_BYTES: Final = 1 << 30

_END_SECONDS: Final = 10.0


class _Line(msgspec.Struct, frozen=True):
    progress: Progress | None = None
    result: CheckResult | None = None


async def check_in_process(
    data: Path, rate: int | None, report: Callable[[Progress], None], variables: Mapping[str, str] | None = None
) -> CheckResult:
    """Run ``coregw fsck`` on a store, which may be in use; cancelling it ends the process.

    Args:
        data: The data directory.
        rate: The maximum number of bytes to read per second; None for no limit.
        report: Called with the progress.
        variables: Environment variables beside those of this process, which name a store that is shared.

    Raises:
        Unavailable: The store cannot be checked, or the process has ended otherwise.
    """
    command = [sys.executable, "-P", "-m", "coregw", "fsck", "--lines", "--data", str(data)]
    if rate is not None:
        command += ["--rate", str(rate)]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        limit=_LINE_BYTES,
        start_new_session=True,
        env=os.environ | dict(variables or {}),
    )
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    assert process.stderr is not None  # noqa: S101 - it is a pipe
    try:
        async for line in process.stdout:
            message = msgspec.json.decode(line, type=_Line)
            if message.result is not None:
                return message.result
            if message.progress is not None:
                report(message.progress)
        reason = (await process.stderr.read()).decode("utf-8", "replace").strip()
        raise Unavailable(f"the store cannot be checked: {reason or f'exit code {await process.wait()}'}")
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process that may still run, and let it remove its snapshot."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
