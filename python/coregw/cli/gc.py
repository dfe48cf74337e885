"""``coregw gc`` and ``coregw pin``: what a store keeps."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coregw.cli.common import json_option, root_of, trusted_names
from coregw.cli.control import data_option, find_control
from coregw.cli.framework import click
from coregw.cli.progress import print_result, shown_progress
from coregw.text import duration

if TYPE_CHECKING:
    from coregw.messages.management import GarbageCollected
    from coregw.upkeep.pins import Pins

__all__ = ["gc_command", "pin_command"]


@click.command("gc")
@data_option
@click.option("--dry-run", is_flag=True, help="Only count what would be removed, and list its roots.")
@click.option(
    "--grace",
    type=click.IntRange(0),
    metavar="SECONDS",
    help="Keep what is younger than this; as configured by default.",
)
@click.option(
    "--revisions", type=click.IntRange(0), help="Keep this many revisions of each published name; 0 keeps all."
)
@click.option("--drop-trusted", is_flag=True, help="Do not keep the roots that your trusted names stand for.")
@json_option
def gc_command(
    data: Path, dry_run: bool, grace: int | None, revisions: int | None, drop_trusted: bool, as_json: bool
) -> None:
    """Collect garbage: remove roots that nothing needs, and unreachable pages and payloads.

    Keeps published and pinned roots, those that your trusted names stand for (`coregw root list`), everything that was
    stored or confirmed during the grace period, and everything reachable from these. On a terminal, asks before it
    removes roots that are younger than seven days. Works whether or not a gateway runs on the store, and may be stopped
    at any time.
    """
    from coregw.gateway.settings import GRACE_SECONDS
    from coregw.trust import TrustStore

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
    from coregw.cli.control import opened_store
    from coregw.gateway.limits.machine import gc_filter_bytes
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
                filter_bytes=gc_filter_bytes(settings),
            )

    result: dict[str, Any] = msgspec.to_builtins(asyncio.run(run()))
    return result


_DURATION: Final = re.compile(r"([0-9]{1,6})([smhd])")

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@click.command("pin")
@click.argument("root", required=False, shell_complete=trusted_names)
@data_option
@click.option("--name", help="Name of the pin; the root by default. An existing pin of this name moves to this root.")
@click.option(
    "--expires", metavar="WHEN", help="When the pin expires: a duration such as 12h or 30d, or a time in ISO 8601."
)
@click.option("--list", "is_listed", is_flag=True, help="List all pins instead.")
@click.option("--remove", metavar="NAME", help="Remove a pin instead.")
@json_option
def pin_command(
    root: str | None,
    data: Path,
    name: str | None,
    expires: str | None,
    is_listed: bool,
    remove: str | None,
    as_json: bool,
) -> None:
    """Pin ROOT: keep it, and everything reachable from it, although it is not published.

    Garbage collection (`coregw gc`) keeps pinned roots until their pins are removed or expire.
    """
    if [root is not None, is_listed, remove is not None].count(True) != 1:
        raise click.UsageError("give a ROOT, --list, or --remove NAME")
    if root is None and (name is not None or expires is not None):
        raise click.UsageError("--name and --expires belong to a ROOT")
    if is_listed:
        pins = _do(data, lambda pins: pins.all(), "pins", None)
        _print_pins(pins if isinstance(pins, list) else pins["pins"], as_json=as_json)
    elif remove is not None:
        print_result(_do(data, lambda pins: pins.remove(remove), "pins/remove", {"name": remove}), as_json=as_json)
    else:
        ends = None if expires is None else _time(expires)
        pinned = root_of(str(root))
        asked = {"root": pinned, "name": name, "expires_at": None if ends is None else ends.isoformat()}
        print_result(_do(data, lambda pins: pins.add(pinned, name, ends), "pins", asked), as_json=as_json)


def _do(data: Path, offline: Callable[[Pins], Awaitable[object]], path: str, body: dict[str, Any] | None) -> Any:  # noqa: ANN401 - JSON
    """Ask the gateway that runs on the store, or do it on the store itself."""
    control = find_control(data)
    if control is not None:
        with control:
            return control.get(path) if body is None else control.post(path, body)
    import asyncio

    import msgspec

    from coregw.cli.control import opened_store
    from coregw.upkeep.pins import Pins

    async def run() -> object:
        async with opened_store(data, reads_only=path == "pins" and body is None) as store:
            return await offline(Pins(store))

    return msgspec.to_builtins(asyncio.run(run()))


def _time(text: str) -> datetime:
    match = _DURATION.fullmatch(text)
    try:
        if match is not None:
            return datetime.now(UTC) + timedelta(**{_UNITS[match[2]]: int(match[1])})
        return datetime.fromisoformat(text).astimezone(UTC)
    except (OverflowError, ValueError):
        problem = f"{text!r} is neither a duration such as 30d nor a time in ISO 8601"
        raise click.BadParameter(problem, param_hint="--expires") from None


def _print_pins(pins: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_result({"pins": pins}, as_json=True)
        return
    for pin in pins:
        ends = pin["expires_at"]
        state = "" if ends is None else f"  {'expired' if pin['has_expired'] else 'until'} {ends}"
        click.echo(f"{pin['name']}  {pin['root']}{state}")
