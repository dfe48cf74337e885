"""``coregw add`` and ``coregw hash``: the root of a folder or a file, with and without a gateway."""

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
from coregw.cli.framework import LOCAL_PATH, click, continue_by, note
from coregw.cli.gateways import GatewayChoice, async_client, gateway_option

if TYPE_CHECKING:
    from coregw.client.folders.add import Added
    from coregw.folders.tree import Level, Recorded

__all__ = ["add_command", "hash_command", "send"]


@click.command("add")
@click.argument("path", metavar="DIR|FILE", type=LOCAL_PATH)
@survey_options
@attribute_options
@suite_option
@json_option
@gateway_option
@click.option("--cache/--no-cache", "use_cache", default=True, help="Whether to read only files that have changed.")
@interruptible()
def add_command(
    path: Path,
    suite: str,
    as_json: bool,
    gateway: GatewayChoice,
    *,
    use_cache: bool,
    attributes: Level,
    owner: bool,
    xattrs: bool,
    exclude: tuple[str, ...],
    gitignore: bool,
) -> None:
    """Add a folder, or one file, and print its root.

    Each file becomes a payload, or a list of chunks if it is larger than 256 KiB; the folder becomes a map from paths
    to files, with a second map of links, modes, times and folders. A single file becomes a map with its name.

    Files that match patterns of --exclude or of .coregwignore files are excluded, and so is .git. Patterns are those of
    git; a file of patterns that cannot be read or parsed is an error. Special files, unreadable files, and extended
    attributes that no root can have, are reported and skipped; an unreadable single FILE is an error. A name that is
    not UTF-8 is an error. Every CID and the root are computed locally and compared with the gateway's.
    """
    from coregw.folders.tree import Recorded

    recorded = Recorded(attributes, owner, xattrs)
    continue_by("the same command continues: what the gateway has acknowledged is not sent again")
    added = send(path, gateway, suite, recorded, exclude, gitignore, use_cache=use_cache)
    report_skipped(path, added.skipped, added.files)
    left_out = f", {len(added.skipped):,} skipped" if added.skipped else ""
    note(f"added {counted(added.files, 'file')}, {counted(added.bytes, 'byte')}{left_out}")
    show_result(
        as_json, added.root, root=added.root, files=added.files, bytes=added.bytes, skipped=reasons(added.skipped)
    )


def send(
    path: Path,
    gateway: GatewayChoice,
    suite: str,
    recorded: Recorded,
    exclude: tuple[str, ...],
    gitignore: bool,
    *,
    use_cache: bool = True,
) -> Added:
    """Add a folder or a file, and show the progress on stderr. Raises as `coregw.client.folders.add.add_folder`."""
    import asyncio

    from coregw.client.folders.add import AddProgress, add_path

    async def add(callbacks: AddProgress) -> Added:
        async with async_client(gateway) as client:
            return await add_path(
                client,
                path,
                suite=suite,
                recorded=recorded,
                exclude=exclude,
                gitignore=gitignore,
                use_cache=use_cache,
                progress=callbacks,
            )

    with progress("adding") as (set_total, advance):
        total = 0

        def sending(count: int) -> None:
            nonlocal total
            total += count
            set_total(total)

        return asyncio.run(add(AddProgress(lambda found: sending(found.bytes), advance, sending, advance)))


@click.command("hash", short_help="Print the root of a folder, without a gateway.")
@click.argument("path", metavar="DIR|FILE", type=LOCAL_PATH)
@survey_options
@attribute_options
@suite_option
@json_option
@interruptible()
def hash_command(
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
    from coregw.folders.tree import Recorded, hash_survey, survey

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
