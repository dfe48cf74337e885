"""``coregw ls``: list a map or a folder in it, proven to be complete."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from coregw.cli.common import GatewayChoice, client, gateway_option, printable, root_of
from coregw.cli.framework import click

if TYPE_CHECKING:
    from coregw.client import Client
    from coregw.folders.attributes import FolderEntry

__all__ = ["command"]

_TYPES = {"file": stat.S_IFREG, "link": stat.S_IFLNK, "folder": stat.S_IFDIR, "map": stat.S_IFDIR}
_MAX_NESTING = 16


@click.command("ls")
@click.argument("root")
@click.argument("path", default="")
@click.option("-R", "--recursive", is_flag=True, help="List all files, links and folders below PATH.")
@click.option("-l", "--long", "is_long", is_flag=True, help="Show modes, times (UTC) and the targets of links.")
@click.option("--cid", "with_cids", is_flag=True, help="Show the CID of each target.")
@gateway_option
def command(root: str, path: str, recursive: bool, is_long: bool, with_cids: bool, gateway: GatewayChoice) -> None:
    """List one level of the folder or file at PATH in ROOT.

    Each line is a size in bytes and a name; "-" for a size that is not recorded. Folders and nested maps end in "/".
    The listing is proven, and proven to be complete; sizes, modes and times are what the creator of ROOT recorded, and
    no file is fetched. Control characters in names are shown as escapes.
    """
    with client(gateway) as opened:
        for name, entry in _entries(opened, root_of(root), path, recursive):
            click.echo(_line(opened, name, entry, is_long, with_cids))


def _entries(opened: Client, root: str, path: str, recursive: bool) -> Iterator[tuple[str, FolderEntry]]:
    """What is listed, with the names that are shown."""
    from coregw._core import Cid
    from coregw.client.folders.levels import folder_level, folder_record
    from coregw.client.query import segments_of
    from coregw.errors import UnprovenAbsence
    from coregw.folders.attributes import FolderEntry

    segments = segments_of(path)
    known = folder_record(opened, root, segments) if segments and Cid(root).kind == "map" else None
    try:
        target, prefix = opened.locate(root, path)
    except UnprovenAbsence:
        if known is None or known.kind == "file":
            raise
        target, prefix = root, segments
    if Cid(target).kind != "map" or (known is not None and known.kind == "link"):
        is_link = known is not None and known.kind == "link"
        name = segments[-1] if segments else target
        yield name, FolderEntry((name,), "link" if is_link else "file", None if is_link else target, known)
    elif recursive:
        for found, entry in _tree(opened, target, tuple(prefix), (), 0):
            yield "/".join(found[len(prefix) :]) or found[-1], entry
    else:
        for entry in folder_level(opened, target, prefix):
            yield entry.segments[-1], entry


def _tree(
    opened: Client, root: str, prefix: tuple[str, ...], above: tuple[str, ...], depth: int
) -> Iterator[tuple[tuple[str, ...], FolderEntry]]:
    """Everything below a folder, nested maps included, with paths from the top."""
    from coregw.client.folders.levels import folder_tree
    from coregw.errors import InvalidInput

    if depth > _MAX_NESTING:
        raise InvalidInput(f"{'/'.join(above)!r}: maps nest deeper than {_MAX_NESTING}")
    for entry in folder_tree(opened, root, prefix):
        if entry.kind == "map" and entry.target is not None:
            yield from _tree(opened, entry.target, (), above + entry.segments, depth + 1)
        elif entry.segments != prefix or entry.kind != "folder":
            yield above + entry.segments, entry


def _line(opened: Client, name: str, entry: FolderEntry, is_long: bool, with_cids: bool) -> str:
    known = entry.attributes
    columns = [f"{_size(opened, entry):>12}"]
    shown = printable(name) + ("/" if entry.kind in ("folder", "map") else "")
    if is_long:
        mode = known.mode if known is not None and known.mode is not None else None
        text = stat.filemode(_TYPES[entry.kind] | (mode or 0))
        columns.insert(0, text if mode is not None else text[0] + "?????????" if entry.kind != "link" else "lrwxrwxrwx")
        columns.append(_time(known.mtime_ns) if known is not None and known.mtime_ns is not None else f"{'-':<19}")
        if known is not None and known.link is not None:
            shown += f" -> {printable(os.fsdecode(known.link).encode('utf-8', 'backslashreplace').decode())}"
    if with_cids:
        columns.append(f"{entry.target or '-':<65}")
    return "  ".join([*columns, shown])


def _size(opened: Client, entry: FolderEntry) -> str:
    from coregw._core import Cid

    if entry.attributes is not None and entry.attributes.size is not None:
        return str(entry.attributes.size)
    if entry.target is not None and Cid(entry.target).kind == "list":
        return str(opened.list_size(entry.target))
    return "-"


def _time(mtime_ns: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=mtime_ns // 1000)
    return moment.strftime("%Y-%m-%d %H:%M:%S")
