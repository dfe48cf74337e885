"""Adding a folder: each file a payload or a measured list, the folder one map of their paths; nothing taken on trust.

A file of at most 1 MiB is one raw payload; a larger one is a list of chunks of 1 MiB, measured in bytes. The map holds
no folders of its own: an empty folder leaves no trace, and a folder without files is the empty map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import anyio.to_thread

from coregw import _core
from coregw.client.aio import AsyncClient
from coregw.client.folders import CHUNK_BYTES, ChunkReader, Skip, Skipped, Source, Survey, shown
from coregw.client.parallel import for_each
from coregw.errors import Conflict

__all__ = ["Added", "add_folder"]

WORKERS = 8
_READINGS = 3


@dataclass(frozen=True, slots=True)
class Added:
    """What was added.

    Attributes:
        root: The candidate root, as computed here.
        arcs: Every file's path with its target.
        lists: How many of the targets are lists.
        bytes: The bytes of all files.
        skipped: What was left out, and why.
    """

    root: str
    arcs: dict[str, str]
    lists: int
    bytes: int
    skipped: list[Skipped]


async def add_folder(
    client: AsyncClient,
    found: Survey,
    suite: str = "sha2-256",
    progress: Callable[[int], None] = lambda count: None,
    workers: int = WORKERS,
) -> Added:
    """Stores every file of a survey and makes their map.

    Args:
        client: The client to send with.
        found: What to add.
        suite: The suite of the map and of the lists.
        progress: Is told the number of bytes of each chunk that is stored.
        workers: Most files at a time; each holds at most one chunk in memory.

    Raises:
        Conflict: A file kept changing while it was read.
        ProofError: The gateway's CIDs are not those computed here.
        Unavailable: The gateway can't be reached, or can't store more.
    """
    adding = _Adding(client, suite, progress, [*found.skipped])
    await for_each(found.sources, adding.add, workers)
    arcs = {source.path: adding.targets[source.path] for source in found.sources if source.path in adding.targets}
    root = await client.create_root(arcs, suite)
    lists = sum(_core.Cid(target).kind == "list" for target in arcs.values())
    return Added(root, arcs, lists, adding.bytes, adding.skipped)


class _Adding:
    """One run of `add_folder`: what is stored so far."""

    def __init__(
        self, client: AsyncClient, suite: str, progress: Callable[[int], None], skipped: list[Skipped]
    ) -> None:
        self.targets: dict[str, str] = {}
        self.bytes = 0
        self.skipped = skipped
        self._client = client
        self._suite = suite
        self._progress = progress
        self._stored: set[str] = set()
        self._empty_root: str | None = None

    async def add(self, source: Source) -> None:
        """Stores one file; one that can't be read is noted and left out."""
        try:
            chunks = await self._store_whole(source)
        except Skip as skip:
            self.skipped.append(skip.skipped)
            return
        self.bytes += sum(size for _, size in chunks)
        self.targets[source.path] = chunks[0][0] if len(chunks) == 1 else await self._store_list(chunks)

    async def _store_whole(self, source: Source) -> list[tuple[str, int]]:
        """The chunks of one version of the file: it is read again if it changed meanwhile."""
        for _ in range(_READINGS):
            reader = ChunkReader(source)
            try:
                chunks = await self._store_chunks(reader)
                if not reader.changed():
                    return chunks
            finally:
                reader.close()
        raise Conflict(f"{shown(source.file)}: changed each of the {_READINGS} times that it was read")

    async def _store_chunks(self, reader: ChunkReader) -> list[tuple[str, int]]:
        chunks: list[tuple[str, int]] = []
        while True:
            data = await anyio.to_thread.run_sync(reader.read)
            if data or not chunks:
                chunks.append((await self._store_payload(data), len(data)))
            if len(data) < CHUNK_BYTES:
                return chunks

    async def _store_payload(self, data: bytes) -> str:
        cid = _core.payload_cid(data)
        if cid not in self._stored:
            await self._client.put_payload(data)
            self._stored.add(cid)
        self._progress(len(data))
        return cid

    async def _store_list(self, chunks: list[tuple[str, int]]) -> str:
        if self._empty_root is None:
            self._empty_root = await self._client.create_root({}, self._suite)
        targets, sizes = zip(*chunks, strict=True)
        return await self._client.create_list(targets, sizes, base=self._empty_root)
