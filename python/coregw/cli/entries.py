"""``coregw ls``, ``tree``, ``stat``, ``cat`` and ``resolve``: what is at the paths of a root."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from coregw.cli.common import counted_all, json_option, path_of, printable, root_of, trusted_names
from coregw.cli.framework import click, print_json
from coregw.cli.gateways import GatewayChoice, client, gateway_option
from coregw.durability import reported_as

if TYPE_CHECKING:
    from coregw.client import Client
    from coregw.folders.tree import FolderEntry

__all__ = [
    "FolderPlace",
    "cat_command",
    "file_mode",
    "link_target",
    "listed",
    "located",
    "ls_command",
    "members",
    "modified",
    "modified_exactly",
    "place_of",
    "resolve_command",
    "size_of",
    "stat_command",
    "tree_command",
    "tree_of",
]

_TYPES = {"file": stat.S_IFREG, "link": stat.S_IFLNK, "folder": stat.S_IFDIR, "map": stat.S_IFDIR}


def located(opened: Client, root: str, segments: list[str]) -> tuple[str, list[str]]:
    """Locate a path that has no target of its own, as `Client.locate` does.

    Raises:
        InvalidInput: A symbolic link or an empty folder is there, which only has attributes.
        PathNotFound: Nothing is at the path, which is proven.
    """
    from coregw._core import Cid
    from coregw.client.folders.paths import folder_record
    from coregw.errors import InvalidInput, PathNotFound

    try:
        return opened.locate(root, segments)
    except PathNotFound:
        known = folder_record(opened, root, segments) if segments and Cid(root).kind == "map" else None
        if known is None or known.kind == "file":
            raise
    if known.link is None:
        what = "an empty folder"
    else:
        what = f"a symbolic link to {link_target(known.link)}, which is not followed"
    raise InvalidInput(f"{printable('/'.join(segments))} is {what}")


class FolderPlace(NamedTuple):
    """A folder: the paths of a map that begin with a prefix."""

    root: str
    prefix: list[str]


def place_of(opened: Client, root: str, segments: list[str]) -> FolderPlace | FolderEntry:
    """Return what is at a path, through nested maps: a folder, or the file or link, named by the last segment.

    Raises:
        PathNotFound: Nothing is at the path, which is proven.
    """
    from coregw._core import Cid
    from coregw.client.folders.paths import folder_record
    from coregw.errors import PathNotFound
    from coregw.folders.tree import FolderEntry

    known = folder_record(opened, root, segments) if segments and Cid(root).kind == "map" else None
    try:
        target, prefix = opened.locate(root, segments)
    except PathNotFound:
        if known is None or known.kind == "file":
            raise
        target, prefix = root, segments
    is_link = known is not None and known.kind == "link"
    if Cid(target).kind == "map" and not is_link:
        return FolderPlace(target, prefix)
    name = segments[-1] if segments else target
    return FolderEntry((name,), "link" if is_link else "file", None if is_link else target, known)


def listed(opened: Client, place: FolderPlace | FolderEntry, recursive: bool) -> Iterator[tuple[str, FolderEntry]]:
    """Yield what is listed of a place, with the names that are shown."""
    from coregw.client.folders.paths import folder_level

    if not isinstance(place, FolderPlace):
        yield place.segments[-1], place
    elif recursive:
        for found, entry in tree_of(opened, place.root, tuple(place.prefix)):
            yield "/".join(found[len(place.prefix) :]) or found[-1], entry
    else:
        for entry in folder_level(opened, place.root, place.prefix):
            yield entry.segments[-1], entry


def tree_of(
    opened: Client, root: str, prefix: tuple[str, ...], above: tuple[str, ...] = (), depth: int = 0
) -> Iterator[tuple[tuple[str, ...], FolderEntry]]:
    """Yield everything below a folder, nested maps included, with paths from the top.

    Raises:
        InvalidInput: Maps nest deeper than ``ClientSettings.max_nesting``.
    """
    from coregw.client.folders.paths import folder_tree
    from coregw.errors import InvalidInput

    if depth > opened.settings.max_nesting:
        raise InvalidInput(f"{'/'.join(above)!r}: maps nest deeper than {opened.settings.max_nesting}")
    for entry in folder_tree(opened, root, prefix):
        if entry.kind == "map" and entry.target is not None:
            yield from tree_of(opened, entry.target, (), above + entry.segments, depth + 1)
        elif entry.segments != prefix or entry.kind != "folder":
            yield above + entry.segments, entry


def members(opened: Client, entry: FolderEntry) -> dict[str, object]:
    """Return what is known of an entry, for JSON; what is unknown is left out."""
    known = entry.attributes
    shown: dict[str, object] = {
        "kind": entry.kind,
        "target": entry.target,
        "size": size_of(opened, entry),
        "mode": None if known is None or known.mode is None else f"{known.mode:04o}",
        "mtime_ns": None if known is None else known.mtime_ns,
        "link": None if known is None or known.link is None else link_target(known.link),
        "owner": None if known is None else known.owner,
        "xattrs": {name: value.hex() for name, value in known.xattrs.items()} if known and known.xattrs else None,
    }
    return {name: value for name, value in shown.items() if value is not None}


def file_mode(entry: FolderEntry) -> str:
    """Return type and mode as in ``ls -l``, with question marks for a mode that is not recorded."""
    mode = entry.attributes.mode if entry.attributes is not None else None
    if entry.kind == "link":
        return "lrwxrwxrwx"
    text = stat.filemode(_TYPES[entry.kind] | (mode or 0))
    return text if mode is not None else text[0] + "?????????"


def size_of(opened: Client, entry: FolderEntry) -> int | None:
    """Return the size in bytes: as recorded, or the proven length of a list of chunks; None if neither is known."""
    from coregw._core import Cid

    if entry.attributes is not None and entry.attributes.size is not None:
        return entry.attributes.size
    if entry.target is not None and Cid(entry.target).kind == "list":
        return opened.list_size(entry.target)
    return None


def modified(mtime_ns: int) -> str:
    """Return a time in UTC, to the second."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=mtime_ns // 1000)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def modified_exactly(mtime_ns: int) -> str:
    """Return a time in UTC, to the nanosecond."""
    return f"{modified(mtime_ns)}.{mtime_ns % 1_000_000_000:09}"


