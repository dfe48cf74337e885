"""``coregw tree``: draw a folder with all that is in it, proven to be complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coregw.cli.common import counted_all, json_option, path_of, printable, root_of, trusted_names
from coregw.cli.framework import click, print_json
from coregw.cli.gateways import GatewayChoice, client, gateway_option

if TYPE_CHECKING:
    from coregw.client import Client
    from coregw.folders.attributes import FolderEntry

__all__ = ["command"]


@click.command("tree")
@click.argument("root", shell_complete=trusted_names)
@click.argument("path", default="")
@click.option("-L", "--level", type=click.IntRange(1), help="Show no more than this many levels.")
@json_option
@gateway_option
def command(root: str, path: str, level: int | None, as_json: bool, gateway: GatewayChoice) -> None:
    """Draw the folder at PATH in ROOT with all files, links and folders below it.

    The listing is proven, and proven to be complete, nested maps included; no file is fetched. The last line counts
    everything, whether it is shown or not. --json prints one object: the counts, and in "entries" what is in the folder
    by name, as with `ls --json`; folders have their own "entries".
    """
    from coregw.cli.entries import FolderPlace, listed, place_of

    top = _Folder()
    counts = {"file": 0, "link": 0}
    total = 0
    with client(gateway) as opened:
        segments = path_of(path)
        place = place_of(opened, root_of(root), segments)
        for name, entry in listed(opened, place, recursive=True):
            _insert(top, name.split("/"), entry)
            if entry.kind in counts:
                counts[entry.kind] += 1
            known = entry.attributes
            total += known.size if known is not None and known.size is not None else 0
        folders = sum(1 for _ in _folders(top))
        if as_json:
            _print_json(opened, top, level, folders=folders, files=counts["file"], links=counts["link"], bytes=total)
            return
    if isinstance(place, FolderPlace):
        click.echo(printable("/".join(segments)) + "/" if segments else root)
        for line in _drawn(top, level, ""):
            click.echo(line)
    else:
        click.echo(_named(place.segments[-1], place))
    click.echo()
    click.echo(counted_all((folders, "folder"), (counts["file"], "file"), (counts["link"], "link"), (total, "byte")))


def _print_json(opened: Client, top: _Folder, level: int | None, **counts: int) -> None:
    print_json({**counts, "entries": _members(opened, top, level)})


def _members(opened: Client, top: _Folder, levels: int | None) -> dict[str, object]:
    """Return what is in a folder by name, for JSON."""
    from coregw.cli.entries import members

    shown: dict[str, object] = {}
    for name, below in sorted(top.items()):
        if not isinstance(below, _Folder):
            shown[name] = members(opened, below)
            continue
        about: dict[str, object] = {"kind": "folder"} if below.entry is None else members(opened, below.entry)
        if levels is None or levels > 1:
            about["entries"] = _members(opened, below, None if levels is None else levels - 1)
        shown[name] = about
    return shown


class _Folder(dict[str, "_Folder | FolderEntry"]):
    """The names in a folder.

    Attributes:
        entry: What is recorded of the folder itself; None if nothing is.
    """

    entry: FolderEntry | None = None


def _insert(top: _Folder, names: list[str], entry: FolderEntry) -> None:
    """Put an entry at its place; folders above it are made."""
    at = top
    for name in names[:-1]:
        below = at.get(name)
        if not isinstance(below, _Folder):
            below = at[name] = _Folder()
        at = below
    if entry.kind in ("folder", "map"):
        folder = at.get(names[-1])
        if not isinstance(folder, _Folder):
            folder = at[names[-1]] = _Folder()
        folder.entry = entry
    else:
        at[names[-1]] = entry


def _folders(top: _Folder) -> Iterator[_Folder]:
    for below in top.values():
        if isinstance(below, _Folder):
            yield below
            yield from _folders(below)


def _drawn(top: _Folder, levels: int | None, indent: str) -> Iterator[str]:
    """Yield the lines of a folder: those of folders below it follow their names."""
    names = sorted(top)
    for name in names:
        below = top[name]
        is_last = name == names[-1]
        yield indent + ("└── " if is_last else "├── ") + _named(name, below)
        if isinstance(below, _Folder) and (levels is None or levels > 1):
            deeper = None if levels is None else levels - 1
            yield from _drawn(below, deeper, indent + ("    " if is_last else "│   "))


def _named(name: str, what: _Folder | FolderEntry) -> str:
    """Return the name of a folder, file or link as it is drawn."""
    from coregw.cli.entries import link_target

    if isinstance(what, _Folder):
        return printable(name) + "/"
    known = what.attributes
    return printable(name) + (f" -> {link_target(known.link)}" if known is not None and known.link is not None else "")
