"""Restoring what a store has lost, from files that were fetched elsewhere: CARs of roots, payloads, published records.

What has a CID is checked against it before it is stored, so where it comes from does not matter. Records have none:
they are what their source says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET

from coregw._core import Cid
from coregw.engine import Engine
from coregw.engine.records import Record, RecordTable
from coregw.errors import Conflict, CoregwError, InvalidInput, RootNotFound
from coregw.messages import Message
from coregw.messages.management import Progress, PublishedRecord
from coregw.store import CHUNK_BYTES, Store, Table
from coregw.upkeep.check import LOST
from coregw.upkeep.findings import CheckResult
from coregw.upkeep.inventory import check_of

__all__ = ["CAR_SUFFIX", "RECORDS_FILE", "HealResult", "Wanted", "restore", "restore_here", "wanted"]

CAR_SUFFIX: Final = ".car"

RECORDS_FILE: Final = "records.ndjson"
"""Published records, as lines of `PublishedRecord`, those of one name together."""

_ROWS: Final = 1000


class Wanted(Message, frozen=True, kw_only=True):
    """What a store has lost, by CID, and could have from elsewhere."""

    roots: list[str]
    payloads: list[str]


class HealResult(Message, frozen=True, kw_only=True):
    """What was restored, and the reasons why other things were not.

    Attributes:
        roots: Roots, by CID; for the CAR of a file, its name.
        payloads: Payloads, by CID.
        records: Published names that got back revisions, as scope/name.
        refused: Why something that has a CID was not restored.
        conflicts: Why the records of a name were not.
    """

    roots: list[str]
    payloads: list[str]
    records: list[str]
    refused: list[str]
    conflicts: list[str]


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


async def restore(engine: Engine, directory: Path, report: Callable[[Progress], None]) -> HealResult:
    """Store what the files of a directory have: CARs (``*.car``), payloads, named by their CIDs, and `RECORDS_FILE`.

    Durable on return. A file that is not what its name says, or is not a whole CAR, is refused; the others are stored.

    Raises:
        Unavailable: The store cannot write at the moment (`StorageFull`: it has no room).
    """
    roots: list[str] = []
    payloads: list[str] = []
    refused: list[str] = []
    files = await asyncio.to_thread(lambda: sorted(directory.iterdir()))
    recorded = directory / RECORDS_FILE
    files = [file for file in files if file != recorded]
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
    records, conflicts = await _restore_records(engine, recorded) if recorded.exists() else ([], [])
    return HealResult(roots=roots, payloads=payloads, records=records, refused=refused, conflicts=conflicts)


async def restore_here(opening: Awaitable[Store], directory: Path, report: Callable[[Progress], None]) -> HealResult:
    """Do what `restore` does, for a store that is opened for it."""
    engine = Engine(await opening)
    try:
        return await restore(engine, directory, report)
    finally:
        await engine.close()


async def _store_payload(engine: Engine, cid: Cid, file: Path) -> None:
    check = check_of(cid.multihash)
    async with engine.store.begin_payload() as writer:
        async for chunk in _chunks(file):
            await asyncio.to_thread(check.update, chunk)
            await writer.write(chunk)
        if not check.matches():
            raise InvalidInput(f"the bytes do not have the digest of {cid.text}")
        await writer.commit(cid.multihash)


async def _restore_records(engine: Engine, file: Path) -> tuple[list[str], list[str]]:
    """Restore published records; which, and why others were not. Memory: the revisions of one name."""
    table = RecordTable(engine.store)
    restored: list[str] = []
    conflicts: list[str] = []
    with file.open("rb") as lines:
        records = (msgspec.json.decode(line, type=PublishedRecord) for line in lines)
        for (scope, name), revisions in groupby(records, key=lambda record: (record.scope, record.name)):
            try:
                if await table.restore([_record(each) for each in revisions]):
                    restored.append(f"{scope}/{name}")
            except RootNotFound:
                conflicts.append(f"{scope}/{name}: the root of its newest revision is not held")
            except (Conflict, InvalidInput) as error:
                conflicts.append(error.message)
    return restored, conflicts


def _record(published: PublishedRecord) -> Record:
    previous = published.previous_root
    return Record(
        scope=published.scope,
        name=published.name,
        root=bytes(Cid(published.root)),
        revision=published.revision,
        previous_root=None if previous is None else bytes(Cid(previous)),
        published_at=published.published_at,
        frozen=published.frozen,
        frozen_at=None if published.frozen_at is UNSET else published.frozen_at,
    )


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
    """Yield the bytes of a file, read in threads: a gateway goes on answering."""
    try:
        with await asyncio.to_thread(file.open, "rb", buffering=0) as opened:
            while chunk := await asyncio.to_thread(opened.read, CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise CoregwError(f"{file}: {error.strerror}") from error


def _distinct(cids: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(cids))
