"""Copies of roots, and of published names, from one gateway to another."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from msgspec import UNSET

from coregw._core import ArcSorter, Cid
from coregw.client.mirror_side import PageReader, Side
from coregw.client.operations.car_import import held_payloads, put_car
from coregw.client.operations.diff import Difference, differences
from coregw.client.operations.mutate import Changes, apply_changes
from coregw.client.operations.payloads import ReceivedPayloads, get_payloads
from coregw.client.operations.publications import publish, published
from coregw.client.operations.roots import build_sorted, completeness, create_list, is_held
from coregw.client.operations.steps import Steps, check_same_cid
from coregw.client.operations.tree import entries, list_targets
from coregw.client.settings import MIB
from coregw.client.transport.gateways import Address
from coregw.concurrency import for_each
from coregw.durability import NewFile
from coregw.errors import Conflict, InvalidInput, RecordNotFound, RootNotFound, TooLarge, Unavailable
from coregw.folders.caches import cache_folder
from coregw.messages import Change, Endpoint
from coregw.messages.management import PublishedRecord
from coregw.messages.payloads import MAX_BATCH_BLOCKS, MAX_HAS_CIDS
from coregw.verify import CidLike

__all__ = [
    "Element",
    "Mirrored",
    "MirroredName",
    "copy_payloads",
    "list_changes",
    "mirror",
    "mirror_published",
    "recent_roots",
    "remember_root",
]

Element = tuple[str, int]
"""The target and the measure of an element."""


def list_changes(before: Sequence[Element], after: Sequence[Element], at_most: int) -> list[list[Change]]:
    """Return the changes that make `after` of `before`, for one mutation after the other. O(elements).

    Elements are compared by their index: one that is inserted before others changes all of them.

    Args:
        before: The elements of the list that is changed.
        after: The elements that it gets.
        at_most: The number of changes of one mutation.

    Returns:
        The replacements, then the appends or removals; none if the lists are equal. The last element is removed first.
    """
    common = min(len(before), len(after))
    pairs = enumerate(zip(before[:common], after[:common], strict=True))
    changes = [
        Change(index=index, before=_endpoint(old), after=_endpoint(new)) for index, (old, new) in pairs if old != new
    ]
    replaced = _cut(changes, at_most)
    appended = [Change(index=common + number, after=_endpoint(each)) for number, each in enumerate(after[common:])]
    removed = [Change(index=common + number, before=_endpoint(each)) for number, each in enumerate(before[common:])]
    return [*replaced, *_cut(removed[::-1] or appended, at_most)]


def _endpoint(element: Element) -> Endpoint:
    target, size = element
    return Endpoint(target=target, size=size)


def _cut(changes: list[Change], at_most: int) -> list[list[Change]]:
    return [changes[start : start + at_most] for start in range(0, len(changes), at_most)]


_ANSWER_BYTES: Final = 16 * MIB
"""What one answer should have, about."""

_LONGEST_ANSWERS: Final = 8
"""An answer of more times that size is ended: its payloads are longer than those before, so fewer are requested."""

_FIRST_COUNT: Final = 64


async def copy_payloads(source: Side, destination: Side, payloads: Iterable[Cid]) -> int:
    """Copy payloads that the destination does not hold. Memory for some 24 MiB; longer answers go to a temporary file.

    That has at most 128 MiB, or one payload: how many are requested is decided by the size of those before.

    Args:
        source: Where they are.
        destination: Where they should be.
        payloads: Their CIDs.

    Returns:
        The number of payloads that were copied.

    Raises:
        PayloadNotFound: The source does not hold one.
        ProofError: The source sent something else; nothing of that answer is sent on.
    """
    distinct = [*{cid.multihash: cid for cid in payloads}.values()]
    missing: list[Cid] = []
    for start in range(0, len(distinct), MAX_HAS_CIDS):
        part = distinct[start : start + MAX_HAS_CIDS]
        held = await destination.run(held_payloads(destination.settings, b"".join(map(bytes, part)), len(part)))
        missing += [cid for index, cid in enumerate(part) if not held[index >> 3] >> (index & 7) & 1]
    at, count = 0, _FIRST_COUNT
    while at < len(missing):
        part = missing[at : at + count]
        try:
            size = await _copy(source, destination, part)
        except TooLarge:
            if len(part) == 1:
                raise
            count = -(-len(part) // _LONGEST_ANSWERS)
            continue
        at += len(part)
        count = max(1, min(MAX_BATCH_BLOCKS, _ANSWER_BYTES * len(part) // size))
    return len(missing)


async def _copy(source: Side, destination: Side, cids: Sequence[Cid]) -> int:
    """Copy payloads in one answer and one request, and return the size of the CAR."""
    what = f"get {len(cids):,} payloads"
    most = None if len(cids) == 1 else _LONGEST_ANSWERS * _ANSWER_BYTES
    with ReceivedPayloads(what, cids, source.settings, most) as car:
        await source.run(_checked(source, car))
        body = car.whole() if car.length <= _ANSWER_BYTES else car
        what = f"send {len(cids):,} payloads"
        await destination.run_in_workers(put_car(destination.settings, body, what, destination.parts))
        return car.length


def _checked(source: Side, car: ReceivedPayloads) -> Steps[None]:
    yield from get_payloads(source.settings, car)
    car.check(f"{source.address.shown} does not hold the payload")


_MAX_ROOTS: Final = 4

_MAX_BYTES: Final = 64 << 10


def recent_roots(source: Address, destination: Address, line: str) -> list[str]:
    """Return roots that were copied from a source to a destination, the newest first; none if that is not known.

    Args:
        source: The source.
        destination: The destination.
        line: Which of the roots follow each other: a published name, or nothing.
    """
    try:
        with _file(source, destination, line).open("rb") as file:
            words = file.read(_MAX_BYTES).decode("ascii", "replace").split()
    except OSError:
        return []
    roots: list[str] = []
    for word in words[:_MAX_ROOTS]:
        with suppress(InvalidInput):
            roots.append(Cid(word).text)
    return roots


def remember_root(source: Address, destination: Address, line: str, root: str) -> None:
    """Remember that a root was copied. If it cannot be remembered, that costs only speed."""
    roots = [root, *(each for each in recent_roots(source, destination, line) if each != root)][:_MAX_ROOTS]
    file = _file(source, destination, line)
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with NewFile(file, replaces=True) as new:
            new.file.write("\n".join(roots).encode("ascii"))
            new.commit()


def _file(source: Address, destination: Address, line: str) -> Path:
    name = "\0".join([source.shown, destination.shown, line])
    return cache_folder() / "mirror" / hashlib.sha256(os.fsencode(name)).hexdigest()


T = TypeVar("T")

_ROOTS_AT_ONCE: Final = 8
"""Of one map or list; each may have as many below it."""

_PAYLOAD_COPIES: Final = 4
"""Answers of many payloads in progress, whatever nests: each may take 24 MiB of memory."""

_ARCS_AT_ONCE: Final = 10_000
"""Arcs, or differences, whose targets are copied together; and changes of one mutation."""

_PART_SECONDS: Final = 60.0
"""An interruption loses the arcs of about this time, of a map that is copied whole."""

_PART_RUN_BYTES: Final = 8 << 20
"""Memory of a run of the arcs of a part; there are four."""


@dataclass(slots=True)
class Mirrored:
    """What a copy has done; what the destination held already is not counted.

    Attributes:
        root: The root, of which the destination now has everything.
        base: The root that the destination held, and of which only the differences were copied, if any.
        roots: The number of roots that were stored, nested ones included.
        arcs: The number of differences, arcs and elements that were sent.
        payloads: The number of payloads that were copied.
        sent: The number of bytes in the bodies of requests to the destination, without its lookups of pages.
        received: The number of bytes in the bodies of the source's answers.
    """

    root: str
    base: str | None = None
    roots: int = 0
    arcs: int = 0
    payloads: int = 0
    sent: int = 0
    received: int = 0


async def mirror(
    source: Side,
    destination: Side,
    root: CidLike,
    *,
    bases: Iterable[CidLike] = (),
    payloads: bool = True,
    line: str = "",
    progress: Callable[[int], None] | None = None,
) -> Mirrored:
    """Copy, as `AsyncClient.mirror`, which describes arguments and errors."""
    cid = _root(root)
    if destination.address.is_static:
        raise InvalidInput(f"{destination.address.shown} is a static tree: write it by an export", code="read_only")
    known = [_Base(_root(base)) for base in bases]
    memory = f"{line}{'' if payloads else ' without payloads'}"
    copied = recent_roots(source.address, destination.address, memory)
    known += [_Base(Cid(each), is_guess=not line, is_copied=True) for each in copied]
    async with AsyncExitStack() as stack:
        destination.traffic.on_sent = progress or (lambda count: None)
        copy = _Copy(source, destination, payloads, stack)
        await copy.root(cid, known, 0)
        await copy.check_whole(cid)
        done = copy.counted()
    remember_root(source.address, destination.address, memory, cid.text)
    return done


def _root(root: CidLike) -> Cid:
    cid = Cid(root)
    if cid.kind == "cas":
        raise InvalidInput(f"{cid.text} is a payload, not a root", code="kind_mismatch")
    return cid


class _Base(NamedTuple):
    """A root of which only the differences may have to be copied.

    Attributes:
        cid: The root.
        is_guess: Whether it may have nothing to do with what is copied.
        is_copied: Whether it was copied completely before, and so is whole if it is held.
    """

    cid: Cid
    is_guess: bool = False
    is_copied: bool = False


class _Copy:
    """One copy. `root` copies what is below a root, then the root."""

    def __init__(
        self,
        source: Side,
        destination: Side,
        payloads: bool,
        stack: AsyncExitStack,
    ) -> None:
        self._source = source
        self._destination = destination
        self._payloads = payloads
        self._stack = stack
        self._reader: PageReader | None = None
        self._copied: set[str] = set()
        self._places = asyncio.Semaphore(_PAYLOAD_COPIES)
        self._done = Mirrored("")

    def counted(self) -> Mirrored:
        """Return what was done, with the bytes of both sides."""
        self._done.sent = self._destination.traffic.sent
        self._done.received = self._source.traffic.received + (0 if self._reader is None else self._reader.received)
        return self._done

    async def check_whole(self, cid: Cid) -> None:
        """Require that the destination says that it has everything below a root. Raises `Unavailable` if not."""
        self._done.root = cid.text
        if not self._payloads:
            return
        told = await self._destination.run(completeness(self._destination.settings, cid))
        if told.missing is not None:  # it may also have given up: everything was acknowledged one by one
            where = self._destination.address.shown
            raise Unavailable(f"{where} does not hold {told.missing:.200} any more; repeat the copy of {cid.text}")

    async def root(self, cid: Cid, bases: Sequence[_Base], depth: int) -> None:
        """Copy a root that is nested in `depth` others. The destination may have some of `bases`."""
        if depth > self._source.settings.max_nesting:
            raise InvalidInput(f"roots nest deeper than {self._source.settings.max_nesting}")
        if cid.text in self._copied or await self._is_whole(cid):
            return
        base = await self._base(cid, bases)
        if cid.kind == "list":
            await self._list(base, cid, depth)
        elif base is None or not await self._changes(base, cid, depth):
            base = None
            await self._map(cid, depth)
        if depth == 0 and base is not None:
            self._done.base = base.cid.text
        self._done.roots += 1
        self._copied.add(cid.text)

    async def _is_whole(self, cid: Cid, *, is_copied: bool = False) -> bool:
        """Return whether the destination has everything below a root; it gives up looking if that is very much."""
        settings = self._destination.settings
        if self._payloads:
            told = await self._destination.run(completeness(settings, cid))
            if told.complete or told.missing is not None or not is_copied:
                return told.complete
        return await self._destination.run(is_held(settings, cid))

    async def _base(self, cid: Cid, bases: Sequence[_Base]) -> _Base | None:
        for base in bases:
            is_alike = (base.cid.kind, base.cid.suite) == (cid.kind, cid.suite)
            if is_alike and await self._is_whole(base.cid, is_copied=base.is_copied):
                return base
        return None

    # --- trees --------------------------------------------------------------------------------------------------------

    async def _changes(self, base: _Base, cid: Cid, depth: int) -> bool:
        """Copy the differences of a map from one that the destination has, and apply them there.

        Returns False, having copied nothing, if the base was a bad guess.
        """
        current = base.cid.text
        async with aclosing(self._differences(base.cid, cid)) as found:
            async for batch, is_last in _batches(found, _ARCS_AT_ONCE):
                if base.is_guess and not is_last:
                    return False
                await self._targets([(each.after, each.before) for each in batch if each.after is not None], depth)
                changes = [_change(each) for each in batch]
                current = await self._changed(Changes(current, "map", changes, cid.text if is_last else None))
                self._done.arcs += len(batch)
        check_same_cid(f"copy {cid.text}", current, cid.text)
        return True

    async def _differences(self, base: Cid, cid: Cid) -> AsyncGenerator[Difference, None]:
        """Yield the differences that the source has proven; if it cannot, those of the pages."""
        settings = self._source.settings
        is_answered = not self._source.address.is_static  # a client of a static tree would read the base's pages, too
        try:
            if is_answered:
                is_answered = False
                async with aclosing(self._source.stream(differences(settings, base, cid))) as found:
                    async for each in found:
                        is_answered = True
                        yield each
                return
        except RootNotFound:  # of the base, or of the root, which the pages show
            if is_answered:
                raise
        async with aclosing(self._pages().stream(differences(settings, base, cid))) as found:
            async for each in found:
                yield each

    async def _map(self, cid: Cid, depth: int) -> None:
        """Copy all arcs of a map, from pages of which the destination may have some.

        A copy that takes long stores parts of the map as maps, too. Their pages are those of the map, but for a few at
        their edges; so if the copy is interrupted, the next one reads these from the destination.
        """
        sorter, part, since = ArcSorter(), ArcSorter(run_bytes=_PART_RUN_BYTES), time.monotonic()
        async with aclosing(self._pages().stream(entries(self._source.settings, cid))) as found:
            async for batch, is_last in _batches(found, _ARCS_AT_ONCE):
                await self._targets([(each.target, None) for each in batch], depth)
                arcs = [(each.segments, each.target) for each in batch]
                await asyncio.to_thread(sorter.add, arcs)
                await asyncio.to_thread(part.add, arcs)
                self._done.arcs += len(batch)
                if not is_last and time.monotonic() - since > _PART_SECONDS:
                    await self._built(part, cid)
                    part, since = ArcSorter(run_bytes=_PART_RUN_BYTES), time.monotonic()
        check_same_cid(f"copy {cid.text}", await self._built(sorter, cid), cid.text)

    async def _built(self, sorter: ArcSorter, cid: Cid) -> str:
        """Build a map of a map's suite at the destination, and return its root."""
        await asyncio.to_thread(sorter.end)
        return await self._destination.run(
            build_sorted(self._destination.settings, sorter, cid.suite or "", self._destination.parts)
        )

    async def _list(self, base: _Base | None, cid: Cid, depth: int) -> None:
        """Copy the elements of a list that differ from those of a base; all of them if there is none."""
        elements = await self._elements(cid)
        before = [] if base is None else await self._elements(base.cid)
        settings = self._destination.settings
        found = list_changes(before, elements, settings.list_changes)
        changes = [change for part in found for change in part]
        await self._list_targets(changes, depth)
        self._done.arcs += len(changes)
        if base is None or 2 * len(changes) > len(elements):  # a change is longer than an element
            targets, sizes = [target for target, _ in elements], [size for _, size in elements]
            steps = create_list(settings, targets, sizes, suite=cid.suite or "", parts=self._destination.parts)
            check_same_cid(f"copy {cid.text}", await self._destination.run(steps), cid.text)
            return
        current = base.cid.text
        for part in found:
            current = await self._changed(Changes(current, "list", part, cid.text if part is found[-1] else None))

    async def _changed(self, changes: Changes) -> str:
        """Change a map or list of the destination, and return its root."""
        steps = apply_changes(self._destination.settings, [changes], f"change {changes.root}", self._destination.parts)
        await self._destination.run(steps)
        return changes.root

    async def _list_targets(self, changes: Sequence[Change], depth: int) -> None:
        targets = []
        for each in changes:
            if each.after is not UNSET:
                before = None if each.before is UNSET else each.before.target
                targets.append((each.after.target, before))
        for start in range(0, len(targets), _ARCS_AT_ONCE):
            await self._targets(targets[start : start + _ARCS_AT_ONCE], depth)

    async def _elements(self, cid: Cid) -> list[Element]:
        """Return the elements of a list, from pages of which the destination may have some."""
        settings = self._source.settings
        return await self._pages().run(list_targets(settings, cid, lambda *_: settings.max_entries))

    def _pages(self) -> PageReader:
        if self._reader is None:
            source, destination = self._source, self._destination
            connections = source.connection, destination.connection
            self._reader = PageReader(source.address, destination.address, source.settings, connections)
            self._stack.push_async_callback(self._reader.aclose)
        return self._reader

    # --- what leaves name ---------------------------------------------------------------------------------------------

    async def _targets(self, targets: Iterable[tuple[str, str | None]], depth: int) -> None:
        """Copy payloads and nested roots, given with what was at their place in the base."""
        distinct = {Cid(target): before for target, before in targets}
        if self._payloads:
            payloads = [cid for cid in distinct if cid.kind == "cas"]
            async with self._places:
                self._done.payloads += await copy_payloads(self._source, self._destination, payloads)
        roots = [(cid, before) for cid, before in distinct.items() if cid.kind != "cas"]

        async def copy(nested: tuple[Cid, str | None]) -> None:
            cid, before = nested
            await self.root(cid, [] if before is None else [_Base(Cid(before))], depth + 1)

        await for_each(roots, copy, _ROOTS_AT_ONCE)


