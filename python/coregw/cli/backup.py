"""``coregw backup``, ``restore`` and ``copy``: whole stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.exceptions import Exit

from coregw.cli.common import json_option
from coregw.cli.control import data_option, find_control
from coregw.cli.framework import LOCAL_PATH, click
from coregw.cli.progress import print_result, shown_progress
from coregw.text import require_utf_8

if TYPE_CHECKING:
    from coregw.store.collection import CollectableStore
    from coregw.upkeep.backup import BackedUp
    from coregw.upkeep.copy import Copied
    from coregw.upkeep.restore import RestoredStore

__all__ = ["backup_command", "copy_command", "restore_command"]


@click.command("backup")
@click.argument("destination", metavar="DEST", type=click.Path(path_type=Path, file_okay=False, readable=False))
@data_option
@click.option("--keep", type=click.IntRange(1), help="Number of generations to keep; 7 by default.")
@click.option(
    "--adopt", is_flag=True, help="Go on with the backups of an earlier incarnation, in whose place this store is."
)
@click.option("--verify", "is_verified", is_flag=True, help="Read everything back and check it, after the backup.")
@click.option("--verify-only", is_flag=True, help="Read everything back and check it, without a new backup.")
@json_option
def backup_command(
    destination: Path,
    data: Path,
    keep: int | None,
    adopt: bool,
    is_verified: bool,
    verify_only: bool,
    as_json: bool,
) -> None:
    """Back up a store to the directory DEST, while a gateway runs on it or not.

    DEST is created if it is missing, and may be on another file system. Each backup is a complete generation, which
    contains everything that was acknowledged before it began; only what DEST does not have yet is copied. `coregw
    restore` restores a generation.

    DEST is for one store. A store that was restored or copied is another incarnation of it: it backs up to another
    directory, or with --adopt here, if it takes the place of the one whose backups DEST has.

    If COREGW_STORE names a store in PostgreSQL, that store and its bucket are backed up row by row, and everything is
    compared with its digest; no garbage can be collected meanwhile. Exit code 4: something is damaged, and was left
    out.
    """
    from coregw.cli.main import EXIT_DAMAGED
    from coregw.upkeep.backup import DEFAULT_KEEP

    is_damaged = False
    if not verify_only:
        kept = DEFAULT_KEEP if keep is None else keep
        with shown_progress("backup", as_json=as_json) as show:
            result = _back_up(data, destination.absolute(), kept, show, adopt=adopt)
        print_result(result, as_json=as_json)
        is_damaged = bool(result.get("damaged_count"))
    if is_verified or verify_only:
        with shown_progress("verify", as_json=as_json) as show:
            verified = _verify(destination, show)
        print_result(verified, as_json=as_json)
    if is_damaged:
        raise Exit(EXIT_DAMAGED)


def _back_up(
    data: Path,
    destination: Path,
    keep: int,
    show: Any,  # noqa: ANN401 - see `Control.run`
    *,
    adopt: bool,
) -> dict[str, Any]:
    control = find_control(data)
    if control is not None:
        require_utf_8(destination, ", since a gateway writes there")
        with control:
            return control.run("backup", {"destination": str(destination), "keep": keep, "adopt": adopt}, show)
    import asyncio

    import msgspec

    from coregw.cli.control import is_shared, opened_store
    from coregw.upkeep.backup import back_up

    async def run() -> BackedUp:
        if not is_shared():
            await _name(data)
        async with opened_store(data, reads_only=True) as store:
            return await back_up(
                store,
                destination,
                keep,
                lambda progress: show(msgspec.to_builtins(progress)),
                adopt=adopt,
                data=data,
            )

    result: dict[str, Any] = msgspec.to_builtins(asyncio.run(run()))
    return result


async def _name(data: Path) -> None:
    """Open a store of an earlier version once, so that its marker says which store it is."""
    from coregw.store.rocksdb import MARKER, read_identity
    from coregw.upkeep.offline import opened_directory

    if (data / MARKER).is_file() and read_identity(data) is None:
        async with opened_directory(data):
            pass


def _verify(destination: Path, show: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    import msgspec

    from coregw.upkeep.backup import verify
    from coregw.upkeep.repository import Track

    result: dict[str, Any] = msgspec.to_builtins(
        verify(destination, Track(lambda progress: show(msgspec.to_builtins(progress))))
    )
    return result


@click.command("restore")
@click.argument("source", metavar="SOURCE", type=click.Path(path_type=Path, file_okay=False, readable=False))
@click.option("--data", type=LOCAL_PATH, help="Folder to restore to: empty, or created if missing.")
@click.option("--to", "store", metavar="STORE", help="Empty store to restore to: postgresql://...")
@click.option("--to-bucket", metavar="s3://...", help="Bucket of that store, if it has one.")
@click.option("--generation", type=click.IntRange(1), help="Number of the generation; the newest by default.")
@click.option("--quick", is_flag=True, help="Do not check the pages and payloads of the result.")
@json_option
def restore_command(
    source: Path,
    data: Path | None,
    store: str | None,
    to_bucket: str | None,
    generation: int | None,
    quick: bool,
    as_json: bool,
) -> None:
    """Restore a store from the backup in the directory SOURCE, to a folder (--data) or into PostgreSQL (--to).

    Every file is compared with its checksum, and the result opened and checked as by `coregw fsck`, before it becomes a
    store: a restore that fails or is killed leaves nothing that a gateway would start on. If the store was damaged when
    it was backed up, --quick restores it nevertheless, for `coregw fsck --repair`.

    For PostgreSQL, the generation is checked first; then its rows are copied, published names last. Start gateways
    afterwards. An interrupted restore continues when it is run again.
    """
    import msgspec

    if (data is None) == (store is None):
        raise click.UsageError("expected either --data or --to")
    if to_bucket is not None and store is None:
        raise click.UsageError("--to-bucket needs --to")
    with shown_progress("restore", as_json=as_json) as show:
        if data is not None:
            result = _to_folder(source, data, generation, show, quick=quick)
        else:
            result = _to_store(source, str(store), to_bucket, generation, show, quick=quick)
    print_result(msgspec.to_builtins(result), as_json=as_json)


def _to_folder(source: Path, data: Path, generation: int | None, show: Any, *, quick: bool) -> RestoredStore:  # noqa: ANN401 - see `Control.run`
    import msgspec

    from coregw.upkeep.repository import Track
    from coregw.upkeep.restore import restore

    track = Track(lambda progress: show(msgspec.to_builtins(progress)))
    return restore(source, data, generation, track, quick=quick)


def _to_store(
    source: Path,
    store: str,
    bucket: str | None,
    generation: int | None,
    show: Any,  # noqa: ANN401 - as above
    *,
    quick: bool,
) -> RestoredStore:
    import asyncio

    import msgspec

    from coregw.cli.control import opened_database
    from coregw.upkeep.restore import refill

    async def run() -> RestoredStore:
        async with opened_database(store, bucket, "--to") as destination:
            return await refill(
                source, destination, generation, lambda progress: show(msgspec.to_builtins(progress)), quick=quick
            )

    return asyncio.run(run())


_EMBEDDED = "rocksdb:"


@click.command("copy")
@click.option("--from", "source", metavar="STORE", required=True, help="rocksdb:DIR or postgresql://...")
@click.option("--to", "destination", metavar="STORE", required=True, help="rocksdb:DIR or postgresql://...")
@click.option("--from-bucket", metavar="s3://...", help="Bucket of the source, if it has one.")
@click.option("--to-bucket", metavar="s3://...", help="Bucket of the destination, if it has one.")
@click.option(
    "--replace-records",
    is_flag=True,
    help="Replace records of the destination that differ; names only continue: nothing is unfrozen or taken back.",
)
@json_option
def copy_command(
    source: str,
    destination: str,
    from_bucket: str | None,
    to_bucket: str | None,
    replace_records: bool,
    as_json: bool,
) -> None:
    """Copy payloads, roots, their pages and published records from one store to another.

    Everything is checked against its digest. What the destination already holds is skipped, so run it again after an
    interruption. A RocksDB store must not be open elsewhere, and nothing should be published in PostgreSQL meanwhile.
    Exit code 4: something in the source is damaged, and was left out.
    """
    import asyncio

    import msgspec

    from coregw.cli.main import EXIT_DAMAGED
    from coregw.upkeep.copy import copy_store

    async def run() -> Copied:
        async with (
            _as_owner_of(destination),
            _opened(source, from_bucket, "--from") as origin,
            _opened(destination, to_bucket, "--to") as target,
        ):
            return await copy_store(
                origin,
                target,
                replace_records=replace_records,
                report=lambda progress: show(msgspec.to_builtins(progress)),
            )

    with shown_progress("copy", as_json=as_json) as show:
        result = asyncio.run(run())
    print_result(msgspec.to_builtins(result), as_json=as_json)
    if result.damaged_count:
        raise Exit(EXIT_DAMAGED)


@asynccontextmanager
async def _as_owner_of(store: str) -> AsyncIterator[None]:
    """Act as the user of the folder in which a destination is, if it is in one."""
    from coregw.upkeep.offline import as_owner

    with as_owner(Path(store.removeprefix(_EMBEDDED))) if store.startswith(_EMBEDDED) else nullcontext():
        yield


@asynccontextmanager
async def _opened(store: str, bucket: str | None, option: str) -> AsyncIterator[CollectableStore]:
    """Open a store; a source must exist, a destination is created."""
    from coregw.cli.control import opened_database
    from coregw.store.rocksdb import open_store
    from coregw.upkeep.offline import opened_snapshot

    if store.startswith(_EMBEDDED):
        if bucket is not None:
            raise click.UsageError(f"{option}-bucket needs a store in PostgreSQL")
        path = Path(store.removeprefix(_EMBEDDED))
        if option == "--from":
            async with opened_snapshot(path) as opened:
                yield opened
        else:
            async with await open_store(path) as opened:
                yield opened
        return
    async with opened_database(store, bucket, option, "rocksdb:DIR or postgresql://USER@HOST/DATABASE") as database:
        yield database
