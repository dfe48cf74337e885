"""``coregw export``: write the verified tree of a root to a CAR file."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from coregw.cli.common import client, counted, gateway_option, progress
from coregw.cli.framework import click

if TYPE_CHECKING:
    from coregw.client.operations.car import ExportedCar

__all__ = ["command"]


@click.command("export", short_help="Write the tree of ROOT to a new CAR file.")
@click.argument("root")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--payloads", is_flag=True, help="Include the payloads that the tree names and the gateway holds.")
@gateway_option
def command(root: str, file: str, payloads: bool, gateway: str) -> None:
    """Write the tree of ROOT, and of the roots nested in it, to the new CARv1 file FILE.

    FILE appears when every block is verified and no node of the tree is missing. Nested roots and payloads that the
    gateway does not hold are left out; the numbers of targets without them are reported.

    With "-", the bytes are written to stdout after they were verified in a temporary file (in TMPDIR).
    """
    if file != "-":
        done = _export(root, Path(file), payloads, gateway)
    elif sys.stdout.isatty():
        raise click.UsageError("stdout is a terminal: redirect it to a file or a pipe, or give a FILE")
    else:
        with TemporaryDirectory(prefix="coregw-") as folder:
            verified = Path(folder, "root.car")
            done = _export(root, verified, payloads, gateway)
            with verified.open("rb") as opened:
                shutil.copyfileobj(opened, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    left_out = f"; {counted(done.missing_roots, 'target')} without tree" if done.missing_roots else ""
    if payloads and done.missing_payloads:
        left_out += f"; {counted(done.missing_payloads, 'target')} without payload"
    click.echo(f"coregw: wrote {counted(done.blocks, 'block')}, {counted(done.bytes, 'byte')}{left_out}", err=True)


def _export(root: str, file: Path, payloads: bool, gateway: str) -> ExportedCar:
    with client(gateway) as opened, progress("exporting") as (_, advance):
        return opened.export_car(root, file, payloads=payloads, progress=advance)
