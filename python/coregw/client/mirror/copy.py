"""Copies of maps and lists: what is below a root first, the root last, and of a map only what differs from a base."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from msgspec import UNSET

from coregw._core import ArcSorter, Cid
from coregw.client.folders.parallel import for_each
from coregw.client.mirror.lists import Element, list_changes
from coregw.client.mirror.payloads import copy_payloads
from coregw.client.mirror.reader import PageReader
from coregw.client.mirror.recent import recent_roots, remember_root
from coregw.client.mirror.side import Side
from coregw.client.operations.diff import Difference, differences
from coregw.client.operations.mutate import Changes, apply_changes
from coregw.client.operations.root import build_sorted, completeness, create_list, is_held
from coregw.client.operations.steps import check_same_cid
from coregw.client.operations.tree import entries, list_targets
from coregw.client.query import CidLike
from coregw.errors import InvalidInput, RootNotFound, Unavailable
from coregw.messages import Change, Endpoint

__all__ = ["Mirrored", "mirror"]

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
    progress: Callable[[int], None] = lambda count: None,
) -> Mirrored:
    """Copy a root, and everything below it, to another gateway. O(differences) from a base, otherwise O(size).

    Everything is proven or compared with its digest before the destination gets it. A copy that is interrupted leaves
    payloads, whole nested roots and parts of maps, never the root; repeat it, and the source does not send these again.

    Args:
        source: The gateway or static tree to copy from.
        destination: The gateway to copy to.
        root: The root of a map or list.
        bases: Roots of earlier versions; the first of which the destination has everything is the base. After them come
            the roots that were copied from this source to this destination last.
        payloads: Whether payloads are copied, too. Otherwise a root whose tree is held counts as copied.
        line: Which of the earlier roots are versions of the same: a published name, or nothing.
        progress: Called with further numbers of bytes that are sent to the destination.

    Raises:
        InvalidInput: `root` is not a root; roots nest too deep; the destination accepts no writes.
        RootNotFound, PayloadNotFound: The source does not hold the root, or something below it.
        ProofError: A side sent something else than what was named; the message has its address.
        TooLarge: A list has more than `ClientSettings.max_entries` elements.
        Unavailable: A side does not answer, or the destination lost what it had acknowledged.
    """
    cid = _root(root)
    if destination.address.is_static:
        raise InvalidInput(f"{destination.address.shown} is a static tree: write it by an export", code="read_only")
    known = [_Base(_root(base)) for base in bases]
    memory = f"{line}{'' if payloads else ' without payloads'}"
    copied = recent_roots(source.address, destination.address, memory)
    known += [_Base(Cid(each), is_guess=not line, is_copied=True) for each in copied]
    async with AsyncExitStack() as stack:
        destination.on_sent = progress
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
        self._done.sent = self._destination.sent
        self._done.received = self._source.received + (0 if self._reader is None else self._reader.received)
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
