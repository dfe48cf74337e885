"""``coregw ls``: list a map or a folder in it, proven to be complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coregw.cli.common import json_option, path_of, printable, root_of, trusted_names
from coregw.cli.framework import click, print_json
from coregw.cli.gateways import GatewayChoice, client, gateway_option

if TYPE_CHECKING:
    from coregw.client import Client
    from coregw.folders.attributes import FolderEntry

__all__ = ["command"]


@click.command("ls")
@click.argument("root", shell_complete=trusted_names)
@click.argument("path", default="")
@click.option("-R", "--recursive", is_flag=True, help="List all files, links and folders below PATH.")
@click.option("-l", "--long", "is_long", is_flag=True, help="Show modes, times (UTC) and the targets of links.")
@click.option("--cid", "with_cids", is_flag=True, help="Show the CID of each target.")
@json_option
@gateway_option
def command(
    root: str, path: str, recursive: bool, is_long: bool, with_cids: bool, as_json: bool, gateway: GatewayChoice
) -> None:
    """List one level of the folder or file at PATH in ROOT.

    Each line is a size in bytes and a name; "-" for a size that is not recorded. Folders and nested maps end in "/".
    The listing is proven, and proven to be complete; sizes, modes and times are what the creator of ROOT recorded, and
    no file is fetched. Control characters in names are shown as escapes; --json prints a JSON object on each line, with
    all that is known, and names unchanged.
    """
    from coregw.cli.entries import listed, members, place_of

    with client(gateway) as opened:
        place = place_of(opened, root_of(root), path_of(path))
        for name, entry in listed(opened, place, recursive):
            if as_json:
                print_json({"name": name, **members(opened, entry)})
            else:
                click.echo(_line(opened, name, entry, is_long, with_cids))


def _line(opened: Client, name: str, entry: FolderEntry, is_long: bool, with_cids: bool) -> str:
    from coregw.cli.entries import file_mode, link_target, modified, size_of

    known = entry.attributes
    size = size_of(opened, entry)
    columns = [f"{size if size is not None else '-':>12}"]
    shown = printable(name) + ("/" if entry.kind in ("folder", "map") else "")
    if is_long:
        columns.insert(0, file_mode(entry))
        columns.append(modified(known.mtime_ns) if known is not None and known.mtime_ns is not None else f"{'-':<19}")
        if known is not None and known.link is not None:
            shown += f" -> {link_target(known.link)}"
    if with_cids:
        columns.append(f"{entry.target or '-':<65}")
    return "  ".join([*columns, shown])
