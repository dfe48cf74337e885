"""Export of roots as a static tree, with payloads copied from a gateway or another tree."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from coregw._core import Cid, PageLinks, PayloadCheck, page_links
from coregw.client.settings import ClientSettings, ConnectionOptions
from coregw.client.static.folder import open_tree
from coregw.client.static.tree import StaticTree, explorer_files, record_path
from coregw.client.static.upstream import HttpUpstream
from coregw.client.transport.gateways import Address
from coregw.concurrency import for_each
from coregw.errors import InvalidInput, PayloadNotFound, RootNotFound, StoreDamaged, TooLarge
from coregw.messages.common import check_names
from coregw.messages.management import PublishedRecord
from coregw.store import Table
from coregw.store.origin import OriginStore, are_pages, is_root_page, page_path, payload_path, root_path
from coregw.store.protocol import raw_cid
from coregw.undecodable import UNDECODABLE
from coregw.verify import CidLike

__all__ = ["Exported", "PayloadCopier", "export_static", "open_source"]

_ALONE_AT_ONCE: Final = 16

_ANSWERS_AT_ONCE: Final = 4

_ANSWER_BYTES: Final = 4 << 20
"""The maximum size of an answer with many payloads, which is kept in memory."""

_SHORT_BYTES: Final = _ANSWER_BYTES // 4

_FIRST_BATCH: Final = 64

_MAX_BATCH: Final = 1024


class PayloadCopier:
    """Copies payloads that are missing, by the fewest requests that its memory allows.

    The sizes of payloads are known only when they come. So the number that is requested together grows while answers
    are short, and is halved when one exceeds its limit; a payload that does so alone is streamed.

    Args:
        store: The source, which checks what it reads.
        tree: The destination.
        copied: Called with the size of each payload that was written.
    """

    def __init__(self, store: OriginStore, tree: StaticTree, copied: Callable[[int], None]) -> None:
        self._store = store
        self._tree = tree
        self._copied = copied
        self._batch = _FIRST_BATCH

    async def copy(self, multihashes: Iterable[bytes]) -> None:
        """Copy payloads, by multihash.

        Raises:
            PayloadNotFound: The source does not hold one of them.
            UpstreamDamaged, Unavailable, OSError: As `coregw.client.static.export.export_static`.
        """
        waiting = deque(multihashes)

        async def alone(multihash: bytes) -> None:
            await self._copy_alone(multihash)

        if not self._store.upstream.has_batches:
            await for_each(waiting, alone, _ALONE_AT_ONCE)
            return

        async def work(_: int) -> None:
            while waiting:
                some = [waiting.popleft() for _ in range(min(self._batch, len(waiting)))]
                waiting.extend(await self._copy_together(some))

        await for_each(range(_ANSWERS_AT_ONCE), work, _ANSWERS_AT_ONCE)

    async def _copy_together(self, multihashes: list[bytes]) -> list[bytes]:
        """Copy payloads that come in one answer. Returns those that have to be requested in a shorter one."""
        if len(multihashes) == 1:
            if await self._copy_alone(multihashes[0]) < _SHORT_BYTES:
                self._batch = max(self._batch, 2)
            return []
        try:
            found = await self._store.payload_batch(multihashes, _ANSWER_BYTES)
        except TooLarge:
            self._batch = min(self._batch, len(multihashes) // 2)
            return multihashes
        pairs = [*zip(multihashes, found, strict=True)]
        new = [(payload_path(name), data) for name, data in pairs if data is not None]
        await self._tree.put(new)
        for _, data in new:
            self._copied(len(data))
        if sum(len(data) for _, data in new) < _SHORT_BYTES:
            self._batch = min(_MAX_BATCH, max(self._batch, 2 * len(multihashes)))
        for name in (name for name, data in pairs if data is None):
            await self._copy_alone(name)
        return []

    async def _copy_alone(self, multihash: bytes) -> int:
        """Copy a payload of any size, and return the size."""
        file = await self._store.open_payload(multihash)
        if file is None:
            name, url = raw_cid(multihash).text, self._store.upstream.url
            raise PayloadNotFound(f"{url} does not hold the payload {name}; the source must hold everything")
        with file:
            size = await self._tree.put_file(payload_path(multihash), file)
        self._copied(size)
        return size


@asynccontextmanager
async def open_source(
    url: str, settings: ClientSettings, connection: ConnectionOptions | None = None
) -> AsyncGenerator[tuple[OriginStore, HttpUpstream], None]:
    """Open a store that reads from an address, and what counts its requests.

    Raises:
        InvalidInput: `url` is not an address.
    """
    upstream = HttpUpstream(Address.parse(url), settings, connection)
    store = OriginStore(upstream, requests_at_once=settings.connections)
    try:
        yield store, upstream
    finally:
        await store.close()


_PAGES_AT_ONCE: Final = 64


@dataclass(slots=True)
class Exported:
    """What an export has written; what was there before is not counted.

    Attributes:
        roots: The number of roots.
        pages: The number of pages.
        payloads: The number of payloads.
        bytes: The size of all of these.
        requests: The number of requests to the source.
        received: The number of bytes in the bodies of their answers.
        record: What is now published under the name, if one was given.
    """

    roots: int = 0
    pages: int = 0
    payloads: int = 0
    bytes: int = 0
    requests: int = 0
    received: int = 0
    record: PublishedRecord | None = None


async def export_static(
    source: str,
    root: CidLike,
    place: Path | str,
    *,
    payloads: bool = True,
    name: tuple[str, str] | None = None,
    explorer: bool = False,
    settings: ClientSettings | None = None,
    connection: ConnectionOptions | None = None,
    progress: Callable[[int], None] | None = None,
) -> Exported:
    """Write a root, and everything below it, to a static tree (docs/protocol.md, section 8). O(what is not there yet).

    An export that is interrupted leaves a tree that lacks the root; the next one goes on where it ended.

    Args:
        source: The address of a gateway, or ``static+`` and that of another static tree.
        root: The root of a map or list.
        place: The folder of the static tree, or a bucket, as for `coregw.client.static.folder.open_tree`.
        payloads: Whether payloads are written, too; otherwise readers must have them from elsewhere.
        name: A scope and a name under which the root is published in the tree, by a small file that is replaced.
        explorer: Whether the explorer is written, too: ``index.html`` and what it loads. It replaces another one.
        settings: Limits and timeouts.
        connection: How the source is reached.
        progress: Called with further numbers of bytes that were written.

    Raises:
        InvalidInput: `root` is not a root, or `name` not a name; `place` is malformed; another export to the folder is
            running; roots nest too deep.
        RootNotFound, PayloadNotFound: The source does not hold the root, or something below it.
        UpstreamDamaged: The source sent something else than what was named.
        Unavailable: The source does not answer, or the bucket refuses an operation.
        OSError: The file system refused an operation.
    """
    cid = Cid(root)
    if cid.kind == "cas":
        raise InvalidInput(f"{cid.text} is a payload, not a root", code="kind_mismatch")
    if name is not None:
        check_names(*name)
    settings = settings or ClientSettings()
    async with open_source(source, settings, connection) as (store, upstream):
        async with open_tree(place, payloads=payloads) as tree:
            export = _Export(store, tree, settings.max_nesting, progress)
            await export.root(bytes(cid), 0)
            if explorer:
                await tree.put(explorer_files())
            if name is not None:
                export.done.record = await _publish(tree, *name, cid.text)
        export.done.requests, export.done.received = upstream.traffic.requests, upstream.traffic.received
    return export.done


class _Export:
    """One export. `root` visits what is missing, depth first."""

    def __init__(
        self, store: OriginStore, tree: StaticTree, max_nesting: int, progress: Callable[[int], None] | None
    ) -> None:
        self._store = store
        self._tree = tree
        self._max_nesting = max_nesting
        self._progress = progress or (lambda count: None)
        self._payload_copier = PayloadCopier(store, tree, self._count_payload)
        self._seen: set[bytes] = set()
        """If the tree may have gaps: the digests, roots and multihashes of which everything is there."""
        self.done = Exported()

    async def root(self, root: bytes, depth: int) -> None:
        """Export a root, by its binary CID; `depth` is the number of roots that it is nested in."""
        if depth > self._max_nesting:
            raise InvalidInput(f"roots nest deeper than {self._max_nesting}")
        if root in self._seen:
            return
        is_missing = await self._tree.missing([root_path(root)]) != []
        if not self._tree.may_have_gaps and not is_missing:
            return
        [row] = await self._store.get(Table.ROOTS, [root])
        text = Cid(root).text
        if row is None:
            raise RootNotFound(f"{self._store.upstream.url} does not hold the root {text}")
        await self._subtrees([Cid(root).digest], depth)
        [page] = await self._tree.read([page_path(Cid(root).digest)])
        if page is None or not is_root_page(root, page):
            raise StoreDamaged(f"{self._tree.place}: the page of {text} was changed while it was exported")
        if is_missing:
            if depth == 0:  # others may precede their pages in a power cut, which leaves the mark
                await self._tree.settle()
            await self._tree.put([(root_path(root), page)], is_durable=depth == 0)
            self._count(len(page))
            self.done.roots += 1
        self._seen.add(root)

    async def _subtrees(self, digests: Sequence[bytes], depth: int) -> None:
        """Export the pages with these digests, and all below them."""
        for start in range(0, len(digests), _PAGES_AT_ONCE):
            if pages := await self._missing(digests[start : start + _PAGES_AT_ONCE]):
                await self._export_pages(pages, depth)

    async def _export_pages(self, pages: Sequence[tuple[bytes, bytes]], depth: int) -> None:
        found = await asyncio.to_thread(page_links, pages)
        links = [each for each in found if each is not None]  # all of them: they were checked
        if self._tree.payloads:
            await self._payloads(_all(links, "payloads"))
        for root in await self._missing_roots(_all(links, "roots")):
            await self.root(root, depth + 1)
        await self._subtrees([*_all(links, "pages")], depth)
        missing = {*await self._tree.missing([page_path(digest) for digest, _ in pages])}
        new = [(path, page) for digest, page in pages if (path := page_path(digest)) in missing]
        await self._tree.put(new)
        self._count(sum(len(page) for _, page in new))
        self.done.pages += len(new)
        if self._tree.may_have_gaps:
            self._seen.update(digest for digest, _ in pages)

    async def _missing(self, digests: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """Return the pages of which something may be missing, by digest."""
        paths = {page_path(digest): digest for digest in digests if digest not in self._seen}
        if not self._tree.may_have_gaps:
            return await self._fetched([paths[path] for path in await self._tree.missing([*paths])])
        local = [*zip(paths.values(), await self._tree.read([*paths]), strict=True)]
        there = [(digest, page) for digest, page in local if page is not None]
        whole = [pair for pair, good in zip(there, are_pages(there), strict=True) if good]
        damaged = [pair[0] for pair in there if pair not in whole]
        fetched = await self._fetched([digest for digest, page in local if page is None] + damaged)
        await self._tree.put([(page_path(digest), page) for digest, page in fetched if digest in damaged])
        return whole + fetched

    async def _fetched(self, digests: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        pages = await self._store.get(Table.PAGES, digests) if digests else []
        fetched: list[tuple[bytes, bytes]] = []
        for digest, page in zip(digests, pages, strict=True):
            if page is None:
                raise StoreDamaged(f"{self._store.upstream.url} does not hold the page {digest.hex()} of a held root")
            fetched.append((digest, page))
        return fetched

    async def _missing_roots(self, roots: Iterable[bytes]) -> list[bytes]:
        """Return the roots of which something may be missing."""
        if self._tree.may_have_gaps:
            return [*roots]
        paths = {root_path(root): root for root in roots}
        return [paths[path] for path in await self._tree.missing([*paths])]

    async def _payloads(self, multihashes: Iterable[bytes]) -> None:
        paths = {payload_path(each): each for each in multihashes if each not in self._seen}
        missing = {*await self._tree.missing([*paths])}
        if self._tree.may_have_gaps:
            if self._tree.may_be_torn:
                missing |= {
                    path for path in paths if path not in missing and not await self._is_whole(path, paths[path])
                }
            self._seen.update(paths.values())
        await self._payload_copier.copy(each for path, each in paths.items() if path in missing)

    async def _is_whole(self, path: str, multihash: bytes) -> bool:
        """Whether a payload that is there has the right bytes."""
        check = PayloadCheck(raw_cid(multihash))
        async for chunk in self._tree.chunks(path):
            check.update(chunk)
        return check.matches()

    def _count_payload(self, size: int) -> None:
        self.done.payloads += 1
        self._count(size)

    def _count(self, size: int) -> None:
        self.done.bytes += size
        self._progress(size)


def _all(links: Sequence[PageLinks], kind: str) -> dict[bytes, None]:
    """Return what pages lead to, each once, in tree order."""
    return dict.fromkeys(each for one in links for each in getattr(one, kind))


async def _publish(tree: StaticTree, scope: str, name: str, root: str) -> PublishedRecord:
    """Write the record of a name, unless it names the root already."""
    path = record_path(scope, name)
    [before] = await tree.read([path])
    try:
        current = None if before is None else msgspec.json.decode(before, type=PublishedRecord)
    except UNDECODABLE as error:
        raise InvalidInput(f"{tree.place}: the record of {scope}/{name} is malformed: {error}") from None
    if current is not None and current.root == root:
        return current
    if current is not None and current.frozen:
        raise InvalidInput(f"{scope}/{name} is frozen at revision {current.revision}", code="record_frozen")
    now = datetime.now(UTC)
    record = PublishedRecord(
        scope=scope,
        name=name,
        root=root,
        revision=1 if current is None else current.revision + 1,
        previous_root=None if current is None else current.root,
        published_at=now if current is None else max(now, current.published_at),
        frozen=False,
    )
    await tree.put([(path, msgspec.json.encode(record))], is_durable=True)
    return record
