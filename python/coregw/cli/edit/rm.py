"""``coregw rm``: remove files and folders of a root."""

from __future__ import annotations

from coregw.cli.common import json_option, path_of, root_of, show_result, trusted_names
from coregw.cli.framework import click
from coregw.cli.gateways import GatewayChoice, client, gateway_option

__all__ = ["command"]


@click.command("rm", short_help="Remove files and folders from a root.")
@click.argument("root", shell_complete=trusted_names)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("-r", "--recursive", is_flag=True, help="Remove folders and everything in them.")
@json_option
@gateway_option
def command(root: str, paths: tuple[str, ...], recursive: bool, as_json: bool, gateway: GatewayChoice) -> None:
    """Remove files, links and folders from the folder with the root ROOT, and print the new root.

    Either all are removed or none. ROOT itself is unchanged and stays readable until it is collected as garbage.
    """
    from coregw.client.folders.edit import remove_paths

    with client(gateway) as opened:
        changed = remove_paths(opened, root_of(root), [path_of(path) for path in paths], recursive=recursive)
    show_result(as_json, changed, root=changed)