def _change(difference: Difference) -> Change:
    before, after = (UNSET if each is None else Endpoint(target=each) for each in (difference.before, difference.after))
    return Change(path="/".join(difference.segments), before=before, after=after)


async def _batches(items: AsyncIterator[T], count: int) -> AsyncGenerator[tuple[list[T], bool], None]:
    """Yield `count` items at a time, and whether they are the last ones."""
    batch: list[T] = []
    async for item in items:
        if len(batch) == count:
            yield batch, False
            batch = []
        batch.append(item)
    if batch:
        yield batch, True


@dataclass(frozen=True, slots=True)
class MirroredName:
    """What a copy of a published name has done.

    Attributes:
        record: What is published at the source.
        mirrored: What was copied.
        published: What is published at the destination now; None without a token for that.
    """

    record: PublishedRecord
    mirrored: Mirrored
    published: PublishedRecord | None


async def mirror_published(
    source: Side,
    destination: Side,
    scope: str,
    name: str,
    tokens: tuple[str | None, str | None] = (None, None),
    *,
    payloads: bool = True,
    progress: Callable[[int], None] | None = None,
    observed: Callable[[PublishedRecord], PublishedRecord] | None = None,
) -> MirroredName:
    """Copy, as `AsyncClient.mirror_published`, which describes arguments and errors.

    `tokens` are those of source and destination; `observed` is called with the record of the source in a thread,
    and raises if it contradicts an earlier one.
    """
    record = await source.run(published(source.settings, scope, name, tokens[0]))
    if observed is not None:
        await asyncio.to_thread(observed, record)
    before = None if tokens[1] is None else await _published(destination, scope, name, tokens[1])
    versions = [before.root if before is not None else None, record.previous_root]
    bases = [root for root in versions if root is not None]
    line = f"{scope}/{name}"
    done = await mirror(source, destination, record.root, bases=bases, payloads=payloads, line=line, progress=progress)
    after = None if tokens[1] is None else await _publish(destination, record, before, tokens[1])
    return MirroredName(record, done, after)


async def _published(side: Side, scope: str, name: str, token: str) -> PublishedRecord | None:
    try:
        return await side.run(published(side.settings, scope, name, token))
    except RecordNotFound:
        return None


async def _publish(
    side: Side, record: PublishedRecord, before: PublishedRecord | None, token: str
) -> PublishedRecord | None:
    """Publish a root unless it is published already. A repeated request may find that the first one had succeeded."""
    if before is not None and before.root == record.root:
        return before
    revision = 0 if before is None else before.revision
    try:
        return await side.run(publish(side.settings, record.scope, record.name, record.root, token, revision))
    except Conflict:
        after = await _published(side, record.scope, record.name, token)
        if after is None or after.root != record.root:
            raise
        return after
