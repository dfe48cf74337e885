"""``coregw verify``: verify a folder, or a saved request and result, offline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from coregw.cli.common import (
    as_added_option,
    interruptible,
    json_option,
    printable,
    reasons,
    report_left_out,
    root_of,
    show_result,
    survey_options,
)
from coregw.cli.framework import click

if TYPE_CHECKING:
    from coregw._core import ReadOutcome, Scan
    from coregw.client.query import Query
    from coregw.folders.tree import Level

__all__ = ["verify_command"]

_MAX_BYTES = 64 << 20
_COMPARED = {
    "whole": "names, bytes, links, modes, times, and mode and time of the folder itself",
    "all": "names, bytes, links, modes, times",
    "no-times": "names, bytes, links, modes",
    "exec": "names, bytes, links, exec bits",
    "none": "names and bytes",
}


@click.command("verify", short_help="Verify a folder, or a saved proof, without a gateway.")
@click.argument("arguments", metavar="ROOT DIR|FILE | FILE", type=click.Path(readable=False), nargs=-1, required=True)
@click.option(
    "--attributes",
    type=click.Choice(["whole", "all", "no-times", "exec", "none"]),
    help="What ROOT must record besides the bytes, as for `coregw hash`; by default, any of these.",
)
@click.option("--owner", is_flag=True, help="ROOT also records the numeric ids of owner and group.")
@click.option("--xattrs", is_flag=True, help="ROOT also records extended attributes.")
@survey_options
@as_added_option
@json_option
@interruptible()
def verify_command(
    arguments: tuple[str, ...],
    attributes: Level | None,
    owner: bool,
    xattrs: bool,
    exclude: tuple[str, ...],
    gitignore: bool,
    as_added: bool,
    as_json: bool,
) -> None:
    """Verify offline that a folder is the one that a root names, or that a saved result is proven.

    ROOT DIR: DIR, or a single FILE, must have exactly what ROOT names, with the attributes that it records; those of
    DIR itself only if ROOT was added with --attributes whole. Whatever else is in DIR is a difference: .git, ignored
    and special files, too. What cannot be read fails. `coregw diff ROOT DIR` says what differs.

    `coregw add` leaves out .git, special files, and what .coregwignore files exclude (with --gitignore, .gitignore
    files as well). With --as-added these may be in DIR, and are named on stderr; but only by patterns in files that
    ROOT names with the bytes that they have.

    FILE alone holds {"request": ..., "result": ...}; "-" is stdin.

    FILE is the output of `coregw resolve --json`, or a request for a read, map proof or scan with its result (for an
    absent key or index, the details of the 404). Prints what is proven if the root in the request is trusted. If the
    content of FILE is invalid in any way, the exit code is 3.
    """
    if len(arguments) == 2:
        from coregw.errors import ProofError
        from coregw.folders.tree import check_tree

        if gitignore and not as_added:
            raise click.UsageError("--gitignore is for --as-added: otherwise no file of DIR says what is verified")
        try:
            verified = check_tree(
                root_of(arguments[0]),
                arguments[1],
                attributes=attributes,
                owner=owner,
                xattrs=xattrs,
                exclude=exclude,
                gitignore=gitignore,
                as_added=as_added,
            )
        except ProofError as error:
            step = "coregw diff says what differs"
            if not (owner and xattrs):
                step += "; if it lists nothing, add --owner or --xattrs, which the root was made with"
            message = error.message.replace("; as_added would verify it", "; --as-added would verify it")
            raise ProofError(f"{message}; {step}", check=error.check) from None
        report_left_out(verified.left_out)
        level = verified.level
        compared = _COMPARED[level] + ", owners" * owner + ", extended attributes" * xattrs
        line = f"verified: {printable(arguments[1])} ({compared})"
        show_result(
            as_json,
            line,
            root=root_of(arguments[0]),
            path=arguments[1],
            attributes=level,
            owner=owner,
            xattrs=xattrs,
            left_out=reasons(verified.left_out),
        )
        return
    if len(arguments) > 2:
        raise click.UsageError("verify takes ROOT and DIR, or one FILE")
    from coregw.trust import is_cid

    file = Path(arguments[0])
    if file.is_dir():
        raise click.UsageError(f"{arguments[0]} is a folder: give the root to compare it with before it")
    if is_cid(arguments[0]) and not file.exists():
        raise click.UsageError("a root alone can't be verified: give the folder or file to compare with it after it")
    _verify_file(file, as_json)


def _verify_file(file: Path, as_json: bool) -> None:
    """Verify a saved request and result, and print what is proven."""
    from coregw.errors import InvalidInput, ProofError

    try:
        query, value = _verified(_read(file))
    except InvalidInput as error:
        raise ProofError(f"{file}: {error.message}", check="document") from None
    except ProofError as error:
        raise ProofError(f"{file}: {error.message.removeprefix('not proven: ')}", check=error.check) from None
    lines = "\n".join([f"proven: {query.what}", *_described(value)])
    show_result(as_json, lines, request=msgspec.Raw(query.request), proven=_plain(value))


def _read(file: Path) -> bytes:
    from coregw.errors import TooLarge

    with sys.stdin.buffer if str(file) == "-" else file.open("rb") as opened:
        document = opened.read(_MAX_BYTES + 1)
    if len(document) > _MAX_BYTES:
        raise TooLarge(f"longer than {_MAX_BYTES} bytes")
    return document


def _verified(document: bytes) -> tuple[Query[Any], str | ReadOutcome | Scan | None]:
    """Verify the document. Returns its request and what is proven."""
    from coregw import messages
    from coregw.client.query import SavedProof, saved_query
    from coregw.errors import InvalidInput

    try:
        saved = messages.decode(document, SavedProof)
    except InvalidInput as error:
        why = error.message.removeprefix("the request: ").removeprefix("not a SavedProof: ")
        step = "coregw resolve ROOT PATH --json writes one"
        raise InvalidInput(f"not a saved request and result: {why}; {step}") from None
    query = saved_query(bytes(saved.request))
    return query, query.verify(query.request, bytes(saved.result))


def _plain(value: str | ReadOutcome | Scan | None) -> object:
    """Return a proven value as JSON has it: a CID, null for absence, or an object."""
    return dict(zip(value._fields, value, strict=True)) if isinstance(value, tuple) else value


def _described(value: str | ReadOutcome | Scan | None) -> list[str]:
    """Describe a proven value in lines."""
    from coregw._core import Scan

    if value is None or isinstance(value, str):
        return [f"  {value or 'absent'}"]
    if isinstance(value, Scan):
        lines = [f"  {target}  {printable('/'.join(segments))}" for segments, target in value.entries]
        return [*lines, "  more follow" if value.more else f"  nothing else ({len(lines)} entries)"]
    if not value.present:
        return ["  absent" if value.length is None else f"  absent: the list has {value.length} elements"]
    if value.segments is None or value.sizes is None:
        return [f"  {value.target}"]
    lines = [f"  {target}  {size}" for target, size in zip(value.segments, value.sizes, strict=True)]
    return [*lines, f"  {len(lines)} of {value.length} elements, from {value.offset}, of {value.total_size} in all"]
