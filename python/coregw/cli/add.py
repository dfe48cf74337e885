"""``coregw add``: add a folder or a file to a gateway, and print the candidate root."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coregw.cli.common import (
    GatewayChoice,
    async_client,
    attribute_options,
    counted,
    gateway_option,
    interruptible,
    progress,
    report_skipped,
    suite_option,
    survey_options,
)
from coregw.cli.framework import click

if TYPE_CHECKING:
    from coregw.client.folders.add import Added, AddProgress
    from coregw.folders.survey import Survey
    from coregw.folders.tree import Level, Recorded
    from coregw.folders.upload_cache import UploadCache

__all__ = ["command"]


@click.command("add")
@click.argument("path", metavar="DIR|FILE", type=click.Path(path_type=Path))
@survey_options
@attribute_options
@suite_option
@gateway_option
@click.option("--cache/--no-cache", "use_cache", default=True, help="Whether to read only files that have changed.")
@interruptible()
def command(
    path: Path,
    suite: str,
    gateway: GatewayChoice,
    *,
    use_cache: bool,
    attributes: Level,
    owner: bool,
    xattrs: bool,
    exclude: tuple[str, ...],
    gitignore: bool,
) -> None:
    """Add a folder, or one file, and print the candidate root.

    Each file becomes a payload, or a list of chunks if it is larger than 256 KiB; the folder becomes one map from paths
    to files, with a second one of links, modes, times and folders. A single file becomes a map with its name.

    Files that match patterns of --exclude or of .coregwignore files are left out, and so is .git. Special files and
    unreadable files are reported and skipped; an unreadable single FILE is an error. A name that is not UTF-8 is an
    error. Every CID and the root are computed locally and compared with the gateway's.
    """
    import anyio

    from coregw.client.folders.add import AddProgress
    from coregw.folders.survey import survey
    from coregw.folders.tree import Recorded
    from coregw.folders.upload_cache import UploadCache

    recorded = Recorded(attributes, owner, xattrs)
    found = survey(path, exclude, gitignore)
    with progress(f"adding {counted(found.files, 'file')}") as (set_total, advance):
        set_total(found.bytes)
        total = found.bytes

        def sending(count: int) -> None:
            nonlocal total
            total += count
            set_total(total)

        callbacks = AddProgress(advance, sending, advance)
        cache = UploadCache.of(path, f"{suite} fastcdc 64 KiB") if use_cache else None
        added = anyio.run(_add, gateway, found, suite, callbacks, cache, recorded)
    report_skipped(path, added.skipped)
    left_out = f", {len(added.skipped):,} skipped" if added.skipped else ""
    click.echo(f"coregw: added {counted(added.files, 'file')}, {counted(added.bytes, 'byte')}{left_out}", err=True)
    click.echo(added.root)


async def _add(
    gateway: GatewayChoice,
    found: Survey,
    suite: str,
    callbacks: AddProgress,
    cache: UploadCache | None,
    recorded: Recorded,
) -> Added:
    from coregw.client.folders.add import add_folder

    async with async_client(gateway) as client:
        return await add_folder(client, found, suite, callbacks, cache, recorded)
