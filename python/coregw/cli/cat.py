"""``coregw cat``: write the verified bytes of one file to stdout."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from coregw.cli.common import path_of, printable, root_of, trusted_names
from coregw.cli.framework import click
from coregw.cli.gateways import GatewayChoice, client, gateway_option

if TYPE_CHECKING:
    from coregw.client import Client

__all__ = ["command"]


@click.command("cat", short_help="Write the verified bytes of a file to stdout.")
@click.argument("root", shell_complete=trusted_names)
@click.argument("path")
@click.option("--json", is_flag=True, hidden=True, expose_value=False, callback=lambda *given: _no_json(given[2]))
@gateway_option
def command(root: str, path: str, gateway: GatewayChoice) -> None:
    """Write the bytes of the file at PATH in ROOT to stdout.

    The path from ROOT to the file is proven, and the bytes are hashed before they are written. A list is written chunk
    by chunk, so after a failure the output is correct but incomplete. An empty PATH means ROOT itself.
    """
    with client(gateway) as opened:
        for chunk in opened.contents(_target(opened, root_of(root), path_of(path))):
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def _no_json(asked: bool) -> None:
    if asked:
        raise click.UsageError("cat writes the bytes of a file: coregw stat ROOT PATH --json describes it")


def _target(opened: Client, root: str, segments: list[str]) -> str:
    from coregw._core import Cid
    from coregw.errors import InvalidInput, UnprovenAbsence

    try:
        return opened.resolve(root, segments)
    except UnprovenAbsence:
        from coregw.cli.entries import located

        target, below = located(opened, root, segments)
    if below or Cid(target).kind == "map":
        raise InvalidInput(f"{printable('/'.join(segments))} is a folder: list it with coregw ls")
    return target
