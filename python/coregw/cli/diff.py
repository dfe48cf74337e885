"""``coregw diff``: list the differences between two roots, or between a root and a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.exceptions import Exit

from coregw.cli.common import (
    as_added_option,
    counted,
    interruptible,
    printable,
    report_left_out,
    report_skipped,
    root_of,
    survey_options,
    trusted_names,
)
from coregw.cli.entries import modified_exactly
from coregw.cli.framework import click, note
from coregw.cli.gateways import GatewayChoice, client, gateway_option
from coregw.cli.main import EXIT_DIFFERENT
from coregw.errors import InvalidInput
from coregw.text import encode_json

if TYPE_CHECKING:
    from coregw.client import Client
    from coregw.folders.compare import AttributeChange, FolderDifference
    from coregw.folders.tree import Level

__all__ = ["diff_command"]


@click.command("diff", short_help="List the differences between two roots, or a root and a folder.")
@click.argument("a", metavar="ROOT", shell_complete=trusted_names)
@click.argument("b", metavar="ROOT|DIR|FILE", type=click.Path(readable=False))
@click.argument("prefix", default="")
@click.option("--json", "as_json", is_flag=True, help="Print each difference as a line of JSON, with its targets.")
@click.option("--exit-code", "with_exit_code", is_flag=True, help="Exit with code 6 if there are differences.")
@click.option(
    "--attributes",
    type=click.Choice(["whole", "all", "no-times", "exec", "none"]),
    help="What is compared with a folder besides the bytes, as for `coregw hash`; by default, what ROOT records.",
)
@survey_options
@as_added_option
@gateway_option
def diff_command(
    a: str,
    b: str,
    prefix: str,
    gateway: GatewayChoice,
    *,
    as_json: bool,
    with_exit_code: bool,
    attributes: Level | None,
    exclude: tuple[str, ...],
    gitignore: bool,
    as_added: bool,
) -> None:
    """List the differences between two roots, or a root and a folder, at and below PREFIX if it is given.

    Each line is "+" (only in the second), "-" (only in the first) or "~" (different), a path, and for "~" the
    attributes that differ, with both values; "./" is the folder itself. The byte ranges that differ, in whole chunks,
    are listed below a changed file of many chunks. Everything about a root is proven; with exit code 0 the list is
    complete, even if it is empty.
    Between roots, nested maps are not followed: a map inside a map is one target. Control characters are shown as
    escapes; --json shows paths unchanged.

    If the second is not a CID, it is a folder or a file, which is read here; no file of the root is fetched. A folder
    whose name is a CID is written as ./NAME. If there is neither a folder nor a file, it is a trusted name. What cannot
    be compared is reported, and counts as different.

    Everything in the folder is compared, .git, ignored and special files included. With --as-added, what `coregw add`
    leaves out is not, and is named on stderr; but only by patterns in files that ROOT names with the bytes that they
    have.
    """
    show = _json if as_json else _lines
    with interruptible(), client(gateway) as opened:
        a, other = root_of(a), _root(b)
        if other is not None:
            if attributes or exclude or gitignore or as_added:
                names = "--attributes, --exclude, --gitignore and --as-added"
                raise click.UsageError(f"{names} are for a folder, not for two roots")
            found: Iterator[FolderDifference] = opened.diff_folders(a, other, prefix)
            differs = False
        else:
            if gitignore and not as_added:
                raise click.UsageError("--gitignore is for --as-added: otherwise no file of DIR says what is compared")
            options = {"attributes": attributes, "exclude": exclude, "gitignore": gitignore, "as_added": as_added}
            found, differs = _with_folder(opened, a, Path(b), prefix, options)
        for difference in found:
            differs = True
            click.echo(show(difference))
    if differs and with_exit_code:
        raise Exit(EXIT_DIFFERENT)


def _root(text: str) -> str | None:
    """Return the root that an argument names; None for a folder or file, unless its name is a CID."""
    from coregw._core import Cid

    if os.path.lexists(text):
        try:
            return Cid(text).text
        except InvalidInput:
            return None
    try:
        return root_of(text)
    except InvalidInput:
        raise InvalidInput(f"{text!r:.200} is neither a CID, nor a trusted name, nor a folder or file") from None


def _with_folder(
    opened: Client, root: str, path: Path, prefix: str, options: dict[str, Any]
) -> tuple[Iterator[FolderDifference], bool]:
    """Return the differences at and below a prefix, and whether there is something else that can't be compared."""
    from coregw.client.query import segments_of

    above = tuple(segments_of(prefix))
    compared = opened.diff_tree(root, path, **options)
    report_skipped(path, compared.skipped, 0)
    report_left_out(compared.left_out)
    if compared.as_added:
        note(f"with --as-added there is no difference: it leaves out {counted(len(compared.as_added), 'item')}")
    is_unknown = any(each.file.is_relative_to(path.joinpath(*above)) for each in compared.skipped)
    # Of what is below a folder that could not be listed nothing is known.
    is_unknown |= any(
        each.kinds[1] == "other" and above[: len(each.segments)] == each.segments for each in compared.differences
    )
    return (each for each in compared.differences if each.segments[: len(above)] == above), is_unknown


def _lines(difference: FolderDifference) -> str:
    old, new = difference.kinds
    sign = "+" if old is None else "-" if new is None else "~"
    path = printable("/".join(difference.segments) or ".") + ("/" if (new or old) == "folder" else "")
    about = []
    if old is not None and new is not None:
        if old != new:
            about.append(f"{old} → {new}")
        elif difference.attributes and difference.before is not None:
            about.append("content")
        about += [_change(change) for change in difference.attributes]
    lines = [f"{sign} {path}" + (f"  ({', '.join(about)})" if about else "")]
    for before, after in difference.ranges or ():
        lines.append(f"    bytes {before[0]}-{before[1]} → {after[0]}-{after[1]}")
    return "\n".join(lines)


def _change(change: AttributeChange) -> str:
    name = change.name.removesuffix("_ns")
    if name == "xattrs":
        return name
    return f"{name} {_value(name, change.before)} → {_value(name, change.after)}"


def _value(name: str, value: object) -> str:
    if isinstance(value, int):
        if name == "mtime":
            return modified_exactly(value)
        return f"{value:04o}" if name == "mode" else str(value)
    if isinstance(value, tuple):
        return ":".join(map(str, value))
    return printable(value.decode("utf-8", "backslashreplace")) if isinstance(value, bytes) else "-"


def _json(difference: FolderDifference) -> bytes:
    """Format a difference; whatever is absent or does not apply is left out."""
    old, new = difference.kinds
    line: dict[str, object] = {"segments": difference.segments}
    if {old, new} - {None, "file"}:
        line["kinds"] = difference.kinds
    if difference.before is not None:
        line["before"] = difference.before
    if difference.after is not None:
        line["after"] = difference.after
    if difference.attributes:
        line["attributes"] = {
            change.name: [_plain(change.before), _plain(change.after)] for change in difference.attributes
        }
    if difference.ranges is not None:
        line["ranges"] = difference.ranges
    return encode_json(line)


def _plain(value: object) -> object:
    """Extended attributes in hexadecimal; the target of a link as text, its other bytes as escapes."""
    if isinstance(value, dict):
        return {name: content.hex() for name, content in value.items()}
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
