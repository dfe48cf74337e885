"""``coregw hash``: the root of a folder or a file, without a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coregw.cli.common import (
    attribute_options,
    counted,
    interruptible,
    json_option,
    progress,
    reasons,
    report_skipped,
    show_result,
    suite_option,
    survey_options,
)
from coregw.cli.framework import LOCAL_PATH, click, note

if TYPE_CHECKING:
    from coregw.folders.tree import Level

__all__ = ["command"]


@click.command("hash", short_help="Print the root of a folder, without a gateway.")
@click.argument("path", metavar="DIR|FILE", type=LOCAL_PATH)
@survey_options
@attribute_options
@suite_option
@json_option
@interruptible()
def command(
    path: Path,
    suite: str,
    attributes: Level,
    owner: bool,
    xattrs: bool,
    exclude: tuple[str, ...],
    gitignore: bool,
    as_json: bool,
) -> None:
    """Print the root that `coregw add` gives a folder or a file, computed offline on all cores.

    Nothing is sent or stored. Skipped files are reported, as by `coregw add`. Files that match patterns of --exclude or
    of .coregwignore files are excluded without a report, and so is .git. `coregw verify ROOT DIR` compares a folder
    with a root.
    """
    from coregw.folders.survey import survey
    from coregw.folders.tree import Recorded, hash_survey

    recorded = Recorded(attributes, owner, xattrs)
    found = survey(path, exclude, gitignore)
    with progress(f"hashing {counted(found.files, 'file')}") as (set_total, advance):
        set_total(found.bytes)
        hashed = hash_survey(found, suite, recorded, advance)
    report_skipped(path, hashed.skipped, hashed.files)
    note(f"hashed {counted(hashed.files, 'file')}, {counted(hashed.bytes, 'byte')}")
    show_result(
        as_json, hashed.root, root=hashed.root, files=hashed.files, bytes=hashed.bytes, skipped=reasons(hashed.skipped)
    )
