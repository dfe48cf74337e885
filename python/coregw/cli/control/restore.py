"""``coregw restore``: make a store of a generation of a backup repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coregw.cli.common import json_option
from coregw.cli.control.display import print_result, shown_progress
from coregw.cli.framework import LOCAL_PATH, click

if TYPE_CHECKING:
    from coregw.upkeep.backup import Restored

__all__ = ["command"]


@click.command("restore")
@click.argument("source", metavar="SOURCE", type=click.Path(path_type=Path, file_okay=False, readable=False))
@click.option("--data", type=LOCAL_PATH, help="Folder to restore to: empty, or created if missing.")
@click.option("--to", "store", metavar="STORE", help="Empty store to restore to: postgresql://...")
@click.option("--to-bucket", metavar="s3://...", help="Bucket of that store, if it has one.")
@click.option("--generation", type=click.IntRange(1), help="Number of the generation; the newest by default.")
@click.option("--quick", is_flag=True, help="Do not check the pages and payloads of the result.")
@json_option
def command(
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
    afterwards. An interrupted restore continues when it is run again. COREGW_STORE_UNSAFE applies.
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


def _to_folder(source: Path, data: Path, generation: int | None, show: Any, *, quick: bool) -> Restored:  # noqa: ANN401 - see `Control.run`
    import msgspec

    from coregw.upkeep.backup import Track, restore

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
) -> Restored:
    import asyncio

    import msgspec

    from coregw.cli.control.direct import opened_database
    from coregw.upkeep.backup import refill

    async def run() -> Restored:
        async with opened_database(store, bucket, "--to") as destination:
            return await refill(
                source, destination, generation, lambda progress: show(msgspec.to_builtins(progress)), quick=quick
            )

    return asyncio.run(run())
