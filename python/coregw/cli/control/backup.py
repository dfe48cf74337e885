"""``coregw backup``: add the current content of a store to a backup repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.exceptions import Exit

from coregw.cli.common import json_option
from coregw.cli.control.connection import data_option, find_control
from coregw.cli.control.display import print_result, shown_progress
from coregw.cli.framework import click

if TYPE_CHECKING:
    from coregw.upkeep.backup import BackedUp

__all__ = ["command"]


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
def command(
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
    from coregw.cli import EXIT_DAMAGED
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
        with control:
            return control.run("backup", {"destination": str(destination), "keep": keep, "adopt": adopt}, show)
    import asyncio

    import msgspec

    from coregw.cli.control.direct import is_shared, opened_store
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

    from coregw.upkeep.backup import Track, verify

    result: dict[str, Any] = msgspec.to_builtins(
        verify(destination, Track(lambda progress: show(msgspec.to_builtins(progress))))
    )
    return result
