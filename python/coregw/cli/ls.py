"""``coregw ls``: list a map or a folder in it, proven to be complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coregw.cli.common import client, gateway_option, printable
from coregw.cli.framework import click

if TYPE_CHECKING:
    from coregw.client import Client

__all__ = ["command"]


@click.command("ls")
@click.argument("root")
@click.argument("path", default="")
@click.option("-R", "--recursive", is_flag=True, help="List all files below PATH, following nested maps.")
@click.option("-l", "--long", "with_targets", is_flag=True, help="Show the CID of each target.")
@gateway_option
def command(root: str, path: str, recursive: bool, with_targets: bool, gateway: str) -> None:
    """List one level of the folder or file at PATH in ROOT.

    Each line is a size and a name. The size is that of a list in its measure (bytes, for a file), else "-": the size of
    a payload is only known from its bytes. Folders and nested maps end in "/". The listing is proven, and proven to be
    complete. Control characters in names are shown as escapes.
    """
    from coregw._core import Cid

    with client(gateway) as opened:
        target, prefix = opened.locate(root, path)
        kind = Cid(target).kind
        if kind != "map":
            name = path.rsplit("/", 1)[-1] or target
            _line(opened, name, target, with_targets)
        elif recursive:
            for leaf in opened.walk(target, prefix):
                name = "/".join(leaf.segments[len(prefix) :]) or leaf.segments[-1]
                _line(opened, name, leaf.target, with_targets)
        else:
            for entry in opened.children(target, prefix):
                name = entry.name + "/" if entry.kind in ("directory", "map") else entry.name
                _line(opened, name, entry.target, with_targets)


def _line(opened: Client, name: str, target: str | None, with_targets: bool) -> None:
    from coregw._core import Cid

    size = str(opened.list_size(target)) if target is not None and Cid(target).kind == "list" else "-"
    middle = f"  {target or '-':<65}" if with_targets else ""
    click.echo(f"{size:>12}{middle}  {printable(name)}")
