"""``coregw update``: bind and remove paths of a map, and print the proven new root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coregw.cli.common import json_option, root_of, show_result, trusted_names
from coregw.cli.framework import click
from coregw.cli.gateways import GatewayChoice, client, gateway_option

if TYPE_CHECKING:
    from coregw.client import Client

__all__ = ["command"]


@click.command("update", short_help="Bind and remove paths of a map.")
@click.argument("root", shell_complete=trusted_names)
@click.option("--set", "new", type=(str, str), multiple=True, metavar="PATH CID", help="Bind PATH to CID; repeatable.")
@click.option("--remove", "removed", multiple=True, metavar="PATH", help="Remove PATH; repeatable.")
@json_option
@gateway_option
def command(
    root: str, new: tuple[tuple[str, str], ...], removed: tuple[str, ...], as_json: bool, gateway: GatewayChoice
) -> None:
    """Change the map with the root ROOT, and print the new root, which is derived locally from the changes.

    Either all changes are made or none. ROOT itself is unchanged and stays readable. CID may be a payload, a list or a
    map, such as the root that "coregw add" prints. What a folder's root records about a changed path, such as its mode
    and size, is removed.
    """
    from coregw.errors import InvalidInput

    if not new and not removed:
        raise click.UsageError("nothing to change: give --set or --remove")
    paths = [path for path, _ in new]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise InvalidInput(f"{twice}: named twice", code="invalid_path")
    with client(gateway) as opened:
        changed = opened.update(root_of(root), dict(new), removed)
        changed = _without_records(opened, changed, [*paths, *removed])
    show_result(as_json, changed, root=changed)


def _without_records(opened: Client, root: str, paths: list[str]) -> str:
    """Return the root of a folder without the attributes of these paths: they describe what was there before."""
    from coregw._core import Cid
    from coregw.client.folders.edit import change_folder
    from coregw.client.query import segments_of
    from coregw.folders.attributes import ATTRIBUTES_PATH

    reserved = "/".join(ATTRIBUTES_PATH)
    (attributes,) = opened.prove_keys(root, [reserved])
    if attributes is None or Cid(attributes).kind != "map" or reserved in paths:
        return root
    return change_folder(opened, root, {}, dict.fromkeys(tuple(segments_of(path)) for path in paths))
