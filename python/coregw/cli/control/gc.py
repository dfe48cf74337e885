"""``coregw gc``: remove from a store what nothing keeps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coregw.cli.common import json_option
from coregw.cli.control.connection import data_option, find_control
from coregw.cli.control.display import print_result, shown_progress
from coregw.cli.framework import click

if TYPE_CHECKING:
    from coregw.messages.maintenance import GarbageCollected

__all__ = ["command"]


@click.command("gc")
@data_option
@click.option("--dry-run", is_flag=True, help="Only count what would be removed.")
@click.option(
    "--grace", type=click.IntRange(0), help="Keep what is younger than this, in seconds; as configured by default."
)
@click.option(
    "--revisions", type=click.IntRange(0), help="Keep this many revisions of each published name; 0 keeps all."
)
@json_option
def command(data: Path, dry_run: bool, grace: int | None, revisions: int | None, as_json: bool) -> None:
    """Collect garbage: remove roots that nothing needs, and unreachable pages and payloads.

    Keeps published and pinned roots, everything that was stored or confirmed during the grace period, and everything
    reachable from these. Works whether or not a gateway runs on the store, and may be stopped at any time.
    """
    asked = {"dry_run": dry_run, "grace_seconds": grace, "revisions": revisions}
    with shown_progress("gc", as_json=as_json) as show:
        control = find_control(data)
        if control is None:
            result = _collect(data, asked, show)
        else:
            with control:
                result = control.run("gc", asked, show)
    if dry_run and not as_json:
        result = {name.replace("_removed", "_that_would_be_removed"): value for name, value in result.items()}
    print_result(result, as_json=as_json)


def _collect(data: Path, asked: dict[str, Any], show: Any) -> dict[str, Any]:  # noqa: ANN401 - see `Control.run`
    import asyncio

    import msgspec

    from coregw.cli.control.direct import opened_store
    from coregw.gateway.settings import Settings
    from coregw.upkeep.gc import collect_garbage

    settings = Settings.load(strict=False)
    grace, revisions = asked["grace_seconds"], asked["revisions"]

    async def run() -> GarbageCollected:
        async with opened_store(data) as store:
            return await collect_garbage(
                store,
                grace_seconds=settings.gc_grace_seconds if grace is None else grace,
                revisions=settings.gc_revisions if revisions is None else revisions,
                dry_run=asked["dry_run"],
                report=lambda progress: show(msgspec.to_builtins(progress)),
            )

    result: dict[str, Any] = msgspec.to_builtins(asyncio.run(run()))
    return result
