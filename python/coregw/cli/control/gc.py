"""``coregw gc``: remove from a store what nothing keeps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coregw.cli.common import json_option
from coregw.cli.control.connection import data_option, find_control
from coregw.cli.control.display import print_result, shown_progress
from coregw.cli.framework import click
from coregw.text import duration

if TYPE_CHECKING:
    from coregw.messages.maintenance import GarbageCollected

__all__ = ["command"]


@click.command("gc")
@data_option
@click.option("--dry-run", is_flag=True, help="Only count what would be removed, and list its roots.")
@click.option(
    "--grace", type=click.IntRange(0), help="Keep what is younger than this, in seconds; as configured by default."
)
@click.option(
    "--revisions", type=click.IntRange(0), help="Keep this many revisions of each published name; 0 keeps all."
)
@click.option("--drop-trusted", is_flag=True, help="Do not keep the roots that your trusted names stand for.")
@json_option
def command(
    data: Path, dry_run: bool, grace: int | None, revisions: int | None, drop_trusted: bool, as_json: bool
) -> None:
    """Collect garbage: remove roots that nothing needs, and unreachable pages and payloads.

    Keeps published and pinned roots, those that your trusted names stand for (`coregw root list`), everything that was
    stored or confirmed during the grace period, and everything reachable from these. On a terminal, asks before it
    removes roots that are younger than seven days. Works whether or not a gateway runs on the store, and may be stopped
    at any time.
    """
    from coregw.gateway.settings import GRACE_SECONDS
    from coregw.trust.store import TrustStore

    asked = {
        "dry_run": dry_run,
        "grace_seconds": grace,
        "revisions": revisions,
        "keep": [] if drop_trusted else [each.root for each in TrustStore().names().values()],
        "ask_seconds": 0 if dry_run or not (sys.stdin.isatty() and sys.stderr.isatty()) else int(GRACE_SECONDS),
    }
    result = _run(data, asked, as_json=as_json)
    if young := result["young_roots"]:
        if not as_json:
            _show_roots(result)
        click.confirm(
            f"{young:,} of {result['roots_removed']:,} roots that would be removed are younger than seven days. "
            "Remove them?",
            abort=True,
            err=True,
        )
        result = _run(data, asked | {"ask_seconds": 0}, as_json=as_json)
    if not as_json:
        if dry_run:
            _show_roots(result)
            result = {name.replace("_removed", "_that_would_be_removed"): value for name, value in result.items()}
        result = {name: value for name, value in result.items() if name not in ("listed_roots", "young_roots")}
    print_result(result, as_json=as_json)


def _show_roots(result: dict[str, Any]) -> None:
    """Print the roots that would be removed, one a line."""
    for each in result["listed_roots"]:
        click.echo(f"would remove {each['root']}, {duration(each['age_seconds'])} old")
    if further := result["roots_removed"] - len(result["listed_roots"]):
        click.echo(f"and {further:,} more")


def _run(data: Path, asked: dict[str, Any], *, as_json: bool) -> dict[str, Any]:
    with shown_progress("gc", as_json=as_json) as show:
        control = find_control(data)
        if control is None:
            return _collect(data, asked, show)
        with control:
            return control.run("gc", asked, show)


def _collect(data: Path, asked: dict[str, Any], show: Any) -> dict[str, Any]:  # noqa: ANN401 - see `Control.run`
    import asyncio

    import msgspec

    from coregw._core import Cid
    from coregw.cli.control.direct import opened_store
    from coregw.gateway.settings import Settings
    from coregw.upkeep.gc import collect_garbage

    settings = Settings.load(strict=False)
    grace, revisions = asked["grace_seconds"], asked["revisions"]

    async def run() -> GarbageCollected:
        async with opened_store(data, reads_only=asked["dry_run"]) as store:
            return await collect_garbage(
                store,
                grace_seconds=settings.gc_grace_seconds if grace is None else grace,
                revisions=settings.gc_revisions if revisions is None else revisions,
                dry_run=asked["dry_run"],
                report=lambda progress: show(msgspec.to_builtins(progress)),
                keep=[bytes(Cid(root)) for root in asked["keep"]],
                ask_seconds=asked["ask_seconds"],
            )

    result: dict[str, Any] = msgspec.to_builtins(asyncio.run(run()))
    return result
