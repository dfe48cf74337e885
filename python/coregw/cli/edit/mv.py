"""``coregw mv``: move a file or a folder of a root."""

from __future__ import annotations

from coregw.cli.common import json_option, path_of, root_of, show_result, trusted_names
from coregw.cli.framework import click
from coregw.cli.gateways import GatewayChoice, client, gateway_option

__all__ = ["command"]


@click.command("mv", short_help="Move a file or a folder in a root.")
@click.argument("root", shell_complete=trusted_names)
@click.argument("old")
@click.argument("new")
@json_option
@gateway_option
def command(root: str, old: str, new: str, as_json: bool, gateway: GatewayChoice) -> None:
    """Move OLD to NEW in the folder with the root ROOT, and print the new root.

    If NEW is a folder, OLD is moved into it. A file or link at NEW is replaced. No content is sent. ROOT itself is
    unchanged and stays readable.
    """
    from coregw.client.folders.edit import move_path

    with client(gateway) as opened:
        changed = move_path(opened, root_of(root), path_of(old), path_of(new))
    show_result(as_json, changed, root=changed)
