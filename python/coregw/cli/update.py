"""``coregw update``: bind and remove paths of a map, and print the proven new root."""

from __future__ import annotations

from coregw.cli.common import client, gateway_option
from coregw.cli.framework import click

__all__ = ["command"]


@click.command("update", short_help="Bind and remove paths of a map.")
@click.argument("root")
@click.option("--set", "new", type=(str, str), multiple=True, metavar="PATH CID", help="Bind PATH to CID; repeatable.")
@click.option("--remove", "removed", multiple=True, metavar="PATH", help="Remove PATH; repeatable.")
@gateway_option
def command(root: str, new: tuple[tuple[str, str], ...], removed: tuple[str, ...], gateway: str) -> None:
    """Change the map with the root ROOT, and print the new root, which is derived locally from the changes.

    Either all changes are made or none. ROOT itself is unchanged and stays readable. CID may be a payload, a list or a
    map, such as the root that "coregw add" prints.
    """
    from coregw.errors import InvalidInput

    if not new and not removed:
        raise click.UsageError("nothing to change: give --set or --remove")
    paths = [path for path, _ in new]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise InvalidInput(f"{twice}: named twice", code="invalid_path")
    with client(gateway) as opened:
        click.echo(opened.update(root, dict(new), removed))
