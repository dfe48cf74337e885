"""``coregw put``, ``rm``, ``mv`` and ``update``: a root with changed paths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coregw.cli.add import send
from coregw.cli.common import (
    attribute_options,
    interruptible,
    json_option,
    path_of,
    report_skipped,
    root_of,
    show_result,
    survey_options,
    trusted_names,
)
from coregw.cli.framework import LOCAL_PATH, click
from coregw.cli.gateways import GatewayChoice, client, gateway_option

if TYPE_CHECKING:
    from coregw.client import Client
    from coregw.folders.tree import Level

__all__ = ["mv_command", "put_command", "rm_command", "update_command"]


@click.command("mv", short_help="Move a file or a folder in a root.")
@click.argument("root", shell_complete=trusted_names)
@click.argument("old")
@click.argument("new")
@json_option
@gateway_option
def mv_command(root: str, old: str, new: str, as_json: bool, gateway: GatewayChoice) -> None:
    """Move OLD to NEW in the folder with the root ROOT, and print the new root.

    If NEW is a folder, OLD is moved into it. A file or link at NEW is replaced. No content is sent. ROOT itself is
    unchanged and stays readable.
    """
    from coregw.client.folders.edit import move_path

    with client(gateway) as opened:
        changed = move_path(opened, root_of(root), path_of(old), path_of(new))
    show_result(as_json, changed, root=changed)


@click.command("put", short_help="Put a file or a folder at a path in a root.")
@click.argument("root", shell_complete=trusted_names)
@click.argument("source", metavar="FILE|DIR", type=LOCAL_PATH)
@click.argument("path", default="")
@survey_options
@attribute_options
@json_option
@gateway_option
@interruptible()
def put_command(
    root: str,
    source: Path,
    path: str,
    as_json: bool,
    gateway: GatewayChoice,
    *,
    attributes: Level,
    owner: bool,
    xattrs: bool,
    exclude: tuple[str, ...],
    gitignore: bool,
) -> None:
    """Put a file or a folder at PATH in the folder with the root ROOT, and print the new root.

    If PATH is missing, ends in "/", or is a folder, the file or folder goes into it under its own name. Existing files
    with the same paths are replaced; other files in a folder stay. A folder with nothing to put is an error. ROOT
    itself is unchanged and stays readable.
    """
    from coregw._core import Cid
    from coregw.client.folders.edit import is_folder, put_tree
    from coregw.client.folders.names import check_new_path
    from coregw.folders.tree import Recorded

    base, place = root_of(root), path_of(path)
    check_new_path(place)  # before anything is sent
    suite = Cid(base).suite or "sha2-256"
    added = send(source, gateway, suite, Recorded(attributes, owner, xattrs), exclude, gitignore)
    report_skipped(source, added.skipped, added.files)
    name = source.name if source.name not in ("", "..") else source.resolve().name
    with client(gateway) as opened:
        if not path or path.endswith("/") or is_folder(opened, base, place):
            place.append(name)
        changed = put_tree(opened, base, place, added.root, name=None if source.is_dir() else name)
    show_result(as_json, changed, root=changed, path="/".join(place), files=added.files, bytes=added.bytes)


@click.command("rm", short_help="Remove files and folders from a root.")
@click.argument("root", shell_complete=trusted_names)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("-r", "--recursive", is_flag=True, help="Remove folders and everything in them.")
@json_option
@gateway_option
def rm_command(root: str, paths: tuple[str, ...], recursive: bool, as_json: bool, gateway: GatewayChoice) -> None:
    """Remove files, links and folders from the folder with the root ROOT, and print the new root.

    Either all are removed or none. ROOT itself is unchanged and stays readable until it is collected as garbage.
    """
    from coregw.client.folders.edit import remove_paths

    with client(gateway) as opened:
        changed = remove_paths(opened, root_of(root), [path_of(path) for path in paths], recursive=recursive)
    show_result(as_json, changed, root=changed)


@click.command("update", short_help="Bind and remove paths of a map.")
@click.argument("root", shell_complete=trusted_names)
@click.option("--set", "new", type=(str, str), multiple=True, metavar="PATH CID", help="Bind PATH to CID; repeatable.")
@click.option("--remove", "removed", multiple=True, metavar="PATH", help="Remove PATH; repeatable.")
@json_option
@gateway_option
def update_command(
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
    from coregw.folders.tree import ATTRIBUTES_PATH

    reserved = "/".join(ATTRIBUTES_PATH)
    (attributes,) = opened.prove_keys(root, [reserved])
    if attributes is None or Cid(attributes).kind != "map" or reserved in paths:
        return root
    return change_folder(opened, root, {}, dict.fromkeys(tuple(segments_of(path)) for path in paths))