def link_target(link: bytes) -> str:
    """Return the target of a symbolic link as text that can be shown; bytes that are not text are escapes."""
    return printable(os.fsdecode(link).encode("utf-8", "backslashreplace").decode())


@click.command("ls")
@click.argument("root", shell_complete=trusted_names)
@click.argument("path", default="")
@click.option("-R", "--recursive", is_flag=True, help="List all files, links and folders below PATH.")
@click.option("-l", "--long", "is_long", is_flag=True, help="Show modes, times (UTC) and the targets of links.")
@click.option("--cid", "with_cids", is_flag=True, help="Show the CID of each target.")
@json_option
@gateway_option
def ls_command(
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


@click.command("tree")
@click.argument("root", shell_complete=trusted_names)
@click.argument("path", default="")
@click.option("-L", "--level", type=click.IntRange(1), help="Show no more than this many levels.")
@json_option
@gateway_option
def tree_command(root: str, path: str, level: int | None, as_json: bool, gateway: GatewayChoice) -> None:
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


@click.command("stat")
@click.argument("root", shell_complete=trusted_names)
@click.argument("path", default="")
@json_option
@gateway_option
def stat_command(root: str, path: str, as_json: bool, gateway: GatewayChoice) -> None:
    """Show what PATH in ROOT is: its target, which is proven, and size, mode and time as its creator recorded them.

    No file is fetched. An empty PATH means ROOT itself, of which a mode and a time are recorded with `--attributes
    whole`.
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
    from coregw.client.folders.paths import folder_record
    from coregw.client.query import resolve
    from coregw.errors import UnprovenAbsence
    from coregw.folders.tree import FolderEntry

    path = tuple(segments)
    known = folder_record(opened, root, segments) if segments and Cid(root).kind == "map" else None
    try:
        proven = opened.query(resolve(root, segments))
    except UnprovenAbsence:
        if known is None:
            opened.locate(root, segments)  # raises a proven absence
        return FolderEntry(path, "link" if known is not None and known.kind == "link" else "folder", None, known), None
    is_map = Cid(proven.value).kind == "map"
    if is_map:
        known = folder_record(opened, proven.value, ()) or known
    return FolderEntry(path, "map" if is_map else "file", proven.value, known), len(proven.result)


@click.command("cat", short_help="Write the verified bytes of a file to stdout.")
@click.argument("root", shell_complete=trusted_names)
@click.argument("path")
@click.option("--json", is_flag=True, hidden=True, expose_value=False, callback=lambda *given: _no_json(given[2]))
@gateway_option
def cat_command(root: str, path: str, gateway: GatewayChoice) -> None:
    """Write the bytes of the file at PATH in ROOT to stdout.

    The path from ROOT to the file is proven, and the bytes are hashed before they are written. A list is written chunk
    by chunk, so after a failure the output is correct but incomplete. An empty PATH means ROOT itself.
    """
    with client(gateway) as opened:
        for chunk in opened.contents(_target(opened, root_of(root), path_of(path))):
            with reported_as("<stdout>"):
                sys.stdout.buffer.write(chunk)
        with reported_as("<stdout>"):
            sys.stdout.buffer.flush()


def _no_json(asked: bool) -> None:
    if asked:
        raise click.UsageError("cat writes the bytes of a file: coregw stat ROOT PATH --json describes it")


def _target(opened: Client, root: str, segments: list[str]) -> str:
    from coregw._core import Cid
    from coregw.errors import InvalidInput, UnprovenAbsence

    try:
        return opened.resolve(root, segments)
    except UnprovenAbsence:
        from coregw.cli.entries import located

        target, below = located(opened, root, segments)
    if below or Cid(target).kind == "map":
        raise InvalidInput(f"{printable('/'.join(segments))} is a folder: list it with coregw ls")
    return target


@click.command("resolve")
@click.argument("root", shell_complete=trusted_names)
@click.argument("path")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the request and the result with its proof, as input for `coregw verify`.",
)
@gateway_option
def resolve_command(root: str, path: str, as_json: bool, gateway: GatewayChoice) -> None:
    """Print the CID of the target of PATH in ROOT.

    It is proven that PATH leads to this target, but not that it leads to no other; or it is proven that PATH leads
    nowhere. An empty PATH means ROOT itself.
    """
    from coregw.client import query
    from coregw.errors import InvalidInput, UnprovenAbsence

    base, segments = root_of(root), path_of(path)
    with client(gateway) as opened:
        try:
            proven = opened.query(query.resolve(base, segments))
        except UnprovenAbsence:
            from coregw.cli.entries import located

            located(opened, base, segments)
            shown = printable("/".join(segments))
            raise InvalidInput(f"{shown} is a folder without a target: list it with coregw ls") from None
    click.echo(proven.saved() if as_json else proven.value)
