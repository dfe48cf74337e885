"""``coregw import``: a CAR file into a gateway; its roots on stdout, one a line."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from coregw.cli.common import client, counted, gateway_option, progress

__all__ = ["command"]


@click.command("import", short_help="Send a CAR file to the gateway; print its roots.")
@click.argument("file", type=click.Path(path_type=Path))
@gateway_option
def command(file: Path, gateway: str) -> None:
    """Send the CAR file FILE to the gateway, and print the roots that its header names.

    The gateway takes all of it or nothing: every block must have its hash, and the trees must be whole. The roots are
    candidates, as good as where the file comes from.
    """
    with client(gateway) as opened, progress("importing") as (set_total, advance):
        set_total(file.stat().st_size)
        done = opened.import_car(file, progress=advance)
    click.echo(f"coregw: imported {counted(done.blocks, 'block')}, {counted(done.bytes, 'byte')}", err=True)
    for root in done.roots:
        click.echo(root)
