"""``coregw heal``: restore what a repair could not copy, from another gateway or a CAR file."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.exceptions import Exit

from coregw.cli import EXIT_DAMAGED
from coregw.cli.common import counted
from coregw.cli.control.connection import data_option, find_control, json_option
from coregw.cli.control.display import shown_progress
from coregw.cli.framework import click
from coregw.errors import CoregwError, Unavailable

if TYPE_CHECKING:
    from coregw.upkeep.integrity.findings import CheckResult
    from coregw.upkeep.integrity.heal import Wanted

__all__ = ["command"]

Show = Callable[[dict[str, Any]], None]


@click.command("heal")
@click.option("--from", "source", required=True, metavar="URL|FILE", help="Another gateway, or a CAR file.")
@data_option
@json_option
def command(source: str, data: Path, as_json: bool) -> None:
    """Restore what a store has lost from another gateway or a CAR file, checked against its CIDs.

    What is missing is what "coregw fsck" names: roots that lack pages, and payloads that a repair could not copy. A
    gateway may be running on the store, or none. Exit codes: 0 nothing is missing any more; 4 something still is.
    """
    import msgspec

    from coregw.upkeep.integrity.heal import wanted

    with shown_progress("heal", as_json=as_json) as show:
        missing = wanted(_checked(data, show))
        with _directory(data) as directory:
            refused = _fetch(source, missing, directory, show)
            restored = _restore(data, directory, show) if any(directory.iterdir()) else {"roots": [], "payloads": []}
        left = wanted(_checked(data, show))
    refused += restored.get("refused", [])
    result = {
        "restored": {"roots": restored["roots"], "payloads": restored["payloads"]},
        "missing": msgspec.to_builtins(left),
        "refused": refused,
    }
    if as_json:
        click.echo(msgspec.json.encode(result).decode())
    else:
        _show(result)
    raise Exit(EXIT_DAMAGED if left.roots or left.payloads else 0)


def _checked(data: Path, show: Show) -> CheckResult:
    import msgspec

    from coregw.upkeep.integrity.check import check_database
    from coregw.upkeep.integrity.files import readable

    with readable(data) as database:
        return check_database(database, lambda progress: show(msgspec.to_builtins(progress)))


@contextmanager
def _directory(data: Path) -> Iterator[Path]:
    """Make a directory for what is fetched, in the data directory, where the gateway can read it."""
    from coregw.upkeep.integrity.files import HEALING, fresh_directory

    directory = fresh_directory(data, HEALING)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _fetch(source: str, missing: Wanted, directory: Path, show: Show) -> list[str]:
    """Fetch what is missing into a directory; the reasons why something was not fetched."""
    from coregw.upkeep.integrity.heal import CAR_SUFFIX

    if not source.startswith(("http://", "https://")):
        shutil.copyfile(source, directory / f"{Path(source).stem}{CAR_SUFFIX}")
        return []
    from coregw.client import Client

    refused: list[str] = []
    with Client(source) as client:
        for number, cid in enumerate([*missing.roots, *missing.payloads]):
            total = len(missing.roots) + len(missing.payloads)
            show({"step": "fetching", "done": number, "total": total, "unit": "objects"})
            try:
                if number < len(missing.roots):
                    client.export_car(cid, directory / f"{cid}{CAR_SUFFIX}", payloads=True)
                else:
                    client.save_payload(cid, directory / cid)
            except Unavailable:
                raise
            except CoregwError as error:
                refused.append(f"{cid}: {error.message}")
    return refused


def _restore(data: Path, directory: Path, show: Show) -> dict[str, Any]:
    """Store what was fetched, by way of the gateway that runs on the store, or without one."""
    import msgspec

    control = find_control(data)
    if control is not None:
        with control:
            return control.run("heal", {"directory": directory.name}, show)
    from coregw.upkeep.integrity.heal import restore_here

    restored = asyncio.run(restore_here(data, directory, lambda progress: show(msgspec.to_builtins(progress))))
    built: dict[str, Any] = msgspec.to_builtins(restored)
    return built


def _show(result: dict[str, Any]) -> None:
    for kind in ("roots", "payloads"):
        for cid in result["restored"][kind]:
            click.echo(f"restored: {cid}")
        for cid in result["missing"][kind]:
            click.echo(f"missing: {cid}")
    for reason in result["refused"]:
        click.echo(f"refused: {reason}")
    missing = len(result["missing"]["roots"]) + len(result["missing"]["payloads"])
    click.echo("nothing is missing" if not missing else f"{counted(missing, 'object')} missing")
