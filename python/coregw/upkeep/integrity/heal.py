"""Restoring what a store has lost, from files that were fetched elsewhere: CARs of roots, and payloads.

Everything is checked against its CID before it is stored. Where the files come from does not matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Final

from coregw._core import Cid
from coregw.engine import Engine
from coregw.errors import CoregwError, InvalidInput
from coregw.messages import Message
from coregw.messages.progress import Progress
from coregw.store import CHUNK_BYTES, Table
from coregw.store.rocksdb import open_store
from coregw.upkeep.integrity.findings import CheckResult
from coregw.upkeep.integrity.lost import LOST
from coregw.upkeep.integrity.payloads import hasher_of

__all__ = ["CAR_SUFFIX", "Restored", "Wanted", "restore", "restore_here", "wanted"]

CAR_SUFFIX: Final = ".car"
_ROWS: Final = 1000


class Wanted(Message, frozen=True, kw_only=True):
    """What a store has lost, by CID, and could have from elsewhere."""

    roots: list[str]
    payloads: list[str]


class Restored(Message, frozen=True, kw_only=True):
    """What was restored, and the reasons why other things were not."""

    roots: list[str]
    payloads: list[str]
    refused: list[str]


def wanted(found: CheckResult) -> Wanted:
    """Return what a check found to be lost.

    Raises:
        InvalidInput: Files of the store are damaged, which a repair has to copy first.
    """
    if found.damaged_files or found.damaged_pages or found.damaged_payloads:
        raise InvalidInput("the store's files are damaged: run `coregw fsck --repair` first")
    roots = [root.root for root in found.affected_roots if not root.is_complete]
    roots += [record.root for record in found.affected_records if record.root is not None]
    return Wanted(roots=_distinct([*roots, *found.incomplete_roots]), payloads=_distinct(found.lost))


async def restore(engine: Engine, directory: Path, report: Callable[[Progress], None]) -> Restored:
    """Store what the files of a directory have: CARs (``*.car``), and payloads, named by their CIDs. Durable on return.

    A file that is not what its name says, or is not a whole CAR, is refused; the others are stored.

    Raises:
        Unavailable: The store cannot write at the moment (`StorageFull`: it has no room).
    """
    roots: list[str] = []
    payloads: list[str] = []
    refused: list[str] = []
    files = await asyncio.to_thread(lambda: sorted(directory.iterdir()))
    for number, file in enumerate(files):
        report(Progress(step="storing", done=number, total=len(files), unit="files"))
        try:
            if file.suffix == CAR_SUFFIX:
                await engine.cars.import_car(_chunks(file))
                roots.append(file.stem)
            else:
                await _store_payload(engine, Cid(file.name), file)
                payloads.append(file.name)
        except InvalidInput as error:
            refused.append(f"{file.name}: {error.message}")
    await _forget_found(engine)
    return Restored(roots=roots, payloads=payloads, refused=refused)


async def restore_here(data: Path, directory: Path, report: Callable[[Progress], None]) -> Restored:
    """Do what `restore` does, for a store that no process has open."""
    engine = Engine(await open_store(data))
    try:
        return await restore(engine, directory, report)
    finally:
        await engine.close()


async def _store_payload(engine: Engine, cid: Cid, file: Path) -> None:
    hasher = hasher_of(cid.multihash)
    if hasher is None:
        raise InvalidInput(f"{cid.text} names no payload")
    async with engine.store.begin_payload() as writer:
        async for chunk in _chunks(file):
            hasher.update(chunk)
            await writer.write(chunk)
        if not hasher.matches():
            raise InvalidInput(f"the bytes do not have the digest of {cid.text}")
        await writer.commit(cid.multihash)


async def _forget_found(engine: Engine) -> None:
    """Delete the notes of lost payloads that are held again."""
    after: bytes | None = None
    while rows := await engine.store.list_rows(Table.RECORDS, LOST, after, _ROWS):
        keys = [key for key, _ in rows]
        sizes = await engine.store.stat_payloads([key[len(LOST) :] for key in keys])
        held = [key for key, size in zip(keys, sizes, strict=True) if size is not None]
        if held:
            await engine.store.delete(Table.RECORDS, held)
        after = keys[-1]


async def _chunks(file: Path) -> AsyncIterator[bytes]:
    try:
        with file.open("rb", buffering=0) as opened:
            while chunk := opened.read(CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise CoregwError(f"{file}: {error.strerror}") from error


def _distinct(cids: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(cids))
