"""``coregw copy``: copy a whole store into another one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from click.exceptions import Exit

from coregw.cli.common import json_option
from coregw.cli.control.display import print_result, shown_progress
from coregw.cli.framework import click

if TYPE_CHECKING:
    from coregw.store.collection import CollectableStore
    from coregw.upkeep.copy import Copied

__all__ = ["command"]

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
def command(
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
    COREGW_STORE_UNSAFE applies. Exit code 4: something in the source is damaged, and was left out.
    """
    import asyncio

    import msgspec

    from coregw.cli import EXIT_DAMAGED
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
    from coregw.cli.control.direct import opened_database
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
