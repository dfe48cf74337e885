"""``coregw backup``: add the current content of a store to a backup repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coregw.cli.common import json_option
from coregw.cli.control.connection import data_option, find_control
from coregw.cli.control.direct import refuse_shared
from coregw.cli.control.display import print_result, shown_progress
from coregw.cli.framework import click

if TYPE_CHECKING:
    from coregw.upkeep.backup import BackedUp

__all__ = ["command"]


@click.command("backup")
@click.argument("destination", metavar="DEST", type=click.Path(path_type=Path, file_okay=False))
@data_option
@click.option("--keep", type=click.IntRange(1), help="Number of generations to keep; 7 by default.")
@click.option("--verify", "is_verified", is_flag=True, help="Read everything back and check it, after the backup.")
@click.option("--verify-only", is_flag=True, help="Read everything back and check it, without a new backup.")
@json_option
def command(
    destination: Path, data: Path, keep: int | None, is_verified: bool, verify_only: bool, as_json: bool
) -> None:
    """Back up a store to the directory DEST, while a gateway runs on it or not.

    DEST is created if it is missing, and may be on another file system. Each backup is a generation of its own, which
    contains everything that was acknowledged before it began; only files that DEST does not have yet are copied.
    `coregw restore` restores a generation.
    """
    from coregw.upkeep.backup import DEFAULT_KEEP

    if not verify_only:
        kept = DEFAULT_KEEP if keep is None else keep
        with shown_progress("backup", as_json=as_json) as show:
            result = _back_up(data, destination.absolute(), kept, show)
        print_result(result, as_json=as_json)
    if is_verified or verify_only:
        with shown_progress("verify", as_json=as_json) as show:
            verified = _verify(destination, show)
        print_result(verified, as_json=as_json)


def _back_up(data: Path, destination: Path, keep: int, show: Any) -> dict[str, Any]:  # noqa: ANN401 - see `Control.run`
    refuse_shared(
        "backup",
        "`coregw copy --from postgresql://... --to rocksdb:DIR` makes a copy that is verified and incremental; "
        "pg_basebackup and pg_dump back the database up",
    )
    control = find_control(data)
    if control is not None:
        with control:
            return control.run("backup", {"destination": str(destination), "keep": keep}, show)
    import asyncio

    import msgspec

    from coregw.errors import InvalidInput
    from coregw.store.rocksdb import MARKER, open_store
    from coregw.upkeep.backup import back_up

    if not (data / MARKER).is_file():  # opening it would make a store of it
        raise InvalidInput(f"{data} is not a coregw store: it has no {MARKER}")

    async def run() -> BackedUp:
        async with await open_store(data) as store:
            return await back_up(store, destination, keep, lambda progress: show(msgspec.to_builtins(progress)))

    result: dict[str, Any] = msgspec.to_builtins(asyncio.run(run()))
    return result


def _verify(destination: Path, show: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    import msgspec

    from coregw.upkeep.backup import Track, verify

    result: dict[str, Any] = msgspec.to_builtins(
        verify(destination, Track(lambda progress: show(msgspec.to_builtins(progress))))
    )
    return result
