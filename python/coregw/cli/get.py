"""``coregw get``: write the verified tree of a root to a folder, or update one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coregw.cli.common import (
    counted,
    few_collections,
    interruptible,
    json_option,
    printable,
    progress,
    root_of,
    show_result,
    trusted_names,
)
from coregw.cli.framework import LOCAL_PATH, click, continue_by, note
from coregw.cli.gateways import GatewayChoice, async_client, gateway_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from coregw.client.folders.restore import Restored, RestorePlan

    Bar = tuple[Callable[[int | None], None], Callable[[int], None]]

__all__ = ["get_command"]


@click.command("get", short_help="Write the verified tree of ROOT to a folder, or update one.")
@click.argument("root", shell_complete=trusted_names)
@click.argument("dest", type=LOCAL_PATH)
@click.option("--delete", is_flag=True, help="Delete what is in DEST but not in the tree, unless `add` leaves it out.")
@click.option("--delete-excluded", is_flag=True, help="Delete also what `coregw add` leaves out.")
@click.option("--exclude", metavar="PATTERN", multiple=True, help="With --delete: spare what matches (repeatable).")
@click.option("--gitignore", is_flag=True, help="With --delete: spare also what .gitignore files exclude.")
@click.option("-n", "--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@click.option(
    "--in-place", is_flag=True, help="Fill a new DEST file by file, so that a failed attempt can be continued."
)
@click.option(
    "--links",
    type=click.Choice(["inside", "all"]),
    default="inside",
    show_default=True,
    help="Which symbolic links to make: those that stay inside DEST, or every one as it is recorded.",
)
@click.option("--allow-git", is_flag=True, help="Change what is in a .git that is in DEST.")
@click.option("--owner", is_flag=True, help="Restore owners, and set-uid and set-gid bits.")
@click.option("--xattrs", is_flag=True, help="Restore extended attributes; as root, those of users only (user.*).")
@click.option("--xattr", "xattr_names", metavar="NAME", multiple=True, help="Restore this extended attribute as well.")
@click.option("--cache/--no-cache", "use_cache", default=True, help="Whether to read only files that have changed.")
@json_option
@gateway_option
def get_command(root: str, dest: Path, gateway: GatewayChoice, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - click's
    """Write the tree of ROOT to the folder DEST.

    The listing and every byte are verified. If a path cannot be a file here ("." and "..", NUL, path separators, a file
    that is also a folder), or if names clash on this file system, the command fails and names them, before it writes
    anything to a DEST with content. So does a tree with more bytes than are free on the disk.

    Symbolic links that lead out of DEST are skipped and reported, and so are those that may do so when other links
    change: the target of another link is not left by "..". --links all makes every link as it is recorded, for who
    trusts the tree. What is in a .git in DEST is changed with --allow-git only: git runs programs that it names.

    A new or empty DEST gets the whole tree or nothing. In any other DEST, files with the right bytes stay, and each of
    the others is replaced when its new version is complete. Files that are not in the tree stay, unless --delete is
    given. After a failure or a kill, the same command continues.

    --delete spares what `coregw add` leaves out: .git, and what patterns in the .coregwignore files of DEST exclude. To
    `coregw verify`, DEST is the tree after --delete-excluded; if something was spared, with --as-added.

    Changes that were made in DEST are lost where the tree has other bytes. To see that before, --dry-run prints "+"
    (new), "~" (replaced) or "-" (deleted) and a path for each file, link or empty folder, and for folders that would be
    deleted; it compares no attributes, and fetches no file. What --json prints then has these paths in place of
    numbers.

    Files that have not changed since the last run, by their inodes, sizes and times, are not read, unless --no-cache is
    given.
    """
    import asyncio

    if options["dry_run"]:
        with interruptible(), progress("comparing the tree") as bar:
            plan = asyncio.run(_plan(gateway, root_of(root), dest, options, bar))
        _show(plan, dest, as_json)
        return
    is_kept = options["in_place"] or (dest.is_dir() and any(dest.iterdir()))
    continue_by("the same command continues" if is_kept else "with --in-place, the next attempt would continue")
    with interruptible(), few_collections(), progress("getting the tree") as bar:
        done = asyncio.run(_get(gateway, root_of(root), dest, options, bar))
    for each in done.skipped:
        note(f"skipped {printable(str(each.file))}: {each.why}")
    replaced = f" ({counted(done.replaced, 'file')} replaced)" if done.replaced else ""
    kept = f", kept {counted(done.kept, 'file')}" if done.kept else ""
    deleted = f", deleted {counted(done.deleted, 'item')}" if done.deleted else ""
    wrote = f"wrote {counted(done.files, 'file')}, {counted(done.bytes, 'byte')} to {dest}{replaced}"
    note(f"{wrote}{kept}{deleted}")
    skipped = {str(each.file): each.why for each in done.skipped}
    show_result(
        as_json,
        None,
        files=done.files,
        bytes=done.bytes,
        replaced=done.replaced,
        kept=done.kept,
        deleted=done.deleted,
        skipped=skipped,
    )


def _show(plan: RestorePlan, dest: Path, as_json: bool) -> None:
    skipped = {str(each.file): each.why for each in plan.skipped}
    paths = {"created": plan.created, "replaced": plan.replaced, "deleted": plan.deleted}
    if as_json:
        named = {what: ["/".join(path) for path in found] for what, found in paths.items()}
        show_result(True, None, **named, kept=plan.kept, skipped=skipped)
        return
    lines = [(path, sign) for sign, found in zip("+~-", paths.values(), strict=True) for path in found]
    for path, sign in sorted(lines):
        click.echo(f"{sign} {printable('/'.join(path))}")
    for file, why in skipped.items():
        note(f"would skip {printable(file)}: {why}")
    numbers = ", ".join(f"{len(found):,} {what}" for what, found in paths.items())
    note(f"{dest} would have {numbers}, {plan.kept:,} kept; nothing was changed")


async def _plan(gateway: GatewayChoice, root: str, dest: Path, options: dict[str, Any], bar: Bar) -> RestorePlan:
    from coregw.client.folders.restore import plan_restore

    async with async_client(gateway) as client:
        return await plan_restore(client, root, dest, **_shared(dest, options, bar))


async def _get(gateway: GatewayChoice, root: str, dest: Path, options: dict[str, Any], bar: Bar) -> Restored:
    from coregw.client.folders.destination import Extras
    from coregw.client.folders.restore import restore_folder

    extras = Extras(options["owner"], options["xattrs"], options["xattr_names"])
    async with async_client(gateway) as client:
        shared = _shared(dest, options, bar)
        return await restore_folder(client, root, dest, in_place=options["in_place"], extras=extras, **shared)


def _shared(dest: Path, options: dict[str, Any], bar: Bar) -> dict[str, Any]:
    """Return the arguments of a restore that its plan has as well."""
    from coregw.client.folders.restore import Deletion
    from coregw.folders.caches import RestoreCache

    set_total, advance = bar
    excluded = options["delete_excluded"]
    delete = Deletion(excluded, options["exclude"], options["gitignore"]) if options["delete"] or excluded else None
    cache = RestoreCache.of(dest) if options["use_cache"] else None
    chosen = {name: options[name] for name in ("links", "allow_git")}
    return {**chosen, "delete": delete, "cache": cache, "started": set_total, "progress": advance}
