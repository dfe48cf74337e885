"""``coregw cat``: the verified bytes of one file on stdout."""

from __future__ import annotations

import sys

import rich_click as click

from coregw.cli.common import client, gateway_option

__all__ = ["command"]


@click.command("cat", short_help="Write the verified bytes of a file to stdout.")
@click.argument("root")
@click.argument("path")
@gateway_option
def command(root: str, path: str, gateway: str) -> None:
    """Write the bytes of the file at PATH in ROOT to stdout.

    The way from ROOT to the file is proven and the bytes are hashed; of a list, chunk by chunk, so that what was
    written before a failure is right, but not all. An empty PATH stands for ROOT itself.
    """
    with client(gateway) as opened:
        for piece in opened.contents(opened.resolve(root, path)):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
