"""``coregw stat``: all that a root proves and records of one path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coregw.cli.common import json_option, path_of, printable, root_of, trusted_names
from coregw.cli.framework import click, print_json
from coregw.cli.gateways import GatewayChoice, client, gateway_option

if TYPE_CHECKING:
    from coregw.client import Client
    from coregw.folders.attributes import FolderEntry

__all__ = ["command"]


@click.command("stat")
@click.argument("root", shell_complete=trusted_names)
@click.argument("path", default="")
@json_option
@gateway_option
def command(root: str, path: str, as_json: bool, gateway: GatewayChoice) -> None:
    """Show what PATH in ROOT is: its target, which is proven, and size, mode and time as its creator recorded them.

    No file is fetched. An empty PATH means ROOT itself.
    """
    from coregw.cli.entries import file_mode, members, modified_exactly

    with client(gateway) as opened:
        base = root_of(root)
        segments = path_of(path)
        entry, proof_bytes = _entry(opened, base, segments)
        shown = {"path": "/".join(segments), **members(opened, entry)}
    if proof_bytes is not None:
        shown["proof_bytes"] = proof_bytes
    if as_json:
        print_json(shown)
        return
    if "mode" in shown:
        shown["mode"] = f"{shown['mode']} ({file_mode(entry)})"
    if entry.attributes is not None and entry.attributes.mtime_ns is not None:
        del shown["mtime_ns"]
        shown["mtime"] = f"{modified_exactly(entry.attributes.mtime_ns)} UTC"
    shown["path"] = printable(str(shown["path"])) or "(the root)"
    width = max(map(len, shown))
    for name, value in shown.items():
        click.echo(f"{name.replace('_', ' '):<{width}}  {value}")


def _entry(opened: Client, root: str, segments: list[str]) -> tuple[FolderEntry, int | None]:
    """Return what is at a path, and the size of the proof of its target; None for what has no target of its own."""
    from coregw._core import Cid
    from coregw.client.folders.levels import folder_record
    from coregw.client.query import resolve
    from coregw.errors import UnprovenAbsence
    from coregw.folders.attributes import FolderEntry

    path = tuple(segments)
    known = folder_record(opened, root, segments) if segments and Cid(root).kind == "map" else None
    try:
        proven = opened.query(resolve(root, segments))
    except UnprovenAbsence:
        if known is None:
            opened.locate(root, segments)  # raises a proven absence
        return FolderEntry(path, "link" if known is not None and known.kind == "link" else "folder", None, known), None
    is_map = Cid(proven.value).kind == "map"
    return FolderEntry(path, "map" if is_map else "file", proven.value, known), len(proven.result)
