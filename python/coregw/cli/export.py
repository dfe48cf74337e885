"""``coregw export``: a verified root as a CAR file."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from coregw.cli.common import client, counted, gateway_option, progress

__all__ = ["command"]


@click.command("export", short_help="Write the tree of ROOT to a new CAR file.")
@click.argument("root")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--payloads", is_flag=True, help="Add the payloads that the tree names, as far as the gateway has them.")
@gateway_option
def command(root: str, file: Path, payloads: bool, gateway: str) -> None:
    """Write the tree of ROOT to the new file FILE, as CARv1, with the trees of the roots nested in it.

    Every block is verified, and that no node of the tree is missing, before FILE gets its name. Nested roots and
    payloads that the gateway does not have are left out; how many payloads that are is said.
    """
    with client(gateway) as opened, progress("exporting") as (_, advance):
        done = opened.export_car(root, file, payloads=payloads, progress=advance)
    left_out = (
        f"; {counted(done.missing_payloads, 'target')} without payload" if payloads and done.missing_payloads else ""
    )
    click.echo(f"coregw: wrote {counted(done.blocks, 'block')}, {counted(done.bytes, 'byte')}{left_out}", err=True)
