"""``coregw restore``: make a data directory of a generation of a backup repository."""

from __future__ import annotations

from pathlib import Path

from coregw.cli.common import json_option
from coregw.cli.control.display import print_result, shown_progress
from coregw.cli.framework import click

__all__ = ["command"]


@click.command("restore")
@click.argument("source", metavar="SOURCE", type=click.Path(path_type=Path, file_okay=False))
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder to restore to; created, or empty.")
@click.option("--generation", type=click.IntRange(1), help="Number of the generation; the newest by default.")
@click.option("--quick", is_flag=True, help="Do not read the pages and payloads of the result.")
@json_option
def command(source: Path, data: Path, generation: int | None, quick: bool, as_json: bool) -> None:
    """Restore a store from the backup in the directory SOURCE.

    Every file is compared with its checksum, and the result opened and checked as by `coregw fsck`, before it becomes a
    store: a restore that fails or is killed leaves nothing that a gateway would start on. If the store was damaged
    when it was backed up, --quick restores it nevertheless, for `coregw fsck --repair`.
    """
    import msgspec

    from coregw.upkeep.backup import Track, restore

    with shown_progress("restore", as_json=as_json) as show:
        track = Track(lambda progress: show(msgspec.to_builtins(progress)))
        result = restore(source, data, generation, track, quick=quick)
    print_result(msgspec.to_builtins(result), as_json=as_json)
