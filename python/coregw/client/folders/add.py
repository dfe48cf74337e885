"""Adding a folder: each file becomes a payload or a measured list, the folder one map of their paths.

A file of at most 1 MiB is one raw payload; a larger one is a list of 1 MiB chunks, measured in bytes. The map has no
entries for folders: an empty folder leaves no trace, and a folder without files is the empty map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import anyio.to_thread

from coregw import _core
from coregw.client.aio import AsyncClient
from coregw.client.folders.parallel import for_each
from coregw.client.folders.reader import ChunkReader, SkipFile
from coregw.errors import Conflict
from coregw.folders.survey import CHUNK_BYTES, Skipped, Source, Survey
from coregw.text import display_name

__all__ = ["Added", "add_folder"]

WORKERS = 8
_MAX_READS = 3


@dataclass(frozen=True, slots=True)
class Added:
    """The result of `add_folder`.

    Attributes:
        root: The candidate root, computed here.
        arcs: The target of every file's path.
        lists: Number of targets that are lists.
        bytes: Total size of all files.
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
    """Store every file of a survey and create the map of their paths.

    Args:
        client: The client to send with.
        found: The files to add.
        suite: The suite of the map and of the lists.
        progress: Called with the size in bytes of each chunk that is stored.
        workers: Maximum number of files in progress; each holds at most one chunk in memory.

    Raises:
        Conflict: A file kept changing while it was read.
        ProofError: The gateway's CIDs are not those computed here.
        Unavailable: The gateway can't be reached, or can't store more.
    """
    upload = _FolderUpload(client, suite, progress, [*found.skipped])
    await for_each(found.sources, upload.add, workers)
    arcs = {source.path: upload.targets[source.path] for source in found.sources if source.path in upload.targets}
    root = await client.create_root(arcs, suite)
    lists = sum(_core.Cid(target).kind == "list" for target in arcs.values())
    return Added(root, arcs, lists, upload.bytes, upload.skipped)


class _FolderUpload:
    """The state of one `add_folder`: what is stored so far."""

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
        """Store one file; record it as skipped if it can't be read."""
        try:
            chunks = await self._store_one_version(source)
        except SkipFile as skip:
            self.skipped.append(skip.skipped)
            return
        self.bytes += sum(size for _, size in chunks)
        self.targets[source.path] = chunks[0][0] if len(chunks) == 1 else await self._store_list(chunks)

    async def _store_one_version(self, source: Source) -> list[tuple[str, int]]:
        """Store the chunks of one version of the file, reading again if it changed meanwhile."""
        for _ in range(_MAX_READS):
            reader = ChunkReader(source)
            try:
                chunks = await self._store_chunks(reader)
                if not reader.has_changed():
                    return chunks
            finally:
                reader.close()
        raise Conflict(f"{display_name(source.file)}: changed each of the {_MAX_READS} times that it was read")

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
