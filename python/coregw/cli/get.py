"""``coregw get``: write the verified tree of a root to a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from coregw.cli.common import async_client, counted, gateway_option, progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from coregw.client.folders.restore import Restored

__all__ = ["command"]


@click.command("get", short_help="Write the verified tree of ROOT to a new folder.")
@click.argument("root")
@click.argument("dest", type=click.Path(path_type=Path))
@gateway_option
def command(root: str, dest: Path, gateway: str) -> None:
    """Write the tree of ROOT to the folder DEST, which must be new or empty.

    The listing and every byte are verified. Before anything is written, paths that can't be files here are refused by
    name: "." and "..", NUL and path separators, a file that is also a folder. So are names that clash on this file
    system. DEST gets the whole tree or nothing.
    """
    import anyio

    with progress("getting the tree") as (_, advance):
        done = anyio.run(_get, gateway, root, dest, advance)
    click.echo(f"coregw: wrote {counted(done.files, 'file')}, {counted(done.bytes, 'byte')} to {dest}", err=True)


async def _get(gateway: str, root: str, dest: Path, advance: Callable[[int], None]) -> Restored:
    from coregw.client.folders.restore import restore_folder

    async with async_client(gateway) as client:
        return await restore_folder(client, root, dest, progress=advance)
