"""``coregw cat``: the verified bytes of one file on stdout."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import rich_click as click

from coregw.cli.common import client, gateway_option, printable

if TYPE_CHECKING:
    from coregw.client import Client

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
        for piece in opened.contents(_target(opened, root, path)):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _target(opened: Client, root: str, path: str) -> str:
    from coregw.errors import CoregwError, InvalidInput, PathNotFound

    try:
        return opened.resolve(root, path)
    except PathNotFound:
        below = None
        with suppress(CoregwError):  # where it is no folder either, the first answer says what is wrong
            below = next(opened.children(root, path), None)
        if below is None:
            raise
        raise InvalidInput(f"{printable(path)}: a folder; coregw ls shows what is in it") from None
