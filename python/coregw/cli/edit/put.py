"""``coregw put``: put a file or a folder of this machine at a path of a root."""

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
    from coregw.folders.tree import Level

__all__ = ["command"]


@click.command("put", short_help="Put a file or a folder at a path in a root.")
@click.argument("root", shell_complete=trusted_names)
@click.argument("source", metavar="FILE|DIR", type=LOCAL_PATH)
@click.argument("path", default="")
@survey_options
@attribute_options
@json_option
@gateway_option
@interruptible()
def command(
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
