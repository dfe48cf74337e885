"""``coregw hash``: the root of a folder or a file, without a gateway."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from coregw.cli.common import counted, progress

__all__ = ["command"]


@click.command("hash", short_help="Print the root of a folder, without a gateway.")
@click.argument("path", metavar="DIR|FILE", type=click.Path(path_type=Path))
@click.option(
    "--suite",
    type=click.Choice(["sha2-256", "blake3"]),
    default="sha2-256",
    show_default=True,
    help="Hash function of the trees.",
)
def command(path: Path, suite: str) -> None:
    """Print the root that `coregw add` gives a folder or a file, computed offline on all cores.

    Nothing is sent or stored. What is skipped is reported, as by `coregw add`. `coregw verify ROOT DIR` compares.
    """
    from coregw.errors import InvalidInput
    from coregw.folders.survey import survey
    from coregw.folders.tree import hash_survey
    from coregw.text import display_name

    found = survey(path)
    with progress(f"hashing {counted(len(found.sources), 'file')}") as (set_total, advance):
        set_total(found.total_bytes)
        hashed = hash_survey(found, suite, advance)
    if hashed.skipped and not path.is_dir():
        raise InvalidInput(f"{display_name(path)}: {hashed.skipped[0].why}")
    for skipped in sorted(hashed.skipped):
        click.echo(f"coregw: skipped {display_name(skipped.file)}: {skipped.why}", err=True)
    click.echo(f"coregw: hashed {counted(len(hashed.arcs), 'file')}, {counted(hashed.bytes, 'byte')}", err=True)
    click.echo(hashed.root)
