"""``coregw pin``: name roots that garbage collection keeps."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coregw.cli.common import json_option, root_of, trusted_names
from coregw.cli.control.connection import data_option, find_control
from coregw.cli.control.display import print_result
from coregw.cli.framework import click

if TYPE_CHECKING:
    from coregw.upkeep.pins import Pins

__all__ = ["command"]

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
def command(
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

    from coregw.cli.control.direct import opened_store
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
        raise click.BadParameter(f"{text!r} is neither a duration such as 30d nor a time in ISO 8601") from None


def _print_pins(pins: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_result({"pins": pins}, as_json=True)
        return
    for pin in pins:
        ends = pin["expires_at"]
        state = "" if ends is None else f"  {'expired' if pin['has_expired'] else 'until'} {ends}"
        click.echo(f"{pin['name']}  {pin['root']}{state}")
