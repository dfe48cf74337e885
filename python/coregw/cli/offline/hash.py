"""``coregw hash``: the root of a folder or a file, without a gateway."""

from __future__ import annotations

from pathlib import Path

from coregw.cli.common import counted, progress, report_skipped, suite_option
from coregw.cli.framework import click

__all__ = ["command"]


@click.command("hash", short_help="Print the root of a folder, without a gateway.")
@click.argument("path", metavar="DIR|FILE", type=click.Path(path_type=Path))
@suite_option
def command(path: Path, suite: str) -> None:
    """Print the root that `coregw add` gives a folder or a file, computed offline on all cores.

    Nothing is sent or stored. What is skipped is reported, as by `coregw add`. `coregw verify ROOT DIR` compares.
    """
    from coregw.folders.survey import survey
    from coregw.folders.tree import hash_survey

    found = survey(path)
    with progress(f"hashing {counted(len(found.sources), 'file')}") as (set_total, advance):
        set_total(found.total_bytes)
        hashed = hash_survey(found, suite, advance)
    report_skipped(path, hashed.skipped)
    click.echo(f"coregw: hashed {counted(len(hashed.arcs), 'file')}, {counted(hashed.bytes, 'byte')}", err=True)
    click.echo(hashed.root)
