"""``coregw export``: a verified root as a CAR file."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import rich_click as click

from coregw.cli.common import client, counted, gateway_option, progress

if TYPE_CHECKING:
    from coregw.client.operations.car import ExportedCar

__all__ = ["command"]


@click.command("export", short_help="Write the tree of ROOT to a new CAR file.")
@click.argument("root")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--payloads", is_flag=True, help="Add the payloads that the tree names, as far as the gateway has them.")
@gateway_option
def command(root: str, file: str, payloads: bool, gateway: str) -> None:
    """Write the tree of ROOT to the new file FILE, as CARv1, with the trees of the roots nested in it.

    Every block is verified, and that no node of the tree is missing, before FILE gets its name. Nested roots and
    payloads that the gateway does not have are left out; how many payloads that are is said.

    With "-" the bytes go to stdout. They wait in a temporary file until all of them are verified; TMPDIR says where.
    """
    if file != "-":
        done = _export(root, Path(file), payloads, gateway)
    elif sys.stdout.isatty():
        raise click.UsageError("a CAR file is not for a terminal: send stdout to a file or a pipe, or name a FILE")
    else:
        with TemporaryDirectory(prefix="coregw-") as folder:
            whole = Path(folder, "root.car")
            done = _export(root, whole, payloads, gateway)
            with whole.open("rb") as verified:
                shutil.copyfileobj(verified, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    left_out = (
        f"; {counted(done.missing_payloads, 'target')} without payload" if payloads and done.missing_payloads else ""
    )
    click.echo(f"coregw: wrote {counted(done.blocks, 'block')}, {counted(done.bytes, 'byte')}{left_out}", err=True)


def _export(root: str, file: Path, payloads: bool, gateway: str) -> ExportedCar:
    with client(gateway) as opened, progress("exporting") as (_, advance):
        return opened.export_car(root, file, payloads=payloads, progress=advance)
