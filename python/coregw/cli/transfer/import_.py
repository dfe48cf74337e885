"""``coregw import``: send a CAR file to a gateway, and print its roots, one a line."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from coregw.cli.common import counted, json_option, progress, show_result
from coregw.cli.framework import click, note
from coregw.cli.gateways import GatewayChoice, client, gateway_option

__all__ = ["command"]


@click.command("import", short_help="Send a CAR file to the gateway; print its roots.")
@click.argument("file", type=click.Path(allow_dash=True, readable=False))
@json_option
@gateway_option
def command(file: str, as_json: bool, gateway: GatewayChoice) -> None:
    """Send the CAR file FILE to the gateway, and print the roots that its header names. "-" is stdin.

    The gateway imports all of it or nothing: every block must have its CID's hash, and every tree must be complete. The
    roots are candidates: trust them as far as you trust the origin of FILE.

    Input from stdin is first copied to a temporary file (in TMPDIR).
    """
    with _opened(file) as path, client(gateway) as opened, progress("importing") as (set_total, advance):
        set_total(path.stat().st_size)
        done = opened.import_car(path, name=file, progress=advance)
    note(f"imported {counted(done.blocks, 'block')}, {counted(done.bytes, 'byte')}")
    show_result(as_json, "\n".join(done.roots) or None, roots=done.roots, blocks=done.blocks, bytes=done.bytes)


@contextmanager
def _opened(file: str) -> Iterator[Path]:
    """Yield a path that can be read repeatedly, as a failed request is retried from the start."""
    if file != "-":
        yield Path(file)
        return
    with NamedTemporaryFile(prefix="coregw-", suffix=".car") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield Path(copy.name)
